//! `kgen_attention_features` of `kgen.h`: masks and scores of both passes.

use super::{FLAG_WINDOW, ScoreParams, Values};
use crate::device::Field;

/// Parameters of masks and scores. The default requests none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AttentionFeatures {
    /// Keys visible before and after a query's position; -1: no limit on that side. `None`: no window.
    pub window: Option<[i32; 2]>,
    /// Positions of a chunk; 0: no chunks.
    pub chunk: i32,
    /// Bound of the scores; 0: none.
    pub softcap: f32,
    /// Stride in floats between the slopes of batch entries; 0: all share them.
    pub alibi_batch_stride: i64,
    /// Batch, head, row and column stride of the bias.
    pub bias_strides: [i64; 4],
    /// `KGEN_DTYPE_*` of the bias.
    pub bias_dtype: i32,
    /// Probability that a weight is dropped; 0: no dropout.
    pub p_dropout: f32,
    /// `KGEN_DTYPE_*` of the sinks.
    pub sinks_dtype: i32,
    /// The declared score or mask.
    pub score: ScoreParams,
}

const BIAS_STRIDES: [&str; 4] = ["bias_batch_stride", "bias_head_stride", "bias_row_stride", "bias_column_stride"];

impl AttentionFeatures {
    /// The corresponding flags.
    pub(super) fn flags(&self) -> u32 {
        if self.window.is_some() { FLAG_WINDOW } else { 0 }
    }

    /// Adds the values of `kgen_attention_features`, a nested structure.
    pub(super) fn add_to(&self, values: &mut Values) {
        let [left, right] = self.window.unwrap_or_default();
        values.integers([
            ("features.window_left", left),
            ("features.window_right", right),
            ("features.attention_chunk", self.chunk),
            ("features.sinks_dtype", self.sinks_dtype),
            ("bias_dtype", self.bias_dtype),
        ]);
        for (name, stride) in BIAS_STRIDES.into_iter().zip(self.bias_strides) {
            values.put(name, Field::I64(stride));
        }
        values.put("p_dropout", Field::F32(self.p_dropout));
        values.put("features.softcap", Field::F32(self.softcap));
        values.put("features.alibi_batch_stride", Field::I64(self.alibi_batch_stride));
    }
}
