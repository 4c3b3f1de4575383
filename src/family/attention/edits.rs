//! Helpers with which refusal cases change a call: its numbers, its strides, an additional tensor.

use super::abi::{AttentionFeatures, BwdParams, FwdParams};
use crate::device::{Call, Image};

/// A stride that puts the second element outside of any memory.
pub const BEYOND_MEMORY: i64 = 1 << 60;

/// The numbers that both passes' structures have.
pub struct Numbers<'a> {
    pub batch: &'a mut i32,
    pub num_heads: &'a mut i32,
    pub num_heads_k: &'a mut i32,
    pub seqlen_q: &'a mut i32,
    pub seqlen_k: &'a mut i32,
    pub head_dim: &'a mut i32,
    pub head_dim_v: &'a mut i32,
    pub dtype: &'a mut i32,
    pub causal: &'a mut bool,
    pub features: &'a mut AttentionFeatures,
    pub softmax_scale: &'a mut f32,
}

macro_rules! numbers_of {
    ($params:expr) => {{
        let p = $params;
        Numbers {
            batch: &mut p.batch,
            num_heads: &mut p.num_heads,
            num_heads_k: &mut p.num_heads_k,
            seqlen_q: &mut p.seqlen_q,
            seqlen_k: &mut p.seqlen_k,
            head_dim: &mut p.head_dim,
            head_dim_v: &mut p.head_dim_v,
            dtype: &mut p.dtype,
            causal: &mut p.causal,
            features: &mut p.features,
            softmax_scale: &mut p.softmax_scale,
        }
    }};
}

/// The numbers of a call of either pass.
pub fn numbers(call: &mut Call) -> Numbers<'_> {
    if call.params.get::<FwdParams>().is_some() { numbers_of!(fwd(call)) } else { numbers_of!(bwd(call)) }
}

/// The parameters of a forward call.
pub fn fwd(call: &mut Call) -> &mut FwdParams {
    call.params.get_mut().expect("a forward call")
}

/// The parameters of a backward call.
pub fn bwd(call: &mut Call) -> &mut BwdParams {
    call.params.get_mut().expect("a backward call")
}

/// Adds a tensor to the call.
pub fn push(call: &mut Call, name: &'static str) {
    call.inputs.push((name, Image::of_numbers(&[(0, 1.0), (1, 1.0)])));
}
