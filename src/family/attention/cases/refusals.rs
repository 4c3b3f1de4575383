//! Calls that a launcher must refuse before it launches anything, each with one error, and calls that it must not
//! refuse despite an old structure version or large sizes. They are modified ordinary calls.

mod score;
mod splitting;

use self::{
    score::{holds, of_score},
    splitting::{COMBINE, LIMITED_TILES, PARTIAL, SCHEDULER, SHARED_TILES, SPLIT, SPLITTING, many_rows_without_batch},
};
use super::{backward::BackwardCase, combine, forward, scheduler, shared_tiles, split};
use crate::{
    check::{
        Case, Change,
        Expected::{Nothing, Refused, Same},
        Number, STRUCTURE, Subject, begin, changed, changed_without_workspace, drop_tensor,
    },
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, ERROR_UNSUPPORTED, Header, Image},
    family::attention::{
        Cache, CallOptions, Kind, Point,
        abi::{FwdParams, Strides},
        edits::{BEYOND_MEMORY, bwd, fwd, numbers, push},
        features::{FEATURES, FeatureRoom, features_of_rows, masks_and_scores, rooms},
        oracle::{
            backward::BackwardProblem,
            descale::Descales,
            problem::{Layout, Lengths, Problem},
        },
    },
    kernel::{Dtype, Feature, Target},
};
use std::rc::Rc;

/// The smallest length that launchers refuse: `kgen/fwd_params.cuh` reserves row indices after the last row.
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

/// Changes for every launcher.
const EVERYWHERE: &[Change] = &[
    ("batch -1", |c| *numbers(c).batch = -1, Refused(ERROR_INVALID_VALUE, "batch -1")),
    ("seqlen_q -1", |c| *numbers(c).seqlen_q = -1, Refused(ERROR_INVALID_VALUE, "must lie in 0 .. 2147482623")),
    ("seqlen_k -1", |c| *numbers(c).seqlen_k = -1, Refused(ERROR_INVALID_VALUE, "must lie in 0 .. 2147482623")),
    ("seqlen_q too long", |c| *numbers(c).seqlen_q = TOO_LONG, Refused(ERROR_INVALID_VALUE, "must lie in 0 .. 2147482623")),
    ("seqlen_k too long", |c| *numbers(c).seqlen_k = TOO_LONG, Refused(ERROR_INVALID_VALUE, "must lie in 0 .. 2147482623")),
    ("no batch and the longest sequences", longest_without_batch, Nothing),
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

fn longest_without_batch(call: &mut Call) {
    let numbers = numbers(call);
    (*numbers.batch, *numbers.seqlen_q, *numbers.seqlen_k) = (0, TOO_LONG - 1, TOO_LONG - 1);
}

/// Maximum keys of a sequence for kernels with positions: a window of this size hides no key.
const MOST_KEYS: i32 = 1 << 30;

/// Changes for launchers of kernels with positions.
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

/// Changes for a launcher built for one head dim, dtype and mask.
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
    ("a stride of v beyond all memory", |c| strides(c)[2].row = BEYOND_MEMORY, Refused(ERROR_INVALID_VALUE, "v_row_stride 1152")),
    ("heads of o beyond all memory", |c| strides(c)[3].head = BEYOND_MEMORY, Refused(ERROR_INVALID_VALUE, "o_head_stride 1152")),
    ("no batch and no tensors", tensors_without_batch, Nothing),
];

fn tensors_without_batch(call: &mut Call) {
    *numbers(call).batch = 0;
    for name in ["q", "k", "v", "o"] {
        drop_tensor(call, name);
    }
}

/// Lengths in device memory that exceed the tensors; the host cannot see them.
const BEYOND: &[Change] = &[
    ("a key more used than there is", |c| give(c, "seqused_k", &[41]), Same),
    ("as many keys used as a number holds", |c| give(c, "seqused_k", &[i32::MAX]), Same),
    ("a query more used than there is", |c| give(c, "seqused_q", &[18]), Same),
    ("as many queries used as a number holds", |c| give(c, "seqused_q", &[i32::MAX]), Same),
];

/// Changes for a cache whose second sequence has no keys: it gets keys in an entry that does not exist, or beyond its
/// rows.
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

/// Strides of Q, K, V, O and the other tensors.
fn strides(call: &mut Call) -> &mut [Strides] {
    if call.params.get::<FwdParams>().is_some() { &mut fwd(call).strides } else { &mut bwd(call).strides }
}

/// Sets these numbers per batch entry.
fn give(call: &mut Call, name: &'static str, values: &[i32]) {
    call.inputs.retain(|(given, _)| *given != name);
    call.inputs.push((name, Image::of_integers(values)));
}

