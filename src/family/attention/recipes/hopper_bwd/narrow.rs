//! Backward attention at head dims 64 to 128: two warpgroups that share the keys, with dK and dV in registers.

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
use std::sync::LazyLock;

/// The recipe of `templates/attention/bwd_sm90.cu.tera`.
pub(in super::super) struct HopperBackward;

static TILES: LazyLock<TileFile> = tile_file!("hopper_bwd.toml");

/// Registers per thread of the two warpgroups that multiply.
const CONSUMER_REGISTERS: u32 = 240;

/// The widest head dim at which ptxas has registers for what threads derive from their index. At wider ones it would
/// read the index anew in each step, unless the index is hidden from it.
const WIDEST_WITH_INDEX: u32 = 96;

const FIXED: Fixed = Fixed {
    keys: (2 * WARPGROUP_ROWS, "two warpgroups of 64 keys make it 128"),
    warps: (12, "two warpgroups that multiply and one that fetches make it 12"),
};

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

    fn features(&self) -> Features {
        supported()
    }

    fn keys(&self) -> &'static [&'static str] {
        KEYS
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        broken_rule(tile, &FIXED, if variant.head_dim.qk == 64 { 2 * WARPGROUP_ROWS } else { WARPGROUP_ROWS })
    }

    /// Between the warpgroups: two tiles of dS, so that a step's is written while dQ of the one before reads its own.
    /// Other mbarriers: both of each tile of dS, and those of K and of V.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        regions(variant, tile, &[("two tiles of dS", 2 * tile.m * tile.n * 2, "GRADIENTS_OFFSET")], 6)
    }

    /// Accumulators of 64 keys per warpgroup: a thread has half a row of dK, dV, S, and of dP for 64 queries at a time.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        RegisterEstimate::sum(variant.head_dim.qk, tile.m / 2 + WARPGROUP_ROWS / 2, 0, OTHER_REGISTERS)
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
            stage_bytes: stage_bytes(variant, tile),
            query_registers: None,
            hides_index: variant.head_dim.qk > WIDEST_WITH_INDEX,
            stores_first: true,
            deterministic: DeterministicTile::of(variant),
        })
    }
}

/// The widths of Sᵀ and dPᵀ, of dK and dV, and of dQ. Of this each warpgroup has 64 of 128 queries, or half the
/// columns, if both halves are alike, and otherwise the first panel or the others.
fn widths(variant: Point, tile: &Tile) -> Vec<u32> {
    let all = variant.head_dim.qk;
    let first = match all.is_multiple_of(PANEL) {
        true if tile.m > WARPGROUP_ROWS => all,
        true => all / 2,
        false => PANEL,
    };
    let ranges = [0..all, 0..first, first..all];
    let of_queries = [tile.m, WARPGROUP_ROWS];
    distinct(of_queries.into_iter().chain(ranges.into_iter().flat_map(|range| widths_of(range, all))))
}
