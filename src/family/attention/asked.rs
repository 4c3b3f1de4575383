//! What a call asks of masks and scores besides a causal mask.
#![allow(clippy::cast_possible_wrap, reason = "rows, heads and keys are fewer than 2^31")]

use super::{DeclaredCall, KvFormat, Point};
use crate::{
    device::{DTYPE_BF16, DTYPE_FP32},
    family::attention::abi::AttentionFeatures,
    kernel::{Feature, Features},
};

/// Numbers of one call. The default asks for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Keys that a query sees before its position, and after it; -1: no limit on that side.
    pub window: Option<[i32; 2]>,
    /// Positions of a chunk; 0: no chunks.
    pub chunk: u32,
    /// Bound of the scores in hundredths; 0: none.
    pub softcap_hundredths: u32,
    /// Slopes by which scores fall with distance.
    pub alibi: Option<Slopes>,
    /// Logits that join the denominator.
    pub sinks: Option<SinkType>,
    /// K and V lie in pages.
    pub pages: Option<Pages>,
    /// Queries have a second part, which is multiplied with V.
    pub qv: bool,
    /// K and V are a cache.
    pub cache: Option<Cache>,
    /// K and V are FP8, of that format, and Q is not.
    pub kv: Option<KvFormat>,
    /// Fewest and most queries of the sequences that a kernel with pages serves; 0: no limit.
    pub query_limits: [u32; 2],
    /// A declared score or mask, with its numbers.
    pub declared: Option<DeclaredCall>,
    /// The call brings new rows of K and V.
    pub append: Option<Append>,
}

/// New rows of K and V that a kernel writes into the cache: the last keys of each sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append {
    /// New rows of each sequence that has keys.
    pub rows: usize,
    /// The longest sequences have one more, for which there is no room.
    pub clipped: bool,
    /// Columns that are rotated, in sixteens, and whether pairs of them lie side by side.
    pub rotary: Option<(usize, bool)>,
    /// Where positions begin.
    pub starts: Starts,
    /// The tables of the rotation end with the last new row's position.
    pub short_tables: bool,
    /// Queries have positions of their own: the call has a causal mask or a window.
    pub by_row: bool,
}

/// The position of a sequence's first new row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// The number of keys before it.
    Cached,
    /// As the call says.
    Given,
}

impl Asked {
    /// The same where queries of new rows have positions as a call with a causal mask, or without, has them.
    #[must_use]
    pub fn placed(mut self, causal: bool) -> Self {
        let (causal, wanted) = self.wanted(causal);
        if let Some(append) = &mut self.append {
            append.by_row = causal || wanted.has(Feature::Window);
        }
        self
    }
}

impl Append {
    /// So many new rows, without rotation.
    pub fn new(rows: usize) -> Self {
        Self { rows, clipped: false, rotary: None, starts: Starts::Cached, short_tables: false, by_row: false }
    }

    /// What names of cases say of it.
    fn words(self) -> String {
        let Self { rows, clipped, rotary, starts, short_tables, by_row: _ } = self;
        let rotary = rotary.map_or_else(String::new, |(sixteenths, interleaved)| {
            format!("-rotary{}{}", 16 * sixteenths, if interleaved { "-interleaved" } else { "" })
        });
        let told = [(clipped, "-clipped"), (starts == Starts::Given, "-starts"), (short_tables, "-short-tables")];
        let told: String = told.into_iter().filter_map(|(told, word)| told.then_some(word)).collect();
        format!(" new{rows}{rotary}{told}")
    }
}

/// A side of a window that is no limit, as larger ones are (`kgen/features.cuh`).
const NO_LIMIT: i32 = (1 << 30) - 1;

/// Whether batch entries have slopes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slopes {
    /// All have the same, one per query head.
    ByHead,
    /// Each has its own.
    ByBatchAndHead,
}

/// How K and V lie in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Rows of a page.
    pub rows: usize,
    /// Pages at the start of the first sequence that the others share, as far as it fills them.
    pub shared: usize,
    /// Whether blocks are given a counter to take their work from, which kernels that know none leave alone.
    pub counter: bool,
    /// Factors of K and V by page.
    pub descales: Option<PageDescales>,
}

/// Which of K and V have factors by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageDescales {
    /// Both.
    Both,
    /// K.
    OfK,
    /// V.
    OfV,
}

impl PageDescales {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::Both, Self::OfK, Self::OfV];

    /// What names of cases append to the pages' word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Both => "-descales",
            Self::OfK => "-k-descales",
            Self::OfV => "-v-descales",
        }
    }

    /// Whether tensor number `tensor` (Q, K, V) has them.
    pub fn has(self, tensor: usize) -> bool {
        match self {
            Self::Both => matches!(tensor, 1 | 2),
            Self::OfK => tensor == 1,
            Self::OfV => tensor == 2,
        }
    }
}

