//! What plans of attention kernels hold besides what all plans hold.

use super::{CopyPath, Kind, KvFormat, Point, Tile};
use crate::{
    expression::{Expr, KeptScore, List, Trend, Variable},
    kernel::{self, Dtype, Feature, Target, Variant},
    plan::{self, Tiling},
};
use serde::Serialize;

/// Tile, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Tile sizes and pipeline choices.
    pub tile: Tile,
    /// Query rows each warp owns.
    pub rows_per_warp: u32,
    /// `head_dim` rounded up to the MMA's K (16, with FP8 32): the width of Q and K tiles in shared memory.
    pub head_dim_padded: u32,
    /// The same of V and O.
    pub head_dim_v_padded: u32,
    /// Column panels of tiles of Q and K in shared memory.
    pub panels: Vec<Panel>,
    /// Column panels of tiles of V and O.
    pub panels_v: Vec<Panel>,
    /// What calls may ask for, as templates ask.
    pub features: FeatureParts,
    /// Where K and V come from.
    pub kv: Kv,
    /// Whether a split-KV kernel starts before those before it have ended (programmatic dependent launch).
    pub early: bool,
    /// The type that is multiplied, where a kernel widens its queries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub widened_to: Option<Dtype>,
    /// Columns of tiles of K and of V in FP8: head dims rounded up to 32 bytes, where 16 bits are multiplied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_columns: Option<KvColumns>,
    /// FP8 kernels only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8: Option<Fp8Choices>,
    /// What a backward kernel has besides.
    pub backward: Option<Backward>,
    /// What a kernel with `wgmma` has besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hopper: Option<Hopper>,
}

impl plan::Design for Design {
    fn tile(&self) -> &dyn plan::Tile {
        &self.tile
    }

    fn tiling(&self, variant: &Variant) -> Tiling {
        let tile = &self.tile;
        let warpgroups = self.hopper.as_ref().map_or(1, |hopper| hopper.consumers as usize);
        let is_short = variant.kind() == kernel::Kind::FwdShort;
        let (row_groups, key_groups) = if is_short { (1, warpgroups) } else { (warpgroups, 1) };
        Tiling {
            m: tile.m as usize,
            n: tile.n as usize,
            stages: tile.stages as usize,
            row_groups,
            key_groups,
            whole_tiles: tile.copy == CopyPath::Tma,
            cluster: tile.cluster as usize,
            persistent: tile.persistent,
        }
    }
}

#[cfg(test)]
impl crate::plan::Plan {
    /// What the plan of an attention kernel holds besides.
    pub(crate) fn attention(&self) -> &Design {
        self.design_as().expect("an attention kernel")
    }
}

/// Columns of tiles of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KvColumns {
    /// Of K.
    pub qk: u32,
    /// Of V.
    pub v: u32,
}

impl KvColumns {
    /// Bytes that ldmatrix takes of a row: two chunks of 16.
    const STEP: u32 = 32;

    /// Those of a kernel; `None` where K and V have Q's type.
    pub(in crate::family::attention) fn of(point: Point) -> Option<Self> {
        let padded = point.head_dim.padded_to(Self::STEP);
        KvFormat::widened(point).map(|_| Self { qk: padded.qk, v: padded.v })
    }

    /// Of K and V together.
    pub(in crate::family::attention) fn both(self) -> u32 {
        self.qk + self.v
    }
}

/// Which parts of the templates a kernel's features take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "templates ask for each by its name")]
pub struct FeatureParts {
    /// K and V in pages.
    pub paged: bool,
    /// The heads that read one key head side by side in a tile, where that is a choice.
    pub packgqa: bool,
    /// A cache of K and V with entries in another order, and rows before the keys.
    pub cache: bool,
    /// K and V in FP8 that are widened before they are multiplied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv: Option<KvFormat>,
    /// Factors of K and V by page.
    pub page_descale: bool,
    /// New rows of K and V that the kernel writes itself.
    pub append: bool,
    /// Windows.
    pub window: bool,
    /// Chunks.
    pub chunk: bool,
    /// Bounded scores.
    pub softcap: bool,
    /// Slopes.
    pub alibi: bool,
    /// A bias.
    pub bias: bool,
    /// Sinks.
    pub sinks: bool,
    /// Rows know their place among the keys, and the keys that they see have two ends: what windows, chunks and slopes
    /// take.
    pub positions: bool,
    /// Scores are changed before the mask.
    pub scores: bool,
    /// A declared score or mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<DeclaredParts>,
}

