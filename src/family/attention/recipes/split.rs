//! Split-KV forward attention with `mma.sync` m16n8k16, `ldmatrix` and asynchronous copies: sm80 and newer.

use super::{
    CopyPath, Kv, KvColumns, KvFormat, KvSource, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    defaults::{default_of, tile_file},
    fwd::DESCALE_BYTES,
};
use crate::{
    grid::TileFile,
    kernel::{Dtype, Feature, Features, Target},
};
use std::sync::LazyLock;

/// The recipe of `templates/attention/fwd_split_sm80.cu.tera`.
pub(super) struct SplitForward;

static TILES: LazyLock<TileFile> = tile_file!("split.toml");

/// nvcc 13.0 spills 8 to 24 bytes of wider kernels for `compute_100f` and `compute_120f`, with or without kept Q.
const WIDEST_FOR_BLACKWELL: u32 = 160;

/// Registers per thread in addition to accumulators and kept Q: operand fragments, lane offsets and addresses, 64-bit
/// pointers and strides of K and V, softmax state, the range of keys of each row. Less than ptxas uses without a limit,
/// and enough with one.
const OTHER_REGISTERS: u32 = 52;

impl Recipe for SplitForward {
    fn template(&self) -> &'static str {
        "attention/fwd_split_sm80.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        check_target(variant.target)?;
        if variant.target >= Target::Sm100 && variant.head_dim.wider() > WIDEST_FOR_BLACKWELL {
            return Err(format!(
                "split-KV made for `{}` ends at head dim {WIDEST_FOR_BLACKWELL}, beyond which it would spill; `sm80`'s and `sm89`'s \
                 kernels run there too",
                variant.target
            ));
        }
        default_of(&TILES, variant)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn keys(&self) -> &'static [&'static str] {
        &["m", "n", "warps", "stages", "q_in_registers", "min_blocks_per_sm", "rescale_threshold", "accuracy", "copy"]
    }

    fn features(&self) -> Features {
        let keys = [Feature::Cache, Feature::KvE4m3, Feature::KvE5m2, Feature::PageDescale, Feature::Append];
        Features::with_pages().with(Features::from_iter(keys))
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, rescale_threshold, .. } = *tile;
        if !matches!(warps, 1 | 2 | 4 | 8) {
            return Some(format!("`warps` is {warps}; it must be 1, 2, 4 or 8"));
        }
        // Every warp has all rows: one or two 16-row MMA tiles. Thread m handles row m of the statistics.
        if !matches!(m, 16 | 32) {
            return Some(format!("`m` is {m}; every warp holds all rows of a block, 16 or 32"));
        }
        // P V consumes 16 keys at a time, the K of the MMA.
        if n == 0 || !n.is_multiple_of(16 * warps) || n > 64 * warps {
            let (low, high) = (16 * warps, 64 * warps);
            return Some(format!("`n` is {n}; {warps} warps of 16, 32, 48 or 64 keys each make it {low} to {high}"));
        }
        if !(1..=4).contains(&stages) {
            return Some(format!("`stages` is {stages}; it must be 1 to 4"));
        }
        if ring_bytes(variant, tile) < warps * m * output_columns(variant) * 4 {
            return Some(format!("`stages` x `n` is {}; the O of {warps} warps of {m} rows does not fit there", stages * n));
        }
        if tile.copy == CopyPath::Tma {
            return Some("`copy` is \"tma\"; this kernel copies with \"cp_async\"".to_owned());
        }
        // P is at most 2^threshold: the maximum of fp16 is 65504, and fp32 sums of bf16 P are exact enough up to 2^64.
        let dtype = variant.multiplied();
        let most = if dtype == Dtype::Fp16 { 14 } else { 64 };
        if rescale_threshold > most {
            return Some(format!("`rescale_threshold` is {rescale_threshold}; {dtype} allows at most {most}"));
        }
        None
    }

    /// Q, a ring of slices of K and V per warp, and finally the softmax state of every warp and row. The rings start at
    /// a multiple of 512 bytes, so every tile starts aligned to the widest swizzle's 128-byte line.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let columns = variant.head_dim.padded_to(self.head_dim_step());
        let state = tile.warps * tile.m * 4;
        Region::lay_out(
            [
                ("Q", tile.m * columns.qk * variant.multiplied().bytes(), Some("Q_OFFSET")),
                ("rings of K and V (then O)", ring_bytes(variant, tile), Some("RING_OFFSET")),
                ("maxima", state, Some("MAX_OFFSET")),
                ("sums", state, Some("SUM_OFFSET")),
                ("reciprocals of sums", tile.m * 4, Some("INVERSE_OFFSET")),
            ]
            .into_iter(),
        )
    }

    /// Accumulators of m16n8k16: 4 fp32 registers per thread for each 16x8 block. S is converted to P in place, two
    /// scores per register, so P needs no additional registers.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        let m_tiles = tile.m / 16;
        // With K and V in FP8 the tiles of O are in pairs.
        let output_tiles =
            if KvFormat::widened(variant).is_some() { variant.head_dim.v.div_ceil(16) * 2 } else { variant.head_dim.v / 8 };
        let output = m_tiles * output_tiles * 4;
        let scores = m_tiles * (tile.n / tile.warps / 8) * 4;
        let query = if tile.q_in_registers { m_tiles * variant.head_dim.qk.div_ceil(16) * 4 } else { 0 };
        RegisterEstimate::sum(output, scores, query, OTHER_REGISTERS)
    }

    fn kv(&self, _variant: Point, _tile: &Tile) -> Kv {
        Kv::aside(KvSource::WarpRing)
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hmma
    }

    fn portable(&self, _variant: Point, tile: Tile, target: Target) -> Result<Tile, String> {
        check_target(target).map(|()| tile)
    }
}

