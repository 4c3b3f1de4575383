//! m128: a second tile of the same kernel, of 128 queries.

use super::{FeatureRoom, shapes::Borders};
use crate::{
    family::attention::oracle::problem::{Lengths, Problem},
    kernel::Feature,
};

/// The feature `m128`. Every call can use it, so none requires it.
pub struct M128;

impl FeatureRoom for M128 {
    fn feature(&self) -> Feature {
        Feature::M128
    }

    /// Sequences whose last tile has rows of one warpgroup or of both, on few blocks, which then take several tiles.
    fn forward(&self, &Borders { m, n, .. }: &Borders) -> Vec<Problem> {
        let unlike = [(3 * m + 1, 2 * n - 1), (m / 2, n + 3), (0, 5), (m / 2 + 1, 2 * n), (m - 1, 7), (5, 3 * n + 1)];
        vec![Problem::new(&[(2 * m + m / 2, 2 * n + 1)], 3, 1).on(2), Problem::new(&unlike, 2, 1).lengths(Lengths::Packed).on(2)]
    }
}
