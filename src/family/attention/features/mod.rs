//! The features of attention, one file each: parameters in a call, words in case names, tensors, cases, refusals, and
//! fuzzing. The rest of the family iterates over [`FEATURES`] and names a feature only if a kernel's code depends on
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
    CallOptions, Point, abi::AttentionFeatures, fuzz::FuzzCase, oracle::backward::BackwardProblem, oracle::problem::Problem,
    oracle::split::Listed, random::Draw,
};
use crate::{
    check::{Change, Number},
    device::Image,
    kernel::{Feature, Features, HeadDim},
};
use std::str::FromStr;

/// A change that makes a call simpler.
pub type Simpler = fn(&mut CallOptions);

/// A feature of attention. The defaults of the methods do nothing.
pub trait FeatureRoom: Sync {
    /// The feature.
    fn feature(&self) -> Feature;

    /// Whether a call, causal or not, needs a kernel with the feature.
    fn is_wanted(&self, _options: &CallOptions, _causal: bool) -> bool {
        false
    }

    /// The feature's words in a case's name, each after a space.
    fn words(&self, _options: &CallOptions) -> Option<String> {
        None
    }

    /// Parses a word of a case's name into the options, the reverse of `words`. `None` if it is another feature's word.
    fn read(&self, _word: &str, _options: &mut CallOptions) -> Option<Result<(), String>> {
        None
    }

    /// Writes the feature's parameters to those of both passes, for a call with `heads` query heads.
    fn enter(&self, _options: &CallOptions, _heads: usize, _params: &mut AttentionFeatures) {}

    /// Writes the parameters that depend on the problem's lengths or on the type of Q, `number`.
    fn enter_shape(&self, _problem: &Problem, _number: Number, _params: &mut AttentionFeatures) {}

    /// The tensors that the feature adds to a call of either pass, with a Q of type `number`, by their names in
    /// `kgen.h`.
    fn tensors(&self, _problem: &Problem, _number: Number) -> Vec<(&'static str, Image)> {
        Vec::new()
    }

    /// Changes any problem into one that a kernel with the feature supports.
    fn fit(&self, _problem: &mut Problem, _kernel: Point) {}

    /// The reason why the dispatcher would refuse the call, if it uses the feature and there is one.
    fn complaint(&self, _case: &FuzzCase) -> Option<String> {
        None
    }

    /// Adds the feature to a call, with parameters that leave most rows part of their keys. `n`: keys per tile.
    fn request(&self, _options: &mut CallOptions, _n: usize) {}

    /// The cases of a forward kernel with the feature.
    fn forward(&self, _borders: &Borders) -> Vec<Problem> {
        Vec::new()
    }

    /// The cases of a split-KV kernel that serves the feature.
    fn splits(&self) -> Vec<Listed> {
        Vec::new()
    }

    /// Additional cases of a thorough check of such a kernel.
    fn splits_thoroughly(&self) -> Vec<Listed> {
        Vec::new()
    }

    /// The cases of a backward kernel with the feature.
    fn backward(&self, _borders: &Borders) -> Vec<BackwardProblem> {
        Vec::new()
    }

    /// Modified calls that a kernel must refuse, or must accept, because it has the feature.
    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        Vec::new()
    }

    /// The same for a kernel that does not serve the feature.
    fn without(&self, _kernel: Point) -> &'static [Change] {
        &[]
    }

    /// The base problem for the refusals of a split-KV kernel with the feature, derived from the plain one.
    fn in_refusals(&self, plain: Problem) -> Problem {
        plain
    }

    /// Modified calls that every kernel refuses, with or without the feature.
    fn out_of_range(&self) -> &'static [Change] {
        &[]
    }

    /// Expectations for a structure of the first version passed to a forward kernel with the feature, if they differ.
    fn of_first_version(&self) -> Option<&'static [Change]> {
        None
    }

    /// Whether the fuzzer uses the feature only in some calls of a kernel that has it.
    fn is_optional(&self) -> bool {
        self.feature().info().is_mask_or_score
    }

    /// Draws the feature's options of a call.
    fn draw(&self, _draw: &mut Draw<'_>, _options: &mut CallOptions) {}

    /// Changes a drawn problem that uses the feature into one that its kernels support.
    fn fit_drawn(&self, _problem: &mut Problem, _head_dim: HeadDim) {}

    /// Removes the feature from a failing call, if a kernel without it may support the rest.
    fn leave_out(&self, _options: &mut CallOptions) {}

    /// Simplifications of a failing call, one aspect each.
    fn plainer(&self) -> &'static [Simpler] {
        &[]
    }
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

