//! Plan of a normalisation: the part of a row that threads have pieces in flight for stays in registers.

use crate::{
    family::pieces::{PIECE_BYTES, Tile},
    kernel::{Dtype, Target, TileOverride, Variant},
    plan::{self, Limits, Plan, PlanError, Region, RegisterEstimate, Resources, TensorCore, Tiling},
};
use serde::Serialize;

/// 4 pieces of two matrices are 128 bytes in flight per thread; 1024 threads per multiprocessor make 128 KB, more than
/// the 18 KB that Little's law requires for HBM3 (3.35 TB/s × 0.7 µs / 132), because nothing is in flight while a row
/// is folded.
const DEFAULT: Tile = Tile { warps: 8, pieces: 4, min_blocks_per_sm: 4 };

/// Registers of a thread beyond the pieces: five 64-bit pointers, columns, the sum.
const OTHER_REGISTERS: u32 = 24;

/// The tile and values derived from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Block parameters.
    pub tile: Tile,
    /// Maximum number of elements of a row that one warp handles.
    pub short_row: u32,
    /// Maximum number of elements of a row that a block keeps in registers.
    pub held_row: u32,
    /// True if a kernel may start before the previous one has ended: the target has `griddepcontrol`.
    pub early: bool,
}

impl plan::Design for Design {
    fn tile(&self) -> &dyn plan::Tile {
        &self.tile
    }

    fn tiling(&self, _variant: &Variant) -> Tiling {
        Tiling { m: self.short_row as usize, n: self.held_row as usize, ..Tiling::default() }
    }
}

/// Plans `variant` with the default tile, modified by `change`.
pub(super) fn plan(variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
    if !matches!(variant.element(), Dtype::Fp16 | Dtype::Bf16) {
        let reason = "rows are normalised in `fp16` or `bf16`".to_owned();
        return Err(PlanError::Unsupported { variant: variant.name(), reason });
    }
    let tile = DEFAULT.changed_by(change).map_err(|reason| PlanError::BadTile { variant: variant.name(), reason })?;
    resolve(variant, None, tile)
}

/// The plan of `variant` with `tile`, compiled for its own target or another one: the kernel uses no instruction that
/// some target lacks.
pub(super) fn resolve(variant: Variant, run_as: Option<Target>, tile: Tile) -> Result<Plan, PlanError> {
    let (threads, target) = (tile.warps * 32, run_as.unwrap_or(variant.target()));
    let registers = RegisterEstimate::sum(0, 0, 2 * tile.pieces * PIECE_BYTES / 4, OTHER_REGISTERS);
    let resources = Resources {
        threads,
        min_blocks_per_sm: tile.min_blocks_per_sm,
        shared_memory: Region::lay_out([("sums of warps", tile.warps * 4, None)].into_iter()),
        registers,
        registers_available: Limits::of(target).register_cap(threads, tile.min_blocks_per_sm),
        registers_launched_with: registers.total,
        to_save_shared_memory: "lower `warps`".to_owned(),
        to_save_registers: "lower `stages`, `warps` or `min_blocks_per_sm`".to_owned(),
    };
    let elements = tile.pieces * PIECE_BYTES / variant.element().bytes();
    let early = target.compute_capability() >= 90;
    let design = Design { tile, short_row: 32 * elements, held_row: threads * elements, early };
    Plan::resolve(variant, run_as, "rmsnorm/rmsnorm.cu.tera", design, resources, TensorCore::None)
}
