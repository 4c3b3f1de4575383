//! Backward attention on 16-bit types with TMA and `wgmma`: sm90 only. `narrow` has head dims 64 to 128, `wide` those
//! above; here is what both have in common.

mod narrow;
mod wide;

pub(super) use narrow::HopperBackward;
pub(super) use wide::WideHopperBackward;

use super::{
    CopyPath, Point, Recipe, Region, Tile,
    hopper::{MBARRIER_BYTES, TMA_TILE_ALIGNMENT, WARPGROUP_ROWS},
};
use crate::kernel::{Dtype, Features, Target};

/// The recipe of `variant`; none if its backward kernel has sm80's.
pub(super) fn recipe_of(variant: Point) -> Option<&'static dyn Recipe> {
    let Point { head_dim, dtype, features, target, .. } = variant;
    let sixteen_bits = matches!(dtype, Dtype::Fp16 | Dtype::Bf16);
    if target != Target::Sm90 || !sixteen_bits || !supported().contains(features) || !head_dim.is_equal() {
        return None;
    }
    match head_dim.qk {
        ..64 => None,
        64..=128 => Some(&HopperBackward),
        _ => Some(&WideHopperBackward),
    }
}

/// Features of the kernels: masks and scores, but neither elements that are added, nor dropout, nor declared scores.
fn supported() -> Features {
    Features::of_all(|info| info.is_mask_or_score && !info.is_training && !info.adds_elements)
}

/// The keys of a tile.
const KEYS: &[&str] = &["m", "n", "warps", "stages", "q_in_registers", "min_blocks_per_sm", "copy"];

/// Registers per consumer thread in addition to the accumulators: addresses, barriers, loop counters.
const OTHER_REGISTERS: u32 = 32;

/// Registers per thread of the producer warpgroup.
const PRODUCER_REGISTERS: u32 = 24;

/// Columns of a panel in shared memory, at most.
const PANEL: u32 = 64;

/// The numbers of keys and warps of a block, each with the reason.
struct Fixed {
    keys: (u32, &'static str),
    warps: (u32, &'static str),
}

/// The first rule that `tile` breaks; a step has 64 queries, or `most` if that is more.
fn broken_rule(tile: &Tile, fixed: &Fixed, most: u32) -> Option<String> {
    let Tile { m, n, warps, stages, .. } = *tile;
    if m != WARPGROUP_ROWS && m != most {
        let more = if most > WARPGROUP_ROWS { format!(" or {most}") } else { String::new() };
        return Some(format!("`m` is {m}; a step of this kernel has 64{more} queries"));
    }
    if n != fixed.keys.0 {
        return Some(format!("`n` is {n}; {}", fixed.keys.1));
    }
    if warps != fixed.warps.0 {
        return Some(format!("`warps` is {warps}; {}", fixed.warps.1));
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

/// Stages of Q and dO, K and V, whose memory is reused to store dK and dV, what `between` a block's warpgroups passes,
/// stages of the row statistics, and mbarriers: a stage's two full and two empty ones, and `others`.
fn regions(variant: Point, tile: &Tile, between: &[(&'static str, u32, &'static str)], others: u32) -> Vec<Region> {
    let row = columns(variant) * 2;
    let fetched = [
        ("stages of Q", tile.stages * stage_bytes(variant, tile), "Q_OFFSET"),
        ("stages of dO", tile.stages * stage_bytes(variant, tile), "DOUT_OFFSET"),
        ("K (then dK)", tile.n * row, "K_OFFSET"),
        ("V (then dV)", tile.n * row, "V_OFFSET"),
    ];
    let last = [
        ("stages of shifts and deltas", tile.stages * 2 * tile.m * 4, "SHIFTS_OFFSET"),
        ("mbarriers", (4 * tile.stages + others) * MBARRIER_BYTES, "BARRIERS_OFFSET"),
    ];
    let all = fetched.iter().chain(between).chain(&last).map(|&(name, bytes, offset)| (name, bytes, Some(offset)));
    Region::lay_out_aligned(all, TMA_TILE_ALIGNMENT)
}

/// Bytes of a stage of Q or of dO.
fn stage_bytes(variant: Point, tile: &Tile) -> u32 {
    (tile.m * columns(variant) * 2).next_multiple_of(TMA_TILE_ALIGNMENT)
}

/// Columns of a row in shared memory.
fn columns(variant: Point) -> u32 {
    variant.head_dim.qk.next_multiple_of(16)
}
