//! Builds `kgen_append_kv_params`.

use crate::{
    check::Number,
    device::{Field, Layout, Params},
    family::attention::abi::Strides,
};
use std::sync::LazyLock;

/// `KGEN_FLAG_CAUSAL`.
pub(super) const CAUSAL: u32 = 1;

/// `KGEN_FLAG_WINDOW`.
pub(super) const WINDOW: u32 = 4;

/// `KGEN_FLAG_ROTARY_INTERLEAVED`.
pub(super) const INTERLEAVED: u32 = 0x10;

/// `KGEN_FLAG_DESCALE_BY_PAGE`.
pub(super) const DESCALE_BY_PAGE: u32 = 0x20;

static LAYOUT: LazyLock<Layout> =
    LazyLock::new(|| Layout::of(include_str!("../../../templates/append_kv/abi.h"), "kgen_append_kv_params"));

/// Values of a call. A pointer without a value here points to the tensor of the same name.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) flags: u32,
    pub(super) k_cache: Field,
    pub(super) v_cache: Field,
    pub(super) q_out: Field,
    /// Strides of K, V, K's cache, V's cache, Q and `q_out`; `batch` is the page stride of a paged cache.
    pub(super) strides: [Strides; 6],
    pub(super) rotary_row_stride: usize,
    pub(super) page_table_stride: usize,
    /// Batch stride (or page stride) and head stride of the factors of K and V.
    pub(super) descale_strides: [[usize; 2]; 2],
    pub(super) batch: usize,
    pub(super) seqlen_new: usize,
    pub(super) total_new: usize,
    pub(super) seqlen_q: usize,
    pub(super) total_q: usize,
    pub(super) heads: usize,
    pub(super) heads_k: usize,
    /// Head dims of K and V.
    pub(super) head_dims: [usize; 2],
    pub(super) rotary_dim: usize,
    pub(super) rotary_rows: usize,
    pub(super) page_size: usize,
    pub(super) num_pages: usize,
    pub(super) pages_per_sequence: usize,
    pub(super) number: Number,
    pub(super) cache: Number,
}

impl Request {
    /// The structure.
    pub(super) fn params(&self) -> Params {
        let stride = |elements: usize| Field::I64(elements as i64);
        let mut values = vec![
            ("k_cache".to_owned(), self.k_cache),
            ("v_cache".to_owned(), self.v_cache),
            ("q_out".to_owned(), self.q_out),
            ("rotary_row_stride".to_owned(), stride(self.rotary_row_stride)),
            ("page_table_stride".to_owned(), stride(self.page_table_stride)),
            ("dtype".to_owned(), Field::I32(self.number.code())),
            ("cache_dtype".to_owned(), Field::I32(self.cache.code())),
        ];
        let tensors =
            [("k", "batch"), ("v", "batch"), ("k_cache", "page"), ("v_cache", "page"), ("q", "batch"), ("q_out", "batch")];
        for ((tensor, first), Strides { batch, row, head }) in tensors.into_iter().zip(self.strides) {
            let axes = [(first, batch), ("row", row), ("head", head)];
            values.extend(axes.map(|(axis, elements)| (format!("{tensor}_{axis}_stride"), Field::I64(elements))));
        }
        for (tensor, [batch, head]) in ["k", "v"].into_iter().zip(self.descale_strides) {
            values.push((format!("{tensor}_descale_batch_stride"), stride(batch)));
            values.push((format!("{tensor}_descale_head_stride"), stride(head)));
        }
        let [head_dim, head_dim_v] = self.head_dims;
        let numbers = [
            ("batch", self.batch),
            ("seqlen_new", self.seqlen_new),
            ("total_new", self.total_new),
            ("seqlen_q", self.seqlen_q),
            ("total_q", self.total_q),
            ("num_heads", self.heads),
            ("num_heads_k", self.heads_k),
            ("head_dim", head_dim),
            ("head_dim_v", head_dim_v),
            ("rotary_dim", self.rotary_dim),
            ("rotary_rows", self.rotary_rows),
            ("page_size", self.page_size),
            ("num_pages", self.num_pages),
            ("pages_per_sequence", self.pages_per_sequence),
        ];
        values.extend(numbers.map(|(name, number)| (name.to_owned(), Field::I32(number as i32))));
        Params::of(LAYOUT.fill(self.flags, values))
    }
}