impl FeatureParts {
    /// Those of a kernel. Sinks join where the splits of the keys are combined.
    pub fn of(point: Point) -> Self {
        let has = |feature| point.features.has(feature);
        let (paged, packgqa, cache) = (has(Feature::Paged), has(Feature::PackGqa), has(Feature::Cache));
        let (window, chunk) = (has(Feature::Window), has(Feature::Chunk));
        let sinks = has(Feature::Sinks) && point.kind != Kind::FwdSplit;
        let (softcap, alibi, bias) = (has(Feature::Softcap), has(Feature::Alibi), has(Feature::Bias));
        let declared = point.features.score().map(|score| DeclaredParts::of(score, point.kind));
        // Where TMA brings pages, key tiles end at a page's border and not at the last key that a row sees. Of rows of
        // several heads, a lane's two are no fixed distance apart.
        let by_tma = point.target == Target::Sm90 && matches!(point.kind, Kind::Fwd | Kind::FwdShort);
        let positions = window || chunk || alibi || bias || (by_tma && (paged || packgqa)) || declared.is_some();
        let scores = point.features.changes_scores();
        let (kv, page_descale, append) = (KvFormat::widened(point), has(Feature::PageDescale), has(Feature::Append));
        Self {
            paged,
            packgqa,
            cache,
            kv,
            page_descale,
            append,
            window,
            chunk,
            softcap,
            alibi,
            bias,
            sinks,
            positions,
            scores,
            declared,
        }
    }

    /// Whether the kernel is as a plain one in all but its launcher.
    pub fn is_none(self) -> bool {
        let keys = self.paged || self.cache || self.kv.is_some() || self.packgqa || self.append;
        !(keys || self.positions || self.scores || self.sinks)
    }
}

/// Which parts of the templates a declared score or mask takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "templates ask for each by its name")]
pub struct DeclaredParts {
    /// It has a score.
    pub score: bool,
    /// It has a mask.
    pub mask: bool,
    /// The mask's interval begins where keys are first loaded: tiles before it are skipped.
    pub low: bool,
    /// It ends where keys are last loaded.
    pub high: bool,
    /// The mask is more than that: it is applied to every element of the tiles that are not skipped.
    pub by_element: bool,
    /// What is computed element by element differs from head to head.
    pub per_head: bool,
}

impl DeclaredParts {
    /// Those of `score` in a kernel of `kind`. An end of the interval is of use where it does not fall from row to row,
    /// and where all heads of a block share it: blocks of split and backward kernels have several.
    pub fn of(score: KeptScore, kind: Kind) -> Self {
        let several = matches!(kind, Kind::FwdSplit | Kind::Bwd);
        let interval = score.mask.as_ref().and_then(Expr::interval);
        let is_of_use =
            |end: &Expr, trend| matches!(trend, Trend::Constant | Trend::Rising) && !(several && end.uses(Variable::H));
        let ends = interval.as_ref().map(|found| {
            let (low, high) = found.trends();
            (is_of_use(&found.low, low), is_of_use(&found.high, high), found.exact)
        });
        let (low, high, exact) = ends.unwrap_or((false, false, false));
        let mask = score.mask.is_some();
        let by_element = mask && !(exact && low && high);
        let tables = score.names.names(List::Tables);
        let differs = |expr: &Expr| expr.uses(Variable::H) || tables.iter().any(|table| expr.uses_name(table));
        let per_head = score.score.as_ref().is_some_and(differs) || (by_element && score.mask.as_ref().is_some_and(differs));
        Self { score: score.score.is_some(), mask, low, high, by_element, per_head }
    }
}

/// A run of columns of a shared-memory tile, stored as a block of its own: rows of 128, 64 or 32 bytes, each with
/// the swizzle that makes eight consecutive rows of one 16-byte column hit eight different bank groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Panel {
    /// First column (elements).
    pub first_column: u32,
    /// Width in elements: 64, 32 or 16.
    pub columns: u32,
}

/// Where K and V come from, and what that takes besides the threads that multiply and their other registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kv {
    /// The part of the template that brings them.
    pub from: KvSource,
    /// Threads that do nothing else.
    pub threads: u32,
    /// Registers of each thread that brings them: of those threads all, where they do nothing else; otherwise what the
    /// tile on its way takes.
    pub registers: u32,
}

impl Kv {
    /// By the threads that multiply, with no register held meanwhile.
    pub(in crate::family::attention) const fn aside(from: KvSource) -> Self {
        Self { from, threads: 0, registers: 0 }
    }
}

