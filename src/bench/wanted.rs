//! The sizes that a user requests: lists of numbers under names that families define.

use super::{Matrix, Size};
use itertools::iproduct;
use std::collections::BTreeMap;

/// Lists of numbers; a name without a list leaves the choice to the family.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted(BTreeMap<&'static str, Vec<u64>>);

impl Wanted {
    /// These lists.
    pub fn new(lists: impl IntoIterator<Item = (&'static str, Vec<u64>)>) -> Self {
        Self(lists.into_iter().collect())
    }

    /// The numbers requested under a name; empty if none are.
    pub fn of(&self, name: &str) -> &[u64] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Every combination of `rows` and `columns`; `usual` if neither is requested.
    pub fn matrices(&self, usual: &[Matrix]) -> Vec<Size> {
        let [rows, columns] = ["rows", "columns"].map(|name| self.of(name));
        if rows.is_empty() && columns.is_empty() {
            return usual.iter().copied().map(Size::from).collect();
        }
        let or_one = |list: &[u64]| if list.is_empty() { vec![1] } else { list.to_vec() };
        iproduct!(or_one(rows), or_one(columns)).map(|(rows, columns)| Matrix { rows, columns }.into()).collect()
    }

    /// Lengths of vectors, from `columns`; 2²⁰, 2²⁴ and 2²⁸ elements if none are requested.
    pub fn vectors(&self) -> Vec<Size> {
        self.matrices(&[20, 24, 28].map(|power| Matrix { rows: 1, columns: 1 << power }))
    }
}
