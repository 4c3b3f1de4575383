//! Forward attention on 16-bit types with TMA and `wgmma`: sm90 alone.

use super::{
    Limits, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    recipe::panels,
    tile::{BASE, DefaultTiles},
};
use crate::grid::{CopyPath, Dtype, Target, Variant};
use serde::Serialize;

/// The family of `templates/flash/fwd_sm90.cu.tera`.
pub(super) struct HopperForward;

/// What a kernel with `wgmma` has besides its tile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hopper {
    /// Warpgroups that multiply, of 64 query rows each; one more fetches.
    pub consumers: u32,
    /// Registers a thread of the fetching warpgroup keeps.
    pub producer_registers: u32,
    /// Registers a thread of the others has then.
    pub consumer_registers: u32,
    /// Places for the Q of one warpgroup: up to two for each, so that the next Q comes while this one is used.
    pub q_slots: u32,
    /// The widths N of the kernel's products, each once.
    pub widths: Vec<u32>,
}

/// Rows of one `wgmma`.
const WARPGROUP_ROWS: u32 = 64;

/// What tiles that TMA brings start at a multiple of: the widest swizzle repeats every 8 rows of 128 bytes.
const TMA_TILE_ALIGNMENT: u32 = 1024;

const MBARRIER_BYTES: u32 = 8;

/// What the fetching thread says of a piece of work: three numbers and a word to spare.
const WORK_BYTES: u32 = 16;

/// Registers of a consumer thread beyond O, S and P: softmax state, tile addresses, barriers, loop counters.
const OTHER_REGISTERS: u32 = 24;

const HOPPER: Tile =
    Tile { stages: 2, copy: CopyPath::Tma, overlap: true, ping_pong: true, persistent: true, min_blocks_per_sm: 1, ..BASE };

const fn tile(m: u32, n: u32) -> Tile {
    Tile { m, n, warps: 4 + m / 16, ..HOPPER }
}

/// Default tiles: the first row whose head dim is not below the variant's.
const DEFAULTS: &[DefaultTiles] = &[
    DefaultTiles::same(64, tile(192, 128)),
    DefaultTiles::same(96, tile(192, 112)),
    DefaultTiles { widest: 128, full: tile(128, 176), causal: tile(128, 128) },
    DefaultTiles::same(160, tile(128, 128)),
    DefaultTiles { widest: 192, full: tile(128, 112), causal: tile(128, 96) },
    DefaultTiles::same(224, tile(128, 80)),
    DefaultTiles::same(256, tile(128, 64)),
];

