//! Forward attention on 16-bit types where there is little work: TMA and `wgmma`, sm90 alone.

use super::{
    Hopper, Limits, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    hopper::{HopperForward, MBARRIER_BYTES, TMA_TILE_ALIGNMENT, WARPGROUP_ROWS, row_bytes, widths},
    tile::{BASE, DefaultTiles},
};
use crate::grid::{CopyPath, Dtype, Target, Turns, Variant};

/// The family of `templates/flash/fwd_short_sm90.cu.tera`.
pub(super) struct HopperShort;

/// Registers of a thread beyond O, S and P: softmax state, tile addresses, barriers, loop counters.
const OTHER_REGISTERS: u32 = 24;

/// What a warpgroup leaves for the others of each row besides O: maximum and sum, fp32.
const STATE_BYTES: u32 = 8;

const fn tile(warpgroups: u32, n: u32, stages: u32) -> Tile {
    Tile { m: WARPGROUP_ROWS, n, warps: 4 * warpgroups, stages, copy: CopyPath::Tma, overlap: true, ..BASE }
}

/// Default tiles: the first row whose head dim is not below the variant's. Four warpgroups have 128 registers a thread, two 255; of
/// keys as many are on their way at once as shared memory holds, up to 512.
const DEFAULTS: &[DefaultTiles] = &[
    DefaultTiles::same(64, tile(4, 64, 2)),
    DefaultTiles::same(96, tile(2, 64, 4)),
    DefaultTiles::same(128, tile(2, 64, 3)),
    DefaultTiles::same(192, tile(2, 64, 2)),
    DefaultTiles::same(256, tile(2, 48, 2)),
];

/// Bytes of a stage of K or V.
fn stage_bytes(variant: Variant, tile: &Tile) -> u32 {
    (tile.n * row_bytes(variant)).next_multiple_of(TMA_TILE_ALIGNMENT)
}

impl Recipe for HopperShort {
    fn template(&self) -> &'static str {
        "fwd_short_sm90.cu.tera"
    }

    fn default_tile(&self, variant: Variant) -> Result<Tile, String> {
        DefaultTiles::find(DEFAULTS, variant)
    }

    fn broken_rule(&self, variant: Variant, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, rescale_threshold, .. } = *tile;
        if m != WARPGROUP_ROWS {
            return Some(format!("`m` is {m}; all warpgroups multiply for the same {WARPGROUP_ROWS} rows"));
        }
        if !matches!(warps, 8 | 12 | 16) {
            return Some(format!("`warps` is {warps}; two to four warpgroups make it 8, 12 or 16"));
        }
        // P V consumes keys 16 at a time, the K of the product; a TMA box has at most 256 rows.
        if n == 0 || !n.is_multiple_of(16) || n > 256 {
            return Some(format!("`n` is {n}; it must be a multiple of 16 from 16 to 256"));
        }
        if !(1..=4).contains(&stages) {
            return Some(format!("`stages` is {stages}; it must be 1 to 4"));
        }
        // Keys of all stages hold 2 x 2 bytes a column, rows of O 4.
        if stages * n < m {
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
        // P reaches 2^threshold: fp16 ends at 65504, and fp32 sums of bf16's P stay exact enough up to 2^64.
        let (dtype, most) = (variant.dtype, if variant.dtype == Dtype::Fp16 { 14 } else { 64 });
        if rescale_threshold > most {
            return Some(format!("`rescale_threshold` is {rescale_threshold}; {dtype} allows at most {most}"));
        }
        None
    }

    /// Q; the stages of K and V of each warpgroup, where its O lies at last; maxima and sums of each warpgroup's rows; and the
    /// barriers: that of Q, full and empty of each stage of K and of V.
    fn shared_memory(&self, variant: Variant, tile: &Tile) -> Vec<Region> {
        let warpgroups = tile.warps / 4;
        let stages = warpgroups * tile.stages;
        let regions = [
            ("Q", WARPGROUP_ROWS * row_bytes(variant), Some("Q_OFFSET")),
            ("stages of K and V (then O)", 2 * stages * stage_bytes(variant, tile), Some("STAGES_OFFSET")),
            ("maxima and sums", warpgroups * WARPGROUP_ROWS * STATE_BYTES, Some("STATES_OFFSET")),
            ("mbarriers", (1 + 4 * stages) * MBARRIER_BYTES, Some("BARRIERS_OFFSET")),
        ];
        Region::lay_out_aligned(regions.into_iter(), TMA_TILE_ALIGNMENT)
    }

    /// Accumulators of 64 rows a warpgroup: a thread holds half a row's worth of each. P has 16 bits an element and a place of its
    /// own, for the next scores come while it is used.
    fn registers(&self, variant: Variant, tile: &Tile) -> RegisterEstimate {
        RegisterEstimate::sum(variant.head_dim / 2, tile.n / 2 + tile.n / 4, 0, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Variant, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hgmma
    }

    fn portable(&self, variant: Variant, tile: Tile, target: Target) -> Result<Tile, String> {
        HopperForward.portable(variant, tile, target)
    }

    fn needs_tma(&self) -> bool {
        true
    }

    fn hopper(&self, variant: Variant, tile: &Tile) -> Option<Hopper> {
        // Threads keep what they start with: all multiply.
        let registers = Limits::of(variant.target).register_cap(tile.warps * 32, tile.min_blocks_per_sm);
        Some(Hopper {
            consumers: tile.warps / 4,
            producer_registers: registers,
            consumer_registers: registers,
            q_slots: 1,
            widths: widths(variant.head_dim, tile.n),
            part_columns: variant.head_dim,
        })
    }
}
