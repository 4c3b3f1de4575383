//! Numbers of the features in the C structures of both passes: the nested `kgen_attention_features` of `kgen.h`, and
//! the fields of later versions.

use super::{FLAG_WINDOW, ScoreParams, Values};
use crate::{device::Field, family::attention::features::FEATURES};
use std::collections::BTreeMap;

/// Numbers of features. The default requests none.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionFeatures {
    /// Keys visible before and after a query's position; -1: no limit on that side. `None`: no window.
    pub window: Option<[i32; 2]>,
    /// The declared score or mask.
    pub score: ScoreParams,
    /// Values by their paths in C.
    numbers: BTreeMap<&'static str, Field>,
}

impl Default for AttentionFeatures {
    fn default() -> Self {
        let numbers = FEATURES.iter().flat_map(|room| room.numbers()).copied();
        Self { window: None, score: ScoreParams::default(), numbers: numbers.collect() }
    }
}

impl AttentionFeatures {
    /// Numbers of a call that requests only a declared score or mask.
    pub fn with_score(score: ScoreParams) -> Self {
        Self { score, ..Self::default() }
    }

    /// Sets a number by its path in C: `features.softcap`.
    pub fn put(&mut self, path: &'static str, field: Field) {
        self.numbers.insert(path, field);
    }

    /// Sets several numbers.
    pub fn put_all(&mut self, numbers: impl IntoIterator<Item = (&'static str, Field)>) {
        self.numbers.extend(numbers);
    }

    /// The corresponding flags.
    pub(super) fn flags(&self) -> u32 {
        if self.window.is_some() { FLAG_WINDOW } else { 0 }
    }

    /// Adds the values of both passes' structures.
    pub(super) fn add_to(&self, values: &mut Values) {
        let [left, right] = self.window.unwrap_or_default();
        values.integers([("features.window_left", left), ("features.window_right", right)]);
        for (&path, &number) in &self.numbers {
            values.put(path, number);
        }
    }
}
