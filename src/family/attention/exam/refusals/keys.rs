//! Calls that concern where forward kernels find K and V and what these are, each with one thing wrong: pages, caches,
//! new rows, queries of two parts, K and V in FP8.

use super::{BEYOND_MEMORY, fwd, numbers, push};
use crate::{
    check::{
        Change,
        Expected::{Refused, Same},
        drop_tensor,
    },
    device::{Call, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2, DTYPE_FP32, ERROR_INVALID_VALUE, ERROR_MISMATCH, ERROR_UNSUPPORTED, Image},
    family::attention::abi::{NewRows, PagedKeys, Strides},
};

/// What kernels do that were built without one of the places where K and V may lie.
pub(super) const WITHOUT_PAGES: &[Change] = &[
    (
        "a limit on queries without pages",
        |c| fwd(c).pages = Some(PagedKeys { query_limits: [2, 0], ..PagedKeys::default() }),
        Refused(ERROR_UNSUPPORTED, "least_queries 2 and most_queries 0 must be 0"),
    ),
    ("a page table", page_table, Refused(ERROR_MISMATCH, "built without the feature `paged`")),
];

pub(super) const WITHOUT_CACHE: &[Change] = &[
    ("entries of a cache", |c| push_zero(c, "cache_batch_idx"), Refused(ERROR_MISMATCH, "built without the feature `cache`")),
    ("rows before the keys", |c| push_zero(c, "leftpad_k"), Refused(ERROR_MISMATCH, "built without the feature `cache`")),
];

/// What kernels do that read a cache.
pub(super) const WITH_CACHE: &[Change] = &[
    (
        "entries of packed keys",
        |c| packed_with(c, "cache_batch_idx"),
        Refused(ERROR_INVALID_VALUE, "NULL with cu_seqlens_k or a"),
    ),
    ("rows before packed keys", |c| packed_with(c, "leftpad_k"), Refused(ERROR_INVALID_VALUE, "NULL with cu_seqlens_k or a")),
    ("each its own entry", |c| push_zero(c, "cache_batch_idx"), Same),
    ("no rows before the keys", |c| push_zero(c, "leftpad_k"), Same),
];

/// An array of one sequence's number, which is 0.
fn push_zero(call: &mut Call, name: &'static str) {
    call.inputs.push((name, Image::of_integers(&[0])));
}

fn packed_with(call: &mut Call, name: &'static str) {
    push_zero(call, name);
    call.inputs.push(("cu_seqlens_k", Image::of_integers(&[0, 40])));
}

fn page_table(call: &mut Call) {
    call.inputs.push(("page_table", Image::of_integers(&[0])));
    fwd(call).pages = Some(PagedKeys { table_stride: 1, size: 40, count: 1, ..PagedKeys::default() });
}

/// The same of factors by page.
pub(super) const WITHOUT_PAGE_DESCALE: &[Change] = &[
    ("factors of K by page", |c| push(c, "k_page_descale"), Refused(ERROR_MISMATCH, "built without the feature `page_descale`")),
    ("factors of V by page", |c| push(c, "v_page_descale"), Refused(ERROR_MISMATCH, "built without the feature `page_descale`")),
];

/// What kernels do that read them: of two key heads, so that a stride leads somewhere.
pub(super) const WITH_PAGE_DESCALE: &[Change] = &[
    (
        "factors of K beyond all memory",
        |c| page_factors(c, 0, "k_page_descale"),
        Refused(ERROR_INVALID_VALUE, "k_page_descale_head_stride 1152"),
    ),
    (
        "factors of V beyond all memory",
        |c| page_factors(c, 1, "v_page_descale"),
        Refused(ERROR_INVALID_VALUE, "v_page_descale_head_stride 1152"),
    ),
];

fn page_factors(call: &mut Call, tensor: usize, name: &'static str) {
    drop_tensor(call, name);
    push(call, name);
    *numbers(call).num_heads_k = 2;
    pages(call).descale_strides[tensor][1] = BEYOND_MEMORY;
}