/// The features of a set.
pub fn rooms(features: Features) -> impl Iterator<Item = &'static dyn FeatureRoom> {
    FEATURES.iter().copied().filter(move |room| features.has(room.feature()))
}

/// The masks and scores.
pub fn masks_and_scores() -> impl Iterator<Item = &'static dyn FeatureRoom> {
    FEATURES.iter().copied().filter(|room| room.feature().info().is_mask_or_score)
}

/// The other features.
pub fn features_of_rows() -> impl Iterator<Item = &'static dyn FeatureRoom> {
    FEATURES.iter().copied().filter(|room| !room.feature().info().is_mask_or_score)
}

/// A call that uses several features at once.
pub fn together(features: &[Feature], n: usize) -> CallOptions {
    let mut options = CallOptions::default();
    for room in rooms(features.iter().copied().collect()) {
        room.request(&mut options, n);
    }
    options
}

/// The first message whose condition is true.
fn first_of<const N: usize>(complaints: [(bool, &str); N]) -> Option<String> {
    complaints.into_iter().find_map(|(is_right, complaint)| is_right.then(|| complaint.to_owned()))
}

/// The number after `prefix` in a word; `None` if the word has another prefix.
pub fn number_after<T: FromStr>(prefix: &str, word: &str) -> Option<Result<T, String>> {
    let digits = word.strip_prefix(prefix).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(digits.parse().map_err(|_| format!("`{prefix}{digits}` holds no number that can be taken")))
}

/// The element of `values` with this name.
fn named<T>(values: impl IntoIterator<Item = T>, word: &str, name: impl Fn(&T) -> &'static str) -> Option<T> {
    values.into_iter().find(|value| name(value) == word)
}

#[cfg(test)]
mod tests {
    use super::super::random::Rng;
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn every_room_reads_the_words_that_it_writes_and_no_other_room_does() {
        let mut rng = Rng::seed_from_u64(1);
        for room in FEATURES {
            let mut written = 0;
            for _ in 0..300 {
                let mut options = CallOptions::default();
                for other in FEATURES.iter().filter(|_| rand::RngExt::random(&mut rng)).collect::<Vec<_>>() {
                    other.draw(&mut Draw { rng: &mut rng, longest: 300 }, &mut options);
                }
                let mut problem = Problem::new(&[(3, 300)], 2, 1).asking(options);
                for other in FEATURES {
                    other.fit_drawn(&mut problem, HeadDim::equal(64));
                }
                let options = problem.options;
                let Some(word) = room.words(&options) else { continue };
                let word = word.strip_prefix(' ').expect("words of names are apart");
                let claimed = |other: &&&dyn FeatureRoom| other.read(word, &mut CallOptions::default()).is_some();
                let readers: Vec<Feature> = FEATURES.iter().filter(claimed).map(|other| other.feature()).collect();
                assert_eq!(readers, [room.feature()], "`{word}`");
                let mut read = CallOptions::default();
                assert_eq!(room.read(word, &mut read), Some(Ok(())));
                assert_eq!(room.words(&read).as_deref().map(str::trim), Some(word));
                written += 1;
            }
            let has_words = !matches!(room.feature(), Feature::PackGqa | Feature::PageDescale);
            assert_eq!(written > 0, has_words, "`{}`", room.feature());
        }
    }

    #[test]
    fn every_feature_has_one_room() {
        let mut found: Vec<Feature> = FEATURES.iter().map(|room| room.feature()).collect();
        found.sort_unstable();
        let mut all = Feature::ALL.to_vec();
        all.sort_unstable();
        assert_eq!(found, all);
    }
}
