//! `kgen_bwd_params` of `kgen.h`: what backward launchers take.

use super::{AttentionFeatures, FLAG_CAUSAL, FLAG_DETERMINISTIC, Rows, Strides};
use crate::device::{Field, Fields, Parameters};

/// Scalar parameters of a backward launcher.
#[derive(Debug, Clone, Copy, PartialEq)]
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
    /// Rows of Q, or a bound on them.
    pub seqlen_q: i32,
    /// Rows of K, or a bound on them.
    pub seqlen_k: i32,
    /// Rows of packed Q; 0: not told.
    pub total_q: i32,
    /// Elements of a row of Q and K.
    pub head_dim: i32,
    /// Elements of a row of V and O; 0: as of Q and K.
    pub head_dim_v: i32,
    /// `KGEN_DTYPE_*`.
    pub dtype: i32,
    /// Causal mask.
    pub causal: bool,
    /// The same inputs give the same bits.
    pub deterministic: bool,
    /// Factor on Q Kᵀ.
    pub softmax_scale: f32,
    /// Masks and scores besides.
    pub features: AttentionFeatures,
}

/// Fields of the first version of the structure.
const FIRST_VERSION: usize = 50;

impl BwdParams {
    /// The fields after `struct_size` and `flags`, by their names in C.
    pub(super) fn rows(&self) -> Rows {
        let mut rows = Rows::default();
        rows.tensors(["q", "k", "v", "o", "dout", "lse", "dq", "dk", "dv", "workspace"]);
        rows.push("workspace_bytes", Field::WorkspaceBytes);
        for (name, strides) in ["q", "k", "v", "o", "dout", "dq", "dk", "dv"].into_iter().zip(self.strides) {
            rows.strides(name, strides);
        }
        rows.pair("lse", ["batch", "head"], self.lse_strides);
        rows.tensors(["cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"]);
        rows.integers([
            ("batch", self.batch),
            ("num_heads", self.num_heads),
            ("num_heads_k", self.num_heads_k),
            ("seqlen_q", self.seqlen_q),
            ("seqlen_k", self.seqlen_k),
            ("total_q", self.total_q),
            ("head_dim", self.head_dim),
            ("dtype", self.dtype),
        ]);
        rows.push("softmax_scale", Field::F32(self.softmax_scale));
        self.features.add_to(&mut rows);
        rows.tensors(["dsinks"]);
        self.features.score.add_to(&mut rows);
        rows.integers([("head_dim_v", self.head_dim_v), ("reserved", 0)]);
        rows.tensors(["dlse"]);
        rows.pair("dlse", ["batch", "head"], self.dlse_strides);
        rows
    }
}

impl Parameters for BwdParams {
    fn fields(&self) -> Fields {
        let flag = |set, flag| if set { flag } else { 0 };
        let flags = flag(self.causal, FLAG_CAUSAL) | flag(self.deterministic, FLAG_DETERMINISTIC) | self.features.flags();
        self.rows().into_fields(flags, FIRST_VERSION)
    }
}
