//! Forward attention on 16-bit types with TMA and `wgmma`: sm90 only.

use super::{
    CopyPath, Hopper, Kv, KvColumns, KvFormat, KvSource, Limits, Point, Recipe, Region, RegisterEstimate, StorePath, TensorCore,
    Tile, Turns,
    defaults::{default_of, tile_file},
    shared_keys,
    staged_elements::{bytes_of_elements, may_stage_elements, staged_elements},
};
use crate::{
    family::attention::design::{FeatureParts, panels},
    grid::TileFile,
    kernel::{Dtype, Feature, Features, HeadDim, Target},
};
use itertools::Itertools;
use std::{iter, ops::Range, sync::LazyLock};

/// The recipe of `templates/attention/fwd_sm90.cu.tera`.
pub(super) struct HopperForward;

/// Rows of one `wgmma`.
pub(super) const WARPGROUP_ROWS: u32 = 64;

/// Alignment of tiles loaded by TMA: the widest swizzle repeats every 8 rows of 128 bytes.
pub(super) const TMA_TILE_ALIGNMENT: u32 = 1024;

pub(super) const MBARRIER_BYTES: u32 = 8;

/// Bytes of the producer's description of a work item: four 32-bit numbers, and four more if rows have positions.
pub(super) fn work_bytes(variant: Point) -> u32 {
    if FeatureParts::of(variant).positions { 32 } else { 16 }
}

/// Registers per consumer thread in addition to O, S and P: softmax state, tile addresses, barriers, loop counters.
const OTHER_REGISTERS: u32 = 24;

static TILES: LazyLock<TileFile> = tile_file!("hopper.toml");

