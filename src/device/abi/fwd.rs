//! `kgen_fwd_params` of `kgen.h`: what forward, split-KV, combine and scheduler launchers take.

use super::{Address, AttentionFeatures, FLAG_CAUSAL, Header, Strides, features, score};
use std::{ffi::c_void, mem::offset_of, ptr::without_provenance_mut};

/// What a forward launcher is told besides tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FwdParams {
    /// Strides of Q, K, V and O.
    pub strides: [Strides; 4],
    /// Batch and head stride of the log-sum-exp.
    pub lse_strides: [i64; 2],
    /// Batch and head stride of the descales of Q, K and V.
    pub descale_strides: [[i64; 2]; 3],
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
    /// Rows of packed Q and K; 0: not told.
    pub total_rows: [i32; 2],
    /// Most splits of the keys; 0: the library chooses.
    pub num_splits: i32,
    /// Blocks that run at once, as `prepare_scheduler` is to assume; 0: two a multiprocessor.
    pub concurrent_blocks: i32,
    /// Elements of a row of Q and K.
    pub head_dim: i32,
    /// Elements of a row of V and O; 0: as of Q and K.
    pub head_dim_v: i32,
    /// `KGEN_DTYPE_*`.
    pub dtype: i32,
    /// `KGEN_DTYPE_*` of K and V; 0: that of Q.
    pub kv_dtype: i32,
    /// Causal mask.
    pub causal: bool,
    /// `KGEN_FLAG_MERGE_*`: how partial results are to be merged; 0: as the library likes.
    pub merging: u32,
    /// Words of `arrivals`.
    pub arrivals: i64,
    /// Factor on Q Kᵀ.
    pub softmax_scale: f32,
    /// Masks and scores besides.
    pub features: AttentionFeatures,
    /// Strides of QV; `None`: there is none.
    pub qv_strides: Option<Strides>,
    /// What is said of pages; `None`: nothing is.
    pub pages: Option<PagedKeys>,
    /// Entries of K and V that `cache_batch_idx` may name; 0: not said.
    pub cache_entries: i32,
    /// What is said of new rows of K and V; `None`: nothing is.
    pub new_rows: Option<NewRows>,
}

/// New rows of K and V that attention writes into the cache, but for the tensors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewRows {
    /// Strides of K's and V's.
    pub strides: [Strides; 2],
    /// Elements of a row of the tables of the rotation, with what lies between rows.
    pub rotary_row_stride: i64,
    /// New rows of each sequence.
    pub seqlen: i32,
    /// Columns that are rotated.
    pub rotary_dim: i32,
    /// Rows of the tables.
    pub rotary_rows: i32,
    /// Pairs of columns lie side by side.
    pub interleaved: bool,
}

/// K and V in pages, but for the table itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PagedKeys {
    /// Entries of the table from one sequence's first to the next one's.
    pub table_stride: i64,
    /// Rows of a page.
    pub size: i32,
    /// Pages of K and V.
    pub count: i32,
    /// Fewest and most queries of the sequences that a launcher serves; 0: no limit.
    pub query_limits: [i32; 2],
    /// Page and head stride of the pages' descales of K and of V.
    pub descale_strides: [[i64; 2]; 2],
}

