//! Variables of attention's templates in addition to the plan, and of attention's rows in the dispatcher.

use super::{DEVICES, DeclaredParts, DeclaredText, Design, KernelCost, Kind, Point, StorePath, recipes::STAGED_OFFSET};
use crate::{
    family::Words,
    kernel::{DRAM_PER_MILLE, Feature, HeadDim},
    plan::Plan,
};
use serde::Serialize;
use serde_json::json;

/// Variables of a kernel's template.
pub(super) fn of_kernel(plan: &Plan, point: &Point) -> Words {
    let declared = DeclaredText::of(*point);
    let words = |yes: &'static str| if declared.is_some() { yes } else { "" };
    let score = declared.as_ref().map(|text| text.identity.clone());
    let names = |is_mask_or_score: bool| {
        let features = point.features.iter().filter(|_| point.kind.has_shape());
        let features = features.filter(|feature| feature.info().is_mask_or_score == is_mask_or_score);
        features.map(Feature::name).collect::<Vec<_>>()
    };
    Words::from([
        ("features_constant", json!(features_constant(point))),
        // In argument and parameter lists, after those of the call.
        ("and_declared", json!(words(", declared"))),
        ("with_declared", json!(words(", const declared_values& declared"))),
        ("identity_tail", json!(identity_tail(score, !point.head_dim.is_equal()))),
        ("requested_features", json!(names(true))),
        ("features_of_rows", json!(names(false))),
        ("declares", json!(Declares::of(point))),
        ("adds_elements", json!(point.features.any(|info| info.adds_elements))),
        ("changes_weights", json!(point.features.any(|info| info.changes_weights))),
        ("stages_elements", json!(plan.shared_memory.iter().any(|region| region.constant == Some(STAGED_OFFSET)))),
        ("declared", json!(declared)),
        ("v", json!(ValueWords::of(point.head_dim))),
        // The parameter type read by parts that forward and backward kernels share.
        ("params", json!(if point.kind == Kind::Bwd { "bwd_arguments" } else { "kgen_fwd_params" })),
        ("hopper", json!(plan.design_as().and_then(|design| HopperWords::of(design, point)))),
    ])
}

/// Variables of a kernel's row in the dispatcher's table.
pub(super) fn of_row(plan: &Plan, point: &Point) -> Words {
    let score = point.features.score();
    let scheduled: Option<&Design> = plan.design_as().filter(|_| point.kind == Kind::FwdSplit);
    Words::from([
        ("features", json!(features_constant(point))),
        ("score", json!(score.map_or_else(|| "0".to_owned(), |score| format!("0x{:016x}ull", score.id())))),
        ("score_name", json!(score.map_or_else(|| "nullptr".to_owned(), |score| format!("\"{score}\"")))),
        // Tiles of 16 rows that run on a multiprocessor at once.
        ("split_tiles_per_sm", json!(scheduled.map_or(0, |design| design.tile.min_blocks_per_sm * design.tile.m / 16))),
        ("cost", json!(KernelCost::of(plan))),
    ])
}

/// The words of a kernel of another family, which attention's rules never choose.
pub(in crate::family) fn of_other_row() -> Words {
    Words::from([
        ("features", json!("0")),
        ("score", json!("0")),
        ("score_name", json!("nullptr")),
        ("split_tiles_per_sm", json!(0)),
        ("cost", json!(KernelCost::default())),
    ])
}

/// Variables of the dispatcher.
pub(super) fn of_library() -> Words {
    Words::from([("devices", json!(DEVICES)), ("dram_per_mille", json!(DRAM_PER_MILLE))])
}

/// Template variables of a declared score.
#[derive(Serialize)]
struct Declares {
    /// True if there is a declared score.
    any: bool,
    #[serde(flatten)]
    parts: DeclaredParts,
}

impl Declares {
    fn of(point: &Point) -> Self {
        let parts = point.features.score().map(|score| DeclaredParts::of(score, point.kind));
        Self { any: parts.is_some(), parts: parts.unwrap_or_default() }
    }
}

/// Trailing arguments of a kernel's `fwd_identity`, from the first that is not the default on.
fn identity_tail(score: Option<String>, own_head_dim_of_v: bool) -> String {
    match (score, own_head_dim_of_v) {
        (None, false) => String::new(),
        (Some(score), false) => format!(", {score}"),
        (score, true) => format!(", {}, HEAD_DIM_V", score.unwrap_or_else(|| "{}".to_owned())),
    }
}

/// Names of V's and O's head dim and tiles in templates: those of Q and K if they are equal.
#[derive(Serialize)]
struct ValueWords {
    /// True if V and O have a different head dim.
    differs: bool,
    /// Both head dims, for the banner.
    banner: String,
    head_dim: &'static str,
    padded: &'static str,
    /// Types of a tile of V and of O.
    tile: &'static str,
    output_tile: &'static str,
    /// Bytes of a stage of V, if K and V have separate stages.
    stage_bytes: &'static str,
}

