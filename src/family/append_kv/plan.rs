//! Plan of an append: work per thread, and number of resident blocks per multiprocessor.

use crate::{
    kernel::{Dtype, Target, TileKey, TileOverride, Variant},
    plan::{self, Limits, Plan, PlanError, RegisterEstimate, Resources, TensorCore, Tiling},
};
use serde::Serialize;
use std::fmt;

/// The keys of a tile.
pub(super) static KEYS: &[TileKey] = &[
    TileKey::count("warps", "Warps per block."),
    TileKey::count("stages", "Pairs of rows that a thread has in flight, 1 to 4."),
    TileKey::count("min_blocks_per_sm", "Second argument of `__launch_bounds__`."),
];

/// Block parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tile {
    /// Warps of a block.
    pub warps: u32,
    /// Pairs of rows that a thread has in flight, with two 16-byte pieces of each: the key `stages`.
    pub pairs: u32,
    /// Second argument of `__launch_bounds__`.
    pub min_blocks_per_sm: u32,
}

/// A pair of rows is 64 bytes in flight per thread; 896 threads per multiprocessor make 56 KB, more than the 18 KB that
/// Little's law requires for HBM3 (3.35 TB/s × 0.7 µs / 132), because a thread waits for two or three loads in a row.
/// Few rows per thread and small blocks spread few tokens over many multiprocessors: 64 tokens of 32 heads of Q and 8
/// of K are 96 blocks. With 64 registers, for 8 blocks, the kernel spills.
const DEFAULT: Tile = Tile { warps: 4, pairs: 1, min_blocks_per_sm: 7 };

/// Registers per thread for a share of a row: two pieces.
const SHARE_REGISTERS: u32 = 8;

/// Registers per thread beyond the shares in flight: 16 fp32 values that are rotated, their cosines and sines, 64-bit
/// pointers.
const OTHER_REGISTERS: u32 = 40;

impl fmt::Display for Tile {
    /// In the form of a table cell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pairs, {} warps", self.pairs, self.warps)
    }
}

/// The tile and values derived from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Block parameters.
    pub tile: Tile,
    /// True if the target has instructions that round to FP8.
    pub converts: bool,
    /// True if a kernel may start before the previous one has ended: the target has `griddepcontrol`.
    pub early: bool,
}

impl plan::Design for Design {
    fn tile(&self) -> &dyn plan::Tile {
        &self.tile
    }

    fn tiling(&self, _variant: &Variant) -> Tiling {
        Tiling { n: 2 * self.tile.pairs as usize, ..Tiling::default() }
    }
}

/// Plans `variant` with the default tile, modified by `change`.
pub(super) fn plan(variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
    let bad = |reason| PlanError::BadTile { variant: variant.name(), reason };
    if matches!(variant.element(), Dtype::Fp8 | Dtype::Fp32) {
        let reason = "new rows are `fp16` or `bf16`; what a cache of FP8 stores is converted by the kernel of those".to_owned();
        return Err(PlanError::Unsupported { variant: variant.name(), reason });
    }
    let mut tile = DEFAULT;
    if let Some(change) = change {
        if let Some(reason) = change.refusal(KEYS.iter().map(|key| key.name)) {
            return Err(bad(reason));
        }
        tile = Tile {
            warps: change.count("warps").unwrap_or(tile.warps),
            pairs: change.count("stages").unwrap_or(tile.pairs),
            min_blocks_per_sm: change.count("min_blocks_per_sm").unwrap_or(tile.min_blocks_per_sm),
        };
    }
    match broken_rule(&tile) {
        Some(reason) => Err(bad(reason)),
        None => resolve(variant, None, tile),
    }
}

fn broken_rule(tile: &Tile) -> Option<String> {
    let Tile { warps, pairs, min_blocks_per_sm } = *tile;
    if !(1..=32).contains(&warps) {
        return Some(format!("`warps` is {warps}; it must be 1 to 32"));
    }
    if !(1..=4).contains(&pairs) {
        return Some(format!("`stages` is {pairs}; it must be 1 to 4"));
    }
    (min_blocks_per_sm == 0).then(|| "`min_blocks_per_sm` is 0; it must be at least 1".to_owned())
}

/// The plan of `variant` with `tile`, compiled for its own target or another one: the kernel uses no instruction that
/// some target lacks.
fn resolve(variant: Variant, run_as: Option<Target>, tile: Tile) -> Result<Plan, PlanError> {
    let threads = tile.warps * 32;
    let registers = RegisterEstimate::sum(0, 0, 2 * tile.pairs * SHARE_REGISTERS, OTHER_REGISTERS);
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
    let capability = run_as.unwrap_or(variant.target()).compute_capability();
    let design = Design { tile, converts: capability >= 89, early: capability >= 90 };
    Plan::resolve(variant, run_as, "append_kv/append_kv.cu.tera", design, resources, TensorCore::None)
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
        Kind::AppendKv.at(&Coordinates { dtype: Some(dtype), ..Coordinates::at(Target::Sm90) })
    }

    #[test]
    fn as_many_blocks_share_a_multiprocessor_as_the_tile_asks_for() {
        let plan = Plan::new(variant(Dtype::Bf16), None).expect("it fits");
        assert_eq!(plan.threads, 128);
        assert!(plan.occupancy.blocks_per_sm >= DEFAULT.min_blocks_per_sm, "{:?}", plan.occupancy);
    }

    #[test]
    fn a_target_without_fp8_instructions_rounds_by_arithmetic() {
        let converts = |target| {
            let plan = Plan::new(Kind::AppendKv.at(&Coordinates { target, ..variant(Dtype::Bf16).coordinates() }), None)
                .expect("it fits");
            plan.design_as::<Design>().is_some_and(|design| design.converts)
        };
        assert_eq!([Target::Sm80, Target::Sm90].map(converts), [false, true]);
    }

    #[test]
    fn a_tile_key_that_is_not_read_is_refused_with_those_that_are() {
        let change = TileOverride::from(&TileChange { overlap: Some(true), ..TileChange::default() });
        let message = Plan::new(variant(Dtype::Bf16), Some(&change)).expect_err("not read").to_string();
        assert!(message.contains("`overlap`") && message.contains("`warps`, `stages`, `min_blocks_per_sm`"), "{message}");
    }

    #[test]
    fn only_16_bit_rows_are_appended() {
        for dtype in [Dtype::Fp8, Dtype::Fp32] {
            let variant = variant(dtype);
            assert!(Plan::new(variant, None).expect_err("no such kernel").to_string().contains("`fp16` or `bf16`"));
        }
    }
}
