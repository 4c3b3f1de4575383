//! Forward attention on FP8 with `mma.sync` m16n8k32: sm89, sm120 and sm121.

use super::{
    ByteTransposition, CopyPath, Fp8Choices, Fp8Mma, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    defaults::{default_of, tile_file},
};
use crate::{
    grid::TileFile,
    kernel::{Features, Target},
};
use std::sync::LazyLock;

/// The recipe of `templates/attention/fwd_fp8.cu.tera`.
pub(super) struct Fp8Forward;

static TILES: LazyLock<TileFile> = tile_file!("fp8.toml");

/// Registers per thread in addition to accumulators and kept Q, as in `fwd.rs`.
const OTHER_REGISTERS: u32 = 40;

/// Maximum exponent of P's power-of-two scale: 2⁸ is the largest below E4M3's 448. With fp16 sums of 32 products it is
/// 2²: 32 · 2² · 448 is below fp16's 65504.
fn p_range(tile: &Tile) -> u32 {
    if tile.fp8_mma == Fp8Mma::Fp16 { 2 } else { 8 }
}

/// True if `target` has the instructions of the sm120 family.
fn has_block_scale(target: Target) -> bool {
    matches!(target, Target::Sm120 | Target::Sm121)
}

impl Recipe for Fp8Forward {
    fn template(&self) -> &'static str {
        "attention/fwd_fp8.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        let target = variant.target;
        if !(has_block_scale(target) || target == Target::Sm89) {
            return Err(format!("FP8 on `{target}` has no template yet; available: `sm89`, `sm90`, `sm120`, `sm121`"));
        }
        default_of(&TILES, variant)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn features(&self) -> Features {
        Features::with_pages()
    }

