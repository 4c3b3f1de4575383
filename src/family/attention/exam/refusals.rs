//! Calls that a launcher must refuse before it starts anything, each with one thing wrong, and those that it must not
//! refuse because of how their structure begins or how large they might be. They are ordinary calls, changed.

mod score;

use self::score::{holds, of_score};
use super::{
    backward::{BackwardCase, BackwardProblem},
    combine,
    descale::Descales,
    forward,
    problem::{Layout, Lengths, Problem},
    scheduler, split,
};
use crate::{
    check::{
        Case, Change,
        Expected::{Nothing, Refused, Same},
        Number, STRUCTURE, Subject, begin, changed, changed_without_workspace, drop_tensor,
    },
    device::{
        AttentionFeatures, BwdParams, Call, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2, DTYPE_FP16, DTYPE_FP32, ERROR_INVALID_VALUE,
        ERROR_MISMATCH, ERROR_UNSUPPORTED, Element, FwdParams, Header, Image, NewRows, PagedKeys, Params, Strides,
    },
    family::attention::{Append, Asked, Cache, Kind, KvFormat, Point, Starts},
    grid::{Dtype, Feature, Target},
};
use std::rc::Rc;

/// The numbers that the structures of both passes have.
struct Numbers<'a> {
    batch: &'a mut i32,
    num_heads: &'a mut i32,
    num_heads_k: &'a mut i32,
    seqlen_q: &'a mut i32,
    seqlen_k: &'a mut i32,
    head_dim: &'a mut i32,
    head_dim_v: &'a mut i32,
    dtype: &'a mut i32,
    causal: &'a mut bool,
    features: &'a mut AttentionFeatures,
    softmax_scale: &'a mut f32,
}

macro_rules! numbers_of {
    ($params:expr) => {{
        let p = $params;
        Numbers {
            batch: &mut p.batch,
            num_heads: &mut p.num_heads,
            num_heads_k: &mut p.num_heads_k,
            seqlen_q: &mut p.seqlen_q,
            seqlen_k: &mut p.seqlen_k,
            head_dim: &mut p.head_dim,
            head_dim_v: &mut p.head_dim_v,
            dtype: &mut p.dtype,
            causal: &mut p.causal,
            features: &mut p.features,
            softmax_scale: &mut p.softmax_scale,
        }
    }};
}

fn numbers(call: &mut Call) -> Numbers<'_> {
    match &mut call.params {
        Params::Fwd(params) => numbers_of!(params),
        Params::Bwd(params) => numbers_of!(params),
        Params::Fields(_) | Params::Headed { .. } => unreachable!("a call of attention"),
    }
}

fn fwd(call: &mut Call) -> &mut FwdParams {
    let Params::Fwd(params) = &mut call.params else { unreachable!("a forward call") };
    params
}

fn bwd(call: &mut Call) -> &mut BwdParams {
    let Params::Bwd(params) = &mut call.params else { unreachable!("a backward call") };
    params
}

/// The first row that tiles may not reach: `kgen/fwd_params.cuh` leaves room behind the last one.
const TOO_LONG: i32 = i32::MAX - 1023;

const SHORT_FWD: &[Change] = &[(
    "a structure that is too short",
    |c| begin(c, Header::TooShort),
    Refused(ERROR_INVALID_VALUE, "version 1 of kgen_fwd_params has"),
)];

const SHORT_BWD: &[Change] = &[(
    "a structure that is too short",
    |c| begin(c, Header::TooShort),
    Refused(ERROR_INVALID_VALUE, "version 2 of kgen_bwd_params has"),
)];