/// Bytes of the rings of all warps: rows of K and V of all stages, with their descale factors by page.
fn ring_bytes(variant: Point, tile: &Tile) -> u32 {
    let columns = variant.head_dim.padded_to(16);
    let row = KvColumns::of(variant).map_or_else(|| (columns.qk + columns.v) * variant.dtype.bytes(), KvColumns::both);
    let descales = if variant.features.has(Feature::PageDescale) { 2 * DESCALE_BYTES } else { 0 };
    tile.stages * tile.n * (row + descales)
}

/// Columns of a row of O in shared memory, with the padding that puts rows of a warp into different banks.
fn output_columns(variant: Point) -> u32 {
    let v = variant.head_dim.v;
    if KvFormat::widened(variant).is_some() { v.next_multiple_of(16) + 16 } else { v + 8 }
}

/// An error unless the target has the instructions that the kernel uses.
pub(super) fn check_target(target: Target) -> Result<(), String> {
    if target < Target::Sm80 {
        return Err(format!("`{target}` has neither `cp.async` nor m16n8k16; split-KV needs `sm80` or newer"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::TileChange;

    #[test]
    fn factors_by_page_lie_in_the_stages_and_every_head_dim_has_room_for_them() {
        let kv = [Feature::Paged, Feature::KvE4m3];
        let of_pages = Features::from_iter(kv).with(Features::from_iter([Feature::PageDescale]));
        for (head_dim, target) in (16..=256).step_by(8).cartesian_product([Target::Sm80, Target::Sm89, Target::Sm90]) {
            let plan =
                |features| Plan::new(Point { head_dim: HeadDim::equal(head_dim), features, target, ..D128 }, None).expect("fits");
            let (without, with) = (plan(Features::from_iter(kv)), plan(of_pages));
            let tile = with.attention().tile;
            let rings = |plan: &Plan| plan.shared_memory[1].bytes;
            assert_eq!(rings(&with) - rings(&without), tile.stages * tile.n * 8, "{target} {head_dim}");
        }
    }

    #[test]
    fn factors_by_page_need_pages_of_fp8_and_queries_in_bf16() {
        let error = |dtype, features: &[Feature]| {
            let features = features.iter().copied().collect();
            Plan::new(Point { dtype, features, ..D128 }, None).expect_err("refused").to_string()
        };
        let dense = error(Dtype::Bf16, &[Feature::KvE4m3, Feature::PageDescale]);
        assert!(dense.contains("`page_descale` needs `paged` and `kv_e4m3` or `kv_e5m2`"), "{dense}");
        let wide = error(Dtype::Bf16, &[Feature::Paged, Feature::PageDescale]);
        assert!(wide.contains("`page_descale` needs `paged` and `kv_e4m3` or `kv_e5m2`"), "{wide}");
        let fp16 = error(Dtype::Fp16, &[Feature::Paged, Feature::KvE5m2, Feature::PageDescale]);
        assert!(fp16.contains("`page_descale` needs `bf16`"), "{fp16}");
    }
    use crate::kernel::HeadDim;
    use crate::{
        family::attention::Kind,
        plan::{Plan, PlanError},
    };
    use itertools::Itertools;

    const D128: Point = Point {
        kind: Kind::FwdSplit,
        head_dim: HeadDim::equal(128),
        dtype: Dtype::Bf16,
        causal: false,
        features: Features::NONE,
        target: Target::Sm80,
    };

    fn reason(change: &TileChange) -> String {
        Plan::changed(D128, change).expect_err("the tile breaks a rule").to_string()
    }

    #[test]
    fn every_head_dim_fits_on_every_target_and_reaches_the_occupancy_it_promises() {
        for &target in Target::ALL.iter().filter(|target| **target >= Target::Sm80) {
            let widest = if target >= Target::Sm100 { WIDEST_FOR_BLACKWELL } else { 256 };
            let features = [Features::NONE, Features::from_iter([Feature::KvE5m2])];
            for (head_dim, features) in (16..=widest).step_by(8).cartesian_product(features) {
                let point = Point { head_dim: HeadDim::equal(head_dim), target, features, ..D128 };
                let plan = Plan::new(point, None).expect("a default fits");
                assert!(
                    plan.occupancy.blocks_per_sm >= plan.attention().tile.min_blocks_per_sm,
                    "{head_dim} {target}: {:?}",
                    plan.occupancy
                );
            }
        }
    }

    #[test]
    fn the_numbers_of_head_dim_128_are_exact() {
        let plan = Plan::new(D128, None).expect("fits");
        let map: Vec<_> = plan.shared_memory.iter().map(|r| (r.name.as_str(), r.offset, r.bytes)).collect();
        let rings = 3 * 64 * 2 * 256;
        assert_eq!(map[..2], [("Q", 0, 4096), ("rings of K and V (then O)", 4096, rings)]);
        assert_eq!(map[2..], [("maxima", 102_400, 256), ("sums", 102_656, 256), ("reciprocals of sums", 102_912, 64)]);
        assert_eq!((plan.registers.output, plan.registers.scores, plan.registers.query), (64, 8, 32));
        assert_eq!(plan.occupancy.blocks_per_sm, 1);
    }

    #[test]
    fn rings_of_fp8_hold_twice_the_keys_in_as_many_bytes() {
        for head_dim in [64, 128, 256] {
            let with = |features: &[Feature]| {
                let features = features.iter().copied().collect();
                Plan::new(Point { head_dim: HeadDim::equal(head_dim), features, ..D128 }, None).expect("fits")
            };
            let (plain, bytes) = (with(&[]), with(&[Feature::KvE4m3]));
            assert_eq!(bytes.attention().tile.n, 2 * plain.attention().tile.n);
            assert_eq!(bytes.shared_memory[1], plain.shared_memory[1], "{head_dim}");
        }
        let odd = Point { head_dim: HeadDim { qk: 40, v: 72 }, features: [Feature::KvE4m3].into_iter().collect(), ..D128 };
        let columns = Plan::new(odd, None).expect("fits").attention().kv_columns.expect("they are bytes");
        assert_eq!((columns.qk, columns.v), (64, 96), "whole steps of ldmatrix");
    }

    #[test]
    fn queries_in_fp8_are_multiplied_as_fp16_on_every_target() {
        let kv = Point { dtype: Dtype::Fp16, features: [Feature::KvE4m3].into_iter().collect(), ..D128 };
        for &target in Target::ALL.iter().filter(|target| **target >= Target::Sm80) {
            let of = |point| Plan::new(Point { target, ..point }, None).expect("fits");
            let (queries, keys_only) = (of(Point { dtype: Dtype::Fp8, ..D128 }), of(kv));
            assert_eq!(queries.attention().widened_to, Some(Dtype::Fp16));
            assert_eq!(keys_only.attention().widened_to, None);
            assert_eq!(queries.shared_memory, keys_only.shared_memory, "{target}");
            assert_eq!(queries.attention().features.kv, Some(KvFormat::E4m3));
        }
    }

    #[test]
    fn a_kernel_has_one_type_of_k_and_v() {
        let both = Point { features: [Feature::KvE4m3, Feature::KvE5m2].into_iter().collect(), ..D128 };
        let error = Plan::new(both, None).expect_err("two types").to_string();
        assert!(error.contains("`kv_e4m3` and `kv_e5m2` are two types of K and V"), "{error}");
    }

    #[test]
    fn a_broken_rule_is_named_with_its_number() {
        let none = TileChange::default();
        assert!(reason(&TileChange { warps: Some(3), ..none.clone() }).contains("`warps` is 3"));
        assert!(reason(&TileChange { m: Some(64), ..none.clone() }).contains("`m` is 64"));
        assert!(reason(&TileChange { n: Some(96), ..none.clone() }).contains("make it 64 to 256"));
        assert!(reason(&TileChange { stages: Some(5), ..none.clone() }).contains("`stages` is 5"));
        assert!(reason(&TileChange { stages: Some(1), ..none.clone() }).contains("the O of 4 warps of 16 rows does not fit"));
    }

    #[test]
    fn what_the_family_cannot_make_names_what_it_can() {
        let error = |variant| Plan::new(variant, None).expect_err("unsupported").to_string();
        assert!(error(Point { target: Target::Sm75, ..D128 }).contains("needs `sm80` or newer"));
        let wide = error(Point { target: Target::Sm120, head_dim: HeadDim::equal(168), ..D128 });
        assert!(wide.contains("ends at head dim 160"), "{wide}");
        let both = error(Point { dtype: Dtype::Fp8, features: [Feature::KvE4m3].into_iter().collect(), ..D128 });
        assert!(both.contains("queries in `fp8` have K and V of their own type"), "{both}");
    }

    #[test]
    fn too_many_stages_are_refused_with_the_number() {
        let change = TileChange { stages: Some(4), min_blocks_per_sm: Some(2), ..TileChange::default() };
        let error = Plan::changed(D128, &change).expect_err("two blocks of 132 KB");
        assert!(matches!(error, PlanError::DoesNotFit { resource: "shared memory", .. }), "{error}");
    }
}