/// What a call says of a cache of K and V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Which entry of K and V each sequence reads.
    Indexed,
    /// How many rows lie before each sequence's first key.
    Padded,
    /// Both.
    IndexedAndPadded,
}

impl Cache {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::Indexed, Self::Padded, Self::IndexedAndPadded];

    /// As the names of cases say it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Indexed => "cache-idx",
            Self::Padded => "leftpad",
            Self::IndexedAndPadded => "cache-idx+leftpad",
        }
    }

    /// Whether sequences choose their entries.
    pub fn is_indexed(self) -> bool {
        self != Self::Padded
    }

    /// Whether rows lie before the keys.
    pub fn is_padded(self) -> bool {
        self != Self::Indexed
    }
}

/// The type of the sinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkType {
    /// binary32.
    Fp32,
    /// bfloat16.
    Bf16,
}

impl Asked {
    /// What a call with it, and a causal mask or none, wants of a kernel: the mask, and features. A window that ends at
    /// the position is a causal mask, and one without ends is none: `read_features` of `kgen/features.cuh`.
    pub fn wanted(&self, causal: bool) -> (bool, Features) {
        let [left, right] = self.window.unwrap_or([-1, -1]);
        let is_closed = |side: i32| (0..NO_LIMIT).contains(&side);
        let causal = causal || right == 0;
        let wanted = [
            (Feature::Window, is_closed(left) || (is_closed(right) && !causal)),
            (Feature::Chunk, self.chunk > 0),
            (Feature::Softcap, self.softcap_hundredths > 0),
            (Feature::Alibi, self.alibi.is_some()),
            (Feature::Sinks, self.sinks.is_some()),
            (Feature::Paged, self.pages.is_some()),
            (Feature::Qv, self.qv),
            (Feature::Cache, self.cache.is_some()),
            (Feature::KvE4m3, self.kv == Some(KvFormat::E4m3)),
            (Feature::KvE5m2, self.kv == Some(KvFormat::E5m2)),
            (Feature::PageDescale, self.pages.is_some_and(|pages| pages.descales.is_some())),
            (Feature::Append, self.append.is_some()),
        ];
        let wanted: Features = wanted.into_iter().filter_map(|(feature, wanted)| wanted.then_some(feature)).collect();
        (causal, wanted.with_score(self.declared.map(|call| call.score)))
    }

    /// Whether a kernel computes a call with it, and a causal mask or none: `serves_features` of `kgen/features.cuh`.
    /// Kernels with windows have a causal mask where a call asks for one; kernels that read pages, or FP8, read nothing else, and those of queries of two parts take no others.
    pub fn is_served_by(&self, causal: bool, kernel: Point) -> bool {
        let (causal, wanted) = self.wanted(causal);
        let mask = if kernel.causal { causal } else { !causal || kernel.features.has(Feature::Window) };
        let both = [Feature::Paged, Feature::KvE4m3, Feature::KvE5m2, Feature::Qv, Feature::Append];
        let keys = both.into_iter().all(|feature| kernel.features.has(feature) == wanted.has(feature));
        mask && keys && kernel.served_features().hold(wanted) && kernel.features.score() == wanted.score()
    }

    /// The bound of the scores, as the kernel receives it; 0: none.
    pub fn softcap(&self) -> f32 {
        (f64::from(self.softcap_hundredths) / 100.0) as f32
    }

    /// The slope of a sequence's query head; 0 where none is asked for. Powers of two down to 2⁻⁸, as in the paper
    /// (Press et al. 2021, section 3), times 1, 1.5 or 2 where batch entries have their own. Every third head has one
    /// below 0, so small that what it adds to the furthest keys is no more than scores are: larger ones leave of a
    /// 16-bit reference nothing to compare with.
    pub fn slope(&self, sequence: usize, head: usize) -> f32 {
        let rises = head % 3 == 1;
        let of_head = if rises { -(0.5_f32.powi(6 + head as i32 / 3 % 3)) } else { 0.5_f32.powi(head as i32 % 8 + 1) };
        match self.alibi {
            None => 0.0,
            Some(Slopes::ByHead) => of_head,
            Some(Slopes::ByBatchAndHead) => of_head * (1.0 + (sequence % 3) as f32 / 2.0),
        }
    }

    /// The sink of a query head: from far below the scores to so far above them that exp of the difference is 0 in
    /// fp32. Both types hold it exactly.
    pub fn sink(&self, head: usize) -> Option<f64> {
        const LOGITS: [f64; 6] = [0.75, -3.5, 300.0, 40.0, -200.0, 2.0];
        self.sinks.map(|_| LOGITS[head % LOGITS.len()])
    }