/// Changes the number of the second batch entry.
fn give_second(call: &mut Call, name: &'static str, value: i32) {
    let (_, image) = call.inputs.iter().find(|(given, _)| *given == name).expect("the call has it");
    let first = image.bits(0).cast_signed();
    give(call, name, &[first, value]);
}

/// A caller that passes one head dim only.
const OF_EQUAL_HEAD_DIMS: &[Change] = &[("no head dim of V", |c| *numbers(c).head_dim_v = 0, Same)];

const OF_UNEQUAL_HEAD_DIMS: &[Change] = &[
    ("no head dim of V", |c| *numbers(c).head_dim_v = 0, Refused(ERROR_MISMATCH, "built for head_dim_v")),
    ("a structure of the first version", |c| begin(c, Header::FirstVersion), Refused(ERROR_MISMATCH, "built for head_dim_v")),
];

/// Calls of older versions of the structures that request the same.
const OLD_FORWARD: &[Change] = &[("a structure of the first version", |c| begin(c, Header::FirstVersion), Same)];

const OLD_BACKWARD: &[Change] = &[("a structure of version 2", |c| begin(c, Header::FirstVersion), Same)];

/// A mask that the kernel was not built for.
const OTHER_MASK_OF_FULL: &[Change] =
    &[("a causal mask", |c| *numbers(c).causal = true, Refused(ERROR_MISMATCH, "built without the feature `causal`"))];

const OTHER_MASK_OF_CAUSAL: &[Change] =
    &[("no causal mask", |c| *numbers(c).causal = false, Refused(ERROR_MISMATCH, "called without KGEN_FLAG_CAUSAL"))];

/// The widest window that kernels with windows accept; it hides no key.
const WIDEST: &[Change] = &[("a window as wide as no limit", |c| numbers(c).features.window = Some([MOST_KEYS - 1; 2]), Same)];

/// Changes for kernels with a single launch.
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

/// Changes for kernels with a single launch whose tile rows are queries of several heads (packgqa).
const PACKED_HEADS: &[Change] = &[
    (
        "a block more than a grid has",
        |c| blocks(c, 1 << 30, 2, 1 << 8),
        Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has"),
    ),
    ("batch 0 with a row count that would overflow if multiplied by heads", many_rows_without_batch, Nothing),
];

/// Changes for such kernels with 32-bit row indices.
const PACKED_ROWS: &[Change] =
    &[("rows of a tile that wrap", |c| blocks(c, 1, 4, 1 << 30), Refused(ERROR_INVALID_VALUE, "rows of queries and heads"))];

fn blocks(call: &mut Call, batch: i32, heads: i32, seqlen_q: i32) {
    let numbers = numbers(call);
    (*numbers.batch, *numbers.num_heads, *numbers.num_heads_k, *numbers.seqlen_q) = (batch, heads, 1, seqlen_q);
}

/// Changes for kernels that load by TMA only.
const BY_TMA: &[Change] = &[
    (
        "rows of q that TMA does not take",
        |c| fwd(c).strides[0].row += 1,
        Refused(ERROR_UNSUPPORTED, "the stride of dimension 1 is"),
    ),
    ROWS_OF_K,
    ROWS_OF_V,
];