impl Recipe for HopperForward {
    fn template(&self) -> &'static str {
        "attention/fwd_sm90.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        if packs_heads(variant) && variant.features.score().is_some() {
            return Err(format!(
                "`packgqa` has no form for declared scores on {}; sm80's kernel has one and runs there too",
                variant.target
            ));
        }
        if variant.features.has(Feature::Long) && !has_long_tile(variant) {
            return Err("`long` is a second tile of causal kernels without features at head dims 40 to 64 on sm90".to_owned());
        }
        if variant.features.has(Feature::SplitKv) && variant.features != Features::from_iter([Feature::SplitKv]) {
            return Err("`splitkv` is for kernels without other features on sm90".to_owned());
        }
        let tile = default_of(&TILES, variant)?;
        if variant.features.has(Feature::M128) {
            let first = first_tile(variant)
                .ok_or("`m128` is a second tile of kernels without features at head dims up to 128 on sm90")?;
            if first.m == tile.m {
                return Err(format!("the only tile of this kernel has {} queries: leave out `m128`", tile.m));
            }
        }
        Ok(tile)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn features(&self) -> Features {
        let forms = [Feature::PackGqa, Feature::Long, Feature::M128, Feature::SplitKv];
        let caches = [Feature::Cache, Feature::KvE4m3, Feature::KvE5m2];
        Features::with_pages().with(forms.into_iter().chain(caches).collect())
    }

    fn keys(&self) -> &'static [&'static str] {
        &[
            "m",
            "n",
            "warps",
            "stages",
            "q_in_registers",
            "min_blocks_per_sm",
            "rescale_threshold",
            "accuracy",
            "copy",
            "overlap",
            "turns",
            "persistent",
            "cluster",
            "store",
        ]
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, rescale_threshold, .. } = *tile;
        // One to three MMA warpgroups of 64 rows, and a producer.
        if !matches!(m, 64 | 128 | 192) {
            return Some(format!("`m` is {m}; one to three warpgroups of 64 rows make it 64, 128 or 192"));
        }
        if warps != 4 + m / 16 {
            return Some(format!("`warps` is {warps}; {m} rows and the warps that fetch make it {}", 4 + m / 16));
        }
        // P V consumes 16 keys at a time, the K of the product; a TMA box has at most 256 rows.
        if n == 0 || !n.is_multiple_of(16) || n > 256 {
            return Some(format!("`n` is {n}; it must be a multiple of 16 from 16 to 256"));
        }
        if !(1..=8).contains(&stages) {
            return Some(format!("`stages` is {stages}; it must be 1 to 8"));
        }
        if tile.min_blocks_per_sm != 1 {
            return Some(format!(
                "`min_blocks_per_sm` is {}; a block takes all registers of a multiprocessor: 1",
                tile.min_blocks_per_sm
            ));
        }
        if tile.q_in_registers {
            return Some("`q_in_registers` is true; `wgmma` reads Q from shared memory".to_owned());
        }
        if tile.copy != CopyPath::Tma {
            return Some("`copy` is \"cp_async\"; this kernel copies with \"tma\"".to_owned());
        }
        if tile.overlap && stages < 2 {
            return Some("`overlap` is true with one stage; K of the next keys needs a second one".to_owned());
        }
        if tile.turns != Turns::None && m == WARPGROUP_ROWS {
            return Some(format!("`turns` is \"{}\" with one warpgroup; it takes two to take turns", tile.turns));
        }
        if tile.cluster > 1 && is_queued(variant) {
            return Some("`cluster` is 2; a block that takes its work from a list fetches for itself: 1".to_owned());
        }
        if let Some(feature) = KvFormat::of(variant.features).map(KvFormat::feature).filter(|_| tile.cluster > 1) {
            return Some(format!("`cluster` is 2; with `{feature}` a block widens all of K and V for itself: 1"));
        }
        if tile.store == StorePath::Tma && packs_heads(variant) {
            return Some("`store` is \"tma\"; rows of several heads are stored with \"direct\"".to_owned());
        }
        if !(1..=2).contains(&tile.cluster) {
            return Some(format!("`cluster` is {}; it must be 1 or 2", tile.cluster));
        }
        // P is at most 2^threshold: the maximum of fp16 is 65504, and fp32 sums of bf16 P are exact enough up to 2^64.
        let (dtype, most) = (variant.dtype, if variant.dtype == Dtype::Fp16 { 14 } else { 64 });
        if rescale_threshold > most {
            return Some(format!("`rescale_threshold` is {rescale_threshold}; {dtype} allows at most {most}"));
        }
        None
    }

    /// Slots of Q, stages of K and of V, the producer's description of the work item in each slot, and the full and
    /// empty barriers of each slot and of each stage of K and V. If warpgroups share keys, also the maximum and sum of
    /// each row that a slot has room for. If a warp searches for work, also two slots and barriers of the items that it
    /// has found. If producer warps widen K and V, also stages of the unwidened tiles, two
    /// slots in which the first warp passes work items to the others, its state of the work list, and each warp's
    /// barriers for the unwidened stages. The next tile of added elements, if they are staged.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let q_slots = q_slots(variant, tile);
        let (keys, values) = stage_bytes(variant, tile);
        let fetched = fetched_bytes(variant, tile);
        let list = if fetched.is_some() && is_queued(variant) { LIST_BYTES } else { 0 };
        let byte_stages = u32::from(byte_stages(variant, tile));
        let (more_work, more_barriers) = match fetched {
            Some(_) => (2, 2 * PRODUCER_WARPS * byte_stages),
            None if searches(variant, tile) => (2, 4),
            None => (0, 0),
        };
        let (k_bytes, v_bytes) = fetched.unzip();
        let as_they_come = [
            k_bytes.map(|bytes| ("stages of K as it comes", byte_stages * bytes, Some("K_BYTES_OFFSET"))),
            v_bytes.map(|bytes| ("stages of V as it comes", byte_stages * bytes, Some("V_BYTES_OFFSET"))),
        ];
        let sums = shared_keys::may_share(variant, tile)
            .then(|| ("maxima and sums", q_slots * shared_keys::part_rows(variant) * 8, Some("SUMS_OFFSET")));
        let rings = [
            ("slots of Q", q_slots * slot_bytes(variant, tile), Some("Q_OFFSET")),
            ("stages of K", tile.stages * keys, Some("K_OFFSET")),
            ("stages of V", tile.stages * values, Some("V_OFFSET")),
            ("work", (q_slots + more_work) * work_bytes(variant) + list, Some("WORK_OFFSET")),
        ];
        let staged = staged_bytes(variant, tile).map(staged_elements);
        let small = [
            ("zeros", zeros_bytes(tile), Some("ZEROS_OFFSET")),
            ("mbarriers", (2 * q_slots + 4 * tile.stages + more_barriers) * MBARRIER_BYTES, Some("BARRIERS_OFFSET")),
        ];
        let regions = as_they_come.into_iter().flatten().chain(rings).chain(staged).chain(sums).chain(small);
        Region::lay_out_aligned(regions, TMA_TILE_ALIGNMENT)
    }

    /// Accumulators of 64 rows per warpgroup: a thread has half a row of each. P has 16 bits per element, and separate
    /// registers only if the next scores are computed while P is in use.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        let kept = if tile.overlap { tile.n / 4 } else { 0 };
        RegisterEstimate::sum(variant.head_dim.v / 2, tile.n / 2 + kept, 0, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hgmma
    }

    fn portable(&self, variant: Point, _tile: Tile, target: Target) -> Result<Tile, String> {
        Err(format!("`{variant}` is made of `wgmma`, which `{target}` does not have"))
    }

    fn needs_tma(&self) -> bool {
        true
    }

    fn kv(&self, variant: Point, tile: &Tile) -> Kv {
        let registers = self.hopper(variant, tile).map_or(0, |hopper| hopper.producer_registers);
        Kv { from: KvSource::TmaProducer, threads: 128, registers }
    }

    fn hopper(&self, variant: Point, tile: &Tile) -> Option<Hopper> {
        let consumers = tile.m / WARPGROUP_ROWS;
        // Multiples of 8 that share the 64 K registers: 512 per row of 128 threads.
        let (producer_registers, consumer_registers) = match consumers {
            // 256 threads start with the maximum per thread.
            1 => (255, 255),
            // Loading for a cluster needs more than 24.
            2 if tile.cluster > 1 => (40, 232),
            // Widening more than two panels, or panels of several widths, uses all registers left by the products.
            2 if KvFormat::of(variant.features).is_some() && !matches!(variant.head_dim.wider(), 0..=64 | 121..=128) => {
                let total = self.registers(variant, tile).total + if FeatureParts::of(variant).scores { 24 } else { 0 };
                [(88, 208), (72, 216)].into_iter().find(|(_, consumer)| total <= *consumer).unwrap_or((56, 224))
            }
            // Page lookup with work search needs more than 40, and so does widening K and V.
            2 if is_queued(variant) || KvFormat::of(variant.features).is_some() => (56, 224),
            // Widening gets the registers left by the products, so that more of its loads overlap.
            3 if KvFormat::of(variant.features).is_some() && self.registers(variant, tile).total <= 140 => (80, 144),
            3 if is_queued(variant) || KvFormat::of(variant.features).is_some() => (56, 152),
            2 => (24, 240),
            _ => (32, 160),
        };
        let q_slots = q_slots(variant, tile);
        Some(Hopper {
            consumers,
            producer_registers,
            consumer_registers,
            q_slots,
            byte_stages: byte_stages(variant, tile),
            // Four need about 80 registers. The widest head dims also have panels of two widths, or large score
            // accumulators.
            widened_at_once: match variant.head_dim.wider() {
                193.. => 1,
                _ if consumers == 3 && producer_registers >= 80 => 4,
                _ => 2,
            },
            widths: widths(variant.head_dim.v, tile.n),
            part_columns: variant.head_dim.v,
            passes_by_turns: passes_by_turns(variant.features, tile),
            transposed_at_once: 0,
            next_starts_first: false,
            searches: searches(variant, tile),
            part_rows: shared_keys::of(variant, tile, q_slots),
        })
    }
}

