//! Backward attention on 16-bit types with `mma.sync` m16n8k16, `ldmatrix` and asynchronous copies: sm80 and newer.

use super::{
    Backward, CopyPath, DeterministicTile, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    defaults::{default_of, tile_file},
    staged_elements::{bytes_of_elements, with_staged_elements},
};
use crate::{
    grid::TileFile,
    kernel::{Dtype, Feature, Features, HeadDim, Target},
};
use std::sync::LazyLock;

/// The recipe of `templates/attention/bwd_sm80.cu.tera`.
pub(super) struct PortableBackward;

static TILES: LazyLock<TileFile> = tile_file!("bwd.toml");

/// Registers per thread in addition to the sums of dK or dV and the scores: operand fragments in flight, addresses,
/// pointers to Q and dO, loop counters. ptxas uses up to 255 if allowed, but can do with this many.
const OTHER_REGISTERS: u32 = 32;

/// Row widths in shared memory, in elements: of Q, K, dQ and dK, and of V, O, dO and dV.
fn columns(variant: Point) -> HeadDim {
    variant.head_dim.padded_to(16)
}

/// Number of warps along the columns of dQ. Four makes the warps' blocks most nearly square. But a warp's columns are
/// found by flipping address bits within a panel, which allows only two warps if a panel of 32 columns is beside one of
/// 16; and with few columns four warps would have unequal shares.
fn dq_warps_d(variant: Point, tile: &Tile) -> u32 {
    let columns = columns(variant).qk;
    let even = columns.is_multiple_of(64) || columns >= 128 && columns % 64 != 48;
    // Four or more of two columns each spill with 255 registers.
    let tight = columns == 256 && (variant.head_dim.qk < 256 || variant.target == Target::Sm100 || !variant.features.is_empty());
    match (tile.warps, tile.m) {
        (4, _) => 2,
        (_, 32) => 4,
        _ if even && !tight => 4,
        _ => 2,
    }
}

fn stage_bytes(variant: Point, tile: &Tile) -> u32 {
    let HeadDim { qk, v } = columns(variant);
    tile.m * (qk + v) * 2 + 2 * tile.m * 4
}

impl Recipe for PortableBackward {
    fn template(&self) -> &'static str {
        "attention/bwd_sm80.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        let Point { target, dtype, .. } = variant;
        if dtype == Dtype::Fp8 {
            return Err("the backward pass has no FP8 form; available: `fp16`, `bf16`".to_owned());
        }
        if target == Target::Sm75 {
            return Err(format!("kind `bwd` has no template for `{target}`; it needs `sm80` or newer"));
        }
        default_of(&TILES, variant)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn features(&self) -> Features {
        Features::of_all(|info| info.is_mask_or_score)
    }