/// What every launcher does.
const EVERYWHERE: &[Change] = &[
    ("batch -1", |c| *numbers(c).batch = -1, Refused(ERROR_INVALID_VALUE, "batch -1")),
    ("seqlen_q -1", |c| *numbers(c).seqlen_q = -1, Refused(ERROR_INVALID_VALUE, "must lie in 0 .. 2147482623")),
    ("seqlen_k -1", |c| *numbers(c).seqlen_k = -1, Refused(ERROR_INVALID_VALUE, "must lie in 0 .. 2147482623")),
    ("seqlen_q too long", |c| *numbers(c).seqlen_q = TOO_LONG, Refused(ERROR_INVALID_VALUE, "must lie in 0 .. 2147482623")),
    ("seqlen_k too long", |c| *numbers(c).seqlen_k = TOO_LONG, Refused(ERROR_INVALID_VALUE, "must lie in 0 .. 2147482623")),
    ("no batch and the longest sequences", longest_of_nobody, Nothing),
    (
        "no key heads",
        |c| *numbers(c).num_heads_k = 0,
        Refused(ERROR_INVALID_VALUE, "must be a positive multiple of num_heads_k 0"),
    ),
    ("no heads", |c| *numbers(c).num_heads = 0, Refused(ERROR_INVALID_VALUE, "num_heads 0 must be a positive multiple")),
    (
        "heads that key heads do not divide",
        |c| *numbers(c).num_heads_k = 3,
        Refused(ERROR_INVALID_VALUE, "must be a positive multiple of num_heads_k 3"),
    ),
    ("a negative scale", |c| *numbers(c).softmax_scale = -1.0, Refused(ERROR_INVALID_VALUE, "softmax_scale -1 must be finite")),
    (
        "an infinite scale",
        |c| *numbers(c).softmax_scale = f32::INFINITY,
        Refused(ERROR_INVALID_VALUE, "softmax_scale inf must be finite"),
    ),
    ("a scale that is no number", |c| *numbers(c).softmax_scale = f32::NAN, Refused(ERROR_INVALID_VALUE, "must be finite")),
];

fn longest_of_nobody(call: &mut Call) {
    let numbers = numbers(call);
    (*numbers.batch, *numbers.seqlen_q, *numbers.seqlen_k) = (0, TOO_LONG - 1, TOO_LONG - 1);
}

/// The most keys of a sequence where kernels know positions: a window that reaches so far hides none.
const MOST_KEYS: i32 = 1 << 30;

/// What launchers of kernels do that know positions.
const POSITIONS: &[Change] = &[
    (
        "more queries than positions",
        |c| *numbers(c).seqlen_q = MOST_KEYS + 1,
        Refused(ERROR_INVALID_VALUE, "seqlen_q 1073741825 and seqlen_k"),
    ),
    (
        "more keys than positions",
        |c| *numbers(c).seqlen_k = MOST_KEYS + 1,
        Refused(ERROR_INVALID_VALUE, "seqlen_k 1073741825 must not exceed 2^30"),
    ),
];

