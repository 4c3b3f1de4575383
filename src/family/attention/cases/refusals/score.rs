//! Invalid calls with declared scores, each with one error.

use super::{numbers, push};
use crate::{
    check::{Change, Expected::Refused, begin, drop_tensor},
    device::{ERROR_INVALID_VALUE, ERROR_MISMATCH, Header},
    expression::List,
    family::attention::Point,
    family::attention::abi::{SCORE_TABLES, ScoreParams},
};

/// Expectations that differ for a kernel with a declared score, by the names of the changes: a caller of an earlier
/// version cannot pass its score, and its maximum sequence length is smaller.
const OTHERWISE_WITH_SCORE: [&str; 4] =
    ["a structure of the first version", "a structure of version 2", "blocks whose number wraps", "rows of a tile that wrap"];

/// True if a change has the expected result for a kernel.
pub(super) fn holds(variant: Point, change: &Change) -> bool {
    variant.features.score().is_none() || !OTHERWISE_WITH_SCORE.contains(&change.0)
}

/// Expectations for a kernel without a declared score.
const WITHOUT_SCORE: &[Change] = &[
    ("a declared score", |c| numbers(c).features.score.id = 5, Refused(ERROR_MISMATCH, "built without a declared score")),
    (
        "a number for no score",
        |c| numbers(c).features.score.scalars[0] = 1.0,
        Refused(ERROR_INVALID_VALUE, "score.scalars[0] is 1 and must be 0"),
    ),
];

/// Expectations for a kernel with a declared score.
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
    // Errors are reported in order, so the length is not reported.
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

/// Expectations if the score divides by an integer.
const WITH_DIVISOR: &[Change] = &[(
    "a divisor of 0",
    |c| numbers(c).features.score.integers = [0; 8],
    Refused(ERROR_INVALID_VALUE, "is 0; the score divides by it"),
)];

/// Expectations that concern declared scores.
pub(super) fn of_score(variant: Point) -> Vec<&'static [Change]> {
    let Some(score) = variant.features.score() else { return vec![WITHOUT_SCORE] };
    let divides = score.score.iter().chain(&score.mask).any(|expr| !expr.divisors().is_empty());
    let tables = if score.names.names(List::Tables).is_empty() { &[] } else { WITH_TABLES };
    vec![WITH_SCORE, tables, if divides { WITH_DIVISOR } else { &[] }]
}