    fn keys(&self) -> &'static [&'static str] {
        &["m", "n", "warps", "stages", "q_in_registers", "min_blocks_per_sm", "copy"]
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, .. } = *tile;
        let curved =
            variant.features.has(Feature::Softcap) || variant.features.score().is_some_and(|score| score.score.is_some());
        let adds = variant.features.iter().find(|feature| feature.info().adds_elements);
        if let Some(feature) = adds.filter(|_| curved) {
            return Some(format!("backward kernels with `{feature}` have no `softcap` and no declared score"));
        }
        if !matches!(warps, 4 | 8) {
            return Some(format!("`warps` is {warps}; it must be 4 or 8"));
        }
        // A pair of warps owns 16 or 32 keys; one warp accumulates dV, the other dK.
        let (low, high) = (8 * warps, 16 * warps);
        if n != low && n != high {
            return Some(format!("`n` is {n}; {} pairs of warps with 16 or 32 keys each make it {low} or {high}", warps / 2));
        }
        if !matches!(m, 32 | 64) {
            return Some(format!("`m` is {m}; it must be 32 or 64"));
        }
        let columns = columns(variant).qk;
        if m == 32 && warps == 8 && columns % 64 == 48 {
            return Some(format!(
                "`m` is 32; eight warps cannot share out 32 queries of {columns} columns: set `m` to 64 or `warps` to 4"
            ));
        }
        if !matches!(stages, 1 | 2) {
            return Some(format!("`stages` is {stages}; it must be 1 or 2"));
        }
        if tile.copy == CopyPath::Tma {
            return Some("`copy` is \"tma\"; this kernel copies with \"cp_async\"".to_owned());
        }
        tile.q_in_registers.then(|| "`q_in_registers` is true; this kernel walks over the queries".to_owned())
    }

    /// Q, dO and the row statistics, once per stage; then K and V, whose memory is reused to store dK and dV; then P
    /// and dS; then the next step's part of added elements, if it fits. Every tile starts at a multiple of 128 bytes.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let HeadDim { qk, v } = columns(variant);
        let stage = [
            ("Q", tile.m * qk * 2, Some("Q_OFFSET")),
            ("dO", tile.m * v * 2, Some("DOUT_OFFSET")),
            ("shifts", 4 * tile.m, Some("SHIFTS_OFFSET")),
            ("deltas", 4 * tile.m, Some("DELTAS_OFFSET")),
        ];
        let second = (tile.stages == 2).then(|| ("the same of the second stage", stage_bytes(variant, tile), None));
        let rest = [
            ("K (then dK)", tile.n * qk * 2, Some("K_OFFSET")),
            ("V (then dV)", tile.n * v * 2, Some("V_OFFSET")),
            ("P^T and dS^T", tile.stages * tile.n * tile.m * 2, Some("WEIGHTS_OFFSET")),
        ];
        // A value warp's keys of a step's queries.
        let bytes = bytes_of_elements(tile.warps / 2 * tile.m, 2 * tile.n / tile.warps);
        let staged = variant.features.any(|info| info.adds_elements).then_some(bytes);
        Region::lay_out(with_staged_elements(stage.into_iter().chain(second).chain(rest), variant.target, tile, staged))
    }

    /// Accumulators of m16n8k16, 4 fp32 registers per thread for each 16x8 block: dK or dV throughout; S or dP, then dQ
    /// of a step, one after the other.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        let key_tiles = tile.n / (tile.warps / 2) / 16;
        let scores = key_tiles * (tile.m / 8) * 4;
        let across = dq_warps_d(variant, tile);
        let dq_blocks = tile.m / 16 / (tile.warps / across) * (columns(variant).qk / 16).div_ceil(across);
        RegisterEstimate::sum(key_tiles * (variant.head_dim.wider() / 8) * 4, scores.max(8 * dq_blocks), 0, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hmma
    }

    fn portable(&self, _variant: Point, tile: Tile, target: Target) -> Result<Tile, String> {
        if target < Target::Sm80 {
            return Err(format!("`{target}` has neither `cp.async` nor m16n8k16; run it as `sm80` or newer"));
        }
        Ok(tile)
    }

    fn backward(&self, variant: Point, tile: &Tile) -> Option<Backward> {
        let dq_warps_d = dq_warps_d(variant, tile);
        Some(Backward {
            warp_keys: tile.n / (tile.warps / 2),
            dq_warps_m: tile.warps / dq_warps_d,
            dq_warps_d,
            stage_bytes: stage_bytes(variant, tile),
            query_registers: None,
            hides_index: false,
            stores_first: false,
            deterministic: DeterministicTile::of(variant),
        })
    }
}