/// The same of what queries are made of.
pub(super) const WITHOUT_QV: &[Change] =
    &[("queries of two parts", |c| push(c, "qv"), Refused(ERROR_MISMATCH, "built without the feature `qv`"))];

/// What kernels do that write no new rows.
pub(super) const WITHOUT_NEW_ROWS: &[Change] =
    &[("new rows", |c| push(c, "k_new"), Refused(ERROR_MISMATCH, "built without the feature `append`"))];

/// What those do that write them.
pub(super) const WITH_NEW_ROWS: &[Change] = &[
    ("no new rows", |c| drop_tensor(c, "k_new"), Refused(ERROR_MISMATCH, "called without k_new")),
    ("new rows of K alone", |c| drop_tensor(c, "v_new"), Refused(ERROR_INVALID_VALUE, "v_new must not be NULL")),
    ("no lengths", |c| drop_tensor(c, "seqused_k"), Refused(ERROR_INVALID_VALUE, "k_new needs seqused_k")),
    ("fewer than no new rows", |c| new_rows(c).seqlen = -1, Refused(ERROR_INVALID_VALUE, "seqlen_new -1 must not")),
    ("cosines alone", |c| drop_tensor(c, "rotary_sin"), Refused(ERROR_INVALID_VALUE, "rotary_cos and rotary_sin must both")),
    ("sines alone", |c| drop_tensor(c, "rotary_cos"), Refused(ERROR_INVALID_VALUE, "rotary_cos and rotary_sin must both")),
    ("a rotation without tables", no_tables, Refused(ERROR_INVALID_VALUE, "rotary_dim 16 must be 0 without rotary_cos")),
    (
        "positions without tables",
        |c| {
            no_tables(c);
            new_rows(c).rotary_dim = 0;
        },
        Refused(ERROR_INVALID_VALUE, "seqlens_rotary needs rotary_cos"),
    ),
    ("a rotation of 8 columns", |c| new_rows(c).rotary_dim = 8, Refused(ERROR_INVALID_VALUE, "rotary_dim 8 must be a multiple")),
    ("a rotation of nothing", |c| new_rows(c).rotary_dim = 0, Refused(ERROR_INVALID_VALUE, "rotary_dim 0 must be a multiple")),
    (
        "a rotation of more than there is",
        |c| new_rows(c).rotary_dim = 272,
        Refused(ERROR_INVALID_VALUE, "rotary_dim 272 must be a multiple"),
    ),
    ("tables of no rows", |c| new_rows(c).rotary_rows = 0, Refused(ERROR_INVALID_VALUE, "rotary_rows 0 must be at least 1")),
    ("no queries", |c| *numbers(c).seqlen_q = 0, Refused(ERROR_UNSUPPORTED, "0 rows of queries and heads that read one key")),
    ("rows of K that are not aligned", |c| new_rows(c).strides[0].row += 4, Refused(ERROR_UNSUPPORTED, "aligned to 16 bytes")),
    ("heads of K that are not", |c| new_rows(c).strides[0].head += 4, Refused(ERROR_UNSUPPORTED, "aligned to 16 bytes")),
    ("sequences of V that are not", |c| new_rows(c).strides[1].batch += 4, Refused(ERROR_UNSUPPORTED, "aligned to 16 bytes")),
    ("tables that are not", |c| new_rows(c).rotary_row_stride += 4, Refused(ERROR_UNSUPPORTED, "aligned to 16 bytes")),
];

/// What the launcher of one says of pages.
pub(super) const NEW_ROWS_IN_PAGES: &[Change] = &[(
    "a limit on queries",
    |c| pages(c).query_limits = [0, 3],
    Refused(ERROR_INVALID_VALUE, "least_queries and most_queries must be 0 with k_new"),
)];