/// True if the rows of a tile are queries of several heads.
fn packs_heads(variant: Point) -> bool {
    variant.features.has(Feature::PackGqa)
}

/// True if a kernel has a second tile, for long sequences.
fn has_long_tile(variant: Point) -> bool {
    let is_plain = variant.features == Features::from_iter([Feature::Long]);
    variant.causal && is_plain && (33..=64).contains(&variant.head_dim.wider())
}

/// The first tile of a kernel that may have a second one of 128 queries; `None` for others.
fn first_tile(variant: Point) -> Option<Tile> {
    let is_plain = variant.features == Features::from_iter([Feature::M128]);
    let first = Point { features: Features::NONE, ..variant };
    (is_plain && variant.head_dim.wider() <= 128).then(|| default_of(&TILES, first).ok()).flatten()
}

/// True if a warp searches the block's work in a list (`hopper/work_queue.tera`).
fn is_queued(variant: Point) -> bool {
    variant.features.has(Feature::Paged) || packs_heads(variant)
}

/// [`Hopper::searches`] of a tile: if its blocks take several items, whose keys are those up to a diagonal or all.
fn searches(variant: Point, tile: &Tile) -> bool {
    let features = FeatureParts::of(variant);
    tile.persistent && tile.cluster == 1 && !is_queued(variant) && !features.positions && features.kv.is_none()
}

/// [`Hopper::passes_by_turns`] of a tile: if the first warpgroup's rows end before those of the others, the blocks of a
/// cluster iterate over the same keys, or the keys visible to one row (chunk or declared mask) may all be hidden from
/// the row before it.
pub(super) fn passes_by_turns(features: Features, tile: &Tile) -> bool {
    let jumps = features.has(Feature::Chunk) || features.score().is_some_and(|score| score.mask.is_some());
    let after_the_last = if features.has(Feature::Paged) { PAGE_GRANULE - 1 } else { 0 };
    jumps || tile.cluster > 1 || tile.m - WARPGROUP_ROWS + after_the_last >= (tile.stages + 1) * tile.n
}

