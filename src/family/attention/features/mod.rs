//! The features of attention, one file each: parameters in a call, words in case names, tensors, cases, refusals, and
//! fuzzing. The rest of the family iterates over [`FEATURES`] and names a feature only if a kernel's code depends on
//! it.
#![allow(clippy::cast_possible_wrap, reason = "rows, heads and keys are fewer than 2^31")]

mod alibi;
mod append;
mod bias;
mod broadcast;
mod cache;
mod chunk;
mod dropout;
mod head;
mod kv;
mod long;
mod m128;
mod packgqa;
mod page_descale;
mod paged;
mod qv;
mod room;
mod shapes;
mod sinks;
mod softcap;
mod splitkv;
mod window;

pub use alibi::Slopes;
pub use append::{Append, Starts};
pub use bias::Bias;
pub use broadcast::{AdditionGradient, Broadcast};
pub use cache::{Cache, cache_of};
pub use dropout::Dropout;
pub use head::{Additions, CallHead, Factors, addition_gradients, largest_factor};
pub use kv::splits_of_bytes;
pub use page_descale::PageDescales;
pub use paged::{Pages, in_pages, pages};
pub use room::{FeatureRoom, Simpler};
pub use shapes::{Borders, SPLITS, both, by_turns, counts, decode, unlike};
pub use sinks::{SinkType, sunk};

use super::{DeclaredCall, KvFormat};
use crate::kernel::{Feature, Features};
use std::str::FromStr;

/// Options of one call. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Keys that a query sees before and after its position; -1: unlimited.
    pub window: Option<[i32; 2]>,
    /// Positions per chunk; 0: no chunks.
    pub chunk: u32,
    /// Softcap in hundredths; 0: none.
    pub softcap_hundredths: u32,
    /// Slopes of `ALiBi`.
    pub alibi: Option<Slopes>,
    /// Tensor added to the scores.
    pub bias: Option<Bias>,
    /// Logits added to the softmax denominator.
    pub sinks: Option<SinkType>,
    /// Dropout of the weights.
    pub dropout: Option<Dropout>,
    /// Pages of K and V.
    pub pages: Option<Pages>,
    /// True if queries have a second part that is multiplied by V.
    pub qv: bool,
    /// Cache layout of K and V.
    pub cache: Option<Cache>,
    /// FP8 format of K and V, if Q is not FP8.
    pub kv: Option<KvFormat>,
    /// Minimum and maximum queries of the sequences that a kernel with pages computes; 0: no limit.
    pub query_limits: [u32; 2],
    /// A declared score or mask with its parameters.
    pub declared: Option<DeclaredCall>,
    /// New rows of K and V to append.
    pub append: Option<Append>,
}

/// Every feature, in the order of cases, draws and words.
pub const FEATURES: &[&dyn FeatureRoom] = &[
    &window::Window,
    &chunk::Chunk,
    &softcap::Softcap,
    &alibi::Alibi,
    &bias::Biased,
    &sinks::Sinks,
    &dropout::DroppedOut,
    &paged::Paged,
    &packgqa::PackGqa,
    &long::Long,
    &m128::M128,
    &splitkv::SplitKv,
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

/// The features that are neither a mask nor a score.
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
    use super::super::random::{Draw, Rng};
    use super::*;
    use crate::{family::attention::oracle::problem::Problem, kernel::HeadDim};
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
            let has_words = !matches!(
                room.feature(),
                Feature::PackGqa | Feature::Long | Feature::M128 | Feature::SplitKv | Feature::PageDescale
            );
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

    #[test]
    fn everything_asked_for_is_named() {
        let all = CallOptions {
            window: Some([64, -1]),
            chunk: 7,
            softcap_hundredths: 3050,
            alibi: Some(Slopes::ByBatchAndHead),
            bias: Some(Bias { repeats: [true, false, true], wide: true, apart: true, aligned: true, hides: true, far: true }),
            sinks: Some(SinkType::Bf16),
            dropout: Some(Dropout { thousandths: 170, state: 2 }),
            pages: Some(Pages { rows: 16, shared: 3, counter: true, descales: Some(PageDescales::OfV) }),
            qv: true,
            cache: Some(Cache::Padded),
            kv: Some(KvFormat::E5m2),
            query_limits: [0; 2],
            declared: None,
            append: Some(Append { rotary: Some((2, true)), clipped: true, starts: Starts::Given, ..Append::new(3) }),
        };
        let keys = [Feature::Paged, Feature::Qv, Feature::Cache, Feature::KvE5m2, Feature::PageDescale, Feature::Append];
        let keys = Features::from_iter(keys);
        assert_eq!(all.wanted(false), (false, Features::of_all(|info| info.is_mask_or_score).with(keys)));
        let words = " window64,-1 chunk7 softcap30.5 alibi-by-batch bias-batch1-row1-fp32-apart-aligned-hides-far sinks-bf16 \
             dropout0.17@2 page16-shared3-counter-v-descales qv leftpad kv-e5m2 new3-rotary32-interleaved-clipped-starts";
        assert_eq!(all.words(), words);
        assert!(all.slope(1, 0) > all.slope(0, 0) && all.slope(0, 2) < all.slope(0, 0));
        assert!(all.slope(0, 1) < 0.0 && all.slope(1, 1) < all.slope(0, 1), "slopes of both signs");
    }
}