impl ValueWords {
    fn of(head_dim: HeadDim) -> Self {
        let HeadDim { qk, v } = head_dim;
        let differs = !head_dim.is_equal();
        let banner = if differs { format!("{qk} of Q and K, {v} of V and O") } else { qk.to_string() };
        let word = |equal, own| if differs { own } else { equal };
        Self {
            differs,
            banner,
            head_dim: word("HEAD_DIM", "HEAD_DIM_V"),
            padded: word("HEAD_DIM_PADDED", "HEAD_DIM_V_PADDED"),
            tile: word("key_tile", "v_tile"),
            output_tile: word("query_tile", "o_tile"),
            stage_bytes: word("STAGE_BYTES", "V_STAGE_BYTES"),
        }
    }
}

/// Names of work items, rows and buffers in the templates of persistent Hopper kernels.
#[derive(Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent conditions of templates")]
struct HopperWords {
    /// True if work items are searched in a list, because lengths differ or tiles differ between heads.
    queued: bool,
    /// True if heads are processed in groups whose keys stay in L2; set only if work is not queued and tiles differ in
    /// length.
    grouped: bool,
    /// True if several blocks may share the key tiles of a query tile, which `num_splits` of the call says.
    shares_tiles: bool,
    /// True if key tiles can be hidden from all rows of one warpgroup but not of another.
    walks: bool,
    /// Unit that takes a work item (block or cluster), and its plural.
    walker: &'static str,
    walkers: &'static str,
    /// Index of the unit, and the function that returns the number of items of a head.
    own_index: &'static str,
    tiles_of_head: &'static str,
    /// Factor for data that exists once per block of a cluster.
    of_cluster: &'static str,
    /// Expression for the queries of a tile.
    tile_queries: &'static str,
    /// Rows of a tile for the banner, and their kind.
    rows_are: &'static str,
    row_kind: &'static str,
    /// Argument by which a consumer identifies its rows.
    rows: &'static str,
    /// Heads of a sequence with separate items, and the key head of an item.
    heads: &'static str,
    head_k: &'static str,
    /// First row of a warpgroup, its number of rows, and that of a block; in queries for packgqa rows.
    own_first: &'static str,
    own_rows: &'static str,
    tile_rows: &'static str,
    /// The tiles that one TMA copy loads.
    fetched_tile: &'static str,
    fetched_v_tile: &'static str,
    /// Number of V stages as loaded.
    v_stages: &'static str,
    /// Barriers of the V that products read, and the release of a stage of K and of that V.
    values: &'static str,
    release_k: &'static str,
    release_v: &'static str,
    /// Bytes of a Q slot.
    slot_bytes: &'static str,
}

impl HopperWords {
    /// The names for a kernel with a producer warpgroup.
    fn of(design: &Design, point: &Point) -> Option<Self> {
        design.hopper.as_ref()?;
        let (features, tile) = (&design.features, &design.tile);
        let has = |feature| point.features.has(feature);
        let in_clusters = tile.cluster > 1;
        let queued = point.kind == Kind::Fwd && (has(Feature::Paged) || has(Feature::PackGqa));
        let is_fp8 = design.fp8.is_some();
        let o_exceeds_q = !is_fp8 && !point.head_dim.is_equal() && tile.store == StorePath::Tma;
        let by_walker = |block, cluster| if in_clusters { cluster } else { block };
        let by_rows = |queries, packed| if has(Feature::PackGqa) { packed } else { queries };
        Some(Self {
            queued,
            grouped: (point.causal || has(Feature::Window)) && !queued,
            shares_tiles: point.shares_tiles(),
            walks: point.causal || features.positions,
            walker: by_walker("block", "cluster"),
            walkers: by_walker("blocks", "clusters"),
            own_index: by_walker("block_index()", "cluster_index()"),
            tiles_of_head: by_walker("query_tiles", "query_pairs"),
            of_cluster: by_walker("", " * CLUSTER"),
            tile_queries: by_rows("BLOCK_M", "tile_queries(p)"),
            rows_are: by_rows("queries of one head", "rows, queries of a group of heads,"),
            row_kind: by_rows("queries", "rows"),
            rows: by_rows("warp_row", "lane_rows"),
            heads: by_rows("num_heads", "num_heads_k"),
            head_k: by_rows("work.head / (p.num_heads / p.num_heads_k)", "work.head"),
            own_first: by_rows("warpgroup_row", "warpgroup_query"),
            own_rows: by_rows("WARPGROUP_ROWS", "own_queries"),
            tile_rows: by_rows("BLOCK_M", "CONSUMERS * own_queries"),
            fetched_tile: by_walker("key_tile", "fetched_tile"),
            fetched_v_tile: by_walker("v_tile", "fetched_v_tile"),
            v_stages: if is_fp8 { "V_STAGES" } else { "STAGES" },
            values: if is_fp8 { "values" } else { "v" },
            release_k: by_walker("release", "release_to_all"),
            release_v: if is_fp8 { "release" } else { by_walker("release", "release_to_all") },
            slot_bytes: if o_exceeds_q { "SLOT_BYTES" } else { "query_tile::bytes" },
        })
    }
}

/// `kgen.h` constants of the features that a kernel serves, joined by `|`; `0` if there are none.
pub(super) fn features_constant(point: &Point) -> String {
    let causal = point.causal.then_some("KGEN_FEATURE_CAUSAL");
    let features = point.served_features().iter().map(|feature| feature.info().constant);
    let words: Vec<&str> = causal.into_iter().chain(features).collect();
    if words.is_empty() { "0".to_owned() } else { words.join(" | ") }
}