/// What a launcher does that is built for one head dim, dtype and mask.
const SPECIALISED: &[Change] = &[
    ("another head dim", |c| *numbers(c).head_dim += 8, Refused(ERROR_MISMATCH, "built for head_dim")),
    ("another head dim of V", |c| *numbers(c).head_dim_v += 8, Refused(ERROR_MISMATCH, "built for head_dim_v")),
    ("another dtype", |c| *numbers(c).dtype += 1, Refused(ERROR_MISMATCH, "built for dtype")),
    ("no q", |c| drop_tensor(c, "q"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    ("no k", |c| drop_tensor(c, "k"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    ("no v", |c| drop_tensor(c, "v"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    ("no o", |c| drop_tensor(c, "o"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    (
        "a stride beyond all memory",
        |c| strides(c)[0].row = 1 << 60,
        Refused(ERROR_INVALID_VALUE, "q_row_stride 1152921504606846976 leads"),
    ),
    (
        "a negative stride beyond all memory",
        |c| strides(c)[1].row = i64::MIN,
        Refused(ERROR_INVALID_VALUE, "k_row_stride -9223372036854775808 leads"),
    ),
];

/// Lengths that the host has not seen, larger than there is memory for.
const BEYOND: &[Change] = &[
    ("a key more used than there is", |c| give(c, "seqused_k", &[41]), Same),
    ("as many keys used as a number holds", |c| give(c, "seqused_k", &[i32::MAX]), Same),
    ("a query more used than there is", |c| give(c, "seqused_q", &[18]), Same),
    ("as many queries used as a number holds", |c| give(c, "seqused_q", &[i32::MAX]), Same),
];

/// Where the second sequence of a cache, which has no keys, is said to have some in an entry that is not there, or
/// behind those that it has.
const ELSEWHERE: &[Change] = &[
    (
        "an entry that the cache does not have",
        |c| {
            let entries = fwd(c).cache_entries;
            give_second(c, "cache_batch_idx", entries);
            give_second(c, "seqused_k", 7);
        },
        Same,
    ),
    (
        "a negative entry of a cache whose entries nobody counts",
        |c| {
            fwd(c).cache_entries = 0;
            give_second(c, "cache_batch_idx", -1);
            give_second(c, "seqused_k", 7);
        },
        Same,
    ),
    ("keys that begin behind the last one", |c| give_second(c, "leftpad_k", i32::MAX), Same),
    (
        "entries without an index",
        |c| drop_tensor(c, "cache_batch_idx"),
        Refused(ERROR_INVALID_VALUE, "must be the entries that cache_batch_idx may name"),
    ),
    ("fewer entries than none", |c| fwd(c).cache_entries = -1, Refused(ERROR_INVALID_VALUE, "cache_entries -1 must be")),
];

/// Strides of Q, K, V, O and so on.
fn strides(call: &mut Call) -> &mut [Strides] {
    match &mut call.params {
        Params::Fwd(params) => &mut params.strides,
        Params::Bwd(params) => &mut params.strides,
        Params::Fields(_) | Params::Headed { .. } => unreachable!("a call of attention"),
    }
}

/// Gives the call these numbers by batch entry.
fn give(call: &mut Call, name: &'static str, values: &[i32]) {
    call.inputs.retain(|(given, _)| *given != name);
    call.inputs.push((name, Image::of_integers(values)));
}

/// Changes the second batch entry's number.
fn give_second(call: &mut Call, name: &'static str, value: i32) {
    let (_, image) = call.inputs.iter().find(|(given, _)| *given == name).expect("the call has it");
    let first = image.bits(0).cast_signed();
    give(call, name, &[first, value]);
}

/// A caller that knows one head dim only.
const OF_EQUAL_HEAD_DIMS: &[Change] = &[("no head dim of V", |c| *numbers(c).head_dim_v = 0, Same)];

const OF_UNEQUAL_HEAD_DIMS: &[Change] = &[
    ("no head dim of V", |c| *numbers(c).head_dim_v = 0, Refused(ERROR_MISMATCH, "built for head_dim_v")),
    ("a structure of the first version", |c| begin(c, Header::FirstVersion), Refused(ERROR_MISMATCH, "built for head_dim_v")),
];

/// Where the structures of older versions ask for the same.
const OLD_FORWARD: &[Change] = &[("a structure of the first version", |c| begin(c, Header::FirstVersion), Same)];

const OLD_FORWARD_PAGED: &[Change] = &[(
    "a structure of the first version",
    |c| begin(c, Header::FirstVersion),
    Refused(ERROR_MISMATCH, "called without a page_table"),
)];

const OLD_FORWARD_KV: &[Change] = &[(
    "a structure of the first version",
    |c| begin(c, Header::FirstVersion),
    Refused(ERROR_MISMATCH, "called without kv_dtype KGEN_DTYPE_FP8_E"),
)];

const OLD_BACKWARD: &[Change] = &[("a structure of version 2", |c| begin(c, Header::FirstVersion), Same)];

/// A mask that the kernel was not built for.
const OTHER_MASK_OF_FULL: &[Change] =
    &[("a causal mask", |c| *numbers(c).causal = true, Refused(ERROR_MISMATCH, "built without the feature `causal`"))];

const OTHER_MASK_OF_CAUSAL: &[Change] =
    &[("no causal mask", |c| *numbers(c).causal = false, Refused(ERROR_MISMATCH, "called without KGEN_FLAG_CAUSAL"))];

/// Numbers of features that no kernel takes.
const FEATURES: &[Change] = &[
    ("a window of -2 keys", |c| numbers(c).features.window = Some([-2, 0]), Refused(ERROR_INVALID_VALUE, "window_left -2 and")),
    ("a window of -3 keys", |c| numbers(c).features.window = Some([0, -3]), Refused(ERROR_INVALID_VALUE, "window_right -3 must")),
    ("a negative chunk", |c| numbers(c).features.chunk = -1, Refused(ERROR_INVALID_VALUE, "attention_chunk -1 must")),
    ("a negative softcap", |c| numbers(c).features.softcap = -1.0, Refused(ERROR_INVALID_VALUE, "softcap -1 must be finite")),
    ("an infinite softcap", |c| numbers(c).features.softcap = f32::INFINITY, Refused(ERROR_INVALID_VALUE, "softcap inf must")),
    ("a softcap that is no number", |c| numbers(c).features.softcap = f32::NAN, Refused(ERROR_INVALID_VALUE, "must be finite")),
    ("a window as wide as no limit", |c| numbers(c).features.window = Some([MOST_KEYS - 1; 2]), Same),
    ("sinks in fp16", fp16_sinks, Refused(ERROR_INVALID_VALUE, "sinks_dtype 0 must be KGEN_DTYPE_FP32")),
];

fn fp16_sinks(call: &mut Call) {
    call.inputs.push(("sinks", Image::of_numbers(&[(0, 1.0)])));
    numbers(call).features.sinks_dtype = DTYPE_FP16;
}

/// A call for each feature, refused by kernels without it.
const WITHOUT: &[(Feature, &[Change])] = &[
    (
        Feature::Window,
        &[(
            "a window",
            |c| numbers(c).features.window = Some([3, -1]),
            Refused(ERROR_MISMATCH, "built without the feature `window`"),
        )],
    ),
    (
        Feature::Chunk,
        &[("chunks", |c| numbers(c).features.chunk = 1, Refused(ERROR_MISMATCH, "built without the feature `chunk`"))],
    ),
    (
        Feature::Softcap,
        &[("a softcap", |c| numbers(c).features.softcap = 0.5, Refused(ERROR_MISMATCH, "built without the feature `softcap`"))],
    ),
    (Feature::Alibi, &[("slopes", |c| push(c, "alibi_slopes"), Refused(ERROR_MISMATCH, "built without the feature `alibi`"))]),
    (Feature::Sinks, &[("sinks", |c| push(c, "sinks"), Refused(ERROR_MISMATCH, "built without the feature `sinks`"))]),
];

/// The same of where forward kernels find K and V.
const WITHOUT_PAGES: &[Change] = &[
    (
        "a limit on queries without pages",
        |c| fwd(c).pages = Some(PagedKeys { query_limits: [2, 0], ..PagedKeys::default() }),
        Refused(ERROR_UNSUPPORTED, "least_queries 2 and most_queries 0 must be 0"),
    ),
    ("a page table", page_table, Refused(ERROR_MISMATCH, "built without the feature `paged`")),
];

const WITHOUT_CACHE: &[Change] = &[
    ("entries of a cache", |c| push_zero(c, "cache_batch_idx"), Refused(ERROR_MISMATCH, "built without the feature `cache`")),
    ("rows before the keys", |c| push_zero(c, "leftpad_k"), Refused(ERROR_MISMATCH, "built without the feature `cache`")),
];

/// What kernels do that read a cache.
const WITH_CACHE: &[Change] = &[
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
const WITHOUT_PAGE_DESCALE: &[Change] = &[
    ("factors of K by page", |c| push(c, "k_page_descale"), Refused(ERROR_MISMATCH, "built without the feature `page_descale`")),
    ("factors of V by page", |c| push(c, "v_page_descale"), Refused(ERROR_MISMATCH, "built without the feature `page_descale`")),
];

/// The same of what queries are made of.
const WITHOUT_QV: &[Change] =
    &[("queries of two parts", |c| push(c, "qv"), Refused(ERROR_MISMATCH, "built without the feature `qv`"))];

/// What kernels do that write no new rows.
const WITHOUT_NEW_ROWS: &[Change] =
    &[("new rows", |c| push(c, "k_new"), Refused(ERROR_MISMATCH, "built without the feature `append`"))];

/// What those do that write them.
const WITH_NEW_ROWS: &[Change] = &[
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
const NEW_ROWS_IN_PAGES: &[Change] = &[(
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
const WITH_QV: &[Change] = &[("queries of one part", |c| drop_tensor(c, "qv"), Refused(ERROR_MISMATCH, "called without qv"))];

/// What kernels do that read pages.
const WITH_PAGES: &[Change] = &[
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
const WITHOUT_KV: &[Change] = &[
    ("K and V in E4M3", |c| fwd(c).kv_dtype = DTYPE_FP8_E4M3, Refused(ERROR_MISMATCH, "built without the feature `kv_e4m3`")),
    ("K and V in E5M2", |c| fwd(c).kv_dtype = DTYPE_FP8_E5M2, Refused(ERROR_MISMATCH, "built without the feature `kv_e5m2`")),
    ("K and V in fp32", |c| fwd(c).kv_dtype = DTYPE_FP32, Refused(ERROR_INVALID_VALUE, "kv_dtype 3 must be")),
];

/// What those do that read E4M3.
const WITH_E4M3: &[Change] = &[
    ("K and V of the type of Q", |c| fwd(c).kv_dtype = 0, Refused(ERROR_MISMATCH, "called without kv_dtype KGEN_DTYPE_FP8_E4M3")),
    ("K and V in E5M2", |c| fwd(c).kv_dtype = DTYPE_FP8_E5M2, Refused(ERROR_MISMATCH, "built without the feature `kv_e5m2`")),
];

/// The same of E5M2.
const WITH_E5M2: &[Change] = &[
    ("K and V of the type of Q", |c| fwd(c).kv_dtype = 0, Refused(ERROR_MISMATCH, "called without kv_dtype KGEN_DTYPE_FP8_E5M2")),
    ("K and V in E4M3", |c| fwd(c).kv_dtype = DTYPE_FP8_E4M3, Refused(ERROR_MISMATCH, "built without the feature `kv_e4m3`")),
];

fn pages(call: &mut Call) -> &mut PagedKeys {
    fwd(call).pages.as_mut().expect("the kernel reads pages")
}

fn push(call: &mut Call, name: &'static str) {
    call.inputs.push((name, Image::of_numbers(&[(0, 1.0), (1, 1.0)])));
    numbers(call).features.sinks_dtype = DTYPE_FP32;
}

/// What the kernels of one launch do.
const FORWARD: &[Change] = &[
    ("a negative total_k", |c| fwd(c).total_rows[1] = -1, Refused(ERROR_INVALID_VALUE, "total_k -1 must not be negative")),
    (
        "a block more than a grid has",
        |c| blocks(c, 1 << 30, 2, 1),
        Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has"),
    ),
    (
        "blocks whose number wraps",
        |c| blocks(c, 1 << 23, 1 << 23, 1 << 30),
        Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has"),
    ),
];

/// The same where the rows of a tile are the queries of several heads.
const PACKED_HEADS: &[Change] = &[
    (
        "a block more than a grid has",
        |c| blocks(c, 1 << 30, 2, 1 << 8),
        Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has"),
    ),
    ("no batch and many rows, were they of all heads", many_rows_of_nobody, Nothing),
];

/// The same where these rows have a number of 32 bits.
const PACKED_ROWS: &[Change] =
    &[("rows of a tile that wrap", |c| blocks(c, 1, 4, 1 << 30), Refused(ERROR_INVALID_VALUE, "rows of queries and heads"))];

fn blocks(call: &mut Call, batch: i32, heads: i32, seqlen_q: i32) {
    let numbers = numbers(call);
    (*numbers.batch, *numbers.num_heads, *numbers.num_heads_k, *numbers.seqlen_q) = (batch, heads, 1, seqlen_q);
}

/// What kernels do that read by TMA alone.
const BY_TMA: &[Change] = &[
    (
        "rows of q that TMA does not take",
        |c| fwd(c).strides[0].row += 1,
        Refused(ERROR_UNSUPPORTED, "the stride of dimension 1 is"),
    ),
    ROWS_OF_K,
    ROWS_OF_V,
];

/// What they do besides with the rows of several heads.
const PACKED_BY_TMA: &[Change] = &[(
    "more heads than a warpgroup has rows",
    |c| blocks(c, 1, 65, 17),
    Refused(ERROR_UNSUPPORTED, "65 query heads read one key head; the limit is 64"),
)];

const ROWS_OF_K: Change = (
    "rows of k that TMA does not take",
    |c| fwd(c).strides[1].row += 1,
    Refused(ERROR_UNSUPPORTED, "the stride of dimension 1 is"),
);

const ROWS_OF_V: Change = (
    "rows of v that lie in one place",
    |c| fwd(c).strides[2].row = 0,
    Refused(ERROR_UNSUPPORTED, "the stride of dimension 1 is 0"),
);

const BACKWARD: &[Change] = &[
    ("no dout", |c| drop_tensor(c, "dout"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    ("no lse", |c| drop_tensor(c, "lse"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    ("no dq", |c| drop_tensor(c, "dq"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    ("no dk", |c| drop_tensor(c, "dk"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    ("no dv", |c| drop_tensor(c, "dv"), Refused(ERROR_INVALID_VALUE, "must not be NULL")),
    ("no workspace", |c| c.scratch = false, Refused(ERROR_INVALID_VALUE, "workspace must be 16-byte aligned")),
    (
        "more tiles than the workspace can have",
        |c| blocks(c, 1 << 23, 1 << 23, 1 << 20),
        Refused(ERROR_INVALID_VALUE, "are too many"),
    ),
    ("a block of keys more than a grid has", too_many_keys, Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has")),
    ("a negative total_q", negative_total, Refused(ERROR_INVALID_VALUE, "total_q is -1")),
    (
        "a gradient of sinks without sinks",
        |c| c.outputs.push(("dsinks", Image::of_numbers(&[(0, 1.0), (1, 1.0)]))),
        Refused(ERROR_INVALID_VALUE, "dsinks is given and features.sinks is NULL"),
    ),
];

fn negative_total(call: &mut Call) {
    call.inputs.push(("cu_seqlens_q", Image::of_integers(&[0, 17])));
    bwd(call).total_q = -1;
}

fn too_many_keys(call: &mut Call) {
    blocks(call, 1 << 16, 1 << 15, 0);
    *numbers(call).num_heads_k = 1 << 15;
    *numbers(call).seqlen_k = 1;
}

/// What all three kernels of split-KV do.
const SPLITTING: &[Change] = &[
    ("no splits", |c| fwd(c).num_splits = 0, Refused(ERROR_INVALID_VALUE, "num_splits 0 must lie in 1 .. 256")),
    (
        "more splits than there may be",
        |c| fwd(c).num_splits = 257,
        Refused(ERROR_INVALID_VALUE, "num_splits 257 must lie in 1 .. 256"),
    ),
    ("a negative total_q", |c| fwd(c).total_rows[0] = -1, Refused(ERROR_INVALID_VALUE, "total_q -1 must not be negative")),
];

/// What those two do that have partial results.
const PARTIAL: &[Change] = &[
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

const SPLIT: &[Change] = &[
    (
        "a block more than a grid has",
        |c| blocks(c, 1 << 30, 2, 1 << 4),
        Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has"),
    ),
    ("no batch and many rows, were they of all heads", many_rows_of_nobody, Nothing),
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

fn counters(call: &mut Call, words: i64) {
    call.outputs.push(("arrivals", Image::of_integers(&[0, 0])));
    fwd(call).arrivals = words;
}

fn many_rows_of_nobody(call: &mut Call) {
    blocks(call, 0, 1 << 10, 1 << 20);
    *numbers(call).num_heads_k = 1 << 10;
}

const COMBINE: &[Change] = &[
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

const SCHEDULER: &[Change] = &[
    ("no split_counts", |c| drop_tensor(c, "split_counts"), Refused(ERROR_INVALID_VALUE, "split_counts must not be NULL")),
    (
        "negative concurrent_blocks",
        |c| fwd(c).concurrent_blocks = -1,
        Refused(ERROR_INVALID_VALUE, "concurrent_blocks -1 must not be negative"),
    ),
];

/// The cases of a kernel.
pub(super) fn cases(subject: &Subject<Point>) -> Vec<Box<dyn Case>> {
    let variant = subject.variant;
    let (base, lists): (Rc<dyn Case>, &[&[Change]]) = match variant.kind {
        Kind::Fwd | Kind::FwdShort => {
            let base = Rc::new(forward::case(subject, problem(variant)));
            match (variant.features.has(Feature::PackGqa), variant.target == Target::Sm90) {
                (false, false) => (base, &[EVERYWHERE, SPECIALISED, FORWARD]),
                (false, true) => (base, &[EVERYWHERE, SPECIALISED, FORWARD, BY_TMA]),
                (true, false) => (base, &[EVERYWHERE, SPECIALISED, PACKED_HEADS, PACKED_ROWS]),
                (true, true) => (base, &[EVERYWHERE, SPECIALISED, PACKED_HEADS, BY_TMA, PACKED_BY_TMA]),
            }
        }
        Kind::Bwd => {
            let asked = BackwardProblem::plain(problem(variant).for_kernel(variant));
            let number = Number::of(variant.dtype);
            let base = BackwardCase { asked, number, head_dim: variant.head_dim.into(), causal: variant.causal };
            (Rc::new(base), &[EVERYWHERE, SPECIALISED, BACKWARD])
        }
        Kind::FwdSplit => {
            let listed = (split_problem(variant), 2, None);
            (Rc::new(split::case(variant, listed)), &[SPECIALISED, PARTIAL, SPLIT])
        }
        Kind::FwdCombine => (Rc::new(combine::plain()), &[EVERYWHERE, SPLITTING, PARTIAL, COMBINE]),
        Kind::PrepareScheduler => (Rc::new(scheduler::plain()), &[EVERYWHERE, SPLITTING, SCHEDULER]),
    };
    let short = if variant.kind == Kind::Bwd { SHORT_BWD } else { SHORT_FWD };
    let asks =
        if variant.kind == Kind::FwdSplit { changed_without_workspace(&base, &[EVERYWHERE, SPLITTING]) } else { Vec::new() };
    let beyond = if variant.kind.has_shape() && !variant.features.has(Feature::Append) { &[BEYOND][..] } else { &[] };
    let elsewhere = cached(subject).map_or_else(Vec::new, |base| changed(&base, &[ELSEWHERE]));
    let features = if variant.kind.has_shape() { changed(&base, &not_built_for(variant)) } else { Vec::new() };
    let lists: Vec<Vec<Change>> =
        lists.iter().map(|list| list.iter().copied().filter(|change| holds(variant, change)).collect()).collect();
    let lists: Vec<&[Change]> = lists.iter().map(Vec::as_slice).collect();
    let head_dims: Vec<Vec<Change>> =
        of_head_dims(variant).iter().map(|list| list.iter().copied().filter(|change| holds(variant, change)).collect()).collect();
    let head_dims = changed(&base, &head_dims.iter().map(Vec::as_slice).collect::<Vec<_>>());
    [
        changed(&base, &[STRUCTURE, short, FEATURES]),
        changed(&base, &lists),
        changed(&base, beyond),
        elsewhere,
        features,
        head_dims,
        asks,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A case of a cache whose second sequence has no keys, for kernels that read one.
fn cached(subject: &Subject<Point>) -> Option<Rc<dyn Case>> {
    let variant = subject.variant;
    if !variant.features.has(Feature::Cache) || variant.features.has(Feature::Append) {
        return None;
    }
    let asked = Asked { cache: Some(Cache::IndexedAndPadded), ..Asked::default() };
    let problem = Problem::new(&[(3, 40), (3, 0)], 2, 1).layout(Layout::Padded).lengths(Lengths::Used).asking(asked);
    match variant.kind {
        Kind::Fwd | Kind::FwdShort => Some(Rc::new(forward::case(subject, problem))),
        Kind::FwdSplit => Some(Rc::new(split::case(variant, (problem, 2, None)))),
        Kind::Bwd | Kind::FwdCombine | Kind::PrepareScheduler => None,
    }
}

/// What callers that know one head dim only are told.
fn of_head_dims(variant: Point) -> Vec<&'static [Change]> {
    let old: &[Change] = match variant.kind {
        Kind::Fwd | Kind::FwdShort if variant.features.has(Feature::Paged) => OLD_FORWARD_PAGED,
        Kind::Fwd | Kind::FwdShort if KvFormat::of(variant.features).is_some() => OLD_FORWARD_KV,
        Kind::Fwd | Kind::FwdShort => OLD_FORWARD,
        Kind::Bwd => OLD_BACKWARD,
        Kind::FwdSplit | Kind::FwdCombine | Kind::PrepareScheduler => &[],
    };
    match variant.kind.has_shape() {
        false => vec![],
        true if variant.head_dim.is_equal() => vec![OF_EQUAL_HEAD_DIMS, old],
        true => vec![OF_UNEQUAL_HEAD_DIMS],
    }
}

/// Masks and features that a kernel must refuse.
fn not_built_for(variant: Point) -> Vec<&'static [Change]> {
    let other_mask = match (variant.causal, variant.features.has(Feature::Window)) {
        (true, _) => OTHER_MASK_OF_CAUSAL,
        (false, false) => OTHER_MASK_OF_FULL,
        (false, true) => &[],
    };
    // Kernels over splits leave sinks to the one that combines them.
    let takes = |feature| variant.features.has(feature) || (feature == Feature::Sinks && variant.kind == Kind::FwdSplit);
    let features = WITHOUT.iter().filter(|(feature, _)| !takes(*feature)).map(|(_, changes)| *changes);
    // With a declared score sequences end earlier.
    let limited = [Feature::Window, Feature::Chunk, Feature::Alibi].iter().any(|feature| variant.features.has(*feature));
    let has_positions = limited && variant.features.score().is_none();
    let positions = if has_positions { POSITIONS } else { &[] };
    let pages = match (variant.kind, variant.features.has(Feature::Paged)) {
        (Kind::Bwd, _) => &[],
        (_, true) => WITH_PAGES,
        (_, false) => WITHOUT_PAGES,
    };
    let queries = match (variant.kind, variant.features.has(Feature::Qv)) {
        (Kind::Bwd, _) => &[],
        (_, true) => WITH_QV,
        (_, false) => WITHOUT_QV,
    };
    let cache = match (variant.kind, variant.features.has(Feature::Cache)) {
        (Kind::Bwd, _) => &[],
        (_, true) => WITH_CACHE,
        (_, false) => WITHOUT_CACHE,
    };
    let page_descale = match (variant.kind, variant.features.has(Feature::PageDescale)) {
        (Kind::Bwd, _) | (_, true) => &[],
        (_, false) => WITHOUT_PAGE_DESCALE,
    };
    let kv = match (variant.kind, KvFormat::of(variant.features)) {
        (Kind::Bwd, _) => &[],
        (_, None) => WITHOUT_KV,
        (_, Some(KvFormat::E4m3)) => WITH_E4M3,
        (_, Some(KvFormat::E5m2)) => WITH_E5M2,
    };
    let new_rows = match (variant.kind, variant.features.has(Feature::Append)) {
        (Kind::Bwd, _) => &[],
        (_, true) => WITH_NEW_ROWS,
        (_, false) => WITHOUT_NEW_ROWS,
    };
    let both = variant.features.has(Feature::Append) && variant.features.has(Feature::Paged);
    let in_pages = if both { NEW_ROWS_IN_PAGES } else { &[] };
    [other_mask, positions, pages, queries, cache, kv, page_descale, new_rows, in_pages]
        .into_iter()
        .chain(features)
        .chain(of_score(variant))
        .collect()
}

/// The same for kernels that split the keys, with new rows and a rotation where the kernel writes those.
fn split_problem(variant: Point) -> Problem {
    let plain = Problem::new(&[(2, 40)], 4, 2);
    if !variant.features.has(Feature::Append) {
        return plain;
    }
    let append = Append { rotary: Some((1, false)), starts: Starts::Given, ..Append::new(2) };
    plain.layout(Layout::Padded).asking(Asked { append: Some(append), ..Asked::default() })
}

/// Small, and such that every kernel takes it: of an FP8 head of 8 more columns than a multiple of 16, TMA takes no
/// plain layout.
fn problem(variant: Point) -> Problem {
    let plain = Problem::new(&[(17, 40)], 2, 1).layout(Layout::Padded);
    if variant.dtype == Dtype::Fp8 { plain.in_fp8(Descales::Absent) } else { plain }
}
