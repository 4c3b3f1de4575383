//! `kgen_bwd_params` of `kgen.h`: what backward launchers take.

use super::{Address, AttentionFeatures, FLAG_CAUSAL, FLAG_DETERMINISTIC, Header, Strides, features, score};
use std::{ffi::c_void, mem::offset_of};

/// What a backward launcher is told besides tensors.
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

impl BwdParams {
    /// The structure to pass.
    pub(super) fn structure(&self, address: Address<'_>, workspace_bytes: usize) -> Structure {
        let flag = |set, flag| if set { flag } else { 0 };
        Structure {
            struct_size: size_of::<Structure>() as u32,
            flags: flag(self.causal, FLAG_CAUSAL) | flag(self.deterministic, FLAG_DETERMINISTIC) | self.features.flags(),
            tensors: ["q", "k", "v", "o", "dout", "lse", "dq", "dk", "dv", "workspace"].map(address),
            workspace_bytes,
            tensor_strides: self.strides.map(|s| [s.batch, s.row, s.head]),
            lse_strides: self.lse_strides,
            lengths: ["cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"].map(address),
            batch: self.batch,
            num_heads: self.num_heads,
            num_heads_k: self.num_heads_k,
            seqlen_q: self.seqlen_q,
            seqlen_k: self.seqlen_k,
            total_q: self.total_q,
            head_dim: self.head_dim,
            dtype: self.dtype,
            softmax_scale: self.softmax_scale,
            features: self.features.structure(address),
            dsinks: address("dsinks"),
            score: self.features.score.structure(address),
            head_dim_v: self.head_dim_v,
            reserved: 0,
            dlse: address("dlse"),
            dlse_strides: self.dlse_strides,
        }
    }
}

/// `kgen_bwd_params`. Pointers to Q, K, V, O, dO, LSE, dQ, dK, dV and the workspace; strides in the order batch, row,
/// head.
#[derive(Debug)]
#[repr(C)]
pub(in crate::device) struct Structure {
    struct_size: u32,
    flags: u32,
    tensors: [*mut c_void; 10],
    workspace_bytes: usize,
    tensor_strides: [[i64; 3]; 8],
    lse_strides: [i64; 2],
    lengths: [*mut c_void; 4],
    batch: i32,
    num_heads: i32,
    num_heads_k: i32,
    seqlen_q: i32,
    seqlen_k: i32,
    total_q: i32,
    head_dim: i32,
    dtype: i32,
    softmax_scale: f32,
    features: features::Structure,
    dsinks: *mut c_void,
    score: score::Structure,
    head_dim_v: i32,
    reserved: i32,
    dlse: *mut c_void,
    dlse_strides: [i64; 2],
}

impl Structure {
    /// The same with another beginning; where that is the first version's, what it does not have is garbage.
    pub(super) fn headed(mut self, header: Header) -> Self {
        let first_version = offset_of!(Self, features) as u32;
        (self.struct_size, self.flags) = header.of(self.struct_size, first_version, self.flags);
        if header == Header::FirstVersion {
            self.features.attention_chunk = -1;
            self.score.id = 1;
            (self.head_dim_v, self.reserved) = (-1, -1);
            self.dlse = self.tensors[0];
        }
        self
    }
}

/// Offsets of all fields, by their names in C, and the size: for the test that compares them with the header.
#[cfg(test)]
pub(super) fn layout() -> (Vec<(String, usize)>, usize) {
    use super::tests::{each, strides};
    const TENSORS: [&str; 8] = ["q", "k", "v", "o", "dout", "dq", "dk", "dv"];
    let mut fields = each!(Structure: struct_size, flags, workspace_bytes, batch, num_heads, num_heads_k, seqlen_q, seqlen_k,
        total_q, head_dim, dtype, softmax_scale, head_dim_v, reserved);
    let mut row = |offset: usize, names: Vec<String>| {
        fields.extend(names.into_iter().enumerate().map(|(index, name)| (name, offset + index * 8)));
    };
    let tensors = ["q", "k", "v", "o", "dout", "lse", "dq", "dk", "dv", "workspace"];
    row(offset_of!(Structure, tensors), tensors.map(str::to_owned).to_vec());
    row(offset_of!(Structure, tensor_strides), strides("", &TENSORS, &["batch", "row", "head"]));
    row(offset_of!(Structure, lse_strides), strides("", &["lse"], &["batch", "head"]));
    row(offset_of!(Structure, dlse_strides), strides("", &["dlse"], &["batch", "head"]));
    row(offset_of!(Structure, lengths), ["cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"].map(str::to_owned).to_vec());
    fields.push(("dsinks".to_owned(), offset_of!(Structure, dsinks)));
    fields.push(("dlse".to_owned(), offset_of!(Structure, dlse)));
    fields.extend(features::layout(offset_of!(Structure, features)));
    fields.extend(score::layout(offset_of!(Structure, score)));
    (fields, size_of::<Structure>())
}
