//! How rows are reduced: every thread has enough loads in flight to hide the latency of memory, and what a block reads
//! depends on the length of a row alone.

use super::operation::Operation;
use crate::{
    family::pieces::{PIECE_BYTES, Tile},
    kernel::{Dtype, Target, TileOverride, Variant},
    plan::{self, Limits, Plan, PlanError, Region, RegisterEstimate, Resources, TensorCore, Tiling},
};
use serde::Serialize;

/// 4 pieces are 64 bytes per thread in flight, and 1024 threads a multiprocessor 64 KB: more than Little's law asks of
/// HBM3 (3.35 TB/s × 0.7 µs / 132 = 18 KB).
const DEFAULT: Tile = Tile { warps: 8, pieces: 4, min_blocks_per_sm: 4 };

/// Bytes of the largest state: a maximum and a sum.
const STATE_BYTES: u32 = 8;

/// Registers of a thread beyond the values in flight: 64-bit pointers and counts, the state.
const OTHER_REGISTERS: u32 = 24;

/// Rounds of loads in a chunk: enough for a block to pay off, few enough for rows of a million elements to fill a GPU,
/// and for 64 MiB to be two waves of blocks: with a single wave, nothing fills the tail.
const ROUNDS: u32 = 4;

/// Rounds of loads in the longest row that one block reads: a second kernel costs more than they do.
const WHOLE_ROUNDS: u32 = 8;

/// Blocks that share a multiprocessor where a row takes one round: nothing is in flight while they fold, so there must
/// be more of them. logsumexp looks at its elements twice and needs more registers.
const fn one_round_blocks(operation: Operation) -> u32 {
    if matches!(operation, Operation::Logsumexp) { 5 } else { 6 }
}

/// Rounds of loads of a warp in the longest row that it reduces by itself. A block that folds so little takes longer to
/// fold its warps than to read; more rounds would leave a GPU idle where rows are few.
const SHORT_ROUNDS: u32 = 4;

/// Tile, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Sizes of a block.
    pub tile: Tile,
    /// Elements of a row that a block reads, where several read it.
    pub chunk: u32,
    /// Elements of a row, at most, that one block reads.
    pub whole_row: u32,
    /// Warps of a block, or the next power of two: lanes fold as many states by butterflies.
    pub warps_to_fold: u32,
    /// `__launch_bounds__` of the kernel of rows that take one round.
    pub one_round_blocks: u32,
    /// Elements of a row, at most, that a warp reads by itself.
    pub short_row: u32,
    /// Whether a kernel is started before the one before it has ended: the target has `griddepcontrol`.
    pub early: bool,
}

impl plan::Design for Design {
    fn tile(&self) -> &dyn plan::Tile {
        &self.tile
    }

    fn tiling(&self, _variant: &Variant) -> Tiling {
        Tiling { m: self.short_row as usize, n: self.whole_row as usize, ..Tiling::default() }
    }
}

/// Plans `variant` with the default tile, changed by `change`.
pub(super) fn plan(variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
    if variant.element() == Dtype::Fp8 {
        let reason = "rows are reduced of `fp32`, `fp16` or `bf16`".to_owned();
        return Err(PlanError::Unsupported { variant: variant.name(), reason });
    }
    let tile = DEFAULT.changed_by(change).map_err(|reason| PlanError::BadTile { variant: variant.name(), reason })?;
    resolve(variant, None, tile)
}

/// The plan of `variant` with `tile`, compiled for its own target or another one: the kernel uses nothing that a target
/// lacks.
fn resolve(variant: Variant, run_as: Option<Target>, tile: Tile) -> Result<Plan, PlanError> {
    let threads = tile.warps * 32;
    // Two rounds: one is on its way while the other is folded.
    let registers = RegisterEstimate::sum(0, 0, 2 * tile.pieces * PIECE_BYTES / 4, OTHER_REGISTERS);
    let resources = Resources {
        threads,
        min_blocks_per_sm: tile.min_blocks_per_sm,
        shared_memory: Region::lay_out([("states of warps", tile.warps * STATE_BYTES, None)].into_iter()),
        registers,
        registers_available: Limits::of(run_as.unwrap_or(variant.target())).register_cap(threads, tile.min_blocks_per_sm),
        registers_launched_with: registers.total,
        to_save_shared_memory: "lower `warps`".to_owned(),
        to_save_registers: "lower `stages`, `warps` or `min_blocks_per_sm`".to_owned(),
    };
    let elements = tile.pieces * PIECE_BYTES / variant.element().bytes();
    let early = run_as.unwrap_or(variant.target()).compute_capability() >= 90;
    let more_blocks =
        if tile.pieces <= DEFAULT.pieces { one_round_blocks(Operation::of(&variant)).min(1536 / threads) } else { 0 };
    let design = Design {
        tile,
        chunk: threads * elements * ROUNDS,
        whole_row: threads * elements * WHOLE_ROUNDS,
        warps_to_fold: tile.warps.next_power_of_two(),
        one_round_blocks: more_blocks.max(tile.min_blocks_per_sm),
        short_row: 32 * elements * SHORT_ROUNDS,
        early,
    };
    Plan::resolve(variant, run_as, "reduce/reduce.cu.tera", design, resources, TensorCore::None)
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
        Kind::ReduceSum.at(&Coordinates { dtype: Some(dtype), ..Coordinates::at(Target::Sm90) })
    }

    #[test]
    fn a_row_of_eight_rounds_of_loads_takes_one_block() {
        let plan = Plan::new(variant(Dtype::Bf16), None).expect("it fits");
        assert_eq!((plan.threads, plan.tiling().n), (256, 256 * 4 * 8 * 8));
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
        assert!(Plan::new(variant, None).expect_err("no such kernel").to_string().contains("`fp32`, `fp16` or `bf16`"));
    }
}