/// A part below `templates/attention/parts/kv/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KvSource {
    /// Through registers.
    Staged,
    /// Asynchronous copies of all threads.
    CpAsync,
    /// Asynchronous copies of each warp, for itself.
    WarpRing,
    /// TMA where it takes the tensors, otherwise asynchronous copies.
    Tma,
    /// TMA, a thread of each warpgroup that multiplies.
    TmaByWarpgroup,
    /// TMA, a warpgroup of its own.
    TmaProducer,
}

/// What only FP8 kernels have to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fp8Choices {
    /// How V gets its keys side by side.
    pub transposition: ByteTransposition,
    /// P is held times two to this power, for E4M3's range.
    pub p_exponent: u32,
}

/// How a tile of bytes is read transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteTransposition {
    /// `ldmatrix` of bytes: the families of sm100 and sm120.
    LdmatrixB8,
    /// `ldmatrix` of pairs of bytes, then `prmt`: every GPU.
    Prmt,
}

/// What the backward kernel's template is told besides the tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Backward {
    /// Keys of a pair of warps.
    pub warp_keys: u32,
    /// dQ of a step is shared out in 16x16 blocks to `dq_warps_m` x `dq_warps_d` warps: queries x columns.
    pub dq_warps_m: u32,
    /// Warps side by side along the head dim.
    pub dq_warps_d: u32,
    /// Bytes of Q, dO, shifts and deltas of one step.
    pub stage_bytes: u32,
    /// Whether Q Kᵀ is a loop over panels of 64 columns, instead of all unrolled.
    pub by_panels: bool,
    /// Tile of the deterministic dQ: queries a block, keys a step, warps.
    pub dq_m: u32,
    /// Keys a step.
    pub dq_n: u32,
    /// Warps of a block.
    pub dq_warps: u32,
}

/// What a kernel with `wgmma` has besides its tile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hopper {
    /// Warpgroups that multiply, of 64 query rows each; one more fetches.
    pub consumers: u32,
    /// Registers a thread of the fetching warpgroup keeps; where one warpgroup multiplies, nothing is handed over.
    pub producer_registers: u32,
    /// Registers a thread of the others has then.
    pub consumer_registers: u32,
    /// Places for the Q of one warpgroup: up to two for each, so that the next Q comes while this one is used.
    pub q_slots: u32,
    /// Stages of K and of V as they come, where the fetching warpgroup widens them; elsewhere 0.
    pub byte_stages: u8,
    /// Pieces of 16 bytes that a lane has on the way which widens K and V.
    pub widened_at_once: u8,
    /// The widths N of the kernel's products, each once.
    pub widths: Vec<u32>,
    /// Columns of P V that are summed before O takes them: FP8 without overlap only, elsewhere all.
    pub part_columns: u32,
    /// How a warpgroup passes over key tiles at the start of a piece of causal work that are hidden from all of its
    /// rows: K and V of each alternately, where such tiles may be more than there are stages, instead of all K first,
    /// which lets it begin sooner.
    pub passes_by_turns: bool,
    /// Pieces of V that a warp has on the way which transposes it: FP8 only, elsewhere 0.
    pub transposed_at_once: u32,
    /// Whether the next kernel may start before this one has waited for those before it: where a multiprocessor holds
    /// one block, the next kernel's blocks begin where this one's end, as early as can be.
    pub next_starts_first: bool,
    /// Rows of an item up to which the warpgroups share its keys, for they are all one warpgroup's; 0: never.
    pub part_rows: u32,
}

/// Cuts a row of `columns` elements into panels of 64 columns, then at most one of 32 and one of 16, as `kgen/tile.cuh`
/// does.
pub(in crate::family::attention) fn panels(columns: u32) -> Vec<Panel> {
    let mut panels = Vec::new();
    let mut first_column = 0;
    for width in [64, 32, 16] {
        while columns - first_column >= width {
            panels.push(Panel { first_column, columns: width });
            first_column += width;
        }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_every_padded_head_dim_once_and_halve_at_most_twice() {
        for columns in (16..=256).step_by(16) {
            let panels = panels(columns);
            let mut next = 0;
            for panel in &panels {
                assert_eq!(panel.first_column, next, "{columns}");
                next += panel.columns;
            }
            assert_eq!(next, columns);
            assert!(panels.iter().filter(|p| p.columns < 64).map(|p| p.columns).is_sorted_by(|a, b| a > b), "{columns}");
        }
    }
}