    fn keys(&self) -> &'static [&'static str] {
        &["m", "n", "warps", "stages", "q_in_registers", "min_blocks_per_sm", "rescale_threshold", "accuracy", "copy", "fp8_mma"]
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, rescale_threshold, .. } = *tile;
        // A copy pass of all threads moves threads / 8 rows of 128 bytes, and must not split a group of 16 keys.
        if !matches!(warps, 4 | 8) {
            return Some(format!("`warps` is {warps}; it must be 4 or 8"));
        }
        // One or two 16-row MMA tiles per warp.
        if m != 16 * warps && m != 32 * warps {
            let (low, high) = (16 * warps, 32 * warps);
            return Some(format!("`m` is {m}; {warps} warps of 16 or 32 rows each make it {low} or {high}"));
        }
        // P V consumes 32 keys at a time, the K of the MMA.
        if n == 0 || !n.is_multiple_of(32) || n > 256 {
            return Some(format!("`n` is {n}; it must be a multiple of 32 from 32 to 256"));
        }
        if !matches!(stages, 1 | 2) {
            return Some(format!("`stages` is {stages}; it must be 1 or 2"));
        }
        if tile.copy == CopyPath::Tma {
            return Some("`copy` is \"tma\"; this kernel copies with \"cp_async\"".to_owned());
        }
        if tile.fp8_mma == Fp8Mma::BlockScaled && !has_block_scale(variant.target) {
            return Some(format!(
                "`fp8_mma` is \"block_scaled\", which `{}` lacks; \"fp32\" and \"fp16\" are there",
                variant.target
            ));
        }
        let most = p_range(tile);
        if rescale_threshold > most {
            return Some(format!("`rescale_threshold` is {rescale_threshold}; P's range in E4M3 allows at most {most}"));
        }
        None
    }

    /// Bytes of Q, then of K and V of the first stage, then of the second. O is stored from registers to device memory.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let row = variant.head_dim.padded_to(self.head_dim_step());
        let (keys, values) = (tile.n * row.qk, tile.n * row.v);
        let first = [("Q", tile.m * row.qk, Some("Q_OFFSET")), ("K", keys, Some("K_OFFSET")), ("V", values, Some("V_OFFSET"))];
        let second = [("K (second stage)", keys, None), ("V (second stage)", values, None)];
        Region::lay_out(first.into_iter().chain(second.into_iter().filter(|_| tile.stages == 2)))
    }

    /// Accumulators of m16n8k32: 4 fp32 registers per thread for each 16x8 block, O in whole pairs of blocks. S is
    /// converted to P in place, four scores per register.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        let m_tiles = tile.m / tile.warps / 16;
        let output = m_tiles * variant.head_dim.v.div_ceil(16) * 8;
        let scores = m_tiles * (tile.n / 8) * 4;
        let query = if tile.q_in_registers { m_tiles * variant.head_dim.qk.div_ceil(32) * 4 } else { 0 };
        RegisterEstimate::sum(output, scores, query, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Point, tile: &Tile, compiled_for: Target) -> TensorCore {
        match (compiled_for, tile.fp8_mma) {
            // Targets without FP8 `mma.sync` in hardware: ptxas widens the operands to fp16.
            (Target::Sm90 | Target::Sm100, _) => TensorCore::Hmma,
            (_, Fp8Mma::BlockScaled) => TensorCore::QmmaSf,
            (_, Fp8Mma::Fp32 | Fp8Mma::Fp16) => TensorCore::Qmma,
        }
    }

    fn head_dim_step(&self) -> u32 {
        32
    }

    fn portable(&self, _variant: Point, tile: Tile, target: Target) -> Result<Tile, String> {
        if target < Target::Sm89 {
            return Err(format!("`{target}` has no FP8 conversion; run it as `sm89` or newer"));
        }
        let scaled = tile.fp8_mma == Fp8Mma::BlockScaled && !has_block_scale(target);
        Ok(if scaled { Tile { fp8_mma: Fp8Mma::Fp32, ..tile } } else { tile })
    }

    fn fp8(&self, tile: &Tile, compiled_for: Target) -> Option<Fp8Choices> {
        let b8 = has_block_scale(compiled_for) || compiled_for == Target::Sm100;
        let transposition = if b8 { ByteTransposition::LdmatrixB8 } else { ByteTransposition::Prmt };
        Some(Fp8Choices { transposition, p_exponent: p_range(tile) - tile.rescale_threshold })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::TileChange;
    use crate::{
        family::attention::Kind,
        kernel::{Dtype, Feature, Features, HeadDim},
        plan::Plan,
    };

    const D224: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(224),
        dtype: Dtype::Fp8,
        causal: true,
        features: Features::NONE,
        target: Target::Sm121,
    };
    const TARGETS: [Target; 3] = [Target::Sm89, Target::Sm120, Target::Sm121];

    fn reason(variant: Point, change: &TileChange) -> String {
        Plan::changed(variant, change).expect_err("the tile breaks a rule").to_string()
    }

    #[test]
    fn every_head_dim_has_a_default_that_leaves_two_blocks_on_a_multiprocessor() {
        for (target, causal) in itertools::iproduct!(TARGETS, [false, true]) {
            for head_dim in (16..=256).step_by(8) {
                let plan = Plan::new(Point { head_dim: HeadDim::equal(head_dim), causal, target, ..D224 }, None)
                    .expect("a default fits");
                assert!(plan.occupancy.blocks_per_sm >= 2, "{head_dim}: {:?}", plan.occupancy);
                assert!(
                    plan.occupancy.blocks_per_sm >= plan.attention().tile.min_blocks_per_sm,
                    "{head_dim}: {:?}",
                    plan.occupancy
                );
            }
        }
    }

    #[test]
    fn pages_take_the_tile_of_masks_and_scores_and_an_fp8_cache_is_refused_by_name() {
        let paged = Point { features: Features::from_iter([Feature::Paged]), ..D224 };
        assert_eq!(Plan::new(paged, None).expect("fits").attention().tile.n, 32);
        let cache = Point { features: Features::from_iter([Feature::Paged, Feature::KvE4m3]), ..D224 };
        let error = Plan::new(cache, None).expect_err("K and V have the type of Q").to_string();
        assert!(error.contains("`fwd_fp8.cu.tera` has no `kv_e4m3`"), "{error}");
    }

    #[test]
    fn the_numbers_of_the_flagship_are_exact() {
        let plan = Plan::new(D224, None).expect("fits");
        assert_eq!(
            (plan.attention().head_dim_padded, plan.attention().rows_per_warp, plan.shared_memory_bytes),
            (224, 16, 3 * 64 * 224)
        );
        let registers = plan.registers;
        assert_eq!((registers.output, registers.scores, registers.query), (112, 32, 28));
        let choices = Fp8Choices { transposition: ByteTransposition::LdmatrixB8, p_exponent: 8 };
        assert_eq!((plan.attention().fp8, plan.tensor_core), (Some(choices), TensorCore::QmmaSf));
    }

    #[test]
    fn rows_are_padded_to_whole_steps_of_32_bytes() {
        let plan = Plan::new(Point { head_dim: HeadDim::equal(72), ..D224 }, None).expect("fits");
        assert_eq!((plan.attention().head_dim_padded, plan.registers.output), (96, 2 * 5 * 8));
    }

    #[test]
    fn run_as_hopper_uses_what_hopper_has() {
        let plan = Plan::new(D224, None).expect("fits").to_run_as(Target::Sm90).expect("portable");
        assert_eq!((plan.attention().tile.fp8_mma, plan.tensor_core), (Fp8Mma::Fp32, TensorCore::Hmma));
        assert_eq!(plan.attention().fp8.expect("an FP8 kernel").transposition, ByteTransposition::Prmt);
        let error = Plan::new(D224, None).expect("fits").to_run_as(Target::Sm80).expect_err("no E4M3 there").to_string();
        assert!(error.contains("run it as `sm89` or newer"), "{error}");
    }

    #[test]
    fn p_stays_in_range_under_every_accepted_threshold() {
        let change = |fp8_mma, rescale_threshold| TileChange {
            fp8_mma: Some(fp8_mma),
            rescale_threshold: Some(rescale_threshold),
            ..TileChange::default()
        };
        let p_exponent = |change| Plan::changed(D224, &change).expect("fits").attention().fp8.expect("an FP8 kernel").p_exponent;
        assert_eq!((p_exponent(change(Fp8Mma::Fp32, 8)), p_exponent(change(Fp8Mma::Fp16, 1))), (0, 1));
        assert!(reason(D224, &change(Fp8Mma::BlockScaled, 9)).contains("allows at most 8"));
        assert!(reason(D224, &change(Fp8Mma::Fp16, 3)).contains("allows at most 2"));
    }

    #[test]
    fn a_broken_rule_is_named_with_its_number() {
        let none = TileChange::default();
        assert!(reason(D224, &TileChange { warps: Some(2), ..none.clone() }).contains("`warps` is 2"));
        assert!(reason(D224, &TileChange { m: Some(96), ..none.clone() }).contains("make it 64 or 128"));
        assert!(reason(D224, &TileChange { n: Some(48), ..none.clone() }).contains("multiple of 32"));
        assert!(reason(D224, &TileChange { stages: Some(3), ..none.clone() }).contains("`stages` is 3"));
        assert!(reason(D224, &TileChange { copy: Some(CopyPath::Tma), ..none.clone() }).contains("\"cp_async\""));
        let ada = Point { target: Target::Sm89, ..D224 };
        let scaled = TileChange { fp8_mma: Some(Fp8Mma::BlockScaled), ..none };
        assert!(reason(ada, &scaled).contains("`fp8_mma` is \"block_scaled\", which `sm89` lacks"));
    }

    #[test]
    fn where_there_is_no_fp8_the_error_says_where_there_is() {
        let error = |target| Plan::new(Point { target, ..D224 }, None).expect_err("unsupported").to_string();
        assert!(error(Target::Sm80).contains("sm80 has no FP8 tensor-core instruction; FP8 needs sm89 or newer"));
        assert!(error(Target::Sm100).contains("available: `sm89`, `sm90`, `sm120`, `sm121`"));
    }
}