impl FwdParams {
    /// The structure to pass.
    pub(super) fn structure(&self, address: Address<'_>, workspace_bytes: usize) -> Structure {
        let [q, k, v, o] = self.strides;
        let pages = self.pages.unwrap_or_default();
        let new = self.new_rows.unwrap_or_default();
        Structure {
            struct_size: size_of::<Structure>() as u32,
            flags: if self.causal { FLAG_CAUSAL } else { 0 } | self.features.flags() | self.merging,
            q: address("q"),
            k: address("k"),
            v: address("v"),
            o: address("o"),
            lse: address("lse"),
            tensor_strides: [q, k, v, o].map(|s| [s.batch, s.row, s.head]),
            lse_strides: self.lse_strides,
            cu_seqlens_q: address("cu_seqlens_q"),
            cu_seqlens_k: address("cu_seqlens_k"),
            seqused_q: address("seqused_q"),
            seqused_k: address("seqused_k"),
            batch: self.batch,
            num_heads: self.num_heads,
            num_heads_k: self.num_heads_k,
            seqlen_q: self.seqlen_q,
            seqlen_k: self.seqlen_k,
            head_dim: self.head_dim,
            dtype: self.dtype,
            softmax_scale: self.softmax_scale,
            descales: ["q_descale", "k_descale", "v_descale"].map(|name| address(name).cast_const()),
            descale_strides: self.descale_strides,
            total_rows: self.total_rows,
            num_splits: self.num_splits,
            concurrent_blocks: self.concurrent_blocks,
            split_counts: address("split_counts"),
            workspace: address("workspace"),
            workspace_bytes,
            features: self.features.structure(address),
            score: self.features.score.structure(address),
            head_dim_v: self.head_dim_v,
            reserved: 0,
            page_table: address("page_table"),
            page_table_stride: pages.table_stride,
            page_size: pages.size,
            num_pages: pages.count,
            query_limits: pages.query_limits,
            kv_dtype: self.kv_dtype,
            reserved_2: 0,
            cache_batch_idx: address("cache_batch_idx"),
            leftpad_k: address("leftpad_k"),
            qv: address("qv"),
            qv_strides: self.qv_strides.map_or([0; 3], |s| [s.batch, s.row, s.head]),
            work_counter: address("work_counter"),
            arrivals: address("arrivals"),
            arrivals_count: self.arrivals,
            page_descales: ["k_page_descale", "v_page_descale"].map(|name| address(name).cast_const()),
            page_descale_strides: pages.descale_strides,
            new_rows: ["k_new", "v_new"].map(|name| address(name).cast_const()),
            new_strides: new.strides.map(|s| [s.batch, s.row, s.head]),
            rotary: ["rotary_cos", "rotary_sin"].map(|name| address(name).cast_const()),
            rotary_row_stride: new.rotary_row_stride,
            seqlens_rotary: address("seqlens_rotary"),
            seqlen_new: new.seqlen,
            rotary_dim: new.rotary_dim,
            rotary_rows: new.rotary_rows,
            rotary_interleaved: new.interleaved.into(),
            cache_entries: self.cache_entries,
            reserved_3: 0,
        }
    }
}

/// `kgen_fwd_params`. Twelve strides of Q, K, V, O in the order batch, row, head each.
#[derive(Debug)]
#[repr(C)]
pub(in crate::device) struct Structure {
    struct_size: u32,
    flags: u32,
    q: *const c_void,
    k: *const c_void,
    v: *const c_void,
    o: *mut c_void,
    lse: *mut c_void,
    tensor_strides: [[i64; 3]; 4],
    lse_strides: [i64; 2],
    cu_seqlens_q: *const c_void,
    cu_seqlens_k: *const c_void,
    seqused_q: *const c_void,
    seqused_k: *const c_void,
    batch: i32,
    num_heads: i32,
    num_heads_k: i32,
    seqlen_q: i32,
    seqlen_k: i32,
    head_dim: i32,
    dtype: i32,
    softmax_scale: f32,
    descales: [*const c_void; 3],
    descale_strides: [[i64; 2]; 3],
    total_rows: [i32; 2],
    num_splits: i32,
    concurrent_blocks: i32,
    split_counts: *mut c_void,
    workspace: *mut c_void,
    workspace_bytes: usize,
    features: features::Structure,
    score: score::Structure,
    head_dim_v: i32,
    reserved: i32,
    page_table: *const c_void,
    page_table_stride: i64,
    page_size: i32,
    num_pages: i32,
    query_limits: [i32; 2],
    kv_dtype: i32,
    reserved_2: i32,
    cache_batch_idx: *const c_void,
    leftpad_k: *const c_void,
    qv: *const c_void,
    qv_strides: [i64; 3],
    work_counter: *mut c_void,
    arrivals: *mut c_void,
    arrivals_count: i64,
    page_descales: [*const c_void; 2],
    page_descale_strides: [[i64; 2]; 2],
    new_rows: [*const c_void; 2],
    new_strides: [[i64; 3]; 2],
    rotary: [*const c_void; 2],
    rotary_row_stride: i64,
    seqlens_rotary: *const c_void,
    seqlen_new: i32,
    rotary_dim: i32,
    rotary_rows: i32,
    rotary_interleaved: i32,
    cache_entries: i32,
    reserved_3: i32,
}

/// A number that is no sensible size, stride, count or address.
const GARBAGE: i32 = 0x7fa5_7fa5;

