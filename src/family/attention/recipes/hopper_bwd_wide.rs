//! Backward attention on 16-bit types at wide head dims, with a warpgroup for each gradient: sm90 only.

use super::{
    Backward, CopyPath, DeterministicTile, Hopper, Kv, KvSource, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    defaults::{default_of, tile_file},
    hopper::{MBARRIER_BYTES, TMA_TILE_ALIGNMENT, WARPGROUP_ROWS, distinct, widths_of},
    hopper_bwd::{aligned, columns, has_form},
};
use crate::{grid::TileFile, kernel::Target};
use std::{iter, sync::LazyLock};

/// The recipe of `templates/attention/bwd_wide_sm90.cu.tera`.
pub(super) struct WideHopperBackward;

static TILES: LazyLock<TileFile> = tile_file!("hopper_bwd_wide.toml");

/// Registers per thread of the value and key warpgroups in addition to dV or dK, and S or dP: addresses, barriers, loop
/// counters. The operands of dV and dK take the place of S and dP.
const OTHER_REGISTERS: u32 = 32;

/// Registers per thread of the producer warpgroup, of those of dV and dK, and of that of dQ, which has a part of 64
/// columns at a time.
const PRODUCER_REGISTERS: u32 = 24;
const SUM_REGISTERS: u32 = 192;
const QUERY_REGISTERS: u32 = 104;

/// Warpgroups that multiply: for dV, dK and dQ.
const CONSUMERS: u32 = 3;

/// Columns of a part of dQ.
const PART: u32 = 64;

/// Columns of a product of dK or dV, at most: wider ones have more registers than ptxas grants a thread before it
/// claims others.
const WIDEST: u32 = 192;

/// True if the kernel of `variant` has this recipe.
pub(super) fn serves(variant: Point) -> bool {
    has_form(variant) && variant.head_dim.qk > 128
}

impl Recipe for WideHopperBackward {
    fn template(&self) -> &'static str {
        "attention/bwd_wide_sm90.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        default_of(&TILES, variant)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn keys(&self) -> &'static [&'static str] {
        &["m", "n", "warps", "stages", "q_in_registers", "min_blocks_per_sm", "copy"]
    }

    fn broken_rule(&self, _variant: Point, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, .. } = *tile;
        if m != WARPGROUP_ROWS {
            return Some(format!("`m` is {m}; dQ of a step is one product of 64 queries"));
        }
        if n != WARPGROUP_ROWS {
            return Some(format!("`n` is {n}; dK and dV of more than 64 keys have no registers"));
        }
        if warps != 16 {
            return Some(format!("`warps` is {warps}; three warpgroups that multiply and one that fetches make it 16"));
        }
        if !(2..=4).contains(&stages) {
            return Some(format!(
                "`stages` is {stages}; the queries of a step arrive while those of the one before are in use: 2 to 4"
            ));
        }
        if tile.min_blocks_per_sm != 1 {
            return Some(format!(
                "`min_blocks_per_sm` is {}; a block takes all registers of a multiprocessor: 1",
                tile.min_blocks_per_sm
            ));
        }
        if tile.copy != CopyPath::Tma {
            return Some("`copy` is \"cp_async\"; this kernel copies with \"tma\"".to_owned());
        }
        tile.q_in_registers.then(|| "`q_in_registers` is true; this kernel walks over the queries".to_owned())
    }

    /// Stages of Q and dO with the row statistics, then K and V, whose memory is reused to store dK and dV; P; dS of
    /// two steps; mbarriers: a stage's two full and two empty ones, those of dS and of each warp's P, and that
    /// of K and V.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let row = columns(variant) * 2;
        let regions = [
            ("stages of Q", tile.stages * aligned(tile.m * row), Some("Q_OFFSET")),
            ("stages of dO", tile.stages * aligned(tile.m * row), Some("DOUT_OFFSET")),
            ("K (then dK)", tile.n * row, Some("K_OFFSET")),
            ("V (then dV)", tile.n * row, Some("V_OFFSET")),
            ("P", tile.m * tile.n * 4, Some("WEIGHTS_OFFSET")),
            ("dS of two steps", 2 * tile.m * tile.n * 2, Some("GRADIENTS_OFFSET")),
            ("stages of shifts and deltas", tile.stages * 2 * tile.m * 4, Some("SHIFTS_OFFSET")),
            ("mbarriers", (4 * tile.stages + 13) * MBARRIER_BYTES, Some("BARRIERS_OFFSET")),
        ];
        Region::lay_out_aligned(regions.into_iter(), TMA_TILE_ALIGNMENT)
    }

    /// A thread of the value or key warpgroup has half a row of dV or dK, and of S or dP.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        RegisterEstimate::sum(variant.head_dim.qk / 2, tile.m / 2, 0, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::HgmmaAndHmma
    }

    fn portable(&self, variant: Point, _tile: Tile, target: Target) -> Result<Tile, String> {
        Err(format!("`{variant}` is made of `wgmma`, which `{target}` does not have"))
    }

    fn needs_tma(&self) -> bool {
        true
    }

    fn kv(&self, _variant: Point, _tile: &Tile) -> Kv {
        Kv { from: KvSource::TmaProducer, threads: 128, registers: PRODUCER_REGISTERS }
    }

    fn hopper(&self, variant: Point, tile: &Tile) -> Option<Hopper> {
        let registers = [PRODUCER_REGISTERS, SUM_REGISTERS];
        Some(Hopper::new(CONSUMERS, registers, widths(variant, tile), variant.head_dim.qk))
    }

    fn backward(&self, variant: Point, tile: &Tile) -> Option<Backward> {
        Some(Backward {
            warp_keys: 16,
            dq_warps_m: 1,
            dq_warps_d: 1,
            stage_bytes: aligned(tile.m * columns(variant) * 2),
            query_registers: Some(QUERY_REGISTERS),
            deterministic: DeterministicTile::of(variant),
        })
    }
}

/// The widths of Sᵀ and dPᵀ, of dK and dV, whose products have at most `WIDEST` columns, and of the parts of dQ.
fn widths(variant: Point, tile: &Tile) -> Vec<u32> {
    let all = variant.head_dim.qk;
    let parts = (0..all).step_by(PART as usize).map(|first| first..all.min(first + PART));
    let of_sums = widths_of(0..all, all).into_iter().flat_map(|width| [width.min(WIDEST), width.saturating_sub(WIDEST)]);
    distinct(iter::once(tile.m).chain(of_sums).chain(parts.flat_map(|range| widths_of(range, all))))
}
