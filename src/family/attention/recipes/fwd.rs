//! Forward attention on 16-bit types with `mma.sync` m16n8k16, `ldmatrix` and asynchronous copies: sm80 and newer.

use super::{
    CopyPath, KvColumns, KvFormat, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    defaults::{default_of, tile_file},
    staged_elements::{bytes_of_elements, may_stage_elements, with_staged_elements},
};
use crate::{
    grid::TileFile,
    kernel::{Dtype, Feature, Features, Target},
};
use std::sync::LazyLock;

/// The recipe of `templates/attention/fwd_sm80.cu.tera`.
pub(super) struct PortableForward;

static TILES: LazyLock<TileFile> = tile_file!("fwd.toml");

/// Registers per thread in addition to accumulators and kept Q: operand fragments in flight (4 of A per 16-row tile, 4
/// of B), lane offsets and tile addresses, 64-bit pointers and strides of K and V, softmax state, loop counters. Fitted
/// by hand to ptxas's counts for the default tiles; an upper estimate.
const OTHER_REGISTERS: u32 = 40;

/// Alignment of tiles loaded by TMA: the widest swizzle repeats every 8 rows of 128 bytes.
const TMA_TILE_ALIGNMENT: u32 = 1024;

const MBARRIER_BYTES: u32 = 8;

/// Bytes of a descale factor (fp32).
pub(super) const DESCALE_BYTES: u32 = 4;

impl Recipe for PortableForward {
    fn template(&self) -> &'static str {
        "attention/fwd_sm80.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        let target = variant.target;
        if variant.dtype == Dtype::Fp8 {
            return Err(format!(
                "{target} has no FP8 tensor-core instruction; FP8 needs sm89 or newer; available: `fp16`, `bf16`"
            ));
        }
        default_of(&TILES, variant)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn features(&self) -> Features {
        let keys = [Feature::PackGqa, Feature::Cache, Feature::KvE4m3, Feature::KvE5m2, Feature::PageDescale];
        Features::with_pages().with(Features::from_iter(keys)).with(Features::of_all(|info| info.is_training))
    }

