//! Properties of the filter language over random expressions: the parsed filter has the intended meaning, and no text
//! causes a panic.

use super::Filter;
use crate::{
    family::attention::{self, Point},
    kernel::{Dtype, Features, HeadDim, Target, Variant},
};
use rand::{Rng, RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

/// The intended meaning: a closure over the variant, built together with the text.
type Meaning = Box<dyn Fn(&Variant) -> bool>;

fn pick<T: Copy>(rng: &mut impl Rng, from: &[T]) -> T {
    *from.choose(rng).expect("not empty")
}

/// A random condition on one field, as text and as meaning.
fn condition(rng: &mut ChaCha8Rng) -> (String, Meaning) {
    match rng.random_range(0..5) {
        0 => {
            let limit = rng.random_range(2..33) * 8;
            let (operator, holds): (&str, fn(u32, u32) -> bool) = pick(
                rng,
                &[
                    ("==", |a, b| a == b),
                    ("!=", |a, b| a != b),
                    ("<", |a, b| a < b),
                    ("<=", |a, b| a <= b),
                    (">", |a, b| a > b),
                    (">=", |a, b| a >= b),
                ],
            );
            let field = pick(rng, &["hdim", "head_dim"]);
            (format!("{field}{operator}{limit}"), Box::new(move |v| v.head_dim().is_some_and(|d| holds(d.qk, limit))))
        }
        1 => {
            let dtype = pick(rng, Dtype::ALL);
            let word = pick(rng, &[&[dtype.name()], dtype.aliases()].concat());
            (format!("dtype == {word}"), Box::new(move |v| v.dtype() == Some(dtype)))
        }
        2 => {
            let (a, b) = (pick(rng, Target::ALL), pick(rng, Target::ALL));
            (format!("target in ({a}, '{b}')"), Box::new(move |v| v.target() == a || v.target() == b))
        }
        3 => {
            let target = pick(rng, Target::ALL);
            (format!("target >= {target}"), Box::new(move |v| v.target().compute_capability() >= target.compute_capability()))
        }
        _ => {
            let (word, causal) =
                pick(rng, &[("causal", true), ("full", false), ("mask == full", false), ("name ~ '*_causal_*'", true)]);
            (word.to_owned(), Box::new(move |v| v.causal() == Some(causal)))
        }
    }
}

/// A random expression. Every join is in parentheses, so its meaning does not depend on precedence.
fn expression(rng: &mut ChaCha8Rng, depth: u32) -> (String, Meaning) {
    if depth == 0 || rng.random_bool(0.3) {
        return condition(rng);
    }
    let (left_text, left) = expression(rng, depth - 1);
    match rng.random_range(0..3) {
        0 => (format!("{} ({left_text})", pick(rng, &["not", "!"])), Box::new(move |v| !left(v))),
        1 => {
            let (right_text, right) = expression(rng, depth - 1);
            (format!("({left_text}) {} ({right_text})", pick(rng, &["and", "&&"])), Box::new(move |v| left(v) && right(v)))
        }
        _ => {
            let (right_text, right) = expression(rng, depth - 1);
            (format!("({left_text}) {} ({right_text})", pick(rng, &["or", "||"])), Box::new(move |v| left(v) || right(v)))
        }
    }
}

fn any_variant(rng: &mut ChaCha8Rng) -> Variant {
    Point {
        kind: attention::Kind::Fwd,
        head_dim: HeadDim::equal(rng.random_range(2..33) * 8),
        dtype: pick(rng, Dtype::ALL),
        causal: rng.random(),
        features: pick(rng, &[Features::NONE, Features::all()]),
        target: pick(rng, Target::ALL),
    }
    .into()
}

#[test]
fn a_random_expression_means_what_its_parts_mean() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut seen = [0u32; 2];
    for _ in 0..500 {
        let (text, meaning) = expression(&mut rng, 4);
        let filter: Filter = text.parse().unwrap_or_else(|error| panic!("{error}"));
        for _ in 0..20 {
            let variant = any_variant(&mut rng);
            assert_eq!(filter.matches(&variant), meaning(&variant), "`{text}` on {variant}");
            seen[usize::from(meaning(&variant))] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 1000), "both answers are tried: {seen:?}");
}

#[test]
fn no_text_panics_and_every_error_points_into_it() {
    let pieces = [
        "hdim", "==", "=", "!", "!=", "<", "128", "(", ")", ",", "in", "not", "and", "or", "&&", "|", "'", "\"", "causal",
        "full", "name", "~", "fwd_*", "é", "\n", " ", "dtype", "bf16", "\u{0}", "🙂",
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut refused = 0;
    for _ in 0..5000 {
        let text: String =
            (0..rng.random_range(0..12)).map(|_| [pick(&mut rng, &pieces), pick(&mut rng, &["", " "])].concat()).collect();
        if let Err(error) = text.parse::<Filter>() {
            refused += 1;
            assert!(text.get(error.span()).is_some(), "`{text}` at {:?}", error.span());
            assert!(error.to_string().contains("help:"), "{error}");
        }
    }
    assert!(refused > 4000, "most of these are no filters: {refused}");
}
