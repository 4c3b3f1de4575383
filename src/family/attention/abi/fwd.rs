//! `kgen_fwd_params` of `kgen.h`: parameters of forward, split-KV, combine and scheduler launchers.

use super::{AttentionFeatures, FLAG_CAUSAL, HEADER, Strides, Values};
use crate::device::{Field, Fields, Layout, Parameters};
use std::sync::LazyLock;

/// Scalar parameters of a forward launcher.
#[derive(Debug, Clone, PartialEq)]
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
    /// Rows of Q, or an upper bound.
    pub seqlen_q: i32,
    /// Rows of K, or an upper bound.
    pub seqlen_k: i32,
    /// Rows of packed Q and K; 0 if unspecified.
    pub total_rows: [i32; 2],
    /// Maximum number of splits; 0: the library chooses.
    pub num_splits: i32,
    /// Number of concurrent blocks that `prepare_scheduler` should assume; 0: two per multiprocessor.
    pub concurrent_blocks: i32,
    /// Elements of a row of Q and K.
    pub head_dim: i32,
    /// Elements of a row of V and O; 0 for the same as Q and K.
    pub head_dim_v: i32,
    /// `KGEN_DTYPE_*`.
    pub dtype: i32,
    /// `KGEN_DTYPE_*` of K and V; 0: Q's type.
    pub kv_dtype: i32,
    /// Causal mask.
    pub causal: bool,
    /// `KGEN_FLAG_MERGE_*`: the way to merge partial results; 0: the library chooses.
    pub merging: u32,
    /// Number of words of `arrivals`.
    pub arrivals: i64,
    /// Factor on Q Kᵀ.
    pub softmax_scale: f32,
    /// Masks, scores and other features.
    pub features: AttentionFeatures,
    /// Strides of QV; `None`: there is none.
    pub qv_strides: Option<Strides>,
    /// Pages; `None`: K and V are contiguous.
    pub pages: Option<PagedKeys>,
    /// Entries of K and V that `cache_batch_idx` may name; 0 if unspecified.
    pub cache_entries: i32,
    /// New rows of K and V; `None`: there are none.
    pub new_rows: Option<NewRows>,
}

/// New rows of K and V that attention writes into the cache; the tensors themselves are separate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewRows {
    /// Strides of the new K and V.
    pub strides: [Strides; 2],
    /// Row stride of the rotation tables, in elements.
    pub rotary_row_stride: i64,
    /// New rows per sequence.
    pub seqlen: i32,
    /// Columns that are rotated.
    pub rotary_dim: i32,
    /// Rows of the tables.
    pub rotary_rows: i32,
    /// Pairs are adjacent columns.
    pub interleaved: bool,
}

/// Paged K and V; the table itself is separate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PagedKeys {
    /// Row stride of the table, in entries.
    pub table_stride: i64,
    /// Rows of a page.
    pub size: i32,
    /// Pages of K and V.
    pub count: i32,
    /// Minimum and maximum number of queries of the sequences that a launcher handles; 0: no limit.
    pub query_limits: [i32; 2],
    /// Page and head stride of the page descales of K and of V.
    pub descale_strides: [[i64; 2]; 2],
}

static LAYOUT: LazyLock<Layout> = LazyLock::new(|| Layout::of(HEADER, "kgen_fwd_params"));

impl Parameters for FwdParams {
    fn fields(&self) -> Fields {
        let flags = if self.causal { FLAG_CAUSAL } else { 0 } | self.features.flags() | self.merging;
        let pages = self.pages.unwrap_or_default();
        let new = self.new_rows.unwrap_or_default();
        let [q, k, v, o] = self.strides;
        let [k_new, v_new] = new.strides;
        let mut values = Values::default();
        for (name, strides) in [("q", q), ("k", k), ("v", v), ("o", o), ("k_new", k_new), ("v_new", v_new)] {
            values.strides(name, strides);
        }
        values.strides("qv", self.qv_strides.unwrap_or_default());
        values.pair("lse", ["batch", "head"], self.lse_strides);
        for (name, strides) in ["q_descale", "k_descale", "v_descale"].into_iter().zip(self.descale_strides) {
            values.pair(name, ["batch", "head"], strides);
        }
        for (name, strides) in ["k_page_descale", "v_page_descale"].into_iter().zip(pages.descale_strides) {
            values.pair(name, ["page", "head"], strides);
        }
        values.put("page_table_stride", Field::I64(pages.table_stride));
        values.put("rotary_row_stride", Field::I64(new.rotary_row_stride));
        values.put("arrivals_count", Field::I64(self.arrivals));
        values.put("softmax_scale", Field::F32(self.softmax_scale));
        values.integers([
            ("batch", self.batch),
            ("num_heads", self.num_heads),
            ("num_heads_k", self.num_heads_k),
            ("seqlen_q", self.seqlen_q),
            ("seqlen_k", self.seqlen_k),
            ("head_dim", self.head_dim),
            ("head_dim_v", self.head_dim_v),
            ("dtype", self.dtype),
            ("kv_dtype", self.kv_dtype),
            ("total_q", self.total_rows[0]),
            ("total_k", self.total_rows[1]),
            ("num_splits", self.num_splits),
            ("concurrent_blocks", self.concurrent_blocks),
            ("page_size", pages.size),
            ("num_pages", pages.count),
            ("least_queries", pages.query_limits[0]),
            ("most_queries", pages.query_limits[1]),
            ("seqlen_new", new.seqlen),
            ("rotary_dim", new.rotary_dim),
            ("rotary_rows", new.rotary_rows),
            ("rotary_interleaved", new.interleaved.into()),
            ("cache_entries", self.cache_entries),
        ]);
        self.features.add_to(&mut values);
        self.features.score.add_to(&mut values);
        LAYOUT.fill(flags, values.0)
    }
}