    fn keys(&self) -> &'static [&'static str] {
        &["m", "n", "warps", "stages", "q_in_registers", "min_blocks_per_sm", "rescale_threshold", "accuracy", "copy"]
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, rescale_threshold, .. } = *tile;
        // A copy pass of all threads moves threads / 8 rows of 128 bytes, and must keep the swizzle's period of 8 rows.
        if !matches!(warps, 2 | 4 | 8) {
            return Some(format!("`warps` is {warps}; it must be 2, 4 or 8"));
        }
        // One or two 16-row MMA tiles per warp.
        if m != 16 * warps && m != 32 * warps {
            let (low, high) = (16 * warps, 32 * warps);
            return Some(format!("`m` is {m}; {warps} warps of 16 or 32 rows each make it {low} or {high}"));
        }
        // P V consumes 16 keys at a time, the K of the MMA.
        if n == 0 || !n.is_multiple_of(16) || n > 256 {
            return Some(format!("`n` is {n}; it must be a multiple of 16 from 16 to 256"));
        }
        if !matches!(stages, 1 | 2) {
            return Some(format!("`stages` is {stages}; it must be 1 or 2"));
        }
        if tile.copy == CopyPath::Tma && variant.target < Target::Sm90 {
            let target = variant.target;
            return Some(format!(
                "`copy` is \"tma\"; {target} has no Tensor Memory Accelerator, sm90 and newer have, use \"cp_async\""
            ));
        }
        let kv = KvFormat::of(variant.features).filter(|_| tile.copy == CopyPath::Tma);
        if let Some(feature) = kv.map(KvFormat::feature) {
            return Some(format!("`copy` is \"tma\"; with `{feature}` this kernel copies with \"cp_async\""));
        }
        // P is at most 2^threshold: the maximum of fp16 is 65504, and fp32 sums of bf16 P are exact enough up to 2^64.
        let (dtype, most) = (variant.dtype, if variant.dtype == Dtype::Fp16 { 14 } else { 64 });
        if rescale_threshold > most {
            return Some(format!("`rescale_threshold` is {rescale_threshold}; {dtype} allows at most {most}"));
        }
        None
    }

    /// Q, whose memory O reuses for its store, then K and V of the first stage, then of the second. Every size is a
    /// multiple of 512 bytes (16 rows of at least 32 bytes), so every tile starts aligned to the widest swizzle's
    /// 128-byte line. TMA swizzles by address and needs 1024; its mbarriers, one per tile of K and V, are last. The
    /// tile of added elements precedes them, if it fits beside the resident blocks.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let columns = variant.head_dim.padded_to(self.head_dim_step());
        let bytes = |rows: u32, columns: u32| rows * columns * variant.dtype.bytes();
        let of_bytes = KvColumns::of(variant).map(|columns| (tile.n * columns.qk, tile.n * columns.v));
        let (keys, values) = of_bytes.unwrap_or((bytes(tile.n, columns.qk), bytes(tile.n, columns.v)));
        let q = ("Q (then O)", bytes(tile.m, columns.wider()), Some("Q_OFFSET"));
        let first = [("K", keys, Some("K_OFFSET")), ("V", values, Some("V_OFFSET"))];
        let tma = tile.copy == CopyPath::Tma;
        // For K and V each, the current tile and the next one.
        let descales = variant.features.has(Feature::PageDescale);
        let descales = descales.then_some(("descales of pages", 4 * tile.n * DESCALE_BYTES, Some("DESCALES_OFFSET")));
        let second = [("K (second stage)", keys, tma.then_some("SECOND_STAGE_OFFSET")), ("V (second stage)", values, None)];
        let stages = first.into_iter().chain(second.into_iter().filter(|_| tile.stages == 2));
        let tiles = std::iter::once(q).chain(stages).chain(descales);
        let features = variant.features;
        let may_stage = may_stage_elements(features) && variant.target > Target::Sm75;
        let tiles = with_staged_elements(tiles, variant.target, tile, may_stage.then(|| bytes_of_elements(tile.m, tile.n)));
        if !tma {
            return Region::lay_out(tiles);
        }
        let mbarriers = ("mbarriers", tile.stages * 2 * MBARRIER_BYTES, Some("BARRIERS_OFFSET"));
        Region::lay_out_aligned(tiles.chain(std::iter::once(mbarriers)), TMA_TILE_ALIGNMENT)
    }

    /// Accumulators of m16n8k16: 4 fp32 registers per thread for each 16x8 block. S is converted to P in place, two
    /// scores per register, so P needs no additional registers.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        let m_tiles = tile.m / tile.warps / 16;
        // With K and V in FP8 the tiles of O are in pairs.
        let output_tiles =
            if KvFormat::of(variant.features).is_some() { variant.head_dim.v.div_ceil(16) * 2 } else { variant.head_dim.v / 8 };
        let output = m_tiles * output_tiles * 4;
        let scores = m_tiles * (tile.n / 8) * 4;
        let query = if tile.q_in_registers { m_tiles * variant.head_dim.qk.div_ceil(16) * 4 } else { 0 };
        RegisterEstimate::sum(output, scores, query, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hmma
    }

    fn portable(&self, _variant: Point, tile: Tile, target: Target) -> Result<Tile, String> {
        if target < Target::Sm80 {
            return Err(format!("`{target}` has neither `cp.async` nor m16n8k16; run it as `sm80` or newer"));
        }
        let copy = if target < Target::Sm90 { CopyPath::CpAsync } else { tile.copy };
        Ok(Tile { copy, ..tile })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::{Accuracy, TileChange};
    use crate::kernel::HeadDim;
    use crate::{
        family::attention::{Kind, Panel},
        plan::{Limits, Occupancy, Plan, PlanError},
    };
    use itertools::Itertools;

    const D128: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(128),
        dtype: Dtype::Fp16,
        causal: false,
        features: Features::NONE,
        target: Target::Sm80,
    };

    fn plan(head_dim: u32, change: &TileChange) -> Result<Plan, PlanError> {
        Plan::changed(Point { head_dim: HeadDim::equal(head_dim), dtype: Dtype::Bf16, causal: true, ..D128 }, change)
    }

    fn reason(variant: Point, change: &TileChange) -> String {
        Plan::changed(variant, change).expect_err("the tile breaks a rule").to_string()
    }

    fn map(plan: &Plan) -> Vec<(&str, u32, u32)> {
        plan.shared_memory.iter().map(|r| (r.name.as_str(), r.offset, r.bytes)).collect()
    }

    /// Targets that use this forward kernel for 16-bit types.
    fn targets() -> impl Iterator<Item = Target> + Clone {
        Target::ALL.iter().copied().filter(|target| *target >= Target::Sm80 && *target != Target::Sm90)
    }

    /// The machine code of these targets runs on 8.6 and 8.9 if no other is available, and every newer GPU can use
    /// their PTX.
    #[test]
    fn a_block_of_sm80s_defaults_fits_every_newer_gpu() {
        let smallest = Limits::of(Target::Sm89).shared_memory_per_block;
        for (head_dim, causal) in (16..=256).step_by(8).cartesian_product([false, true]) {
            let plan = Plan::new(Point { head_dim: HeadDim::equal(head_dim), causal, ..D128 }, None).expect("fits");
            assert!(plan.shared_memory_bytes <= smallest, "{head_dim}: {}", plan.shared_memory_bytes);
        }
    }

    #[test]
    fn gpus_of_100_kb_hold_two_blocks_up_to_head_dim_192() {
        for (target, head_dim) in
            [Target::Sm89, Target::Sm120, Target::Sm121].into_iter().cartesian_product((16..=192).step_by(8))
        {
            let plan = Plan::new(Point { head_dim: HeadDim::equal(head_dim), target, ..D128 }, None).expect("fits");
            assert!(plan.occupancy.blocks_per_sm >= 2, "{target} {head_dim}: {:?}", plan.occupancy);
        }
    }

    /// The tile that these tests compute by hand, independent of the defaults.
    fn fixed() -> TileChange {
        TileChange {
            m: Some(128),
            n: Some(64),
            warps: Some(4),
            stages: Some(1),
            q_in_registers: Some(false),
            min_blocks_per_sm: Some(2),
            rescale_threshold: Some(8),
            copy: None,
            fp8_mma: None,
            ..TileChange::default()
        }
    }

    #[test]
    fn every_head_dim_from_16_to_256_has_a_default_on_every_target_from_sm80() {
        for (target, head_dim) in targets().cartesian_product((16..=256).step_by(8)) {
            assert!(Plan::new(Point { head_dim: HeadDim::equal(head_dim), target, ..D128 }, None).is_ok(), "{target} {head_dim}");
        }
    }

    #[test]
    fn a_head_dim_outside_the_range_is_refused_with_the_range() {
        for head_dim in [0, 8, 20, 100, 264] {
            let error =
                Plan::new(Point { head_dim: HeadDim::equal(head_dim), ..D128 }, None).expect_err("impossible").to_string();
            assert!(
                error.contains(&format!("impossible head dim `{head_dim}`: head dims are multiples of 8 from 16 to 256")),
                "{error}"
            );
        }
    }

    #[test]
    fn what_has_no_template_names_what_has() {
        let error = |variant| Plan::new(variant, None).expect_err("unsupported").to_string();
        let fp8 = error(Point { dtype: Dtype::Fp8, ..D128 });
        assert!(fp8.contains("sm80 has no FP8 tensor-core instruction; FP8 needs sm89 or newer"), "{fp8}");
    }

    #[test]
    fn tiles_of_k_and_v_in_fp8_have_whole_steps_of_ldmatrix_and_a_byte_an_element() {
        let features = [Feature::KvE4m3].into_iter().collect();
        for (target, head_dim) in targets().cartesian_product((16..=256).step_by(8)) {
            let point = Point { head_dim: HeadDim::equal(head_dim), features, target, ..D128 };
            let plan = Plan::new(point, None).expect("fits");
            let bytes = plan.attention().tile.n * head_dim.next_multiple_of(32);
            assert_eq!([1, 2].map(|region| plan.shared_memory[region].bytes), [bytes; 2], "{target} {head_dim}");
        }
    }

    #[test]
    fn what_reads_k_and_v_in_fp8_here_does_not_copy_by_tma_and_other_kinds_and_turing_have_no_form_of_it() {
        let kv: Features = [Feature::KvE4m3].into_iter().collect();
        let d128 = Point { features: kv, target: Target::Sm120, ..D128 };
        let tma = TileChange { copy: Some(CopyPath::Tma), ..TileChange::default() };
        assert!(reason(d128, &tma).contains("with `kv_e4m3` this kernel copies with \"cp_async\""));
        for (target, kind) in [(Target::Sm75, Kind::Fwd), (Target::Sm90, Kind::FwdShort), (Target::Sm80, Kind::Bwd)] {
            let error = Plan::new(Point { kind, target, ..d128 }, None).expect_err("it has none").to_string();
            assert!(error.contains("has no `kv_e4m3`"), "{error}");
        }
        let fp8 = Plan::new(Point { dtype: Dtype::Fp8, ..d128 }, None).expect_err("queries in FP8").to_string();
        assert!(fp8.contains("has no `kv_e4m3`"), "{fp8}");
    }

    #[test]
    fn an_override_changes_what_it_names_and_nothing_else() {
        let default = Plan::new(D128, None).expect("has a default").attention().tile;
        let change = TileChange { n: Some(32), stages: Some(2), ..TileChange::default() };
        assert_eq!(Plan::changed(D128, &change).expect("fits").attention().tile, Tile { n: 32, stages: 2, ..default });
    }

    #[test]
    fn a_broken_rule_is_named_with_its_number() {
        let none = TileChange::default();
        assert!(reason(D128, &TileChange { warps: Some(3), ..none.clone() }).contains("`warps` is 3"));
        assert!(reason(D128, &TileChange { m: Some(192), ..none.clone() }).contains("make it 64 or 128"));
        assert!(reason(D128, &TileChange { n: Some(40), ..none.clone() }).contains("`n` is 40"));
        assert!(reason(D128, &TileChange { n: Some(0), ..none.clone() }).contains("`n` is 0"));
        assert!(reason(D128, &TileChange { stages: Some(3), ..none.clone() }).contains("`stages` is 3"));
        assert!(reason(D128, &TileChange { min_blocks_per_sm: Some(0), ..none.clone() }).contains("at least 1"));
    }

    #[test]
    fn the_most_exact_form_rescales_at_every_growth() {
        let exact = TileChange { accuracy: Some(Accuracy::Exact), ..TileChange::default() };
        let threshold =
            |point: Point, change: &TileChange| Plan::changed(point, change).expect("a plan").attention().tile.rescale_threshold;
        let of = |kind, dtype, target| Point { kind, dtype, target, ..D128 };
        for point in [
            D128,
            of(Kind::Fwd, Dtype::Fp16, Target::Sm75),
            of(Kind::Fwd, Dtype::Bf16, Target::Sm90),
            of(Kind::FwdShort, Dtype::Bf16, Target::Sm90),
            of(Kind::FwdSplit, Dtype::Bf16, Target::Sm80),
            of(Kind::Fwd, Dtype::Fp8, Target::Sm89),
            of(Kind::Fwd, Dtype::Fp8, Target::Sm90),
        ] {
            assert_eq!(threshold(point, &exact), 0, "{}", point.name());
        }
        let four = TileChange { rescale_threshold: Some(4), ..TileChange::default() };
        let both = TileChange { accuracy: Some(Accuracy::Fast), ..four.clone() };
        assert_eq!(threshold(D128, &both), 4);
        let contradiction = TileChange { accuracy: Some(Accuracy::Exact), ..four };
        assert!(reason(D128, &contradiction).contains("`rescale_threshold` is 4; leave one out"));
        let backward = of(Kind::Bwd, Dtype::Fp16, Target::Sm80);
        assert!(reason(backward, &exact).contains("`accuracy` is a tile key that this kernel does not read"));
    }

    #[test]
    fn p_stays_finite_in_fp16_under_every_accepted_threshold() {
        let threshold = |rescale_threshold| TileChange { rescale_threshold: Some(rescale_threshold), ..TileChange::default() };
        assert!(Plan::changed(D128, &threshold(14)).is_ok());
        assert!(reason(D128, &threshold(15)).contains("fp16 allows at most 14"));
        let bf16 = Point { dtype: Dtype::Bf16, ..D128 };
        assert!(Plan::changed(bf16, &threshold(64)).is_ok());
        assert!(reason(bf16, &threshold(65)).contains("bf16 allows at most 64"));
    }

    #[test]
    fn the_numbers_of_head_dim_128_are_exact() {
        let plan = plan(128, &fixed()).expect("fits");
        assert_eq!((plan.threads, plan.attention().rows_per_warp, plan.attention().head_dim_padded), (128, 32, 128));
        assert_eq!(map(&plan), [("Q (then O)", 0, 32_768), ("K", 32_768, 16_384), ("V", 49_152, 16_384)]);
        assert_eq!(plan.shared_memory_bytes, 65_536);
        assert_eq!((plan.registers.output, plan.registers.scores, plan.registers.query), (128, 64, 0));
        assert_eq!(plan.registers.total, 128 + 64 + OTHER_REGISTERS);
        assert_eq!(plan.occupancy, Occupancy { blocks_per_sm: 2, warps_per_sm: 8, limited_by: "registers" });
    }

    #[test]
    fn the_numbers_of_head_dim_72_pad_shared_memory_to_80_but_not_the_output() {
        let plan = plan(72, &fixed()).expect("fits");
        assert_eq!(plan.attention().head_dim_padded, 80);
        assert_eq!(plan.attention().panels, [Panel { first_column: 0, columns: 64 }, Panel { first_column: 64, columns: 16 }]);
        assert_eq!(map(&plan), [("Q (then O)", 0, 20_480), ("K", 20_480, 10_240), ("V", 30_720, 10_240)]);
        assert_eq!(plan.registers.output, 2 * 9 * 4, "O has 72 columns");
    }

    #[test]
    fn a_second_stage_follows_the_first_and_has_no_constant() {
        let plan = plan(64, &TileChange { stages: Some(2), ..fixed() }).expect("fits");
        let names: Vec<_> = plan.shared_memory.iter().map(|r| (r.name.as_str(), r.constant)).collect();
        let q = ("Q (then O)", Some("Q_OFFSET"));
        let first = [("K", Some("K_OFFSET")), ("V", Some("V_OFFSET"))];
        assert_eq!(names, [q, first[0], first[1], ("K (second stage)", None), ("V (second stage)", None)]);
        let stage_bytes = 2 * 64 * 64 * 2;
        assert_eq!(plan.shared_memory[3].offset, plan.shared_memory[1].offset + stage_bytes);
        assert_eq!(plan.shared_memory_bytes, 128 * 64 * 2 + 2 * stage_bytes);
    }

    #[test]
    fn tiles_that_come_by_tma_start_at_multiples_of_1024_and_their_mbarriers_come_last() {
        let variant = Point { head_dim: HeadDim::equal(80), target: Target::Sm120, ..D128 };
        let change =
            TileChange { n: Some(80), stages: Some(2), copy: Some(CopyPath::Tma), min_blocks_per_sm: Some(1), ..fixed() };
        let plan = Plan::changed(variant, &change).expect("fits");
        // A tile of K has 12,800 bytes: 12.5 KB.
        let k = |offset| (offset, 12_800);
        let offsets: Vec<_> = plan.shared_memory.iter().map(|r| (r.offset, r.bytes)).collect();
        assert_eq!(offsets, [(0, 20_480), k(20_480), k(33_792), k(47_104), k(60_416), (73_728, 32)]);
        assert_eq!(plan.shared_memory_bytes, 73_760);
        let constants: Vec<_> = plan.shared_memory.iter().filter_map(|r| r.constant).collect();
        assert_eq!(constants, ["Q_OFFSET", "K_OFFSET", "V_OFFSET", "SECOND_STAGE_OFFSET", "BARRIERS_OFFSET"]);
    }

    #[test]
    fn tma_is_refused_before_sm90_and_gives_way_to_cp_async_where_a_kernel_is_to_run_as_one() {
        let tma = TileChange { copy: Some(CopyPath::Tma), ..TileChange::default() };
        assert!(reason(D128, &tma).contains("`copy` is \"tma\"; sm80 has no Tensor Memory Accelerator"));
        let plan = Plan::changed(Point { target: Target::Sm120, ..D128 }, &tma).expect("sm120 has TMA");
        assert_eq!(plan.to_run_as(Target::Sm90).expect("so has sm90").attention().tile.copy, CopyPath::Tma);
        assert_eq!(plan.to_run_as(Target::Sm80).expect("sm80 has not").attention().tile.copy, CopyPath::CpAsync);
    }

    #[test]
    fn every_default_plan_fits_and_reaches_the_occupancy_it_promises() {
        for ((target, head_dim), causal) in targets().cartesian_product((16..=256).step_by(8)).cartesian_product([false, true]) {
            let plan =
                Plan::new(Point { head_dim: HeadDim::equal(head_dim), causal, target, ..D128 }, None).expect("a default fits");
            let promised = plan.attention().tile.min_blocks_per_sm;
            assert!(plan.occupancy.blocks_per_sm >= promised, "{target} {head_dim}: {:?}", plan.occupancy);
            assert!(plan.registers.total <= 255, "{target} {head_dim}");
        }
    }

    #[test]
    fn too_much_shared_memory_is_refused_with_the_number() {
        let change = TileChange { n: Some(128), stages: Some(2), min_blocks_per_sm: Some(1), ..fixed() };
        let error = plan(256, &change).expect_err("64 KB of Q and 256 KB of K and V");
        let PlanError::DoesNotFit { resource, needed, available, .. } = error else { panic!("{error}") };
        assert_eq!((resource, needed, available), ("shared memory", 327_680, 166_912));
    }

    #[test]
    fn blocks_that_cannot_share_a_multiprocessor_are_refused_with_the_number() {
        let change = TileChange { m: Some(64), n: Some(64), ..fixed() };
        let error = plan(256, &change).expect_err("two blocks of 97 KB").to_string();
        assert!(error.contains("198656 of 167936 bytes a multiprocessor"), "{error}");
        assert!(error.contains("`min_blocks_per_sm` from 2"), "{error}");
    }

    #[test]
    fn too_many_registers_are_refused_with_the_number_and_the_levers() {
        let change = TileChange { n: Some(128), q_in_registers: Some(true), min_blocks_per_sm: Some(1), ..fixed() };
        let error = plan(128, &change).expect_err("128 + 128 + 64 registers and more").to_string();
        assert!(error.contains(&format!("registers needs {} of 255 a thread", 320 + OTHER_REGISTERS)), "{error}");
        assert!(error.contains("lower `n` or give each warp 16 rows") && error.contains("`q_in_registers`"), "{error}");
    }

    #[test]
    fn occupancy_names_what_stops_more_blocks() {
        let small = TileChange { m: Some(64), n: Some(32), min_blocks_per_sm: Some(1), ..fixed() };
        // Registers: 8 * 4 + 4 * 4 + other = 88, so 5 blocks of 128 threads; shared memory would allow 9.
        let registers = plan(64, &small).expect("fits").occupancy;
        assert_eq!((registers.limited_by, registers.blocks_per_sm), ("registers", 5));
        let wide = TileChange { m: Some(64), n: Some(64), min_blocks_per_sm: Some(1), ..fixed() };
        let shared = plan(256, &wide).expect("fits").occupancy;
        assert_eq!((shared.limited_by, shared.blocks_per_sm), ("shared memory", 1));
    }
}
