//! Forward attention on 16-bit types for small amounts of work: TMA and `wgmma`, sm90 only.

use super::{
    CopyPath, Hopper, Kv, KvSource, Limits, Point, Recipe, Region, RegisterEstimate, StorePath, TensorCore, Tile, Turns,
    defaults::{default_of, tile_file},
    hopper::{HopperForward, MBARRIER_BYTES, TMA_TILE_ALIGNMENT, WARPGROUP_ROWS, row_bytes, stage_bytes, widths},
};
use crate::{
    grid::TileFile,
    kernel::{Dtype, Feature, Features, Target},
};
use std::sync::LazyLock;

/// The recipe of `templates/attention/fwd_short_sm90.cu.tera`.
pub(super) struct HopperShort;

/// Registers per thread in addition to O, S and P: softmax state, tile addresses, barriers, loop counters.
const OTHER_REGISTERS: u32 = 24;

/// Bytes per row that a warpgroup passes to the others in addition to O: maximum and sum, fp32.
const STATE_BYTES: u32 = 8;

/// The block's query tile, batch entry, head and key head, read by all threads.
const PLACE_BYTES: u32 = 16;

static TILES: LazyLock<TileFile> = tile_file!("hopper_short.toml");

impl Recipe for HopperShort {
    fn template(&self) -> &'static str {
        "attention/fwd_short_sm90.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        let tile = default_of(&TILES, variant)?;
        // If V is wider than K, its O needs more stages than K would.
        let columns = variant.head_dim.padded_to(16);
        let stages = (2 * tile.m * variant.head_dim.v).div_ceil(tile.n * (columns.qk + columns.v));
        Ok(Tile { stages: tile.stages.max(stages), ..tile })
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn features(&self) -> Features {
        Features::with_pages().with(Features::from_iter([Feature::Cache]))
    }