/// Additional changes for packgqa kernels.
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
    (
        "rows of dout beyond all memory",
        |c| strides(c)[4].row = BEYOND_MEMORY,
        Refused(ERROR_INVALID_VALUE, "dout_row_stride 1152"),
    ),
    (
        "heads of dq beyond all memory",
        |c| strides(c)[5].head = BEYOND_MEMORY,
        Refused(ERROR_INVALID_VALUE, "dq_head_stride 1152"),
    ),
    ("rows of dk beyond all memory", |c| strides(c)[6].row = BEYOND_MEMORY, Refused(ERROR_INVALID_VALUE, "dk_row_stride 1152")),
    ("rows of dv beyond all memory", |c| strides(c)[7].row = BEYOND_MEMORY, Refused(ERROR_INVALID_VALUE, "dv_row_stride 1152")),
    ("a block of keys more than a grid has", too_many_keys, Refused(ERROR_INVALID_VALUE, "take more blocks than a grid has")),
    ("a negative total_q", negative_total, Refused(ERROR_INVALID_VALUE, "total_q is -1")),
    (
        "a negative total_k",
        |c| {
            c.inputs.push(("cu_seqlens_k", Image::of_integers(&[0, 17])));
            bwd(c).total_k = -1;
        },
        Refused(ERROR_INVALID_VALUE, "total_k is -1"),
    ),
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
            let options = BackwardProblem::plain(problem(variant).for_kernel(variant));
            let number = Number::of(variant.dtype);
            let base =
                BackwardCase { options, number, head_dim: variant.head_dim.into(), causal: variant.causal, needs_tma: false };
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
    let sharing = if variant.shares_tiles() {
        let base: Rc<dyn Case> = Rc::new(shared_tiles::case(subject, split_problem(variant), 2));
        let paged: &[Change] = if variant.features.has(Feature::Paged) { LIMITED_TILES } else { &[] };
        changed(&base, &[PARTIAL, SHARED_TILES, paged])
    } else {
        Vec::new()
    };
    let beyond = if variant.kind.has_shape() && !variant.features.has(Feature::Append) { &[BEYOND][..] } else { &[] };
    let out_of_range: Vec<&[Change]> = FEATURES.iter().map(|room| room.out_of_range()).chain([WIDEST]).collect();
    let elsewhere = cached(subject).map_or_else(Vec::new, |base| changed(&base, &[ELSEWHERE]));
    let features = if variant.kind.has_shape() { changed(&base, &not_built_for(variant)) } else { Vec::new() };
    let lists: Vec<Vec<Change>> =
        lists.iter().map(|list| list.iter().copied().filter(|change| holds(variant, change)).collect()).collect();
    let lists: Vec<&[Change]> = lists.iter().map(Vec::as_slice).collect();
    let head_dims: Vec<Vec<Change>> =
        of_head_dims(variant).iter().map(|list| list.iter().copied().filter(|change| holds(variant, change)).collect()).collect();
    let head_dims = changed(&base, &head_dims.iter().map(Vec::as_slice).collect::<Vec<_>>());
    [
        changed(&base, &[STRUCTURE, short]),
        changed(&base, &out_of_range),
        changed(&base, &lists),
        changed(&base, beyond),
        elsewhere,
        features,
        head_dims,
        asks,
        sharing,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A cache case whose second sequence has no keys, for kernels that read a cache.
fn cached(subject: &Subject<Point>) -> Option<Rc<dyn Case>> {
    let variant = subject.variant;
    if !variant.features.has(Feature::Cache) || variant.features.has(Feature::Append) {
        return None;
    }
    let options = CallOptions { cache: Some(Cache::IndexedAndPadded), ..CallOptions::default() };
    let problem = Problem::new(&[(3, 40), (3, 0)], 2, 1).layout(Layout::Padded).lengths(Lengths::Used).asking(options);
    match variant.kind {
        Kind::Fwd | Kind::FwdShort => Some(Rc::new(forward::case(subject, problem))),
        Kind::FwdSplit => Some(Rc::new(split::case(variant, (problem, 2, None)))),
        Kind::Bwd | Kind::FwdCombine | Kind::PrepareScheduler => None,
    }
}

/// Expected message for callers that pass one head dim only.
fn of_head_dims(variant: Point) -> Vec<&'static [Change]> {
    let old: &[Change] = match variant.kind {
        Kind::Fwd | Kind::FwdShort => rooms(variant.features).find_map(FeatureRoom::of_first_version).unwrap_or(OLD_FORWARD),
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
    let other_mask = match (variant.causal, variant.features.any(|info| info.includes_causal)) {
        (true, _) => OTHER_MASK_OF_CAUSAL,
        (false, false) => OTHER_MASK_OF_FULL,
        (false, true) => &[],
    };
    // With a declared score the maximum sequence length is smaller.
    let has_positions = variant.features.any(|info| info.has_positions) && variant.features.score().is_none();
    let positions = if has_positions { POSITIONS } else { &[] };
    let served = variant.served_features();
    let of_room = |room: &'static dyn FeatureRoom| {
        if served.has(room.feature()) { room.with(variant) } else { vec![room.without(variant)] }
    };
    // Backward kernels do not use rows of a cache.
    let rows = features_of_rows().filter(|_| variant.kind != Kind::Bwd).flat_map(of_room);
    let features = rows.chain(masks_and_scores().flat_map(of_room));
    [other_mask, positions].into_iter().chain(features).chain(of_score(variant)).collect()
}

/// The problem that is changed for split-KV kernels.
fn split_problem(variant: Point) -> Problem {
    rooms(variant.features).fold(Problem::new(&[(2, 40)], 4, 2), |problem, room| room.in_refusals(problem))
}

/// A small problem that every kernel accepts. If an FP8 head dim is 8 more than a multiple of 16, TMA supports no plain
/// layout.
fn problem(variant: Point) -> Problem {
    let plain = Problem::new(&[(17, 40)], 2, 1).layout(Layout::Padded);
    if variant.dtype == Dtype::Fp8 { plain.in_fp8(Descales::Absent) } else { plain }
}