    /// What a launcher is told of it, for `heads` query heads.
    pub fn params(&self, heads: usize) -> AttentionFeatures {
        AttentionFeatures {
            window: self.window,
            chunk: self.chunk as i32,
            softcap: self.softcap(),
            alibi_batch_stride: if self.alibi == Some(Slopes::ByBatchAndHead) { heads as i64 + 3 } else { 0 },
            sinks_dtype: if self.sinks == Some(SinkType::Bf16) { DTYPE_BF16 } else { DTYPE_FP32 },
            score: self.declared.map(DeclaredCall::params).unwrap_or_default(),
        }
    }

    /// Whether sequences of so many queries are served.
    pub fn serves_queries(&self, queries: usize) -> bool {
        let [least, most] = self.query_limits.map(|limit| limit as usize);
        queries >= least && (most == 0 || queries <= most)
    }

    /// What names of cases say of it: ` window64,-1 softcap30`.
    pub fn words(&self) -> String {
        let [least, most] = self.query_limits;
        let words = [
            self.window.map(|[left, right]| format!(" window{left},{right}")),
            (self.chunk > 0).then(|| format!(" chunk{}", self.chunk)),
            (self.softcap_hundredths > 0).then(|| format!(" softcap{}", f64::from(self.softcap_hundredths) / 100.0)),
            self.alibi.map(|slopes| if slopes == Slopes::ByHead { " alibi" } else { " alibi-by-batch" }.to_owned()),
            self.sinks.map(|sinks| if sinks == SinkType::Fp32 { " sinks" } else { " sinks-bf16" }.to_owned()),
            self.declared.map(DeclaredCall::words),
            self.pages.map(|Pages { rows, shared, counter, descales }| {
                let shared = if shared == 0 { String::new() } else { format!("-shared{shared}") };
                let descales = descales.map_or("", PageDescales::word);
                format!(" page{rows}{shared}{}{descales}", if counter { "-counter" } else { "" })
            }),
            self.qv.then(|| " qv".to_owned()),
            self.cache.map(|cache| format!(" {}", cache.word())),
            self.kv.map(|format| format!(" {}", format.word())),
            self.append.map(Append::words),
            (least > 0).then(|| format!(" least-queries{least}")),
            (most > 0).then(|| format!(" most-queries{most}")),
        ];
        words.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{family::attention::Kind, kernel::HeadDim};

    #[test]
    fn a_call_that_asks_for_nothing_needs_a_plain_kernel_and_has_no_words() {
        let nothing = Asked::default();
        assert!(nothing.wanted(true).1.is_empty() && nothing.words().is_empty() && nothing.sink(3).is_none());
        assert_eq!(nothing.params(4), AttentionFeatures { sinks_dtype: DTYPE_FP32, ..AttentionFeatures::default() });
    }

    #[test]
    fn everything_asked_for_is_named() {
        let all = Asked {
            window: Some([64, -1]),
            chunk: 7,
            softcap_hundredths: 3050,
            alibi: Some(Slopes::ByBatchAndHead),
            sinks: Some(SinkType::Bf16),
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
        assert_eq!(all.wanted(false), (false, Features::masks_and_scores().with(keys)));
        let words = " window64,-1 chunk7 softcap30.5 alibi-by-batch sinks-bf16 page16-shared3-counter-v-descales qv leftpad kv-e5m2 \
             new3-rotary32-interleaved-clipped-starts";
        assert_eq!(all.words(), words);
        assert!(all.slope(1, 0) > all.slope(0, 0) && all.slope(0, 2) < all.slope(0, 0));
        assert!(all.slope(0, 1) < 0.0 && all.slope(1, 1) < all.slope(0, 1), "slopes of both signs");
    }

    /// A kernel by its mask and its features.
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
        let windowed = |left, right| Asked { window: Some([left, right]), ..Asked::default() };
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
        let window = Asked { window: Some([9, -1]), ..Asked::default() };
        let (full, causal) = (kernel(Kind::Fwd, false, &[Feature::Window]), kernel(Kind::Fwd, true, &[Feature::Window]));
        assert!(window.is_served_by(false, full) && window.is_served_by(true, full));
        assert!(!window.is_served_by(false, causal) && window.is_served_by(true, causal));
        let plain = kernel(Kind::Fwd, false, &[]);
        assert!(!window.is_served_by(false, plain) && !Asked::default().is_served_by(true, plain));
        let sinks = Asked { sinks: Some(SinkType::Bf16), ..Asked::default() };
        assert!(!sinks.is_served_by(false, plain) && sinks.is_served_by(false, kernel(Kind::FwdSplit, false, &[])));
    }
}
