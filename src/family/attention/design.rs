//! Attention's part of a kernel's plan.

use super::{CopyPath, Kind, KvFormat, Point, Tile};
use crate::{
    expression::{Expr, KeptScore, List, Trend, Variable},
    kernel::{self, Dtype, Feature, FeatureInfo, Features, Target, Variant},
    plan::{self, Tiling},
};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// Tile and the values derived from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Tile sizes and pipeline choices.
    pub tile: Tile,
    /// Query rows per warp.
    pub rows_per_warp: u32,
    /// Head dim of Q and K rounded up to the K of the MMA (16; 32 with FP8): the width of their tiles in shared memory.
    pub head_dim_padded: u32,
    /// The padded head dim of V and O, likewise.
    pub head_dim_v_padded: u32,
    /// Column panels of Q and K tiles in shared memory.
    pub panels: Vec<Panel>,
    /// Column panels of V and O tiles.
    pub panels_v: Vec<Panel>,
    /// Features of calls, in the form that templates test.
    pub features: FeatureParts,
    /// Loading of K and V.
    pub kv: Kv,
    /// True if a split-KV kernel may start before the preceding kernels have completed (programmatic dependent launch).
    pub early: bool,
    /// Element type of the MMA operands, if the kernel widens its queries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub widened_to: Option<Dtype>,
    /// Columns of FP8 tiles of K and V, if the MMA has 16-bit operands: head dims rounded up to 32 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_columns: Option<KvColumns>,
    /// FP8 kernels only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8: Option<Fp8Choices>,
    /// Additional values of backward kernels.
    pub backward: Option<Backward>,
    /// Additional values of `wgmma` kernels.
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
    /// Attention's part of a kernel's plan.
    pub(crate) fn attention(&self) -> &Design {
        self.design_as().expect("an attention kernel")
    }
}

/// Columns of tiles of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KvColumns {
    /// Columns of K.
    pub qk: u32,
    /// Columns of V.
    pub v: u32,
}

impl KvColumns {
    /// Bytes of a row that one ldmatrix reads: two chunks of 16.
    const STEP: u32 = 32;

    /// The columns of a kernel; `None` if K and V have Q's type.
    pub(in crate::family::attention) fn of(point: Point) -> Option<Self> {
        let padded = point.head_dim.padded_to(Self::STEP);
        KvFormat::widened(point).map(|_| Self { qk: padded.qk, v: padded.v })
    }

    /// Columns of K and V together.
    pub(in crate::family::attention) fn both(self) -> u32 {
        self.qk + self.v
    }
}

/// Template parts that a kernel's features need. JSON has one Boolean per feature with a part, named after the feature,
/// and the other fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureParts {
    /// Features whose parts the kernel includes.
    features: Features,
    /// Format of K and V in FP8 that are widened before the MMA.
    pub kv: Option<KvFormat>,
    /// True if rows compute their positions among the keys, and their visible keys have two ends: for windows, chunks
    /// and slopes.
    pub positions: bool,
    /// True if scores are changed before the mask.
    pub scores: bool,
    /// A declared score or mask.
    pub declared: Option<DeclaredParts>,
}

impl FeatureParts {
    /// The parts of a kernel. A split-KV kernel has no parts for features that the combine kernel applies.
    pub fn of(point: Point) -> Self {
        let combined = point.kind == Kind::FwdSplit;
        let has_part = |info: &FeatureInfo| info.has_part && !(info.is_combined && combined);
        let declared = point.features.score().map(|score| DeclaredParts::of(score, point.kind));
        // With pages loaded by TMA, key tiles end at a page's end, not at the last key that a row sees. With rows of
        // several heads, the distance between a lane's two rows is not constant.
        let by_tma = point.target == Target::Sm90 && matches!(point.kind, Kind::Fwd | Kind::FwdShort);
        let of_tiles = point.features.has(Feature::Paged) || point.features.has(Feature::PackGqa);
        Self {
            features: point.features.iter().filter(|feature| has_part(feature.info())).collect(),
            kv: KvFormat::widened(point),
            positions: point.features.any(|info| info.has_positions) || (by_tma && of_tiles) || declared.is_some(),
            scores: point.features.changes_scores(),
            declared,
        }
    }
}

impl Serialize for FeatureParts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for feature in Features::of_all(|info| info.has_part).iter() {
            map.serialize_entry(feature.name(), &self.features.has(feature))?;
        }
        self.kv.iter().try_for_each(|kv| map.serialize_entry("kv", kv))?;
        map.serialize_entry("positions", &self.positions)?;
        map.serialize_entry("scores", &self.scores)?;
        self.declared.iter().try_for_each(|declared| map.serialize_entry("declared", declared))?;
        map.end()
    }
}

/// Template parts that a declared score or mask needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "templates ask for each by its name")]
pub struct DeclaredParts {
    /// True if it has a score.
    pub score: bool,
    /// True if it has a mask.
    pub mask: bool,
    /// True if loading of keys starts at the lower end of the mask's interval; earlier tiles are skipped.
    pub low: bool,
    /// True if loading of keys stops at the upper end of the interval.
    pub high: bool,
    /// True if the mask is more than an interval, so that it is tested for every element of the tiles that are not
    /// skipped.
    pub by_element: bool,
    /// True if the per-element score or mask depends on the head.
    pub per_head: bool,
}

impl DeclaredParts {
    /// The parts for `score` in a kernel of `kind`. An end of the interval can be used if it never decreases from row
    /// to row and all heads of a block share it; blocks of split and backward kernels have several heads.
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

/// A range of columns of a shared-memory tile, stored contiguously: rows of 128, 64 or 32 bytes, with the swizzle that
/// puts eight consecutive rows of a 16-byte column into eight different bank groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Panel {
    /// First column (elements).
    pub first_column: u32,
    /// Width in elements: 64, 32 or 16.
    pub columns: u32,
}

