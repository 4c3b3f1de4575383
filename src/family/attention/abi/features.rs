//! `kgen_attention_features` of `kgen.h`: what attention may do besides, in both passes.

use super::{FLAG_WINDOW, Rows, ScoreParams};
use crate::device::Field;

/// Numbers of masks and scores. The default asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AttentionFeatures {
    /// Keys that a query sees before its position, and after it; -1: no limit on that side. `None`: no window.
    pub window: Option<[i32; 2]>,
    /// Positions of a chunk; 0: no chunks.
    pub chunk: i32,
    /// Bound of the scores; 0: none.
    pub softcap: f32,
    /// Floats from the slopes of one batch entry to the next; 0: all have the same.
    pub alibi_batch_stride: i64,
    /// `KGEN_DTYPE_*` of the sinks.
    pub sinks_dtype: i32,
    /// The declared score or mask.
    pub score: ScoreParams,
}

impl AttentionFeatures {
    /// The flags that go with it.
    pub(super) fn flags(&self) -> u32 {
        if self.window.is_some() { FLAG_WINDOW } else { 0 }
    }

    /// Adds the fields of `kgen_attention_features`, a structure within.
    pub(super) fn add_to(&self, rows: &mut Rows) {
        let [left, right] = self.window.unwrap_or_default();
        rows.begin_structure("features");
        rows.integers([("features.window_left", left), ("features.window_right", right)]);
        rows.integers([("features.attention_chunk", self.chunk)]);
        rows.push("features.softcap", Field::F32(self.softcap));
        rows.push("features.alibi_slopes", Field::Tensor("alibi_slopes"));
        rows.push("features.alibi_batch_stride", Field::I64(self.alibi_batch_stride));
        rows.push("features.sinks", Field::Tensor("sinks"));
        rows.integers([("features.sinks_dtype", self.sinks_dtype), ("features.reserved", 0)]);
    }
}