impl Structure {
    /// The same with another beginning; where that is the first version's, what it does not have is garbage.
    pub(super) fn headed(mut self, header: Header) -> Self {
        let first_version = offset_of!(Self, descales) as u32;
        (self.struct_size, self.flags) = header.of(self.struct_size, first_version, self.flags);
        if header == Header::FirstVersion {
            let nowhere = without_provenance_mut(GARBAGE as usize);
            self.descales = [nowhere; 3].map(<*mut c_void>::cast_const);
            self.descale_strides = [[GARBAGE.into(); 2]; 3];
            self.total_rows = [GARBAGE; 2];
            (self.num_splits, self.concurrent_blocks) = (GARBAGE, GARBAGE);
            (self.split_counts, self.workspace, self.workspace_bytes) = (nowhere, nowhere, GARBAGE as usize);
            (self.features.window, self.features.attention_chunk, self.features.reserved) = ([GARBAGE; 2], GARBAGE, GARBAGE);
            (self.features.alibi_slopes, self.features.sinks) = (nowhere, nowhere);
            (self.score.id, self.score.tables) = (GARBAGE as u64, [nowhere.cast_const(); 4]);
            (self.head_dim_v, self.reserved) = (GARBAGE, GARBAGE);
            (self.page_table, self.page_table_stride) = (nowhere, GARBAGE.into());
            (self.page_size, self.num_pages, self.query_limits) = (GARBAGE, GARBAGE, [GARBAGE; 2]);
            (self.kv_dtype, self.reserved_2, self.qv_strides) = (GARBAGE, GARBAGE, [GARBAGE.into(); 3]);
            [self.cache_batch_idx, self.leftpad_k, self.qv] = [nowhere.cast_const(); 3];
            (self.work_counter, self.arrivals, self.arrivals_count) = (nowhere, nowhere, GARBAGE.into());
            self.page_descales = [nowhere.cast_const(); 2];
            self.page_descale_strides = [[GARBAGE.into(); 2]; 2];
            (self.new_rows, self.rotary) = ([nowhere.cast_const(); 2], [nowhere.cast_const(); 2]);
            (self.new_strides, self.rotary_row_stride) = ([[GARBAGE.into(); 3]; 2], GARBAGE.into());
            (self.seqlens_rotary, self.seqlen_new) = (nowhere, GARBAGE);
            (self.rotary_dim, self.rotary_rows, self.rotary_interleaved) = (GARBAGE, GARBAGE, GARBAGE);
            (self.cache_entries, self.reserved_3) = (GARBAGE, GARBAGE);
        }
        self
    }
}

/// Offsets of all fields, by their names in C, and the size: for the test that compares them with the header.
#[cfg(test)]
pub(super) fn layout() -> (Vec<(String, usize)>, usize) {
    use super::tests::{each, strides};
    use std::mem::offset_of;
    let mut fields = each!(Structure: struct_size, flags, q, k, v, o, lse, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, batch,
        num_heads, num_heads_k, seqlen_q, seqlen_k, head_dim, dtype, softmax_scale, num_splits, concurrent_blocks, split_counts,
        workspace, workspace_bytes, head_dim_v, reserved, page_table, page_table_stride, page_size, num_pages, kv_dtype,
        reserved_2, cache_batch_idx, leftpad_k, qv, work_counter, arrivals, arrivals_count, rotary_row_stride, seqlens_rotary,
        seqlen_new, rotary_dim, rotary_rows, rotary_interleaved, cache_entries, reserved_3);
    let mut row = |offset: usize, bytes: usize, names: Vec<String>| {
        fields.extend(names.into_iter().enumerate().map(|(index, name)| (name, offset + index * bytes)));
    };
    row(offset_of!(Structure, tensor_strides), 8, strides("", &["q", "k", "v", "o"], &["batch", "row", "head"]));
    row(offset_of!(Structure, lse_strides), 8, strides("", &["lse"], &["batch", "head"]));
    row(offset_of!(Structure, descales), 8, ["q", "k", "v"].map(|t| format!("{t}_descale")).to_vec());
    row(offset_of!(Structure, descale_strides), 8, strides("_descale", &["q", "k", "v"], &["batch", "head"]));
    row(offset_of!(Structure, total_rows), 4, ["q", "k"].map(|t| format!("total_{t}")).to_vec());
    row(offset_of!(Structure, qv_strides), 8, strides("", &["qv"], &["batch", "row", "head"]));
    row(offset_of!(Structure, page_descales), 8, ["k", "v"].map(|t| format!("{t}_page_descale")).to_vec());
    row(offset_of!(Structure, page_descale_strides), 8, strides("_page_descale", &["k", "v"], &["page", "head"]));
    row(offset_of!(Structure, new_rows), 8, ["k", "v"].map(|t| format!("{t}_new")).to_vec());
    row(offset_of!(Structure, new_strides), 8, strides("_new", &["k", "v"], &["batch", "row", "head"]));
    row(offset_of!(Structure, rotary), 8, ["cos", "sin"].map(|t| format!("rotary_{t}")).to_vec());
    row(offset_of!(Structure, query_limits), 4, ["least", "most"].map(|limit| format!("{limit}_queries")).to_vec());
    fields.extend(features::layout(offset_of!(Structure, features)));
    fields.extend(score::layout(offset_of!(Structure, score)));
    (fields, size_of::<Structure>())
}
