//! Calls that must be refused, and similar ones that must be accepted.

use super::abi;
use crate::{
    check::{
        Change,
        Expected::{Refused, Same},
        begin, drop_tensor,
    },
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, ERROR_UNSUPPORTED, Field, Header, Image},
};

fn set(call: &mut Call, name: &str, value: i32) {
    *call.field(name) = Field::I32(value);
}

fn add(call: &mut Call, name: &'static str) {
    call.inputs.push((name, Image::of_integers(&[0; 64])));
}

/// Changes of a call with pages.
pub(super) const CHANGES: &[Change] = &[
    (
        "a structure that is too short",
        |c| begin(c, Header::TooShort),
        Refused(ERROR_INVALID_VALUE, "version 6 of kgen_append_kv_params has"),
    ),
    ("a flag of attention", |c| begin(c, Header::Flags(2)), Refused(ERROR_UNSUPPORTED, "unknown flags 0x2")),
    ("a window too", |c| begin(c, Header::Flags(abi::WINDOW)), Same),
    ("another dtype", |c| set(c, "dtype", 3), Refused(ERROR_MISMATCH, "params.dtype is 3")),
    ("a cache of fp32", |c| set(c, "cache_dtype", 3), Refused(ERROR_INVALID_VALUE, "params.cache_dtype is 3")),
    ("a negative batch", |c| set(c, "batch", -1), Refused(ERROR_INVALID_VALUE, "must not be negative")),
    ("a negative total_q", |c| set(c, "total_q", -1), Refused(ERROR_INVALID_VALUE, "must not be negative")),
    (
        "a head dim between pieces",
        |c| set(c, "head_dim", 36),
        Refused(ERROR_INVALID_VALUE, "head_dim 36 and head_dim_v 32 must be"),
    ),
    ("a head dim of 264", |c| set(c, "head_dim", 264), Refused(ERROR_INVALID_VALUE, "head_dim 264")),
    ("a head dim of V of 4", |c| set(c, "head_dim_v", 4), Refused(ERROR_INVALID_VALUE, "head_dim_v 4")),
    ("no head dim of V", |c| set(c, "head_dim_v", 0), Same),
    ("no heads of Q", |c| set(c, "num_heads", 0), Refused(ERROR_INVALID_VALUE, "num_heads 0")),
    ("no heads of K", |c| set(c, "num_heads_k", 0), Refused(ERROR_INVALID_VALUE, "num_heads_k 0")),
    ("a rotary dim of 24", |c| set(c, "rotary_dim", 24), Refused(ERROR_INVALID_VALUE, "rotary_dim 24 must be a multiple of 16")),
    ("a rotary dim of 48", |c| set(c, "rotary_dim", 48), Refused(ERROR_INVALID_VALUE, "rotary_dim 48 must be")),
    ("a rotary dim of 0", |c| set(c, "rotary_dim", 0), Refused(ERROR_INVALID_VALUE, "rotary_dim 0 must be")),
    ("tables without rows", |c| set(c, "rotary_rows", 0), Refused(ERROR_INVALID_VALUE, "rotary_rows 0")),
    ("no cosines", |c| drop_tensor(c, "rotary_cos"), Refused(ERROR_INVALID_VALUE, "must both be given or both be NULL")),
    ("no sines", |c| drop_tensor(c, "rotary_sin"), Refused(ERROR_INVALID_VALUE, "must both be given or both be NULL")),
    ("a rotary dim and no tables", without_tables, Refused(ERROR_INVALID_VALUE, "rotary_dim 32 must be 0 without rotary_cos")),
    ("queries and no tables", queries_alone, Refused(ERROR_INVALID_VALUE, "q needs rotary_cos")),
    ("positions and no tables", positions_alone, Refused(ERROR_INVALID_VALUE, "positions and seqlens_rotary need rotary_cos")),
    ("two kinds of positions", two_positions, Refused(ERROR_INVALID_VALUE, "positions and seqlens_rotary exclude each other")),
    (
        "positions for other rows than Q's",
        |c| add(c, "positions"),
        Refused(ERROR_INVALID_VALUE, "q must have as many rows as k; they have 28 and 67"),
    ),
    ("no k", |c| drop_tensor(c, "k"), Refused(ERROR_INVALID_VALUE, "k must not be NULL")),
    ("no v", |c| drop_tensor(c, "v"), Refused(ERROR_INVALID_VALUE, "v must not be NULL")),
    ("no cache of K", |c| drop_tensor(c, "k_cache"), Refused(ERROR_INVALID_VALUE, "k_cache must not be NULL")),
    ("no cache of V", |c| drop_tensor(c, "v_cache"), Refused(ERROR_INVALID_VALUE, "v_cache must not be NULL")),
    ("no q_out", |c| drop_tensor(c, "q_out"), Refused(ERROR_INVALID_VALUE, "q_out must not be NULL")),
    (
        "k between elements",
        |c| *c.field("k") = Field::TensorAt("k", 1),
        Refused(ERROR_INVALID_VALUE, "k must be a multiple of 2 bytes"),
    ),
    (
        "the cache between elements",
        |c| *c.field("v_cache") = Field::TensorAt("v_cache", 1),
        Refused(ERROR_INVALID_VALUE, "v_cache must be a multiple of 2 bytes"),
    ),
    ("pages of no rows", |c| set(c, "page_size", 0), Refused(ERROR_INVALID_VALUE, "page_size 0")),
    ("no pages", |c| set(c, "num_pages", 0), Refused(ERROR_INVALID_VALUE, "num_pages 0")),
    ("a table without entries", |c| set(c, "pages_per_sequence", 0), Refused(ERROR_INVALID_VALUE, "pages_per_sequence 0")),
    ("a table and slots", |c| add(c, "slot_mapping"), Refused(ERROR_INVALID_VALUE, "exclude each other")),
    ("lengths after slots", slots_for_pages, Refused(ERROR_INVALID_VALUE, "seqlens_after must be NULL with a slot_mapping")),
    ("a table and names", |c| add(c, "cache_batch_idx"), Refused(ERROR_INVALID_VALUE, "exclude each other")),
    ("no lengths", no_lengths, Refused(ERROR_INVALID_VALUE, "cache_seqlens must not be NULL without a slot_mapping")),
    (
        "no positions",
        |c| drop_tensor(c, "cache_seqlens"),
        Refused(ERROR_INVALID_VALUE, "rotary_cos needs positions: cache_seqlens, seqlens_rotary or positions"),
    ),
    ("more slots than are counted", many_slots, Refused(ERROR_INVALID_VALUE, "are more than 2^31 - 1 slots")),
    (
        "rows of K beyond all memory",
        |c| *c.field("k_row_stride") = Field::I64(1 << 60),
        Refused(ERROR_INVALID_VALUE, "k_row_stride 1152921504606846976 leads"),
    ),
    (
        "pages of V beyond all memory",
        |c| *c.field("v_cache_page_stride") = Field::I64(i64::MIN),
        Refused(ERROR_INVALID_VALUE, "v_cache_page_stride -9223372036854775808 leads"),
    ),
    (
        "queries beyond all memory",
        |c| *c.field("q_out_head_stride") = Field::I64(1 << 60),
        Refused(ERROR_INVALID_VALUE, "q_out_head_stride 1152921504606846976 leads"),
    ),
    (
        "one query beyond all memory",
        |c| {
            set(c, "total_q", 1);
            *c.field("q_head_stride") = Field::I64(1 << 60);
        },
        Refused(ERROR_INVALID_VALUE, "q_head_stride 1152921504606846976 leads"),
    ),
    (
        "tables beyond all memory",
        |c| *c.field("rotary_row_stride") = Field::I64(1 << 60),
        Refused(ERROR_INVALID_VALUE, "rotary_row_stride 1152921504606846976 leads"),
    ),
    (
        "sequences of the page table beyond all memory",
        |c| *c.field("page_table_stride") = Field::I64(1 << 60),
        Refused(ERROR_INVALID_VALUE, "page_table_stride 1152921504606846976 leads"),
    ),
    (
        "more rows than are counted",
        |c| set(c, "total_new", i32::MAX),
        Refused(ERROR_INVALID_VALUE, "are more than one call takes"),
    ),
];

