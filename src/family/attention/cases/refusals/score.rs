//! Calls that concern declared scores, each with one thing wrong.

use super::{numbers, push};
use crate::{
    check::{Change, Expected::Refused, begin, drop_tensor},
    device::{ERROR_INVALID_VALUE, ERROR_MISMATCH, Header},
    expression::List,
    family::attention::Point,
    family::attention::abi::{SCORE_TABLES, ScoreParams},
};

/// What a kernel with a declared score does otherwise, by the names of the changes: a caller of an earlier version
/// cannot name its score, and its sequences are shorter.
const OTHERWISE_WITH_SCORE: [&str; 4] =
    ["a structure of the first version", "a structure of version 2", "blocks whose number wraps", "rows of a tile that wrap"];

/// Whether a change does with a kernel what its list says.
pub(super) fn holds(variant: Point, change: &Change) -> bool {
    variant.features.score().is_none() || !OTHERWISE_WITH_SCORE.contains(&change.0)
}

/// What a kernel without a declared score does.
const WITHOUT_SCORE: &[Change] = &[
    ("a declared score", |c| numbers(c).features.score.id = 5, Refused(ERROR_MISMATCH, "built without a declared score")),
    (
        "a number for no score",
        |c| numbers(c).features.score.scalars[0] = 1.0,
        Refused(ERROR_INVALID_VALUE, "score.scalars[0] is 1 and must be 0"),
    ),
];

/// What a kernel with one does.
const WITH_SCORE: &[Change] = &[
    (
        "no declared score",
        |c| numbers(c).features.score = ScoreParams::default(),
        Refused(ERROR_MISMATCH, "called with score.id 0000"),
    ),
    ("another declared score", |c| numbers(c).features.score.id ^= 1, Refused(ERROR_MISMATCH, "built with the declared score")),
    ("an earlier structure", |c| begin(c, Header::FirstVersion), Refused(ERROR_MISMATCH, "called with score.id 0000")),
    (
        "too many queries for a score",
        |c| *numbers(c).seqlen_q = (1 << 28) - 1023,
        Refused(ERROR_INVALID_VALUE, "with a declared score"),
    ),
    (
        "too many keys for a score",
        |c| *numbers(c).seqlen_k = (1 << 28) - 1023,
        Refused(ERROR_INVALID_VALUE, "with a declared score"),
    ),
    // What is refused is said in turn: the length is not.
    (
        "as many keys as a score allows, and no k",
        |c| {
            *numbers(c).seqlen_k = (1 << 28) - 1024;
            drop_tensor(c, "k");
        },
        Refused(ERROR_INVALID_VALUE, "must not be NULL"),
    ),
    (
        "a scalar that is no number",
        |c| numbers(c).features.score.scalars[0] = f32::NAN,
        Refused(ERROR_INVALID_VALUE, "score.scalars[0] must be finite"),
    ),
    (
        "an infinite scalar",
        |c| numbers(c).features.score.scalars[7] = f32::NEG_INFINITY,
        Refused(ERROR_INVALID_VALUE, "score.scalars[7] must be finite"),
    ),
    (
        "a scalar too many",
        |c| numbers(c).features.score.scalars[7] = 2.0,
        Refused(ERROR_INVALID_VALUE, "score.scalars[7] is 2 and must be 0"),
    ),
    (
        "a large integer",
        |c| numbers(c).features.score.integers[0] = (1 << 28) + 1,
        Refused(ERROR_INVALID_VALUE, "its magnitude must not exceed 2^28"),
    ),
    (
        "a large negative integer",
        |c| numbers(c).features.score.integers[7] = -(1 << 28) - 1,
        Refused(ERROR_INVALID_VALUE, "its magnitude must not exceed 2^28"),
    ),
    (
        "an integer too many",
        |c| numbers(c).features.score.integers[7] = -1,
        Refused(ERROR_INVALID_VALUE, "score.integers[7] is -1 and must be 0"),
    ),
    ("a table too many", |c| push(c, SCORE_TABLES[3]), Refused(ERROR_INVALID_VALUE, "score.tables[3] must be NULL")),
];

const WITH_TABLES: &[Change] =
    &[("no table", |c| drop_tensor(c, SCORE_TABLES[0]), Refused(ERROR_INVALID_VALUE, "score.tables[0] must not be NULL"))];

/// Where an integer divides.
const WITH_DIVISOR: &[Change] = &[(
    "a divisor of 0",
    |c| numbers(c).features.score.integers = [0; 8],
    Refused(ERROR_INVALID_VALUE, "is 0; the score divides by it"),
)];

/// What concerns declared scores.
pub(super) fn of_score(variant: Point) -> Vec<&'static [Change]> {
    let Some(score) = variant.features.score() else { return vec![WITHOUT_SCORE] };
    let divides = score.score.iter().chain(&score.mask).any(|expr| !expr.divisors().is_empty());
    let tables = if score.names.names(List::Tables).is_empty() { &[] } else { WITH_TABLES };
    vec![WITH_SCORE, tables, if divides { WITH_DIVISOR } else { &[] }]
}
