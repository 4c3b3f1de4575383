//! Backward attention at head dims above 128, with a warpgroup for each gradient.

use super::{
    super::{
        Backward, DeterministicTile, Hopper, Kv, KvSource, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
        defaults::{default_of, tile_file},
        hopper::{WARPGROUP_ROWS, distinct, widths_of},
    },
    Fixed, KEYS, OTHER_REGISTERS, PANEL, PRODUCER_REGISTERS, broken_rule, regions, stage_bytes, supported,
};
use crate::{
    grid::TileFile,
    kernel::{Features, Target},
};
use std::{iter, ops::RangeInclusive, sync::LazyLock};

/// The recipe of `templates/attention/bwd_wide_sm90.cu.tera`.
pub(in super::super) struct WideHopperBackward;

static TILES: LazyLock<TileFile> = tile_file!("hopper_bwd_wide.toml");

/// Registers per thread of the warpgroups of dV and dK, and of that of dQ, which has a part of `PANEL` columns at a
/// time.
const SUM_REGISTERS: u32 = 192;
const QUERY_REGISTERS: u32 = 104;

/// Warpgroups that multiply: for dV, dK and dQ.
const CONSUMERS: u32 = 3;

/// Columns of a product of dK or dV, at most: wider ones have more registers than ptxas grants a thread before it
/// claims others.
const WIDEST: u32 = 192;

/// Head dims at which dS is stored before dK starts: 0.92 to 1.00 of the time at 192 and 0.97 to 1.01 at 224, but 1.00
/// to 1.18 at 136, 160 and 256 (docs/results/2026-11-29-backward-peers-h200.md).
const STORE_FIRST: RangeInclusive<u32> = 192..=224;

const FIXED: Fixed = Fixed {
    keys: (WARPGROUP_ROWS, "dK and dV of more than 64 keys have no registers"),
    warps: (16, "three warpgroups that multiply and one that fetches make it 16"),
};

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

    fn features(&self) -> Features {
        supported()
    }

    fn keys(&self) -> &'static [&'static str] {
        KEYS
    }

    fn broken_rule(&self, _variant: Point, tile: &Tile) -> Option<String> {
        broken_rule(tile, &FIXED, WARPGROUP_ROWS)
    }

    /// Between the warpgroups: P, and dS of two steps. Other mbarriers: those of dS and of each warp's P, those of K
    /// and of V, and the one that frees both.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let between =
            [("P", tile.m * tile.n * 4, "WEIGHTS_OFFSET"), ("dS of two steps", 2 * tile.m * tile.n * 2, "GRADIENTS_OFFSET")];
        regions(variant, tile, &between, 15)
    }

    /// A thread of the value or key warpgroup has half a row of dV or dK, and of S or dP, whose place the operands of
    /// dV and dK take.
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
            stage_bytes: stage_bytes(variant, tile),
            query_registers: Some(QUERY_REGISTERS),
            hides_index: false,
            stores_first: STORE_FIRST.contains(&variant.head_dim.qk),
            deterministic: DeterministicTile::of(variant),
        })
    }
}

/// The widths of Sᵀ and dPᵀ, of dK and dV, whose products have at most `WIDEST` columns, and of the parts of dQ.
fn widths(variant: Point, tile: &Tile) -> Vec<u32> {
    let all = variant.head_dim.qk;
    let parts = (0..all).step_by(PANEL as usize).map(|first| first..all.min(first + PANEL));
    let of_sums = widths_of(0..all, all).into_iter().flat_map(|width| [width.min(WIDEST), width.saturating_sub(WIDEST)]);
    distinct(iter::once(tile.m).chain(of_sums).chain(parts.flat_map(|range| widths_of(range, all))))
}
