//! `kgen_attention_features` of `kgen.h`: what attention may do besides, in both passes.

use super::{Address, FLAG_WINDOW, ScoreParams};
use std::ffi::c_void;

/// What attention is asked for besides tensors: numbers of masks and scores. The default asks for nothing.
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

    /// The structure to pass.
    pub(super) fn structure(&self, address: Address<'_>) -> Structure {
        Structure {
            window: self.window.unwrap_or_default(),
            attention_chunk: self.chunk,
            softcap: self.softcap,
            alibi_slopes: address("alibi_slopes"),
            alibi_batch_stride: self.alibi_batch_stride,
            sinks: address("sinks"),
            sinks_dtype: self.sinks_dtype,
            reserved: 0,
        }
    }
}

/// `kgen_attention_features`. The window's left side comes before its right side.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Structure {
    pub window: [i32; 2],
    pub attention_chunk: i32,
    pub softcap: f32,
    pub alibi_slopes: *const c_void,
    pub alibi_batch_stride: i64,
    pub sinks: *const c_void,
    pub sinks_dtype: i32,
    pub reserved: i32,
}

/// Offsets of all fields by their names in C, for a structure that has it at `start`.
#[cfg(test)]
pub(super) fn layout(start: usize) -> Vec<(String, usize)> {
    use super::tests::each;
    use std::mem::offset_of;
    let mut fields = each!(Structure: attention_chunk, softcap, alibi_slopes, alibi_batch_stride, sinks, sinks_dtype, reserved);
    let window = offset_of!(Structure, window);
    fields.extend([("window_left".to_owned(), window), ("window_right".to_owned(), window + 4)]);
    fields.into_iter().map(|(name, offset)| (format!("features.{name}"), start + offset)).collect()
}
