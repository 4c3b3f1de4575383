//! What a call asks of masks and scores besides a causal mask.

use crate::{
    device::{AttentionFeatures, DTYPE_BF16, DTYPE_FP32},
    grid::{Feature, Features},
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
}

/// Whether batch entries have slopes of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slopes {
    /// All have the same, one per query head.
    ByHead,
    /// Each has its own.
    ByBatchAndHead,
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
    /// The features that a kernel must have for it.
    pub fn features(&self) -> Features {
        let wanted = [
            (Feature::Window, self.window.is_some()),
            (Feature::Chunk, self.chunk > 0),
            (Feature::Softcap, self.softcap_hundredths > 0),
            (Feature::Alibi, self.alibi.is_some()),
            (Feature::Sinks, self.sinks.is_some()),
        ];
        wanted.into_iter().filter_map(|(feature, wanted)| wanted.then_some(feature)).collect()
    }

    /// The bound of the scores, as the kernel receives it; 0: none.
    pub fn softcap(&self) -> f32 {
        (f64::from(self.softcap_hundredths) / 100.0) as f32
    }

    /// The slope of a sequence's query head; 0 where none is asked for. Powers of two down to 2⁻⁸, as in the paper
    /// (Press et al. 2021, section 3), times 1, 1.5 or 2 where batch entries have their own.
    pub fn slope(&self, sequence: usize, head: usize) -> f32 {
        let of_head = 0.5_f32.powi(head as i32 % 8 + 1);
        match self.alibi {
            None => 0.0,
            Some(Slopes::ByHead) => of_head,
            Some(Slopes::ByBatchAndHead) => of_head * (1.0 + (sequence % 3) as f32 / 2.0),
        }
    }

    /// The sink of a query head: from far below the scores to far above them, the same number in both types.
    pub fn sink(&self, head: usize) -> Option<f64> {
        const LOGITS: [f64; 5] = [0.75, -3.5, 2.0, 40.0, -200.0];
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
        }
    }

    /// What names of cases say of it: ` window64,-1 softcap30`.
    pub fn words(&self) -> String {
        let mut words = String::new();
        if let Some([left, right]) = self.window {
            words += &format!(" window{left},{right}");
        }
        if self.chunk > 0 {
            words += &format!(" chunk{}", self.chunk);
        }
        if self.softcap_hundredths > 0 {
            words += &format!(" softcap{}", f64::from(self.softcap_hundredths) / 100.0);
        }
        words += match self.alibi {
            None => "",
            Some(Slopes::ByHead) => " alibi",
            Some(Slopes::ByBatchAndHead) => " alibi-by-batch",
        };
        words += match self.sinks {
            None => "",
            Some(SinkType::Fp32) => " sinks",
            Some(SinkType::Bf16) => " sinks-bf16",
        };
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_asks_for_nothing_needs_a_plain_kernel_and_has_no_words() {
        let nothing = Asked::default();
        assert!(nothing.features().is_empty() && nothing.words().is_empty() && nothing.sink(3).is_none());
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
        };
        assert_eq!(all.features(), Features::all());
        assert_eq!(all.words(), " window64,-1 chunk7 softcap30.5 alibi-by-batch sinks-bf16");
        assert!(all.slope(1, 0) > all.slope(0, 0) && all.slope(0, 1) < all.slope(0, 0));
    }
}
