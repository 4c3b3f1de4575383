//! long: a second tile of the same kernel, which is faster for long sequences.

use super::{FeatureRoom, shapes::Borders};
use crate::{
    family::attention::oracle::problem::{Lengths, Problem},
    kernel::Feature,
};

/// The feature `long`. Every call can use it, so none requires it.
pub struct Long;

impl FeatureRoom for Long {
    fn feature(&self) -> Feature {
        Feature::Long
    }

    /// Sequences of several tiles that end at, before and after their borders, beside empty ones.
    fn forward(&self, &Borders { m, n, .. }: &Borders) -> Vec<Problem> {
        let unlike = [(2 * m + 1, 3 * n - 1), (0, 5), (m, 2 * n), (3, 0), (7, n + 1)];
        vec![Problem::new(&[(2 * m - 1, 2 * m + n)], 4, 2), Problem::new(&unlike, 2, 1).lengths(Lengths::Packed)]
    }
}
