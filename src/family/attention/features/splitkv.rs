//! splitkv: several blocks may share the keys of a query tile.

use super::FeatureRoom;
use crate::kernel::Feature;

/// The feature `splitkv`. Every call can use it, so none requires it; `cases/split.rs` has the calls with several
/// splits.
pub struct SplitKv;

impl FeatureRoom for SplitKv {
    fn feature(&self) -> Feature {
        Feature::SplitKv
    }
}