/// Rows of a page that one TMA copy loads: `GRANULE` of `templates/include/kgen/paged_tma.cuh`. Tile sizes are
/// multiples of it.
const PAGE_GRANULE: u32 = 16;

/// Two zeros that kernels read if their warpgroups alternate at exponentials (`templates/include/kgen/turns.cuh`).
pub(super) fn zeros_bytes(tile: &Tile) -> u32 {
    if tile.turns == Turns::Exponentials { 8 } else { 0 }
}

/// Bytes of a row of Q and K, and of a row of V and O.
pub(super) fn row_bytes(variant: Point) -> HeadDim {
    let HeadDim { qk, v } = variant.head_dim.padded_to(16);
    HeadDim { qk: qk * variant.dtype.bytes(), v: v * variant.dtype.bytes() }
}

/// Bytes of a stage of K and of a stage of V.
pub(super) fn stage_bytes(variant: Point, tile: &Tile) -> (u32, u32) {
    let whole = |row_bytes: u32| (tile.n * row_bytes).next_multiple_of(TMA_TILE_ALIGNMENT);
    let row = row_bytes(variant);
    (whole(row.qk), whole(row.v))
}

/// Warps of the producer warpgroup.
const PRODUCER_WARPS: u32 = 4;

/// Bytes of the work list's state between two items, per lane and per warp.
const LIST_BYTES: u32 = (32 + 1) * 16;

/// Bytes of a stage of unwidened K and of V, if they are FP8.
fn fetched_bytes(variant: Point, tile: &Tile) -> Option<(u32, u32)> {
    let whole = |row_bytes: u32| (tile.n * row_bytes).next_multiple_of(TMA_TILE_ALIGNMENT);
    KvColumns::of(variant).map(|columns| (whole(columns.qk), whole(columns.v)))
}

/// Bytes of a slot for one warpgroup's Q; its O reuses the slot for a TMA store.
fn slot_bytes(variant: Point, tile: &Tile) -> u32 {
    let row = row_bytes(variant);
    WARPGROUP_ROWS * if tile.store == StorePath::Tma { row.wider() } else { row.qk }
}

fn q_slots(variant: Point, tile: &Tile) -> u32 {
    let consumers = tile.m / WARPGROUP_ROWS;
    if !tile.persistent {
        return consumers;
    }
    let (keys, values) = fetched_bytes(variant, tile).unwrap_or_default();
    let fetched = u32::from(byte_stages(variant, tile)) * (keys + values);
    (beside_stages(variant, tile).saturating_sub(fetched) / slot_bytes(variant, tile)).clamp(consumers, 2 * consumers)
}

/// Stages of unwidened K and V: two if each warpgroup still has a slot for its Q, because a copy takes longer than a
/// warp needs to widen its part of a tile.
fn byte_stages(variant: Point, tile: &Tile) -> u8 {
    let Some((keys, values)) = fetched_bytes(variant, tile) else { return 0 };
    let q = tile.m / WARPGROUP_ROWS * slot_bytes(variant, tile);
    if beside_stages(variant, tile).saturating_sub(q) >= 2 * (keys + values) { 2 } else { 1 }
}

/// Bytes of a tile of added elements, if it fits beside one Q per warpgroup. Kernels with packed heads or widened K and
/// V read them from device memory.
fn staged_bytes(variant: Point, tile: &Tile) -> Option<u32> {
    let is_staged = may_stage_elements(variant.features) && KvFormat::of(variant.features).is_none();
    let bytes = bytes_of_elements(tile.m, tile.n);
    let q = tile.m / WARPGROUP_ROWS * slot_bytes(variant, tile);
    (is_staged && room(variant, tile) >= q + bytes.next_multiple_of(TMA_TILE_ALIGNMENT)).then_some(bytes)
}

/// Bytes left by the stages of K and V, the descriptions of work, sums, zeros and barriers, each in its own region.
fn room(variant: Point, tile: &Tile) -> u32 {
    let (keys, values) = stage_bytes(variant, tile);
    let sums = if shared_keys::may_share(variant, tile) { 2 * TMA_TILE_ALIGNMENT } else { 0 };
    let beside = tile.stages * (keys + values) + sums + 3 * TMA_TILE_ALIGNMENT;
    Limits::of(variant.target).shared_memory_per_block.saturating_sub(beside)
}

/// Bytes of [`room`] that remain after the staged elements, if there are any.
fn beside_stages(variant: Point, tile: &Tile) -> u32 {
    let staged = staged_bytes(variant, tile).map_or(0, |bytes| bytes.next_multiple_of(TMA_TILE_ALIGNMENT));
    room(variant, tile) - staged
}

