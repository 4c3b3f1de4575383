//! Masks and scores of a call, apart from the causal mask.
#![allow(clippy::cast_possible_wrap, reason = "rows, heads and keys are fewer than 2^31")]

use super::{
    CallOptions, DeclaredCall, Point,
    abi::AttentionFeatures,
    features::{FEATURES, features_of_rows, masks_and_scores, number_after},
};
use crate::kernel::Features;

impl CallOptions {
    /// The mask and features that a call with these options, causal or not, needs: `read_features` of
    /// `kgen/features.cuh`. A window that ends at the position is a causal mask, and an unlimited window is none.
    pub fn wanted(&self, causal: bool) -> (bool, Features) {
        let causal = causal || self.window.is_some_and(|[_, right]| right == 0);
        let wanted = FEATURES.iter().filter(|room| room.is_wanted(self, causal)).map(|room| room.feature());
        let wanted: Features = wanted.collect();
        (causal, wanted.with_score(self.declared.map(|call| call.score)))
    }

    /// True if a kernel can compute a call with these options, causal or not: `serves_features` of `kgen/features.cuh`.
    /// Kernels with windows apply a causal mask if a call has one; kernels with pages, FP8 or `qv` serve no other
    /// calls.
    pub fn is_served_by(&self, causal: bool, kernel: Point) -> bool {
        let (causal, wanted) = self.wanted(causal);
        let mask = if kernel.causal { causal } else { !causal || kernel.features.any(|info| info.includes_causal) };
        let mut exclusive = Features::all().iter().filter(|feature| feature.info().is_exclusive);
        let keys = exclusive.all(|feature| kernel.features.has(feature) == wanted.has(feature));
        mask && keys && kernel.served_features().contains(wanted) && kernel.features.score() == wanted.score()
    }

    /// Parameters passed to a launcher, for `heads` query heads.
    pub fn params(&self, heads: usize) -> AttentionFeatures {
        let score = self.declared.map(DeclaredCall::params).unwrap_or_default();
        let mut params = AttentionFeatures::with_score(score);
        for room in FEATURES {
            room.enter(self, heads, &mut params);
        }
        params
    }

    /// True if sequences with this many queries are computed.
    pub fn serves_queries(&self, queries: usize) -> bool {
        let [least, most] = self.query_limits.map(|limit| limit as usize);
        queries >= least && (most == 0 || queries <= most)
    }

    /// Words in the name of a case: ` window64,-1 softcap30`.
    pub fn words(&self) -> String {
        let [least, most] = self.query_limits;
        let limits = [(least > 0).then(|| format!(" least-queries{least}")), (most > 0).then(|| format!(" most-queries{most}"))];
        let masks_and_scores = masks_and_scores().filter_map(|room| room.words(self));
        let words = masks_and_scores.chain(self.declared.map(DeclaredCall::words));
        words.chain(features_of_rows().filter_map(|room| room.words(self))).chain(limits.into_iter().flatten()).collect()
    }

    /// Parses the options from the words of a case's name and removes those words. Each may occur once.
    ///
    /// # Errors
    /// One sentence on an invalid word.
    pub fn read(words: &mut Vec<&str>) -> Result<Self, String> {
        let mut options = Self::default();
        for room in FEATURES {
            take(words, |word| room.read(word, &mut options))?;
        }
        for (limit, prefix) in options.query_limits.iter_mut().zip(["least-queries", "most-queries"]) {
            take(words, |word| Some(number_after(prefix, word)?.map(|queries| *limit = queries)))?;
        }
        let declared = &mut options.declared;
        take(words, |word| Some(DeclaredCall::read(word.strip_prefix("score=")?).map(|call| *declared = Some(call))))?;
        Ok(options)
    }
}

/// Removes the first word that `read` accepts.
fn take(words: &mut Vec<&str>, mut read: impl FnMut(&str) -> Option<Result<(), String>>) -> Result<(), String> {
    let claimed = words.iter().enumerate().find_map(|(at, word)| Some((at, read(word)?)));
    claimed.map_or(Ok(()), |(at, outcome)| {
        words.remove(at);
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{Kind, SinkType},
        kernel::{Feature, HeadDim},
    };

    #[test]
    fn a_call_that_asks_for_nothing_needs_a_plain_kernel_and_has_no_words() {
        let nothing = CallOptions::default();
        assert!(nothing.wanted(true).1.is_empty() && nothing.words().is_empty() && nothing.sink(3).is_none());
        assert_eq!(nothing.params(4), AttentionFeatures::default());
    }

    /// A kernel with this mask and these features.
    fn kernel(kind: Kind, causal: bool, features: &[Feature]) -> Point {
        let features = features.iter().copied().collect();
        Point {
            kind,
            head_dim: HeadDim::equal(64),
            dtype: crate::kernel::Dtype::Bf16,
            causal,
            features,
            target: crate::kernel::Target::Sm80,
        }
    }

    #[test]
    fn a_window_is_a_causal_mask_or_none_where_its_ends_say_so() {
        let windowed = |left, right| CallOptions { window: Some([left, right]), ..CallOptions::default() };
        let window = Features::from_iter([Feature::Window]);
        assert_eq!(windowed(-1, -1).wanted(false), (false, Features::NONE));
        assert_eq!(windowed(i32::MAX, i32::MAX).wanted(true), (true, Features::NONE));
        assert_eq!(windowed(-1, 0).wanted(false), (true, Features::NONE));
        assert_eq!(windowed(-1, 5).wanted(true), (true, Features::NONE));
        assert_eq!(windowed(-1, 5).wanted(false), (false, window));
        assert_eq!(windowed(0, 0).wanted(false), (true, window));
    }

    #[test]
    fn a_kernel_serves_what_its_mask_and_features_hold() {
        let window = CallOptions { window: Some([9, -1]), ..CallOptions::default() };
        let (full, causal) = (kernel(Kind::Fwd, false, &[Feature::Window]), kernel(Kind::Fwd, true, &[Feature::Window]));
        assert!(window.is_served_by(false, full) && window.is_served_by(true, full));
        assert!(!window.is_served_by(false, causal) && window.is_served_by(true, causal));
        let plain = kernel(Kind::Fwd, false, &[]);
        assert!(!window.is_served_by(false, plain) && !CallOptions::default().is_served_by(true, plain));
        let sinks = CallOptions { sinks: Some(SinkType::Bf16), ..CallOptions::default() };
        assert!(!sinks.is_served_by(false, plain) && sinks.is_served_by(false, kernel(Kind::FwdSplit, false, &[])));
    }
}