impl Recipe for HopperForward {
    fn template(&self) -> &'static str {
        "fwd_sm90.cu.tera"
    }

    fn default_tile(&self, variant: Variant) -> Result<Tile, String> {
        DefaultTiles::find(DEFAULTS, variant)
    }

    fn broken_rule(&self, variant: Variant, tile: &Tile) -> Option<String> {
        let Tile { m, n, warps, stages, rescale_threshold, .. } = *tile;
        // One to three warpgroups of 64 rows, and one that fetches.
        if !matches!(m, 64 | 128 | 192) {
            return Some(format!("`m` is {m}; one to three warpgroups of 64 rows make it 64, 128 or 192"));
        }
        if warps != 4 + m / 16 {
            return Some(format!("`warps` is {warps}; {m} rows and the warps that fetch make it {}", 4 + m / 16));
        }
        // P V consumes keys 16 at a time, the K of the product; a TMA box has at most 256 rows.
        if n == 0 || !n.is_multiple_of(16) || n > 256 {
            return Some(format!("`n` is {n}; it must be a multiple of 16 from 16 to 256"));
        }
        if !(1..=4).contains(&stages) {
            return Some(format!("`stages` is {stages}; it must be 1 to 4"));
        }
        if tile.q_in_registers {
            return Some("`q_in_registers` is true; `wgmma` reads Q from shared memory".to_owned());
        }
        if tile.copy != CopyPath::Tma {
            return Some("`copy` is \"cp_async\"; this kernel copies with \"tma\"".to_owned());
        }
        if tile.overlap && stages < 2 {
            return Some("`overlap` is true with one stage; K of the next keys needs a second one".to_owned());
        }
        if tile.ping_pong && m == WARPGROUP_ROWS {
            return Some("`ping_pong` is true with one warpgroup; it takes two to take turns".to_owned());
        }
        // P reaches 2^threshold: fp16 ends at 65504, and fp32 sums of bf16's P stay exact enough up to 2^64.
        let (dtype, most) = (variant.dtype, if variant.dtype == Dtype::Fp16 { 14 } else { 64 });
        if rescale_threshold > most {
            return Some(format!("`rescale_threshold` is {rescale_threshold}; {dtype} allows at most {most}"));
        }
        None
    }

    /// Slots of Q, the stages of K, those of V, what the fetching thread says of the work in each slot, and the barriers: full and
    /// empty of each slot, of each stage of K, of each stage of V.
    fn shared_memory(&self, variant: Variant, tile: &Tile) -> Vec<Region> {
        let row_bytes = row_bytes(variant);
        let q_slots = q_slots(variant, tile);
        let stage = (tile.n * row_bytes).next_multiple_of(TMA_TILE_ALIGNMENT) * tile.stages;
        let regions = [
            ("slots of Q", q_slots * WARPGROUP_ROWS * row_bytes, Some("Q_OFFSET")),
            ("stages of K", stage, Some("K_OFFSET")),
            ("stages of V", stage, Some("V_OFFSET")),
            ("work", q_slots * WORK_BYTES, Some("WORK_OFFSET")),
            ("mbarriers", (2 * q_slots + 4 * tile.stages) * MBARRIER_BYTES, Some("BARRIERS_OFFSET")),
        ];
        Region::lay_out_aligned(regions.into_iter(), TMA_TILE_ALIGNMENT)
    }

    /// Accumulators of 64 rows a warpgroup: a thread holds half a row's worth of each. P has 16 bits an element, and a place of
    /// its own only where the next scores come while it is used.
    fn registers(&self, variant: Variant, tile: &Tile) -> RegisterEstimate {
        let kept = if tile.overlap { tile.n / 4 } else { 0 };
        RegisterEstimate::sum(variant.head_dim / 2, tile.n / 2, kept, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Variant, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hgmma
    }

    fn portable(&self, variant: Variant, _tile: Tile, target: Target) -> Result<Tile, String> {
        Err(format!("`{variant}` is made of `wgmma`, which `{target}` does not have"))
    }

    fn needs_tma(&self) -> bool {
        true
    }

    fn hopper(&self, variant: Variant, tile: &Tile) -> Option<Hopper> {
        let consumers = tile.m / WARPGROUP_ROWS;
        // Multiples of 8 that share 64 K registers: 512 a row of 128 threads.
        let (producer_registers, consumer_registers) = match consumers {
            1 | 2 => (24, 240),
            _ => (32, 160),
        };
        let q_slots = q_slots(variant, tile);
        Some(Hopper { consumers, producer_registers, consumer_registers, q_slots, widths: widths(variant.head_dim, tile.n) })
    }
}

fn row_bytes(variant: Variant) -> u32 {
    variant.head_dim.next_multiple_of(16) * variant.dtype.bytes()
}

fn q_slots(variant: Variant, tile: &Tile) -> u32 {
    let consumers = tile.m / WARPGROUP_ROWS;
    if !tile.persistent {
        return consumers;
    }
    let keys = 2 * tile.stages * (tile.n * row_bytes(variant)).next_multiple_of(TMA_TILE_ALIGNMENT);
    // What announcements and barriers take, each in a place of its own.
    let available = Limits::of(variant.target).shared_memory_per_block.saturating_sub(keys + 2 * TMA_TILE_ALIGNMENT);
    (available / (WARPGROUP_ROWS * row_bytes(variant))).clamp(consumers, 2 * consumers)
}

/// The widths of Q Kᵀ and of P V, which takes a product for each run of equal panels.
fn widths(head_dim: u32, n: u32) -> Vec<u32> {
    let mut widths = vec![n];
    let mut wide = 0;
    for panel in panels(head_dim.next_multiple_of(16)) {
        let columns = panel.columns.min(head_dim - panel.first_column);
        if panel.columns == 64 {
            wide += columns;
        } else {
            widths.push(columns);
        }
    }
    if wide > 0 {
        widths.push(wide);
    }
    widths.sort_unstable();
    widths.dedup();
    widths
}
