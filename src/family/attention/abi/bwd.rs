//! `kgen_bwd_params` of `kgen.h`: parameters of backward launchers.

use super::{AttentionFeatures, FLAG_CAUSAL, FLAG_DETERMINISTIC, HEADER, Strides, Values};
use crate::{
    device::{Field, Fields, Layout, Parameters},
    family::attention::features::FEATURES,
};
use std::sync::LazyLock;

/// Scalar parameters of a backward launcher.
#[derive(Debug, Clone, PartialEq)]
pub struct BwdParams {
    /// Strides of Q, K, V, O, dO, dQ, dK and dV.
    pub strides: [Strides; 8],
    /// Batch and head stride of the log-sum-exp.
    pub lse_strides: [i64; 2],
    /// Batch and head stride of its gradient.
    pub dlse_strides: [i64; 2],
    /// Sequences.
    pub batch: i32,
    /// Query heads.
    pub num_heads: i32,
    /// Key heads.
    pub num_heads_k: i32,
    /// Rows of Q, or an upper bound.
    pub seqlen_q: i32,
    /// Rows of K, or an upper bound.
    pub seqlen_k: i32,
    /// Rows of packed Q; 0 if unspecified.
    pub total_q: i32,
    /// Rows of packed K; 0 if unspecified.
    pub total_k: i32,
    /// Elements of a row of Q and K.
    pub head_dim: i32,
    /// Elements of a row of V and O; 0 for the same as Q and K.
    pub head_dim_v: i32,
    /// `KGEN_DTYPE_*`.
    pub dtype: i32,
    /// Causal mask.
    pub causal: bool,
    /// True if the gradients must be bit-identical for the same inputs.
    pub deterministic: bool,
    /// Factor on Q Kᵀ.
    pub softmax_scale: f32,
    /// Masks, scores and other features.
    pub features: AttentionFeatures,
}

static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout::of(HEADER, "kgen_bwd_params"));

impl Parameters for BwdParams {
    fn fields(&self) -> Fields {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.causal, FLAG_CAUSAL) | flag(self.deterministic, FLAG_DETERMINISTIC) | self.features.flags();
        let mut values = Values::default();
        for (name, strides) in ["q", "k", "v", "o", "dout", "dq", "dk", "dv"].into_iter().zip(self.strides) {
            values.strides(name, strides);
        }
        values.pair("lse", ["batch", "head"], self.lse_strides);
        values.pair("dlse", ["batch", "head"], self.dlse_strides);
        for &(path, number) in FEATURES.iter().flat_map(|room| room.gradient_numbers()) {
            values.put(path, number);
        }
        values.put("softmax_scale", Field::F32(self.softmax_scale));
        values.integers([
            ("batch", self.batch),
            ("num_heads", self.num_heads),
            ("num_heads_k", self.num_heads_k),
            ("seqlen_q", self.seqlen_q),
            ("seqlen_k", self.seqlen_k),
            ("total_q", self.total_q),
            ("total_k", self.total_k),
            ("head_dim", self.head_dim),
            ("head_dim_v", self.head_dim_v),
            ("dtype", self.dtype),
        ]);
        self.features.add_to(&mut values);
        self.features.score.add_to(&mut values);
        LAYOUT.fill(flags, values.0)
    }
}
