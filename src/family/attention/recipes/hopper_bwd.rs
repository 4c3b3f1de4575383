//! Backward attention on 16-bit types with TMA and `wgmma`: sm90 only.

use super::{
    Backward, CopyPath, DeterministicTile, Hopper, Kv, KvSource, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    defaults::{default_of, tile_file},
    hopper::{MBARRIER_BYTES, TMA_TILE_ALIGNMENT, WARPGROUP_ROWS, distinct, widths_of},
};
use crate::{
    grid::TileFile,
    kernel::{Dtype, Target},
};
use std::{iter, sync::LazyLock};

/// The recipe of `templates/attention/bwd_sm90.cu.tera`.
pub(super) struct HopperBackward;

static TILES: LazyLock<TileFile> = tile_file!("hopper_bwd.toml");

/// Registers per consumer thread in addition to dK, dV and the scores: addresses, barriers, loop counters.
const OTHER_REGISTERS: u32 = 32;

/// Registers per thread of the producer warpgroup and of the two that multiply.
const PRODUCER_REGISTERS: u32 = 24;
const CONSUMER_REGISTERS: u32 = 240;

/// True if there are backward kernels of `wgmma` for what `variant` is, apart from its head dim; the others have sm80's
/// recipe.
pub(super) fn has_form(variant: Point) -> bool {
    let Point { head_dim, dtype, features, target, .. } = variant;
    let sixteen_bits = matches!(dtype, Dtype::Fp16 | Dtype::Bf16);
    target == Target::Sm90 && sixteen_bits && features.is_empty() && head_dim.is_equal()
}

/// True if the kernel of `variant` has this recipe.
pub(super) fn serves(variant: Point) -> bool {
    has_form(variant) && (64..=128).contains(&variant.head_dim.qk)
}

/// Columns of a row in shared memory.
pub(super) fn columns(variant: Point) -> u32 {
    variant.head_dim.qk.next_multiple_of(16)
}

/// Bytes of a tile in shared memory.
pub(super) fn aligned(bytes: u32) -> u32 {
    bytes.next_multiple_of(TMA_TILE_ALIGNMENT)
}

impl Recipe for HopperBackward {
    fn template(&self) -> &'static str {
        "attention/bwd_sm90.cu.tera"
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
        if n != 2 * WARPGROUP_ROWS {
            return Some(format!("`n` is {n}; two warpgroups of 64 keys make it 128"));
        }
        if warps != 12 {
            return Some(format!("`warps` is {warps}; two warpgroups that multiply and one that fetches make it 12"));
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

    /// Stages of Q and dO with the row statistics, then K and V, whose memory is reused to store dK and dV; two tiles
    /// of dS, so that a step's is written while dQ of the one before reads its own; mbarriers: a
    /// stage's two full and one empty one, both of each tile of dS, and that of K and V.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let row = columns(variant) * 2;
        let regions = [
            ("stages of Q", tile.stages * aligned(tile.m * row), Some("Q_OFFSET")),
            ("stages of dO", tile.stages * aligned(tile.m * row), Some("DOUT_OFFSET")),
            ("K (then dK)", tile.n * row, Some("K_OFFSET")),
            ("V (then dV)", tile.n * row, Some("V_OFFSET")),
            ("two tiles of dS", 2 * tile.m * tile.n * 2, Some("GRADIENTS_OFFSET")),
            ("stages of shifts and deltas", tile.stages * 2 * tile.m * 4, Some("SHIFTS_OFFSET")),
            ("mbarriers", (4 * tile.stages + 5) * MBARRIER_BYTES, Some("BARRIERS_OFFSET")),
        ];
        Region::lay_out_aligned(regions.into_iter(), TMA_TILE_ALIGNMENT)
    }

    /// Accumulators of 64 keys per warpgroup: a thread has half a row of dK, dV, S and dP.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        RegisterEstimate::sum(variant.head_dim.qk, tile.m, 0, OTHER_REGISTERS)
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
        let registers = [PRODUCER_REGISTERS, CONSUMER_REGISTERS];
        Some(Hopper::new(tile.n / WARPGROUP_ROWS, registers, widths(variant, tile), variant.head_dim.qk))
    }

    fn backward(&self, variant: Point, tile: &Tile) -> Option<Backward> {
        Some(Backward {
            warp_keys: 16,
            dq_warps_m: 1,
            dq_warps_d: 2,
            stage_bytes: aligned(tile.m * columns(variant) * 2),
            query_registers: None,
            deterministic: DeterministicTile::of(variant),
        })
    }
}

/// The widths of Sᵀ and dPᵀ, of dK and dV, and of dQ, of which each warpgroup has half the columns, if both halves are
/// alike, and otherwise the first panel or the others.
fn widths(variant: Point, tile: &Tile) -> Vec<u32> {
    let all = variant.head_dim.qk;
    let first = if all.is_multiple_of(PANEL) { all / 2 } else { PANEL };
    let ranges = [0..all, 0..first, first..all];
    distinct(iter::once(tile.m).chain(ranges.into_iter().flat_map(|range| widths_of(range, all))))
}

/// Columns of the widest panels.
const PANEL: u32 = 64;