/// Loading of K and V, and the threads and registers that it needs in addition to those of the MMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kv {
    /// Template part that loads them.
    pub from: KvSource,
    /// Threads that only load.
    pub threads: u32,
    /// Registers per loading thread: all registers of a thread that only loads; otherwise those that hold the tile in
    /// flight.
    pub registers: u32,
}

impl Kv {
    /// Loads by the MMA threads without additional registers.
    pub(in crate::family::attention) const fn aside(from: KvSource) -> Self {
        Self { from, threads: 0, registers: 0 }
    }
}

/// A part below `templates/attention/parts/kv/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KvSource {
    /// Global memory to registers to shared memory.
    Staged,
    /// cp.async by all threads.
    CpAsync,
    /// cp.async by each warp for its own tiles.
    WarpRing,
    /// TMA if it supports the tensors, otherwise cp.async.
    Tma,
    /// TMA issued by one thread of each MMA warpgroup.
    TmaByWarpgroup,
    /// TMA issued by a producer warpgroup.
    TmaProducer,
}

/// Choices of FP8 kernels only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fp8Choices {
    /// Transposition of V, so that the keys of a column are adjacent.
    pub transposition: ByteTransposition,
    /// P is scaled by two to this power, to use the range of E4M3.
    pub p_exponent: u32,
}

/// Method to read a tile of bytes transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteTransposition {
    /// `ldmatrix` of bytes: sm100 and sm120 families.
    LdmatrixB8,
    /// `ldmatrix` of byte pairs, then `prmt`: every GPU.
    Prmt,
}

/// Parameters of the backward kernel's template in addition to the tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Backward {
    /// Keys per pair of warps.
    pub warp_keys: u32,
    /// dQ of a step is distributed in 16x16 blocks over `dq_warps_m` x `dq_warps_d` warps (queries x columns).
    pub dq_warps_m: u32,
    /// Number of warps along the head dim.
    pub dq_warps_d: u32,
    /// Bytes of Q, dO, softmax shifts and deltas of one step.
    pub stage_bytes: u32,
    /// Registers per thread of a warpgroup for dQ alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_registers: Option<u32>,
    /// True if the thread index is hidden from ptxas, which has no register left for values derived from it.
    pub hides_index: bool,
    /// True if the key warpgroup stores dS before dK starts, otherwise while it runs.
    pub stores_first: bool,
    /// The deterministic dQ kernel.
    #[serde(flatten)]
    pub deterministic: DeterministicTile,
}

/// The kernel that computes dQ in a fixed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DeterministicTile {
    /// True if Q Kᵀ is a loop over panels of 64 columns instead of being fully unrolled.
    pub by_panels: bool,
    /// Queries per block.
    pub dq_m: u32,
    /// Keys per step.
    pub dq_n: u32,
    /// Warps per block.
    pub dq_warps: u32,
}

/// Values of `wgmma` kernels in addition to the tile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hopper {
    /// MMA warpgroups of 64 query rows each; there is one more, the producer.
    pub consumers: u32,
    /// Registers per thread of the producer warpgroup. With a single MMA warpgroup no registers are reallocated.
    pub producer_registers: u32,
    /// Registers per thread of the MMA warpgroups after the reallocation.
    pub consumer_registers: u32,
    /// Slots for one warpgroup's Q: up to two per warpgroup, so that the next Q is loaded while the current one is in
    /// use.
    pub q_slots: u32,
    /// Stages of K and V in FP8, before the producer warpgroup widens them; otherwise 0.
    pub byte_stages: u8,
    /// 16-byte chunks in flight per lane of a producer that widens K and V.
    pub widened_at_once: u8,
    /// The distinct widths N of the kernel's products.
    pub widths: Vec<u32>,
    /// Columns of P V that are summed before they are added to O: a part in FP8 without overlap, otherwise all.
    pub part_columns: u32,
    /// How a warpgroup passes the key tiles at the start of a causal work item that are hidden from all of its rows: K
    /// and V of each tile alternately if there may be more such tiles than stages; otherwise all K first, which starts
    /// sooner.
    pub passes_by_turns: bool,
    /// Chunks of V in flight per transposing warp: FP8 only, otherwise 0.
    pub transposed_at_once: u32,
    /// True if the kernel allows the next one to launch before its own wait for predecessors: with one block per
    /// multiprocessor, the next kernel's blocks then start as soon as blocks of this one exit.
    pub next_starts_first: bool,
    /// True if a producer warp searches the items of sequences of unequal lengths, those with the most keys first.
    pub searches: bool,
    /// Maximum rows of an item for which the warpgroups share its keys, because one warpgroup has all rows; 0: never.
    pub part_rows: u32,
}

impl Hopper {
    /// Consumers and the registers per thread of the producer and of the consumers, with products of these widths and
    /// P V of `part_columns` columns: one slot for Q, and no optional part.
    pub(in crate::family::attention) fn new(
        consumers: u32,
        [producer_registers, consumer_registers]: [u32; 2],
        widths: Vec<u32>,
        part_columns: u32,
    ) -> Self {
        Self {
            consumers,
            producer_registers,
            consumer_registers,
            q_slots: 1,
            byte_stages: 0,
            widened_at_once: 0,
            widths,
            part_columns,
            passes_by_turns: false,
            transposed_at_once: 0,
            next_starts_first: false,
            searches: false,
            part_rows: 0,
        }
    }
}

/// Splits a row of `columns` elements into panels of 64 columns, then at most one of 32 and one of 16, like
/// `kgen/tile.cuh`.
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