/// Changes of a call without pages, whose Q is rotated in place.
pub(super) const OF_DENSE: &[Change] = &[
    (
        "other strides of q_out",
        |c| *c.field("q_out_row_stride") = Field::I64(8),
        Refused(ERROR_INVALID_VALUE, "q_out is q, and must have its strides"),
    ),
    (
        "another batch stride of q_out",
        |c| *c.field("q_out_batch_stride") = Field::I64(8),
        Refused(ERROR_INVALID_VALUE, "q_out is q, and must have its strides"),
    ),
    ("no entries", |c| set(c, "num_pages", 0), Refused(ERROR_INVALID_VALUE, "num_pages 0")),
];

fn without_tables(call: &mut Call) {
    drop_tensor(call, "rotary_cos");
    drop_tensor(call, "rotary_sin");
}

fn queries_alone(call: &mut Call) {
    without_tables(call);
    set(call, "rotary_dim", 0);
}

fn positions_alone(call: &mut Call) {
    queries_alone(call);
    drop_tensor(call, "q");
    add(call, "positions");
}

fn two_positions(call: &mut Call) {
    add(call, "positions");
    add(call, "seqlens_rotary");
}

fn no_lengths(call: &mut Call) {
    drop_tensor(call, "cache_seqlens");
    add(call, "seqlens_rotary");
}

fn slots_for_pages(call: &mut Call) {
    drop_tensor(call, "page_table");
    add(call, "slot_mapping");
}

fn many_slots(call: &mut Call) {
    drop_tensor(call, "page_table");
    drop_tensor(call, "seqlens_after");
    add(call, "slot_mapping");
    set(call, "page_size", 1 << 16);
    set(call, "num_pages", 1 << 15);
}
