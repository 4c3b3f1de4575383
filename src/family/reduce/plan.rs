//! Plan of a reduction: every thread has enough loads in flight to hide memory latency, and the elements that a block
//! reads depend only on the row length.

use super::operation::Operation;
use crate::{
    family::pieces::{PIECE_BYTES, Tile},
    kernel::{Dtype, Target, TileOverride, Variant},
    plan::{self, Limits, Plan, PlanError, Region, RegisterEstimate, Resources, TensorCore, Tiling},
};
use serde::Serialize;

/// 4 pieces are 64 bytes in flight per thread; 1024 threads per multiprocessor make 64 KB, more than the 18 KB that
/// Little's law requires for HBM3 (3.35 TB/s × 0.7 µs / 132).
const DEFAULT: Tile = Tile { warps: 8, pieces: 4, min_blocks_per_sm: 4 };

/// Bytes of the largest state: a maximum and a sum.
const STATE_BYTES: u32 = 8;

/// Registers of a thread beyond the values in flight: 64-bit pointers and counts, the state.
const OTHER_REGISTERS: u32 = 24;

/// Rounds of loads per chunk: enough to amortise the start of a block, and so few that rows of a million elements fill
/// a GPU and 64 MiB are two waves of blocks. With a single wave, multiprocessors whose blocks end early are idle.
const ROUNDS: u32 = 4;

/// Rounds of loads in the longest row that one block reads: a second kernel would cost more than these rounds.
const WHOLE_ROUNDS: u32 = 8;

/// Resident blocks per multiprocessor for rows of one round: nothing is in flight while they fold, so more blocks are
/// needed. logsumexp reads its elements twice and needs more registers.
const fn one_round_blocks(operation: Operation) -> u32 {
    if matches!(operation, Operation::Logsumexp) { 5 } else { 6 }
}

/// Rounds of loads in the longest row that a warp reduces alone. For such a row a block takes longer to fold its warps
/// than to read; more rounds would leave a GPU idle if there are few rows.
const SHORT_ROUNDS: u32 = 4;

/// The tile and values derived from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Block parameters.
    pub tile: Tile,
    /// Elements of a row that a block reads, if several blocks share a row.
    pub chunk: u32,
    /// Maximum number of elements of a row that one block reads.
    pub whole_row: u32,
    /// Warps of a block, rounded up to a power of two: lanes fold this many states by butterflies.
    pub warps_to_fold: u32,
    /// `__launch_bounds__` of the kernel for rows of one round.
    pub one_round_blocks: u32,
    /// Maximum number of elements of a row that one warp reads.
    pub short_row: u32,
    /// True if a kernel may start before the previous one has ended: the target has `griddepcontrol`.
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

/// Plans `variant` with the default tile, modified by `change`.
pub(super) fn plan(variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
    if variant.element() == Dtype::Fp8 {
        let reason = "rows are reduced of `fp32`, `fp16` or `bf16`".to_owned();
        return Err(PlanError::Unsupported { variant: variant.name(), reason });
    }
    let tile = DEFAULT.changed_by(change).map_err(|reason| PlanError::BadTile { variant: variant.name(), reason })?;
    resolve(variant, None, tile)
}

/// The plan of `variant` with `tile`, compiled for its own target or another one: the kernel uses no instruction that
/// some target lacks.
fn resolve(variant: Variant, run_as: Option<Target>, tile: Tile) -> Result<Plan, PlanError> {
    let threads = tile.warps * 32;
    // Two rounds: one is in flight while the other is folded.
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
