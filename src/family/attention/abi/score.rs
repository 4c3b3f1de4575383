//! `kgen_declared_score` of `kgen.h`: the user-declared score or mask of a call, and its arguments.

use super::Values;
use crate::device::Field;

/// Maximum number of scalars, and of integers.
const MOST_NUMBERS: usize = 8;

/// Maximum number of tables.
const MOST_TABLES: usize = 4;

/// Names of the tables among the tensors of a call.
pub const SCORE_TABLES: [&str; MOST_TABLES] = ["score_table0", "score_table1", "score_table2", "score_table3"];

/// Arguments of a declared score. The default has none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScoreParams {
    /// Id of the score; 0: none.
    pub id: u64,
    /// The scalars, in declaration order, padded with zeros.
    pub scalars: [f32; MOST_NUMBERS],
    /// The integers, in declaration order, padded with zeros.
    pub integers: [i32; MOST_NUMBERS],
}

impl ScoreParams {
    /// Adds the values of `kgen_declared_score`, a nested structure; each element of an array has its own.
    pub(super) fn add_to(&self, values: &mut Values) {
        values.put("score.id", Field::U64(self.id));
        values.array("score.scalars", self.scalars.map(Field::F32));
        values.array("score.integers", self.integers.map(Field::I32));
        values.array("score.tables", SCORE_TABLES.map(Field::Tensor));
    }
}
