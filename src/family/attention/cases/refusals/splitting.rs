//! Invalid calls to split-KV's kernels, each with one error: the split kernel, the combine kernel and the scheduler.

use super::{blocks, fwd, numbers, strides};
use crate::{
    check::{
        Change,
        Expected::{Nothing, Refused},
        drop_tensor,
    },
    device::{Call, ERROR_INVALID_VALUE, ERROR_UNSUPPORTED, Element, Image},
    family::attention::features::pages,
};

/// Expectations for all three kernels.
pub(super) const SPLITTING: &[Change] = &[
    ("no splits", |c| fwd(c).num_splits = 0, Refused(ERROR_INVALID_VALUE, "num_splits 0 must lie in 1 .. 256")),
    (
        "more splits than there may be",
        |c| fwd(c).num_splits = 257,
        Refused(ERROR_INVALID_VALUE, "num_splits 257 must lie in 1 .. 256"),
    ),
    ("a negative total_q", |c| fwd(c).total_rows[0] = -1, Refused(ERROR_INVALID_VALUE, "total_q -1 must not be negative")),
];

/// Expectations for the two with partial results.
pub(super) const PARTIAL: &[Change] = &[
    ("no workspace", |c| drop_tensor(c, "workspace"), Refused(ERROR_INVALID_VALUE, "the workspace has 0 bytes")),
    ("a number too little of workspace", small_workspace, Refused(ERROR_INVALID_VALUE, "the workspace has")),
];

fn small_workspace(call: &mut Call) {
    for (name, image) in call.inputs.iter_mut().chain(&mut call.outputs) {
        if *name == "workspace" {
            *image = Image::poisoned(Element::Bits32, image.span_bytes() / 4 - 1, 0);
        }
    }
}

pub(super) const SPLIT: &[Change] = &[
    (
        "a block more than a grid has",
        |c| blocks(c, 1 << 30, 2, 1 << 4),
        Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has"),
    ),
    ("batch 0 with a row count that would overflow if multiplied by heads", many_rows_without_batch, Nothing),
    ("rows of a tile that wrap", |c| blocks(c, 1, 4, 1 << 30), Refused(ERROR_INVALID_VALUE, "rows of queries and heads")),
    ("a counter too few", |c| counters(c, 0), Refused(ERROR_INVALID_VALUE, "arrivals_count is 0; the row tiles need 1")),
    (
        "more splits than a counter counts",
        |c| {
            counters(c, 2);
            fwd(c).num_splits = 256;
        },
        Refused(ERROR_INVALID_VALUE, "num_splits 256; with counters (arrivals) at most 255"),
    ),
    ("a negative number of counters", |c| counters(c, -1), Refused(ERROR_INVALID_VALUE, "arrivals_count is -1")),
];

/// Expectations for kernels whose blocks share the keys of a query tile.
pub(super) const SHARED_TILES: &[Change] = &[
    (
        "more splits than there may be",
        |c| fwd(c).num_splits = 257,
        Refused(ERROR_INVALID_VALUE, "num_splits 257 must lie in 1 .. 256"),
    ),
    (
        "counts of splits",
        |c| c.inputs.push(("split_counts", Image::of_integers(&[2]))),
        Refused(ERROR_UNSUPPORTED, "split_counts is given; this kernel has num_splits splits of each sequence"),
    ),
    (
        "counters of blocks",
        |c| counters(c, 1),
        Refused(ERROR_UNSUPPORTED, "arrivals is given; this kernel has num_splits splits"),
    ),
];

/// The same for kernels that read pages.
pub(super) const LIMITED_TILES: &[Change] = &[(
    "limits on the queries",
    |c| pages(c).query_limits = [2, 0],
    Refused(ERROR_UNSUPPORTED, "least_queries 2 and most_queries 0 must be 0"),
)];

fn counters(call: &mut Call, words: i64) {
    call.outputs.push(("arrivals", Image::of_integers(&[0, 0])));
    fwd(call).arrivals = words;
}

pub(super) fn many_rows_without_batch(call: &mut Call) {
    blocks(call, 0, 1 << 10, 1 << 20);
    *numbers(call).num_heads_k = 1 << 10;
}

pub(super) const COMBINE: &[Change] = &[
    (
        "a stride of O beyond all memory",
        |c| strides(c)[3].head = 1 << 60,
        Refused(ERROR_INVALID_VALUE, "o_head_stride 1152921504606846976 leads"),
    ),
    (
        "a stride of LSE beyond all memory",
        |c| fwd(c).lse_strides[1] = i64::MIN,
        Refused(ERROR_INVALID_VALUE, "lse_head_stride -9223372036854775808 leads"),
    ),
    ("no o", |c| drop_tensor(c, "o"), Refused(ERROR_INVALID_VALUE, "o must not be NULL")),
    ("no head dim", |c| fwd(c).head_dim = 0, Refused(ERROR_INVALID_VALUE, "head_dim 0 must be a multiple of 8")),
    ("a head dim of 12", |c| fwd(c).head_dim = 12, Refused(ERROR_INVALID_VALUE, "head_dim 12 must be a multiple of 8")),
    ("a head dim of 264", |c| fwd(c).head_dim = 264, Refused(ERROR_INVALID_VALUE, "head_dim 264 must be a multiple of 8")),
    ("a head dim of V of 12", |c| fwd(c).head_dim_v = 12, Refused(ERROR_INVALID_VALUE, "head_dim_v 12 must be a multiple of 8")),
    (
        "a head dim of V of 520",
        |c| fwd(c).head_dim_v = 520,
        Refused(ERROR_INVALID_VALUE, "head_dim_v 520 must be a multiple of 8"),
    ),
    ("a negative dtype", |c| fwd(c).dtype = -1, Refused(ERROR_INVALID_VALUE, "unknown dtype -1")),
    ("an unknown dtype", |c| fwd(c).dtype = 3, Refused(ERROR_INVALID_VALUE, "unknown dtype 3")),
    (
        "a block more than a grid has",
        |c| blocks(c, 1 << 30, 2, 1),
        Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has"),
    ),
];

pub(super) const SCHEDULER: &[Change] = &[
    ("no split_counts", |c| drop_tensor(c, "split_counts"), Refused(ERROR_INVALID_VALUE, "split_counts must not be NULL")),
    (
        "negative concurrent_blocks",
        |c| fwd(c).concurrent_blocks = -1,
        Refused(ERROR_INVALID_VALUE, "concurrent_blocks -1 must not be negative"),
    ),
];
