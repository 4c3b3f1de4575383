//! Helpers shared by the tests of this module: declared names, texts as trees, random expressions and random values.

use super::{At, Declared, Expr, Goal, List, check, parse};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

pub(super) fn random(test: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(test)
}

/// The names that every test expression may use.
pub(super) fn names() -> Declared {
    let mut declared = Declared::default();
    for (list, name) in [
        (List::Scalars, "a"),
        (List::Scalars, "c"),
        (List::Scalars, "decay"),
        (List::Integers, "n"),
        (List::Integers, "m"),
        (List::Tables, "slope"),
    ] {
        declared.declare(list, name).unwrap();
    }
    declared
}

#[track_caller]
pub(super) fn expression(goal: Goal, text: &str) -> Expr {
    Expr::parse(text, &names(), goal).unwrap_or_else(|error| panic!("{error}"))
}

/// An integer expression as written, without simplification.
#[track_caller]
pub(super) fn integer(text: &str) -> Expr {
    let text = format!("{text} == 0");
    let syntax = parse::parse(&text).unwrap();
    match check::check(&syntax, &text, &names(), Goal::Mask).unwrap() {
        Expr::Binary(_, value, _) => *value,
        other => panic!("{other:?}"),
    }
}

fn one_of(random: &mut ChaCha8Rng, from: &[&str]) -> String {
    (*from.choose(random).expect("not empty")).to_owned()
}

/// A random text of a real expression.
pub(super) fn real(random: &mut ChaCha8Rng, depth: u32) -> String {
    if depth == 0 || random.random_bool(0.15) {
        return match random.random_range(0..8) {
            0..4 => "s".to_owned(),
            4 => one_of(random, &["a", "c", "decay", "slope[h]"]),
            5 => format!("{:?}", f64::from(random.random_range(1..40)) / 8.0),
            6 => one_of(random, &["0.0", "1.0", "2.5e-1", "-1.5", "0.1"]),
            _ => whole(random, 1),
        };
    }
    let less = depth - 1;
    let mut next = || real(random, less);
    let (a, b) = (next(), next());
    match random.random_range(0..15) {
        0..3 => format!("({a}) + ({b})"),
        3..5 => format!("({a}) - ({b})"),
        5..8 => format!("({a}) * ({b})"),
        8 => format!("({a}) / (({b}) - 0.3)"),
        9 => format!("-({a})"),
        10 => format!("{}({a}, {b})", one_of(random, &["min", "max"])),
        11 => format!("abs({a})"),
        12 => format!("tanh({a})"),
        13 => format!("{}(({a}) / 64)", one_of(random, &["exp", "log"])),
        _ => format!("select({}, {a}, {b})", condition(random, less, true)),
    }
}

/// A random text of an integer expression.
pub(super) fn whole(random: &mut ChaCha8Rng, depth: u32) -> String {
    if depth == 0 || random.random_bool(0.2) {
        return match random.random_range(0..4) {
            0 => one_of(random, &["q", "k"]),
            1 => one_of(random, &["q", "k", "h", "b", "seqlen_q", "seqlen_k"]),
            2 => one_of(random, &["n", "m"]),
            _ => random.random_range(0..12).to_string(),
        };
    }
    let less = depth - 1;
    let (a, b) = (whole(random, less), whole(random, less));
    match random.random_range(0..10) {
        0..2 => format!("({a}) + ({b})"),
        2..4 => format!("({a}) - ({b})"),
        4 => format!("({a}) * {}", random.random_range(0..100)),
        5 => format!("({a}) {} {}", one_of(random, &["//", "%"]), one_of(random, &["n", "m", "2", "3", "5"])),
        6 => format!("{}({a}, {b})", one_of(random, &["min", "max"])),
        7 => format!("abs({a})"),
        8 => format!("-({a})"),
        _ => format!("select({}, {a}, {b})", condition(random, less, false)),
    }
}

/// A random text of a condition, for use in a score (with `s`) or in a mask.
pub(super) fn condition(random: &mut ChaCha8Rng, depth: u32, of_score: bool) -> String {
    let less = depth.saturating_sub(1);
    if depth == 0 || random.random_bool(0.4) {
        if of_score && random.random_bool(0.5) {
            let relation = one_of(random, &["<", "<=", ">", ">="]);
            return format!("{} {relation} {}", real(random, less.min(1)), one_of(random, &["s", "a", "0.5"]));
        }
        let relation = one_of(random, &["<", "<=", ">", ">=", "==", "!="]);
        return format!("{} {relation} {}", whole(random, less.min(2)), whole(random, less.min(2)));
    }
    let mut next = || condition(random, less, of_score);
    let (a, b) = (next(), next());
    match random.random_range(0..6) {
        0..2 => format!("({a}) and ({b})"),
        2..4 => format!("({a}) or ({b})"),
        4 => format!("not ({a})"),
        _ => format!("select({}, {a}, {b})", condition(random, less, of_score)),
    }
}

fn within_length(mut draw: impl FnMut() -> String, goal: Goal) -> Expr {
    loop {
        // A random text may exceed the parser's limits.
        let text = draw();
        if text.len() <= 1000 {
            return expression(goal, &text);
        }
    }
}

pub(super) fn random_score(random: &mut ChaCha8Rng, depth: u32) -> Expr {
    within_length(|| real(random, depth), Goal::Score)
}

pub(super) fn random_mask(random: &mut ChaCha8Rng, depth: u32) -> Expr {
    within_length(|| condition(random, depth, false), Goal::Mask)
}

/// Values of all variables and names.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub s: f64,
    pub q: i64,
    pub k: i64,
    pub h: usize,
    pub b: usize,
    pub seqlen_q: usize,
    pub seqlen_k: usize,
    pub scalars: Vec<f64>,
    pub integers: Vec<i64>,
    /// The values of the table for all heads, and for this head.
    pub slopes: Vec<f64>,
    pub tables: Vec<f64>,
}

impl Values {
    /// Random values; real numbers are exact in fp32.
    pub fn random(random: &mut ChaCha8Rng) -> Self {
        let mut real = |low: f32, high: f32| f64::from(random.random_range(low..high));
        let (s, scalars) = (real(-6.0, 6.0), vec![real(0.25, 4.0), real(-2.0, 2.0), real(0.01, 1.0)]);
        let slopes = vec![real(0.0, 1.0), real(0.0, 1.0), real(0.0, 1.0)];
        let h = random.random_range(0..3);
        Self {
            s,
            scalars,
            tables: vec![slopes[h]],
            slopes,
            q: random.random_range(-20..60),
            k: random.random_range(0..60),
            h,
            b: random.random_range(0..5),
            seqlen_q: random.random_range(0..60),
            seqlen_k: random.random_range(0..60),
            integers: vec![random.random_range(1..9), random.random_range(1..30)],
        }
    }

    pub fn at(&self) -> At<'_> {
        At {
            s: self.s,
            q: self.q,
            k: self.k,
            h: self.h,
            b: self.b,
            seqlen_q: self.seqlen_q,
            seqlen_k: self.seqlen_k,
            scalars: &self.scalars,
            integers: &self.integers,
            tables: &self.tables,
        }
    }
}
