//! Default tiles of the portable 16-bit forward kernel, a table for each kind of multiprocessor. docs/variants.md says
//! how they were chosen; every one compiles without spills for its target at every head dim (`benches/spill_scan.py`).

use super::{
    Point,
    tile::{BASE, DefaultTiles, Tile},
};
use crate::kernel::Target;

/// The table of a variant: the first row whose head dim is not below the variant's holds its tile. sm75 and sm90 have
/// forward kernels of their own.
pub(super) fn portable_tiles(variant: Point) -> &'static [DefaultTiles] {
    match variant.target {
        Target::Sm80 | Target::Sm100 if !variant.features.is_empty() => SM80_FEATURES,
        Target::Sm75 | Target::Sm80 | Target::Sm90 => SM80,
        Target::Sm100 => SM100,
        Target::Sm89 | Target::Sm120 | Target::Sm121 if variant.features.score().is_some() => SMALL_FEATURES,
        // Positions take registers that 112 keys and more leave none of.
        Target::Sm89 | Target::Sm120 | Target::Sm121
            if !variant.features.is_empty() && (33..=64).contains(&variant.head_dim.wider()) =>
        {
            SMALL_FEATURES
        }
        Target::Sm89 | Target::Sm120 | Target::Sm121 => SMALL,
    }
}

/// Four warps split the queries only; the wider O gets, the fewer query rows and keys a warp can hold beside it in
/// 255 registers. The winners of sweeps on an H100 and an H200 (docs/results/sm80-forward-tiles.md) among the tiles
/// that ptxas compiles without spills; where two were equal, the one that leaves two blocks on an A100's SM.
const SM80: &[DefaultTiles] = &[
    // Little O to hold: three blocks of 168 registers hide the exponentials, which outweigh the MMAs here.
    DefaultTiles::same(32, Tile { m: 128, n: 64, stages: 2, min_blocks_per_sm: 3, ..BASE }),
    // 64 registers of O leave room for 128 scores; causal wants the smaller key tile at its diagonal, and Q kept.
    DefaultTiles {
        widest: 64,
        full: Tile { m: 128, n: 128, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 128, n: 64, stages: 2, q_in_registers: true, min_blocks_per_sm: 2, ..BASE },
    },
    DefaultTiles::same(80, Tile { m: 128, n: 80, min_blocks_per_sm: 2, ..BASE }),
    // 80 keys spill two registers at 88 and none at 96, whose rows are whole panels.
    DefaultTiles::same(88, Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles {
        widest: 96,
        full: Tile { m: 128, n: 80, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE },
    },
    // Rows of three panel widths need more addresses than 128: 64 keys would spill a register or two.
    DefaultTiles::same(120, Tile { m: 128, n: 48, min_blocks_per_sm: 2, ..BASE }),
    // 128 registers of O and 64 of scores; 64 KB, so two blocks hide each other's waits.
    DefaultTiles::same(128, Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE }),
    // 32 query rows a warp no longer fit: 16 rows, and registers enough to keep Q.
    DefaultTiles::same(192, Tile { m: 64, n: 64, q_in_registers: true, min_blocks_per_sm: 2, ..BASE }),
    // Q, K and V take more than half of an A100's shared memory: one block there, two on a Hopper SM.
    DefaultTiles {
        widest: 224,
        full: Tile { m: 64, n: 80, min_blocks_per_sm: 1, ..BASE },
        causal: Tile { m: 64, n: 64, min_blocks_per_sm: 1, ..BASE },
    },
    DefaultTiles::same(256, Tile { m: 64, n: 64, min_blocks_per_sm: 1, ..BASE }),
];

/// The tiles of sm80 and sm100 for kernels with features, whose factors and positions take registers. Not measured.
const SM80_FEATURES: &[DefaultTiles] = &[
    DefaultTiles::same(32, Tile { m: 128, n: 64, stages: 2, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(64, Tile { m: 128, n: 64, stages: 2, q_in_registers: true, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(80, Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(128, Tile { m: 128, n: 32, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(192, Tile { m: 64, n: 64, q_in_registers: true, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(256, Tile { m: 64, n: 64, min_blocks_per_sm: 1, ..BASE }),
];

/// The tiles of sm80 with fewer keys where its own spill as sm100f code. Not measured on such a GPU.
const SM100: &[DefaultTiles] = &[
    DefaultTiles::same(32, Tile { m: 128, n: 64, stages: 2, min_blocks_per_sm: 3, ..BASE }),
    DefaultTiles {
        widest: 64,
        full: Tile { m: 128, n: 112, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 128, n: 64, stages: 2, q_in_registers: true, min_blocks_per_sm: 2, ..BASE },
    },
    DefaultTiles::same(80, Tile { m: 128, n: 80, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(96, Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(120, Tile { m: 128, n: 32, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(128, Tile { m: 128, n: 48, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(192, Tile { m: 64, n: 64, q_in_registers: true, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles {
        widest: 224,
        full: Tile { m: 64, n: 80, min_blocks_per_sm: 1, ..BASE },
        causal: Tile { m: 64, n: 64, min_blocks_per_sm: 1, ..BASE },
    },
    DefaultTiles::same(256, Tile { m: 64, n: 64, min_blocks_per_sm: 1, ..BASE }),
];

/// GPUs with 100 KB of shared memory an SM: two blocks share it up to head dim 192, of at most 49 KB each; sm80's tiles
/// would leave one from 96 on. Not measured on such a GPU.
const SMALL: &[DefaultTiles] = &[
    DefaultTiles::same(32, Tile { m: 128, n: 64, stages: 2, min_blocks_per_sm: 3, ..BASE }),
    // Rows of two panel widths need more addresses than 64: 128 keys would spill as sm120f code.
    DefaultTiles {
        widest: 56,
        full: Tile { m: 128, n: 112, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 128, n: 64, q_in_registers: true, min_blocks_per_sm: 2, ..BASE },
    },
    DefaultTiles {
        widest: 64,
        full: Tile { m: 128, n: 128, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 128, n: 64, q_in_registers: true, min_blocks_per_sm: 2, ..BASE },
    },
    DefaultTiles::same(72, Tile { m: 128, n: 80, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(96, Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE }),
    // Under a causal mask the square tile wastes least at the diagonal.
    DefaultTiles {
        widest: 112,
        full: Tile { m: 128, n: 48, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 64, n: 64, min_blocks_per_sm: 2, ..BASE },
    },
    DefaultTiles {
        widest: 128,
        full: Tile { m: 128, n: 32, min_blocks_per_sm: 2, ..BASE },
        causal: Tile { m: 64, n: 64, min_blocks_per_sm: 2, ..BASE },
    },
    DefaultTiles::same(144, Tile { m: 64, n: 48, q_in_registers: true, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(192, Tile { m: 64, n: 32, q_in_registers: true, min_blocks_per_sm: 2, ..BASE }),
    // One block fits: eight warps, so that each scheduler has two.
    DefaultTiles::same(256, Tile { m: 128, n: 32, warps: 8, min_blocks_per_sm: 1, ..BASE }),
];

/// The same for kernels with a declared score, whose values and positions take registers, and of up to 64 columns for
/// all kernels with features. Not measured.
const SMALL_FEATURES: &[DefaultTiles] = &[
    DefaultTiles::same(64, Tile { m: 128, n: 64, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(128, Tile { m: 64, n: 64, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(192, Tile { m: 64, n: 32, min_blocks_per_sm: 2, ..BASE }),
    DefaultTiles::same(256, Tile { m: 128, n: 32, warps: 8, min_blocks_per_sm: 1, ..BASE }),
];
