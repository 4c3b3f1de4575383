//! `kgen_declared_score` of `kgen.h`: which score or mask of a user's own a call asks for, and what it passes.

use super::Address;
use std::ffi::c_void;

/// Most scalars, and most integers.
const MOST_NUMBERS: usize = 8;

/// Most tables.
const MOST_TABLES: usize = 4;

/// The tables' names among the tensors of a call.
pub const SCORE_TABLES: [&str; MOST_TABLES] = ["score_table0", "score_table1", "score_table2", "score_table3"];

/// What a call passes to a declared score. The default asks for none.
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
    /// The structure to pass.
    pub(super) fn structure(&self, address: Address<'_>) -> Structure {
        let tables = SCORE_TABLES.map(|name| address(name).cast_const());
        Structure { id: self.id, scalars: self.scalars, integers: self.integers, tables }
    }
}

/// `kgen_declared_score`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Structure {
    pub id: u64,
    pub scalars: [f32; MOST_NUMBERS],
    pub integers: [i32; MOST_NUMBERS],
    pub tables: [*const c_void; MOST_TABLES],
}

/// Offsets of all fields by their names in C, for a structure that has it at `start`.
#[cfg(test)]
pub(super) fn layout(start: usize) -> Vec<(String, usize)> {
    use super::tests::each;
    use std::mem::offset_of;
    let fields = each!(Structure: id, scalars, integers, tables);
    fields.into_iter().map(|(name, offset)| (format!("score.{name}"), start + offset)).collect()
}
