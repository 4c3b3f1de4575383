//! Plan of a sum of vectors: every thread has enough loads in flight to hide memory latency.

use crate::{
    family::pieces::{PIECE_BYTES, Tile},
    kernel::{Dtype, Target, TileOverride, Variant},
    plan::{self, Limits, Plan, PlanError, RegisterEstimate, Resources, TensorCore, Tiling},
};
use serde::Serialize;

/// Two vectors of 2 pieces each are 64 bytes in flight per thread; 1280 threads per multiprocessor make 80 KB, several
/// times the 18 KB that Little's law requires for HBM3 (3.35 TB/s × 0.7 µs / 132). More would only spread concurrent
/// reads over more pages of device memory, and lengthen the last wave of blocks.
const DEFAULT: Tile = Tile { warps: 8, pieces: 2, min_blocks_per_sm: 5 };

/// Registers of a thread beyond the pieces: three 64-bit pointers, two counts, the index.
const OTHER_REGISTERS: u32 = 24;

/// The tile and values derived from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Block parameters.
    pub tile: Tile,
    /// Elements that a block adds.
    pub elements: u32,
    /// True if a kernel may start before the previous one has ended: the target has `griddepcontrol`.
    pub early: bool,
}

impl plan::Design for Design {
    fn tile(&self) -> &dyn plan::Tile {
        &self.tile
    }

    fn tiling(&self, _variant: &Variant) -> Tiling {
        Tiling { n: self.elements as usize, ..Tiling::default() }
    }
}

/// Plans `variant` with the default tile, modified by `change`.
pub(super) fn plan(variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
    if variant.element() == Dtype::Fp8 {
        let reason = "vectors are added in `fp32`, `fp16` or `bf16`".to_owned();
        return Err(PlanError::Unsupported { variant: variant.name(), reason });
    }
    let tile = DEFAULT.changed_by(change).map_err(|reason| PlanError::BadTile { variant: variant.name(), reason })?;
    resolve(variant, None, tile)
}

/// The plan of `variant` with `tile`, compiled for its own target or another one: the kernel uses no instruction that
/// some target lacks.
fn resolve(variant: Variant, run_as: Option<Target>, tile: Tile) -> Result<Plan, PlanError> {
    let threads = tile.warps * 32;
    let registers = RegisterEstimate::sum(0, 0, 2 * tile.pieces * PIECE_BYTES / 4, OTHER_REGISTERS);
    let resources = Resources {
        threads,
        min_blocks_per_sm: tile.min_blocks_per_sm,
        shared_memory: Vec::new(),
        registers,
        registers_available: Limits::of(run_as.unwrap_or(variant.target())).register_cap(threads, tile.min_blocks_per_sm),
        registers_launched_with: registers.total,
        to_save_shared_memory: String::new(),
        to_save_registers: "lower `stages`, `warps` or `min_blocks_per_sm`".to_owned(),
    };
    let early = run_as.unwrap_or(variant.target()).compute_capability() >= 90;
    let design = Design { tile, elements: threads * tile.pieces * PIECE_BYTES / variant.element().bytes(), early };
    Plan::resolve(variant, run_as, "vector_add/vector_add.cu.tera", design, resources, TensorCore::None)
}

/// The kernel of `plan`, compiled for another target.
///
/// # Panics
/// If the plan is of another family.
pub(super) fn to_run_as(plan: &Plan, target: Target) -> Result<Plan, PlanError> {
    let design: &Design = plan.own_design();
    resolve(plan.variant, Some(target), design.tile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::TileChange;
    use crate::kernel::{Coordinates, Kind};

    fn variant(dtype: Dtype) -> Variant {
        Kind::VectorAdd.at(&Coordinates { dtype: Some(dtype), ..Coordinates::at(Target::Sm90) })
    }

    #[test]
    fn a_block_adds_its_threads_pieces() {
        let plan = Plan::new(variant(Dtype::Bf16), None).expect("it fits");
        assert_eq!((plan.threads, plan.tiling().n), (256, 256 * 2 * 8));
        assert!(plan.occupancy.blocks_per_sm >= DEFAULT.min_blocks_per_sm, "{:?}", plan.occupancy);
    }

    #[test]
    fn a_tile_key_that_is_not_read_is_refused_with_those_that_are() {
        let change = TileOverride::from(&TileChange { overlap: Some(true), ..TileChange::default() });
        let message = Plan::new(variant(Dtype::Bf16), Some(&change)).expect_err("not read").to_string();
        assert!(message.contains("`overlap`") && message.contains("`warps`, `stages`, `min_blocks_per_sm`"), "{message}");
    }

    #[test]
    fn fp8_is_refused() {
        let variant = variant(Dtype::Fp8);
        assert!(Plan::new(variant, None).expect_err("no such sum").to_string().contains("`fp32`, `fp16` or `bf16`"));
    }
}