    fn keys(&self) -> &'static [&'static str] {
        HopperForward.keys()
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, rescale_threshold, .. } = *tile;
        if m != WARPGROUP_ROWS {
            return Some(format!("`m` is {m}; all warpgroups multiply for the same {WARPGROUP_ROWS} rows"));
        }
        if !matches!(warps, 8 | 12 | 16) {
            return Some(format!("`warps` is {warps}; two to four warpgroups make it 8, 12 or 16"));
        }
        // P V consumes 16 keys at a time, the K of the product; a TMA box has at most 256 rows.
        if n == 0 || !n.is_multiple_of(16) || n > 256 {
            return Some(format!("`n` is {n}; it must be a multiple of 16 from 16 to 256"));
        }
        if !(1..=4).contains(&stages) {
            return Some(format!("`stages` is {stages}; it must be 1 to 4"));
        }
        // Rows of K and V in all stages have 2 bytes per column, those of O 4.
        let columns = variant.head_dim.padded_to(16);
        if stages * n * (columns.qk + columns.v) < 2 * m * variant.head_dim.v {
            return Some(format!("`stages` x `n` is {}; the O of {m} rows does not fit there", stages * n));
        }
        if tile.q_in_registers {
            return Some("`q_in_registers` is true; `wgmma` reads Q from shared memory".to_owned());
        }
        if tile.copy != CopyPath::Tma {
            return Some("`copy` is \"cp_async\"; this kernel copies with \"tma\"".to_owned());
        }
        if !tile.overlap {
            return Some("`overlap` is false; this kernel has no other way".to_owned());
        }
        if tile.turns != Turns::None {
            return Some(format!("`turns` is \"{}\"; warpgroups that share rows take none", tile.turns));
        }
        if tile.persistent {
            return Some("`persistent` is true; a block has one query tile".to_owned());
        }
        if tile.cluster != 1 {
            return Some(format!("`cluster` is {}; blocks of this kernel share nothing: 1", tile.cluster));
        }
        if tile.store != StorePath::Direct {
            return Some("`store` is \"tma\"; this kernel stores O from registers".to_owned());
        }
        // P is at most 2^threshold: the maximum of fp16 is 65504, and fp32 sums of bf16 P are exact enough up to 2^64.
        let (dtype, most) = (variant.dtype, if variant.dtype == Dtype::Fp16 { 14 } else { 64 });
        if rescale_threshold > most {
            return Some(format!("`rescale_threshold` is {rescale_threshold}; {dtype} allows at most {most}"));
        }
        None
    }

    /// Q; the stages of K and V of each warpgroup, reused for its O at the end; maxima and sums of each warpgroup's
    /// rows; the block's work item; and the barriers: that of Q, full and empty of each stage of K and V.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let warpgroups = tile.warps / 4;
        let stages = warpgroups * tile.stages;
        let (keys, values) = stage_bytes(variant, tile);
        let regions = [
            ("Q", WARPGROUP_ROWS * row_bytes(variant).qk, Some("Q_OFFSET")),
            ("stages of K and V (then O)", stages * (keys + values), Some("STAGES_OFFSET")),
            ("maxima and sums", warpgroups * WARPGROUP_ROWS * STATE_BYTES, Some("STATES_OFFSET")),
            ("place", PLACE_BYTES, Some("PLACE_OFFSET")),
            ("mbarriers", (1 + 4 * stages) * MBARRIER_BYTES, Some("BARRIERS_OFFSET")),
        ];
        Region::lay_out_aligned(regions.into_iter(), TMA_TILE_ALIGNMENT)
    }

    /// Accumulators of 64 rows per warpgroup: a thread has half a row of each. P has 16 bits per element and separate
    /// registers, because the next scores are computed while P is in use.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        RegisterEstimate::sum(variant.head_dim.v / 2, tile.n / 2 + tile.n / 4, 0, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hgmma
    }

    fn portable(&self, variant: Point, tile: Tile, target: Target) -> Result<Tile, String> {
        HopperForward.portable(variant, tile, target)
    }

    fn needs_tma(&self) -> bool {
        true
    }

    fn kv(&self, _variant: Point, _tile: &Tile) -> Kv {
        Kv::aside(KvSource::TmaByWarpgroup)
    }

    fn hopper(&self, variant: Point, tile: &Tile) -> Option<Hopper> {
        let limits = Limits::of(variant.target);
        let bytes = self.shared_memory(variant, tile).last().map_or(0, |region| region.offset + region.bytes);
        // No register reallocation: all warpgroups multiply.
        let registers = limits.register_cap(tile.warps * 32, tile.min_blocks_per_sm);
        let widths = widths(variant.head_dim.v, tile.n);
        Some(Hopper {
            next_starts_first: 2 * bytes > limits.shared_memory_per_sm,
            ..Hopper::new(tile.warps / 4, [registers; 2], widths, variant.head_dim.v)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::TileChange;
    use crate::kernel::HeadDim;
    use crate::{
        family::attention::Kind,
        plan::{Occupancy, Plan, PlanError},
    };
    use itertools::Itertools;

    const D64: Point = Point {
        kind: Kind::FwdShort,
        head_dim: HeadDim::equal(64),
        dtype: Dtype::Fp16,
        causal: false,
        features: Features::NONE,
        target: Target::Sm90,
    };

    /// The tile that these tests compute by hand, independent of the defaults.
    fn fixed() -> TileChange {
        TileChange {
            m: Some(64),
            n: Some(64),
            warps: Some(16),
            stages: Some(2),
            q_in_registers: Some(false),
            min_blocks_per_sm: Some(1),
            rescale_threshold: Some(8),
            accuracy: None,
            copy: Some(CopyPath::Tma),
            fp8_mma: None,
            overlap: Some(true),
            turns: Some(Turns::None),
            persistent: Some(false),
            cluster: Some(1),
            store: Some(StorePath::Direct),
        }
    }

    fn plan(head_dim: u32, change: &TileChange) -> Plan {
        Plan::changed(Point { head_dim: HeadDim::equal(head_dim), ..D64 }, change).expect("fits")
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
            let variant = Point { head_dim: HeadDim::equal(head_dim), dtype, causal, ..D64 };
            let plan = Plan::new(variant, None).expect("a default fits");
            let hopper = plan.attention().hopper.as_ref().expect("the kernel has `wgmma`");
            assert_eq!((plan.template, plan.tensor_core), ("attention/fwd_short_sm90.cu.tera", TensorCore::Hgmma));
            assert_eq!(
                (plan.attention().tile.m, plan.threads),
                (64, 128 * hopper.consumers),
                "{variant}: nobody fetches for others"
            );
            assert!(plan.registers.total <= hopper.consumer_registers, "{variant}");
        }
    }

    #[test]
    fn the_numbers_of_head_dim_64_are_exact() {
        let plan = plan(64, &fixed());
        assert_eq!((plan.threads, plan.attention().rows_per_warp, plan.attention().head_dim_padded), (512, 16, 64));
        // Four warpgroups with two stages each of K and V, 64 keys of 128 bytes per stage: 512 keys.
        let regions = [("Q_OFFSET", 0, 8_192), ("STAGES_OFFSET", 8_192, 131_072), ("STATES_OFFSET", 139_264, 2_048)];
        assert_eq!(map(&plan)[..3], regions);
        assert_eq!(map(&plan)[3..], [("PLACE_OFFSET", 141_312, 16), ("BARRIERS_OFFSET", 142_336, 264)]);
        assert_eq!(plan.shared_memory_bytes, 142_600);
        assert_eq!((plan.registers.output, plan.registers.scores), (32, 32 + 16), "P beside S");
        assert_eq!(plan.registers.total, 32 + 32 + 16 + OTHER_REGISTERS);
        let expected = Hopper {
            consumers: 4,
            producer_registers: 128,
            consumer_registers: 128,
            q_slots: 1,
            byte_stages: 0,
            widened_at_once: 0,
            widths: vec![64],
            part_columns: 64,
            passes_by_turns: false,
            transposed_at_once: 0,
            next_starts_first: true,
            searches: false,
            part_rows: 0,
        };
        assert_eq!(plan.attention().hopper.as_ref(), Some(&expected));
        assert_eq!(plan.occupancy, Occupancy { blocks_per_sm: 1, warps_per_sm: 16, limited_by: "registers" });
    }

    #[test]
    fn warpgroups_share_all_registers_of_the_blocks_of_a_multiprocessor() {
        for (warps, blocks, registers) in [(8, 1, 255), (8, 2, 128), (12, 1, 168), (16, 1, 128)] {
            let change = TileChange { warps: Some(warps), min_blocks_per_sm: Some(blocks), stages: Some(1), ..fixed() };
            let plan = plan(32, &change);
            assert_eq!(
                plan.attention().hopper.as_ref().map(|hopper| hopper.consumer_registers),
                Some(registers),
                "{warps} {blocks}"
            );
            assert_eq!(plan.occupancy.blocks_per_sm, blocks, "{warps} {blocks}");
        }
    }

    #[test]
    fn each_broken_rule_is_named_with_its_number() {
        let said = |change: TileChange| reason(D64, &change);
        assert!(
            said(TileChange { m: Some(128), ..fixed() }).contains("`m` is 128; all warpgroups multiply for the same 64 rows")
        );
        for warps in [4, 10, 20] {
            let words = format!("`warps` is {warps}; two to four warpgroups make it 8, 12 or 16");
            assert!(said(TileChange { warps: Some(warps), ..fixed() }).contains(&words));
        }
        assert!(said(TileChange { n: Some(0), ..fixed() }).contains("`n` is 0"));
        assert!(said(TileChange { n: Some(40), ..fixed() }).contains("`n` is 40; it must be a multiple of 16"));
        assert!(said(TileChange { n: Some(272), ..fixed() }).contains("`n` is 272"));
        assert!(said(TileChange { stages: Some(0), ..fixed() }).contains("`stages` is 0"));
        assert!(said(TileChange { stages: Some(5), ..fixed() }).contains("`stages` is 5; it must be 1 to 4"));
        let narrow = TileChange { n: Some(16), stages: Some(3), ..fixed() };
        assert!(said(narrow).contains("`stages` x `n` is 48; the O of 64 rows does not fit there"));
        assert!(said(TileChange { min_blocks_per_sm: Some(0), ..fixed() }).contains("at least 1"));
        assert!(said(TileChange { q_in_registers: Some(true), ..fixed() }).contains("reads Q from shared memory"));
        assert!(said(TileChange { copy: Some(CopyPath::CpAsync), ..fixed() }).contains("this kernel copies with \"tma\""));
        assert!(said(TileChange { overlap: Some(false), ..fixed() }).contains("`overlap` is false"));
        assert!(said(TileChange { turns: Some(Turns::Products), ..fixed() }).contains("`turns` is \"products\""));
        assert!(said(TileChange { persistent: Some(true), ..fixed() }).contains("`persistent` is true"));
        assert!(said(TileChange { cluster: Some(2), ..fixed() }).contains("`cluster` is 2"));
        assert!(said(TileChange { store: Some(StorePath::Tma), ..fixed() }).contains("`store` is \"tma\""));
        let threshold = |rescale_threshold| TileChange { rescale_threshold: Some(rescale_threshold), ..fixed() };
        assert!(said(threshold(15)).contains("fp16 allows at most 14"));
        assert!(reason(Point { dtype: Dtype::Bf16, ..D64 }, &threshold(65)).contains("bf16 allows at most 64"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_number() {
        let error = Plan::changed(Point { head_dim: HeadDim::equal(128), ..D64 }, &fixed()).expect_err("64 of O, 48 of S and P");
        let PlanError::DoesNotFit { resource, needed, available, .. } = error else { panic!("{error}") };
        assert_eq!((resource, needed, available), ("shared memory", 281_864, 232_448));
        let one_stage = TileChange { stages: Some(1), ..fixed() };
        let error = Plan::changed(Point { head_dim: HeadDim::equal(128), ..D64 }, &one_stage)
            .expect_err("64 of O, 48 of S and P")
            .to_string();
        assert!(error.contains(&format!("registers needs {} of 128 a thread", 64 + 48 + OTHER_REGISTERS)), "{error}");
    }

    #[test]
    fn only_sm90_and_16_bit_types_have_it() {
        for (dtype, target) in [(Dtype::Fp8, Target::Sm90), (Dtype::Fp16, Target::Sm80), (Dtype::Bf16, Target::Sm100)] {
            let error = Plan::new(Point { dtype, target, ..D64 }, None).expect_err("no such kernel").to_string();
            assert!(error.contains("target `sm90`, dtypes `fp16` and `bf16`"), "{error}");
        }
        let error = Plan::new(D64, None).expect("fits").to_run_as(Target::Sm100).expect_err("no wgmma").to_string();
        assert!(error.contains("made of `wgmma`, which `sm100` does not have"), "{error}");
    }
}
