//! `kgen_declared_score` of `kgen.h`: which score or mask of a user's own a call asks for, and what it passes.

use super::Values;
use crate::device::Field;

/// Most scalars, and most integers.
const MOST_NUMBERS: usize = 8;

/// Most tables.
const MOST_TABLES: usize = 4;

/// The tables' names among the tensors of a call.
pub const SCORE_TABLES: [&str; MOST_TABLES] = ["score_table0", "score_table1", "score_table2", "score_table3"];

/// Values that a call passes to a declared score. The default asks for none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScoreParams {
    /// Which one; 0: none.
    pub id: u64,
    /// The scalars, in the order of their declaration; zeros beyond.
    pub scalars: [f32; MOST_NUMBERS],
    /// The integers likewise.
    pub integers: [i32; MOST_NUMBERS],
}

impl ScoreParams {
    /// Adds the values of `kgen_declared_score`, a structure within; each element of an array has its own.
    pub(super) fn add_to(&self, values: &mut Values) {
        values.put("score.id", Field::U64(self.id));
        values.array("score.scalars", self.scalars.map(Field::F32));
        values.array("score.integers", self.integers.map(Field::I32));
        values.array("score.tables", SCORE_TABLES.map(Field::Tensor));
    }
}
