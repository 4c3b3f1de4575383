//! The features of attention, each in a file of its own: its part of a call, its cases, its refusals, and its draws by
//! the fuzzer. The rest of the family folds over [`FEATURES`] and names a feature only if a kernel's code depends on
//! it.
#![allow(clippy::cast_possible_wrap, reason = "rows, heads and keys are fewer than 2^31")]

mod alibi;
mod append;
mod bias;
mod cache;
mod chunk;
mod kv;
mod packgqa;
mod page_descale;
mod paged;
mod qv;
mod shapes;
mod sinks;
mod softcap;
mod window;

pub use alibi::Slopes;
pub use append::{Append, Starts};
pub use bias::{Bias, HeadBias, offset as bias_offset};
pub use cache::{Cache, cache_of};
pub use kv::splits_of_bytes;
pub use page_descale::PageDescales;
pub use paged::{Pages, in_pages};
pub use shapes::{Borders, SPLITS, both, by_turns, counts, decode, unlike};
pub use sinks::{SinkType, sunk};

use super::{
    CallOptions, Point, oracle::backward::BackwardProblem, oracle::problem::Problem, oracle::split::Listed, random::Draw,
};
use crate::{
    check::Change,
    kernel::{Feature, Features},
};

/// A feature of attention. The default of each method is that of a feature that needs nothing there.
pub trait FeatureRoom: Sync {
    /// The feature.
    fn feature(&self) -> Feature;

    /// Whether a call, with a causal mask or without, needs a kernel that has it.
    fn is_wanted(&self, _asked: &CallOptions, _causal: bool) -> bool {
        false
    }

    /// The part of a case's name that says how a call asks for it: a space and a word.
    fn words(&self, _asked: &CallOptions) -> Option<String> {
        None
    }

    /// Makes a call ask for it with numbers that leave most rows a part of their keys, `n` of which are a tile.
    fn ask(&self, _asked: &mut CallOptions, _n: usize) {}

    /// The cases of a forward kernel that has it.
    fn forward(&self, _borders: &Borders) -> Vec<Problem> {
        Vec::new()
    }

    /// The cases of a split-KV kernel that serves it.
    fn splits(&self) -> Vec<Listed> {
        Vec::new()
    }

    /// The cases that a thorough check of such a kernel has besides.
    fn splits_thoroughly(&self) -> Vec<Listed> {
        Vec::new()
    }

    /// The cases of a backward kernel that has it.
    fn backward(&self, _borders: &Borders) -> Vec<BackwardProblem> {
        Vec::new()
    }

    /// Changed calls that a kernel refuses, or must not refuse, because it has the feature.
    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        Vec::new()
    }

    /// The same because it does not serve the feature.
    fn without(&self, _kernel: Point) -> &'static [Change] {
        &[]
    }

    /// Whether the fuzzer asks a kernel that has it for it at times only.
    fn is_optional(&self) -> bool {
        false
    }

    /// Draws how a call asks for it.
    fn draw(&self, _draw: &mut Draw<'_>, _asked: &mut CallOptions) {}
}

/// Every feature, in the order of cases, draws and words.
pub const FEATURES: &[&dyn FeatureRoom] = &[
    &window::Window,
    &chunk::Chunk,
    &softcap::Softcap,
    &alibi::Alibi,
    &bias::Biased,
    &sinks::Sinks,
    &paged::Paged,
    &packgqa::PackGqa,
    &qv::Qv,
    &cache::Cached,
    &kv::E4M3,
    &kv::E5M2,
    &page_descale::PageDescale,
    &append::NewRows,
];

/// The rooms of a set of features.
pub fn rooms(features: Features) -> impl Iterator<Item = &'static dyn FeatureRoom> {
    FEATURES.iter().copied().filter(move |room| features.has(room.feature()))
}

/// The rooms of masks and scores.
pub fn masks_and_scores() -> impl Iterator<Item = &'static dyn FeatureRoom> {
    FEATURES.iter().copied().filter(|room| room.feature().info().is_mask_or_score)
}

/// The rooms of the other features.
pub fn features_of_rows() -> impl Iterator<Item = &'static dyn FeatureRoom> {
    FEATURES.iter().copied().filter(|room| !room.feature().info().is_mask_or_score)
}

/// A call that asks for some features at once.
pub fn together(features: &[Feature], n: usize) -> CallOptions {
    let mut options = CallOptions::default();
    for room in rooms(features.iter().copied().collect()) {
        room.ask(&mut options, n);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_one_room() {
        let mut found: Vec<Feature> = FEATURES.iter().map(|room| room.feature()).collect();
        found.sort_unstable();
        let mut all = Feature::ALL.to_vec();
        all.sort_unstable();
        assert_eq!(found, all);
    }
}
