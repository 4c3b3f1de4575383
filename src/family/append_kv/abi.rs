//! `kgen_append_kv_params`, as Rust fills it in.

use crate::{
    check::Number,
    device::{Call, Field, Fields, Params},
    family::attention::abi::Strides,
};

/// `KGEN_FLAG_CAUSAL`.
pub(super) const CAUSAL: u32 = 1;

/// `KGEN_FLAG_WINDOW`.
pub(super) const WINDOW: u32 = 4;

/// `KGEN_FLAG_ROTARY_INTERLEAVED`.
pub(super) const INTERLEAVED: u32 = 0x10;

/// `KGEN_FLAG_DESCALE_BY_PAGE`.
pub(super) const DESCALE_BY_PAGE: u32 = 0x20;

/// The fields in order. Pointers have the names of their tensors.
const NAMES: [&str; 57] = [
    "k",
    "v",
    "k_cache",
    "v_cache",
    "q",
    "q_out",
    "rotary_cos",
    "rotary_sin",
    "k_batch_stride",
    "k_row_stride",
    "k_head_stride",
    "v_batch_stride",
    "v_row_stride",
    "v_head_stride",
    "k_cache_page_stride",
    "k_cache_row_stride",
    "k_cache_head_stride",
    "v_cache_page_stride",
    "v_cache_row_stride",
    "v_cache_head_stride",
    "q_batch_stride",
    "q_row_stride",
    "q_head_stride",
    "q_out_batch_stride",
    "q_out_row_stride",
    "q_out_head_stride",
    "rotary_row_stride",
    "cache_seqlens",
    "cu_seqlens_new",
    "cu_seqlens_q",
    "seqlens_rotary",
    "cache_batch_idx",
    "page_table",
    "page_table_stride",
    "slot_mapping",
    "positions",
    "k_descale",
    "v_descale",
    "k_descale_batch_stride",
    "k_descale_head_stride",
    "v_descale_batch_stride",
    "v_descale_head_stride",
    "batch",
    "seqlen_new",
    "total_new",
    "seqlen_q",
    "total_q",
    "num_heads",
    "num_heads_k",
    "head_dim",
    "head_dim_v",
    "rotary_dim",
    "rotary_rows",
    "page_size",
    "num_pages",
    "pages_per_sequence",
    "dtype",
];

/// What follows them, the last of which came with a later version.
const LAST: [&str; 2] = ["cache_dtype", "seqlens_after"];

/// What a call says. Pointers besides those here are to the tensors of their name.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) flags: u32,
    pub(super) k_cache: Field,
    pub(super) v_cache: Field,
    pub(super) q_out: Field,
    /// Of K, V, K's cache, V's cache, Q and `q_out`; `batch` is from page to page of a cache.
    pub(super) strides: [Strides; 6],
    pub(super) rotary_row_stride: usize,
    pub(super) page_table_stride: usize,
    /// From batch entry to batch entry (or page to page) and from head to head, of K's and V's factors.
    pub(super) descale_strides: [[usize; 2]; 2],
    pub(super) batch: usize,
    pub(super) seqlen_new: usize,
    pub(super) total_new: usize,
    pub(super) seqlen_q: usize,
    pub(super) total_q: usize,
    pub(super) heads: usize,
    pub(super) heads_k: usize,
    /// Of K and V.
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
        let tensors = |names: &[&'static str]| names.iter().map(|name| Field::Tensor(name)).collect::<Vec<_>>();
        let strides = self.strides.iter().flat_map(|s| [s.batch, s.row, s.head]).map(Field::I64);
        let stride = |elements: usize| Field::I64(elements as i64);
        let number = |value: usize| Field::I32(value as i32);
        let mut fields = tensors(&NAMES[..2]);
        fields.extend([self.k_cache, self.v_cache, Field::Tensor("q"), self.q_out]);
        fields.extend(tensors(&["rotary_cos", "rotary_sin"]));
        fields.extend(strides);
        fields.push(stride(self.rotary_row_stride));
        fields.extend(tensors(&[
            "cache_seqlens",
            "cu_seqlens_new",
            "cu_seqlens_q",
            "seqlens_rotary",
            "cache_batch_idx",
            "page_table",
        ]));
        fields.push(stride(self.page_table_stride));
        fields.extend(tensors(&["slot_mapping", "positions", "k_descale", "v_descale"]));
        fields.extend(self.descale_strides.concat().into_iter().map(stride));
        let [head_dim, head_dim_v] = self.head_dims;
        let lengths = [self.batch, self.seqlen_new, self.total_new, self.seqlen_q, self.total_q];
        let rest = [self.heads, self.heads_k, head_dim, head_dim_v, self.rotary_dim, self.rotary_rows];
        let pages = [self.page_size, self.num_pages, self.pages_per_sequence];
        fields.extend(lengths.into_iter().chain(rest).chain(pages).map(number));
        fields.extend([Field::I32(self.number.code()), Field::I32(self.cache.code())]);
        fields.push(Field::Tensor("seqlens_after"));
        Params::of(Fields { flags: self.flags, fields, later: 1 })
    }
}

/// The field of that name.
///
/// # Panics
/// Where there is none.
pub(super) fn field<'a>(call: &'a mut Call, name: &str) -> &'a mut Field {
    let place = NAMES.iter().chain(&LAST).position(|known| *known == name).expect("a field of the structure");
    &mut call.fields()[place]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::assert_layout_is_that_of_c;

    #[test]
    fn fields_lie_where_kgen_h_has_them() {
        let request = Request {
            flags: 0,
            k_cache: Field::Tensor("k_cache"),
            v_cache: Field::Tensor("v_cache"),
            q_out: Field::Tensor("q_out"),
            strides: [Strides::default(); 6],
            rotary_row_stride: 0,
            page_table_stride: 0,
            descale_strides: [[0; 2]; 2],
            batch: 1,
            seqlen_new: 2,
            total_new: 3,
            seqlen_q: 4,
            total_q: 5,
            heads: 6,
            heads_k: 7,
            head_dims: [8, 9],
            rotary_dim: 10,
            rotary_rows: 11,
            page_size: 12,
            num_pages: 13,
            pages_per_sequence: 14,
            number: Number::Bf16,
            cache: Number::E5m2,
        };
        let params = request.params();
        let names: Vec<&str> = NAMES.iter().copied().chain(LAST).collect();
        assert_layout_is_that_of_c("kgen_append_kv_params", &names, params.get().expect("written field by field"));
        let written: &Fields = params.get().expect("written field by field");
        // Each number is in the place of its name.
        let values: Vec<Field> = written.fields[NAMES.len() - 15..].to_vec();
        assert_eq!(values[..14], (1..=14).map(Field::I32).collect::<Vec<_>>());
        assert_eq!(values[14..], [Field::I32(1), Field::I32(4), Field::Tensor("seqlens_after")]);
        for (name, field) in NAMES.iter().chain(&LAST).zip(&written.fields).filter(|(_, field)| matches!(field, Field::Tensor(_)))
        {
            assert_eq!(*field, Field::Tensor(name));
        }
    }
}