fn new_rows(call: &mut Call) -> &mut NewRows {
    fwd(call).new_rows.as_mut().expect("the kernel writes new rows")
}

fn no_tables(call: &mut Call) {
    drop_tensor(call, "rotary_cos");
    drop_tensor(call, "rotary_sin");
}

/// What kernels do for queries of two parts.
pub(super) const WITH_QV: &[Change] = &[
    ("queries of one part", |c| drop_tensor(c, "qv"), Refused(ERROR_MISMATCH, "called without qv")),
    ("rows of qv beyond all memory", |c| qv(c).row = BEYOND_MEMORY, Refused(ERROR_INVALID_VALUE, "qv_row_stride 1152")),
    ("heads of qv beyond all memory", |c| qv(c).head = BEYOND_MEMORY, Refused(ERROR_INVALID_VALUE, "qv_head_stride 1152")),
];

fn qv(call: &mut Call) -> &mut Strides {
    fwd(call).qv_strides.as_mut().expect("its queries have two parts")
}

/// What kernels do that read pages.
pub(super) const WITH_PAGES: &[Change] = &[
    ("no page table", |c| drop_tensor(c, "page_table"), Refused(ERROR_MISMATCH, "called without a page_table")),
    ("pages of no rows", |c| pages(c).size = 0, Refused(ERROR_INVALID_VALUE, "page_size 0 must be at least 1")),
    ("no pages", |c| pages(c).count = 0, Refused(ERROR_INVALID_VALUE, "num_pages 0 must be at least 1")),
    ("fewer than no pages", |c| pages(c).count = -1, Refused(ERROR_INVALID_VALUE, "num_pages -1 must be at least 1")),
    (
        "a negative limit on queries",
        |c| pages(c).query_limits = [0, -1],
        Refused(ERROR_INVALID_VALUE, "most_queries -1 must not be negative"),
    ),
    (
        "packed keys in pages",
        |c| c.inputs.push(("cu_seqlens_k", Image::of_integers(&[0, 40]))),
        Refused(ERROR_INVALID_VALUE, "cu_seqlens_k must be NULL with a page_table"),
    ),
];

/// What kernels do that read K and V of Q's type.
pub(super) const WITHOUT_KV: &[Change] = &[
    ("K and V in E4M3", |c| fwd(c).kv_dtype = DTYPE_FP8_E4M3, Refused(ERROR_MISMATCH, "built without the feature `kv_e4m3`")),
    ("K and V in E5M2", |c| fwd(c).kv_dtype = DTYPE_FP8_E5M2, Refused(ERROR_MISMATCH, "built without the feature `kv_e5m2`")),
    ("K and V in fp32", |c| fwd(c).kv_dtype = DTYPE_FP32, Refused(ERROR_INVALID_VALUE, "kv_dtype 3 must be")),
];

/// What those do that read E4M3.
pub(super) const WITH_E4M3: &[Change] = &[
    ("K and V of the type of Q", |c| fwd(c).kv_dtype = 0, Refused(ERROR_MISMATCH, "called without kv_dtype KGEN_DTYPE_FP8_E4M3")),
    ("K and V in E5M2", |c| fwd(c).kv_dtype = DTYPE_FP8_E5M2, Refused(ERROR_MISMATCH, "built without the feature `kv_e5m2`")),
];

/// The same of E5M2.
pub(super) const WITH_E5M2: &[Change] = &[
    ("K and V of the type of Q", |c| fwd(c).kv_dtype = 0, Refused(ERROR_MISMATCH, "called without kv_dtype KGEN_DTYPE_FP8_E5M2")),
    ("K and V in E4M3", |c| fwd(c).kv_dtype = DTYPE_FP8_E4M3, Refused(ERROR_MISMATCH, "built without the feature `kv_e4m3`")),
];

fn pages(call: &mut Call) -> &mut PagedKeys {
    fwd(call).pages.as_mut().expect("the kernel reads pages")
}