/// The widths of Q Kᵀ and of P V.
pub(super) fn widths(head_dim_v: u32, n: u32) -> Vec<u32> {
    distinct(iter::once(n).chain(widths_of(0..head_dim_v, head_dim_v)))
}

/// The widths of products with these columns of a tile that is as wide as `head_dim`: one for each run of equal panels.
pub(super) fn widths_of(range: Range<u32>, head_dim: u32) -> Vec<u32> {
    let mut widths = Vec::new();
    let mut wide = 0;
    for panel in panels(head_dim.next_multiple_of(16)) {
        let columns = (panel.first_column + panel.columns).min(range.end).saturating_sub(panel.first_column.max(range.start));
        if panel.columns == 64 {
            wide += columns;
        } else {
            widths.push(columns);
        }
    }
    widths.push(wide);
    widths
}

/// The widths that are not 0, each once, in ascending order.
pub(super) fn distinct(widths: impl Iterator<Item = u32>) -> Vec<u32> {
    widths.filter(|width| *width > 0).sorted_unstable().dedup().collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tile::BASE, *};
    use crate::family::attention::TileChange;
    use crate::{
        family::attention::{Kind, Panel},
        kernel::HeadDim,
        plan::{Occupancy, Plan, PlanError, TensorCore},
    };

    const D128: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(128),
        dtype: Dtype::Fp16,
        causal: false,
        features: Features::NONE,
        target: Target::Sm90,
    };

    /// The tile that these tests compute by hand, independent of the defaults.
    fn fixed() -> TileChange {
        TileChange {
            m: Some(128),
            n: Some(128),
            warps: Some(12),
            stages: Some(2),
            q_in_registers: Some(false),
            min_blocks_per_sm: Some(1),
            rescale_threshold: Some(8),
            accuracy: None,
            copy: Some(CopyPath::Tma),
            fp8_mma: None,
            overlap: Some(true),
            turns: Some(Turns::Products),
            persistent: Some(true),
            cluster: Some(1),
            store: Some(StorePath::Direct),
        }
    }

    fn plan(head_dim: u32, change: &TileChange) -> Plan {
        Plan::changed(Point { head_dim: HeadDim::equal(head_dim), ..D128 }, change).expect("fits")
    }

    fn hopper(plan: &Plan) -> &Hopper {
        plan.attention().hopper.as_ref().expect("the kernel has `wgmma`")
    }

    fn reason(variant: Point, change: &TileChange) -> String {
        Plan::changed(variant, change).expect_err("the tile breaks a rule").to_string()
    }

    fn map(plan: &Plan) -> Vec<(&str, u32, u32)> {
        plan.shared_memory.iter().map(|r| (r.constant.unwrap_or_default(), r.offset, r.bytes)).collect()
    }

    #[test]
    fn every_head_dim_has_a_default_that_fits() {
        let dtypes = [Dtype::Fp16, Dtype::Bf16];
        for ((head_dim, dtype), causal) in (16..=256).step_by(8).cartesian_product(dtypes).cartesian_product([false, true]) {
            let variant = Point { head_dim: HeadDim::equal(head_dim), dtype, causal, ..D128 };
            let plan = Plan::new(variant, None).expect("a default fits");
            assert_eq!((plan.template, plan.tensor_core), ("attention/fwd_sm90.cu.tera", TensorCore::Hgmma));
            assert_eq!(plan.threads, 128 * (1 + hopper(&plan).consumers), "{variant}");
            assert!(plan.occupancy.blocks_per_sm >= plan.attention().tile.min_blocks_per_sm, "{variant}: {:?}", plan.occupancy);
            assert!(plan.registers.total <= hopper(&plan).consumer_registers, "{variant}");
        }
    }

    #[test]
    fn a_second_tile_exists_beside_a_first_one_that_differs_in_what_it_is_for() {
        let with = |head_dim, causal, features: &[Feature]| {
            let features = features.iter().copied().collect();
            Plan::new(Point { head_dim: HeadDim::equal(head_dim), causal, features, ..D128 }, None)
        };
        let refused = |head_dim, causal, features: &[Feature]| {
            with(head_dim, causal, features).expect_err("it has no such tile").to_string()
        };
        for (head_dim, causal) in (16..=128).step_by(8).cartesian_product([false, true]) {
            let first = with(head_dim, causal, &[]).expect("the first").attention().tile;
            if first.m == 128 {
                assert!(causal && head_dim > 120, "{head_dim}");
                let reason = refused(head_dim, causal, &[Feature::M128]);
                assert!(reason.contains("the only tile of this kernel has 128 queries: leave out `m128`"), "{reason}");
                continue;
            }
            let plan = with(head_dim, causal, &[Feature::M128]).expect("the second");
            let second = plan.attention().tile;
            assert_eq!((first.m, second.m, second.warps, hopper(&plan).consumers), (192, 128, 12, 2), "{head_dim}");
            assert!(plan.registers.total <= 240, "{head_dim}");
        }
        for (head_dim, features) in [(136, &[Feature::M128][..]), (64, &[Feature::M128, Feature::Softcap])] {
            let reason = refused(head_dim, false, features);
            assert!(reason.contains("kernels without features at head dims up to 128 on sm90"), "{reason}");
        }
        for (head_dim, causal) in [(64, false), (72, true), (32, true)] {
            let reason = refused(head_dim, causal, &[Feature::Long]);
            assert!(reason.contains("causal kernels without features at head dims 40 to 64 on sm90"), "{reason}");
        }
        let reason = refused(64, true, &[Feature::Long, Feature::M128]);
        assert!(reason.contains("`long` and `m128` are two tiles; a kernel has one"), "{reason}");
    }

    /// Each width is that of one instruction, and every panel of V belongs to one of them.
    #[test]
    fn the_widths_of_every_head_dim_are_those_of_an_instruction_and_cover_it() {
        for (head_dim, n) in (16..=256).step_by(8).cartesian_product((16..=256).step_by(16)) {
            let widths = widths(head_dim, n);
            assert!(
                widths.iter().all(|width| width.is_multiple_of(8) && (8..=256).contains(width)),
                "{head_dim} {n}: {widths:?}"
            );
            assert!(widths.is_sorted_by(|a, b| a < b) && widths.contains(&n), "{head_dim} {n}: {widths:?}");
            let of_v: u32 = self::widths(head_dim, 0).iter().sum();
            assert_eq!(of_v, head_dim, "{head_dim}");
        }
    }

    #[test]
    fn panels_of_64_columns_are_one_product_and_narrower_ones_one_each() {
        assert_eq!(widths(24, 128), [24, 128], "32 columns of which 24 are there");
        assert_eq!(widths(72, 128), [8, 64, 128], "half of a panel of 16");
        assert_eq!(widths(80, 112), [16, 64, 112]);
        assert_eq!(widths(120, 128), [120, 128], "two panels of 64, the last one of 56");
        assert_eq!(widths(128, 128), [128], "as wide as S");
        assert_eq!(widths(224, 80), [32, 80, 192]);
        assert_eq!(widths(256, 64), [64, 256]);
    }

    #[test]
    fn the_numbers_of_head_dim_128_are_exact() {
        let plan = plan(128, &fixed());
        assert_eq!((plan.threads, plan.attention().rows_per_warp, plan.attention().head_dim_padded), (384, 16, 128));
        let regions = [("Q_OFFSET", 0, 65_536), ("K_OFFSET", 65_536, 65_536), ("V_OFFSET", 131_072, 65_536)];
        assert_eq!(map(&plan)[..3], regions);
        let behind = [("WORK_OFFSET", 196_608, 96), ("ZEROS_OFFSET", 197_632, 0), ("BARRIERS_OFFSET", 197_632, 160)];
        assert_eq!(map(&plan)[3..], behind);
        assert_eq!(plan.shared_memory_bytes, 197_792);
        assert_eq!((plan.registers.output, plan.registers.scores, plan.registers.query), (64, 64 + 32, 0), "P beside S");
        assert_eq!(plan.registers.total, 64 + 64 + 32 + OTHER_REGISTERS);
        let expected = Hopper {
            consumers: 2,
            producer_registers: 24,
            consumer_registers: 240,
            q_slots: 4,
            byte_stages: 0,
            widened_at_once: 2,
            widths: vec![128],
            part_columns: 128,
            passes_by_turns: false,
            transposed_at_once: 0,
            next_starts_first: false,
            searches: true,
            part_rows: 0,
        };
        assert_eq!(hopper(&plan), &expected);
        assert_eq!(plan.occupancy, Occupancy { blocks_per_sm: 1, warps_per_sm: 12, limited_by: "registers" });
    }

    #[test]
    fn each_warpgroup_has_a_place_for_its_q_and_the_next_ones_as_many_as_fit() {
        let wide = plan(128, &TileChange { n: Some(176), ..fixed() });
        assert_eq!(hopper(&wide).q_slots, 3, "16 KB each beside 176 KB of K and V");
        let regions = [("Q_OFFSET", 0, 49_152), ("K_OFFSET", 49_152, 90_112), ("V_OFFSET", 139_264, 90_112)];
        assert_eq!(map(&wide)[..3], regions);
        let behind = [("WORK_OFFSET", 229_376, 80), ("ZEROS_OFFSET", 230_400, 0), ("BARRIERS_OFFSET", 230_400, 144)];
        assert_eq!(map(&wide)[3..], behind);
        let once = plan(128, &TileChange { persistent: Some(false), ..fixed() });
        assert_eq!(hopper(&once).q_slots, 2, "a block that has one Q");
    }

    #[test]
    fn who_takes_turns_at_exponentials_has_two_zeros_to_read() {
        let plan = plan(128, &TileChange { turns: Some(Turns::Exponentials), ..fixed() });
        let behind = [("WORK_OFFSET", 196_608, 96), ("ZEROS_OFFSET", 197_632, 8), ("BARRIERS_OFFSET", 198_656, 160)];
        assert_eq!(map(&plan)[3..], behind);
        assert_eq!(plan.shared_memory_bytes, 198_816);
    }

    #[test]
    fn the_numbers_of_head_dim_72_pad_shared_memory_to_80_but_not_the_output() {
        let plan = plan(72, &TileChange { n: Some(48), ..fixed() });
        assert_eq!(plan.attention().head_dim_padded, 80);
        assert_eq!(plan.attention().panels, [Panel { first_column: 0, columns: 64 }, Panel { first_column: 64, columns: 16 }]);
        // A stage of K has 7,680 bytes and is aligned to 1024.
        let regions = [("Q_OFFSET", 0, 40_960), ("K_OFFSET", 40_960, 16_384), ("V_OFFSET", 57_344, 16_384)];
        assert_eq!(map(&plan)[..3], regions);
        assert_eq!(plan.registers.output, 36, "O has 72 columns");
    }

    #[test]
    fn warpgroups_share_64_k_registers() {
        for (m, warps, consumers, registers) in [(64, 8, 1, (255, 255)), (128, 12, 2, (24, 240)), (192, 16, 3, (32, 160))] {
            let plan = plan(
                64,
                &TileChange {
                    m: Some(m),
                    warps: Some(warps),
                    turns: Some(if m > 64 { Turns::Products } else { Turns::None }),
                    ..fixed()
                },
            );
            let hopper = hopper(&plan);
            assert_eq!((hopper.consumers, (hopper.producer_registers, hopper.consumer_registers)), (consumers, registers));
            assert!(128 * (hopper.producer_registers + consumers * hopper.consumer_registers) <= 65_536, "{m}");
            assert_eq!(plan.attention().rows_per_warp, 16, "{m}");
        }
    }

    /// Half a key tile consists of whole groups of eight rows, the period of a swizzle. The cluster does not search.
    #[test]
    fn blocks_of_a_cluster_have_the_same_shared_memory_and_leave_the_fetching_thread_more_registers() {
        let alone = plan(128, &fixed());
        let paired = plan(128, &TileChange { cluster: Some(2), ..fixed() });
        assert_eq!(map(&paired)[..3], map(&alone)[..3]);
        let behind = [("WORK_OFFSET", 196_608, 64), ("ZEROS_OFFSET", 197_632, 0), ("BARRIERS_OFFSET", 197_632, 128)];
        assert_eq!(map(&paired)[3..], behind);
        let registers = |plan: &Plan| (hopper(plan).producer_registers, hopper(plan).consumer_registers);
        assert_eq!((registers(&alone), registers(&paired)), ((24, 240), (40, 232)));
    }

    #[test]
    fn hidden_tiles_are_passed_over_by_turns_where_they_may_be_more_than_the_stages() {
        let by_turns = |m, n, stages, cluster| passes_by_turns(Features::NONE, &Tile { m, n, stages, cluster, ..BASE });
        assert!(!by_turns(192, 64, 2, 1), "two of 64 keys before row 64");
        assert!(!by_turns(192, 48, 2, 1), "two of 48");
        assert!(by_turns(192, 32, 2, 1), "four of 32");
        assert!(!by_turns(192, 32, 4, 1), "four of 32, and four stages");
        assert!(by_turns(128, 16, 2, 1), "four of 16");
        assert!(!by_turns(64, 16, 1, 1), "none");
        assert!(by_turns(128, 128, 2, 2), "the second block's, besides");
        let tile = Tile { m: 64, n: 128, stages: 2, ..BASE };
        assert!(passes_by_turns(Features::from_iter([Feature::Chunk]), &tile), "all of the next row's chunk");
    }

    #[test]
    fn without_overlap_p_takes_the_place_of_s() {
        let plan = plan(128, &TileChange { overlap: Some(false), stages: Some(1), ..fixed() });
        assert_eq!((plan.registers.scores, plan.registers.total), (64, 64 + 64 + OTHER_REGISTERS));
    }

    #[test]
    fn each_broken_rule_is_named_with_its_number() {
        let said = |change: TileChange| reason(D128, &change);
        assert!(said(TileChange { m: Some(96), ..fixed() }).contains("`m` is 96; one to three warpgroups"));
        assert!(said(TileChange { m: Some(256), ..fixed() }).contains("make it 64, 128 or 192"));
        assert!(
            said(TileChange { warps: Some(8), ..fixed() }).contains("`warps` is 8; 128 rows and the warps that fetch make it 12")
        );
        assert!(said(TileChange { n: Some(0), ..fixed() }).contains("`n` is 0"));
        assert!(said(TileChange { n: Some(40), ..fixed() }).contains("`n` is 40; it must be a multiple of 16"));
        assert!(said(TileChange { n: Some(272), ..fixed() }).contains("`n` is 272"));
        assert!(said(TileChange { stages: Some(0), ..fixed() }).contains("`stages` is 0"));
        assert!(said(TileChange { stages: Some(9), ..fixed() }).contains("`stages` is 9; it must be 1 to 8"));
        assert!(said(TileChange { min_blocks_per_sm: Some(0), ..fixed() }).contains("at least 1"));
        assert!(said(TileChange { min_blocks_per_sm: Some(2), ..fixed() }).contains("`min_blocks_per_sm` is 2"));
        assert!(said(TileChange { q_in_registers: Some(true), ..fixed() }).contains("reads Q from shared memory"));
        assert!(said(TileChange { copy: Some(CopyPath::CpAsync), ..fixed() }).contains("this kernel copies with \"tma\""));
        assert!(said(TileChange { stages: Some(1), ..fixed() }).contains("`overlap` is true with one stage"));
        for cluster in [0, 3] {
            let words = format!("`cluster` is {cluster}; it must be 1 or 2");
            assert!(said(TileChange { cluster: Some(cluster), ..fixed() }).contains(&words));
        }
        let one_warpgroup = TileChange { m: Some(64), warps: Some(8), ..fixed() };
        assert!(said(one_warpgroup.clone()).contains("`turns` is \"products\" with one warpgroup"));
        let of_exponentials = TileChange { turns: Some(Turns::Exponentials), ..one_warpgroup };
        assert!(said(of_exponentials).contains("`turns` is \"exponentials\" with one warpgroup"));
    }

    #[test]
    fn p_stays_finite_in_fp16_under_every_accepted_threshold() {
        let threshold = |rescale_threshold| TileChange { rescale_threshold: Some(rescale_threshold), ..fixed() };
        assert!(Plan::changed(D128, &threshold(14)).is_ok());
        assert!(reason(D128, &threshold(15)).contains("fp16 allows at most 14"));
        let bf16 = Point { dtype: Dtype::Bf16, ..D128 };
        assert!(Plan::changed(bf16, &threshold(64)).is_ok());
        assert!(reason(bf16, &threshold(65)).contains("bf16 allows at most 64"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_number() {
        let error =
            Plan::changed(Point { head_dim: HeadDim::equal(256), ..D128 }, &fixed()).expect_err("64 KB of Q, 256 KB of K and V");
        let PlanError::DoesNotFit { resource, needed, available, .. } = error else { panic!("{error}") };
        assert_eq!((resource, needed, available), ("shared memory", 328_832, 232_448));
        let wide = TileChange { m: Some(192), n: Some(176), warps: Some(16), ..fixed() };
        let error = Plan::changed(Point { head_dim: HeadDim::equal(64), ..D128 }, &wide)
            .expect_err("32 of O, 88 of S, 44 of P")
            .to_string();
        let numbers = format!("registers needs {} of 160 a thread", 32 + 88 + 44 + OTHER_REGISTERS);
        assert!(error.contains(&numbers) && error.contains("lower `n`"), "{error}");
    }

    #[test]
    fn no_other_target_has_wgmma_and_a_portable_kernel_runs_as_sm90_with_its_own_template() {
        let error = Plan::new(D128, None).expect("fits").to_run_as(Target::Sm100).expect_err("no wgmma").to_string();
        assert!(error.contains("made of `wgmma`, which `sm100` does not have"), "{error}");
        for target in [Target::Sm75, Target::Sm80, Target::Sm89, Target::Sm100, Target::Sm120, Target::Sm121] {
            let plan = Plan::new(Point { target, ..D128 }, None).expect("fits");
            let there = plan.to_run_as(Target::Sm90).expect("portable");
            assert_eq!((there.template, there.attention().hopper.clone()), (plan.template, None), "{target}");
        }
    }
}