impl DeterministicTile {
    /// The tile for `variant`.
    pub(super) fn of(variant: Point) -> Self {
        let columns = columns(variant).qk;
        Self {
            // If unrolled, ptxas loads so far ahead that head dim 128 spills as sm_90 code.
            by_panels: columns > 64 && columns.is_multiple_of(64),
            dq_m: 64,
            // Q, dO, K and V of this many rows fit into 99 KB; rows of three panel widths need registers for more
            // addresses.
            dq_n: match variant.head_dim.wider() {
                232 => 16,
                // With positions, 32 keys spill a register as sm_90a code.
                224 if !variant.features.is_empty() && variant.target == Target::Sm90 => 16,
                168 | 176 | 200.. => 32,
                _ => 64,
            },
            dq_warps: 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::TileChange;
    use crate::{
        family::attention::Kind,
        plan::{Plan, PlanError},
    };

    const D128: Point = Point {
        kind: Kind::Bwd,
        head_dim: HeadDim::equal(128),
        dtype: Dtype::Bf16,
        causal: true,
        features: Features::NONE,
        target: Target::Sm80,
    };
    const TARGETS: [Target; 6] = [Target::Sm80, Target::Sm89, Target::Sm90, Target::Sm100, Target::Sm120, Target::Sm121];

    fn plan(variant: Point, change: &TileChange) -> Result<Plan, PlanError> {
        Plan::changed(variant, change)
    }

    #[test]
    fn every_head_dim_has_a_default_that_fits_on_every_target() {
        for target in TARGETS {
            for head_dim in (16..=256).step_by(8) {
                let plan = Plan::new(Point { head_dim: HeadDim::equal(head_dim), target, ..D128 }, None).expect("a default fits");
                assert!(
                    plan.occupancy.blocks_per_sm >= plan.attention().tile.min_blocks_per_sm,
                    "{head_dim} {target}: {:?}",
                    plan.occupancy
                );
                assert!(plan.registers.total <= 255, "{head_dim} {target}");
                assert!(plan.shared_memory.iter().all(|region| region.offset % 128 == 0), "{head_dim} {target}");
            }
        }
    }

    #[test]
    fn dq_is_shared_out_to_all_warps_and_no_warp_reaches_into_another_panel() {
        for target in TARGETS {
            for head_dim in (16..=256).step_by(8) {
                let variant = Point { head_dim: HeadDim::equal(head_dim), target, ..D128 };
                let plan = Plan::new(variant, None).expect("a default fits");
                if plan.template != PortableBackward.template() {
                    continue;
                }
                let shape = plan.attention().backward.expect("of a backward kernel");
                assert_eq!(shape.dq_warps_m * shape.dq_warps_d, plan.attention().tile.warps, "{head_dim} {target}");
                assert!((plan.attention().tile.m / 16).is_multiple_of(shape.dq_warps_m), "{head_dim} {target}");
                for panel in &plan.attention().panels {
                    let (first, blocks) = (panel.first_column / 16, panel.columns / 16);
                    // The warps' columns in one step: those in this panel must not share it with those of another step.
                    let turn = first / shape.dq_warps_d * shape.dq_warps_d;
                    assert!(turn == first || blocks == shape.dq_warps_d, "{head_dim} {target}: {panel:?}");
                }
            }
        }
    }

    #[test]
    fn the_numbers_of_head_dim_128_are_exact() {
        let plan = Plan::new(D128, None).expect("has a default");
        assert_eq!(
            (plan.attention().tile.m, plan.attention().tile.n, plan.attention().tile.warps, plan.attention().tile.stages),
            (64, 128, 8, 2)
        );
        let map: Vec<_> = plan.shared_memory.iter().map(|r| (r.constant.unwrap_or("second"), r.offset, r.bytes)).collect();
        let stage = 2 * 16_384 + 512;
        let expected = [
            ("Q_OFFSET", 0, 16_384),
            ("DOUT_OFFSET", 16_384, 16_384),
            ("SHIFTS_OFFSET", 32_768, 256),
            ("DELTAS_OFFSET", 33_024, 256),
            ("second", stage, stage),
            ("K_OFFSET", 2 * stage, 32_768),
            ("V_OFFSET", 2 * stage + 32_768, 32_768),
            ("WEIGHTS_OFFSET", 2 * stage + 65_536, 32_768),
        ];
        assert_eq!(map, expected);
        assert_eq!((plan.registers.output, plan.registers.scores), (128, 64));
        let shape = plan.attention().backward.expect("of a backward kernel");
        assert_eq!((shape.warp_keys, shape.dq_warps_m, shape.dq_warps_d, shape.stage_bytes), (32, 2, 4, stage));
    }

    #[test]
    fn a_broken_rule_is_named_with_its_number() {
        let none = TileChange::default();
        let reason = |variant, change: TileChange| plan(variant, &change).expect_err("the tile breaks a rule").to_string();
        assert!(reason(D128, TileChange { warps: Some(6), ..none.clone() }).contains("`warps` is 6"));
        assert!(reason(D128, TileChange { n: Some(96), ..none.clone() }).contains("make it 64 or 128"));
        assert!(reason(D128, TileChange { m: Some(48), ..none.clone() }).contains("`m` is 48"));
        assert!(reason(D128, TileChange { stages: Some(3), ..none.clone() }).contains("`stages` is 3"));
        assert!(reason(D128, TileChange { q_in_registers: Some(true), ..none.clone() }).contains("walks over the queries"));
        let d112 = Point { head_dim: HeadDim::equal(112), ..D128 };
        assert!(reason(d112, TileChange { m: Some(32), ..none.clone() }).contains("32 queries of 112 columns"));
        assert!(reason(D128, TileChange { copy: Some(CopyPath::Tma), ..none }).contains("\"tma\""));
    }

    #[test]
    fn what_cannot_be_made_says_what_can() {
        let error = |variant| Plan::new(variant, None).expect_err("unsupported").to_string();
        assert!(error(Point { target: Target::Sm75, ..D128 }).contains("it needs `sm80` or newer"));
        assert!(error(Point { dtype: Dtype::Fp8, ..D128 }).contains("available: `fp16`, `bf16`"));
    }
}
