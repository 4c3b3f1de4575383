//! Plan of a transposition: tiles whose rows are long contiguous runs of device memory on both sides, and which fill
//! shared memory so that several blocks share a multiprocessor.

use crate::{
    kernel::{Dtype, Target, TileKey, TileOverride, Variant},
    plan::{self, Limits, Plan, PlanError, Region, RegisterEstimate, Resources, TensorCore, Tiling},
};
use serde::Serialize;
use std::fmt;

/// The keys of a tile.
pub(super) static KEYS: &[TileKey] = &[
    TileKey::count("m", "Elements of a row and of a column of the tile."),
    TileKey::count("n", "Rows of tiles that blocks go down before they go on to the next column."),
    TileKey::count("warps", "Warps per block."),
    TileKey::count("min_blocks_per_sm", "Second argument of `__launch_bounds__`, out of place."),
];

/// Block parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tile {
    /// Elements of a row and of a column of the tile: the key `m`.
    pub side: u32,
    /// Rows of tiles that blocks process from top to bottom before they move to the next column: the key `n`.
    pub group_rows: u32,
    /// Warps of a block.
    pub warps: u32,
    /// Second argument of `__launch_bounds__`, out of place.
    pub min_blocks_per_sm: u32,
}

impl fmt::Display for Tile {
    /// In the form of a table cell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{0}×{0}, {1} warps", self.side, self.warps)
    }
}

/// The tile and values derived from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Design {
    /// Block parameters.
    pub tile: Tile,
    /// Bits per element.
    pub element_bits: u32,
    /// Elements per 32-bit word.
    pub word_elements: u32,
    /// Bytes per row of a tile.
    pub row_bytes: u32,
    /// Bytes of a tile in shared memory.
    pub tile_bytes: u32,
    /// See [`Tile::group_rows`].
    pub group_rows: u32,
    /// True if a kernel may start before the previous one has ended: the target has `griddepcontrol`.
    pub early: bool,
}

/// About 500 blocks run at once on GPUs of a hundred multiprocessors or more; with 16 rows they cover a roughly square
/// region.
const GROUP_ROWS: u32 = 16;

/// Rows of 256 bytes, or 128 for single bytes: a tile of 16 or 32 KB, four or eight 16-byte loads per thread.
fn default_tile(bytes: u32) -> Tile {
    Tile {
        side: if bytes == 4 { 64 } else { 128 },
        group_rows: GROUP_ROWS,
        warps: 8,
        min_blocks_per_sm: if bytes == 2 { 3 } else { 4 },
    }
}

/// Registers of a thread beyond the words in flight: pointers, counts and 64-bit offsets.
const OTHER_REGISTERS: u32 = 30;

impl plan::Design for Design {
    fn tile(&self) -> &dyn plan::Tile {
        &self.tile
    }

    fn tiling(&self, _variant: &Variant) -> Tiling {
        let side = self.tile.side as usize;
        Tiling { m: side, n: side, ..Tiling::default() }
    }
}

/// Plans `variant` with the default tile, modified by `change`.
pub(super) fn plan(variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
    let bad = |reason| PlanError::BadTile { variant: variant.name(), reason };
    if variant.element() == Dtype::Bf16 {
        let reason = "it moves bits: the kernel of `fp16` serves every 16-bit type".to_owned();
        return Err(PlanError::Unsupported { variant: variant.name(), reason });
    }
    let mut tile = default_tile(variant.element().bytes());
    if let Some(change) = change {
        if let Some(reason) = change.refusal(KEYS.iter().map(|key| key.name)) {
            return Err(bad(reason));
        }
        tile = Tile {
            side: change.count("m").unwrap_or(tile.side),
            group_rows: change.count("n").unwrap_or(tile.group_rows),
            warps: change.count("warps").unwrap_or(tile.warps),
            min_blocks_per_sm: change.count("min_blocks_per_sm").unwrap_or(tile.min_blocks_per_sm),
        };
    }
    match broken_rule(variant, &tile) {
        Some(reason) => Err(bad(reason)),
        None => resolve(variant, None, tile),
    }
}

fn broken_rule(variant: Variant, tile: &Tile) -> Option<String> {
    let Tile { side, group_rows, warps, min_blocks_per_sm } = *tile;
    let bytes = variant.element().bytes();
    // Eight pieces of 16 bytes per row, so that eight chunks of a column are in different banks.
    let step = 128 / bytes;
    if side == 0 || !side.is_multiple_of(step) || side > 256 {
        return Some(format!("`m` is {side}; it must be a multiple of {step} up to 256"));
    }
    if !(1..=1024).contains(&group_rows) {
        return Some(format!("`n` is {group_rows}; it must be 1 to 1024"));
    }
    // A warp handles eight pieces of four groups of rows at a time.
    let parts = side * side * bytes * bytes / (16 * 4 * 32);
    if warps == 0 || warps > 32 || !parts.is_multiple_of(warps) {
        return Some(format!("`warps` is {warps}; it must divide {parts} and be at most 32"));
    }
    (min_blocks_per_sm == 0).then(|| "`min_blocks_per_sm` is 0; it must be at least 1".to_owned())
}

/// The plan of `variant` with `tile`, compiled for its own target or another one: the kernel uses no instruction that
/// some target lacks.
fn resolve(variant: Variant, run_as: Option<Target>, tile: Tile) -> Result<Plan, PlanError> {
    let bytes = variant.element().bytes();
    let threads = tile.warps * 32;
    let tile_bytes = tile.side * tile.side * bytes;
    let registers = RegisterEstimate::sum(0, 0, tile_bytes / 4 / threads, OTHER_REGISTERS);
    let resources = Resources {
        threads,
        min_blocks_per_sm: tile.min_blocks_per_sm,
        shared_memory: Region::lay_out([("tile", tile_bytes, None)].into_iter()),
        registers,
        registers_available: Limits::of(run_as.unwrap_or(variant.target())).register_cap(threads, tile.min_blocks_per_sm),
        registers_launched_with: registers.total,
        to_save_shared_memory: "lower `m`".to_owned(),
        to_save_registers: "raise `warps`, or lower `m` or `min_blocks_per_sm`".to_owned(),
    };
    let design = Design {
        tile,
        element_bits: bytes * 8,
        word_elements: 4 / bytes,
        row_bytes: tile.side * bytes,
        tile_bytes,
        group_rows: tile.group_rows,
        early: run_as.unwrap_or(variant.target()).compute_capability() >= 90,
    };
    Plan::resolve(variant, run_as, "transpose/transpose.cu.tera", design, resources, TensorCore::None)
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
    use crate::kernel::{Coordinates, Kind, TileValue};

    fn variant(dtype: Dtype) -> Variant {
        Kind::Transpose.at(&Coordinates { dtype: Some(dtype), ..Coordinates::at(Target::Sm90) })
    }

    #[test]
    fn the_default_of_every_size_has_a_plan_whose_blocks_fit() {
        for (dtype, bytes) in [(Dtype::Fp32, 64 * 64 * 4), (Dtype::Fp16, 128 * 128 * 2), (Dtype::Fp8, 128 * 128)] {
            let plan = Plan::new(variant(dtype), None).expect("it fits");
            assert_eq!((plan.threads, plan.shared_memory_bytes), (256, bytes), "{dtype}");
        }
    }

    #[test]
    fn one_kernel_serves_both_16_bit_types() {
        let error = Plan::new(variant(Dtype::Bf16), None).expect_err("no kernel of its own").to_string();
        assert!(error.contains("`fp16` serves every 16-bit type"), "{error}");
    }

    #[test]
    fn a_tile_that_warps_cannot_share_out_is_refused() {
        let change = TileOverride::default().with(&KEYS[0], TileValue::Count(96));
        assert!(Plan::new(variant(Dtype::Fp16), Some(&change)).expect_err("no multiple").to_string().contains("multiple of 64"));
        let change = TileOverride::default().with(&KEYS[2], TileValue::Count(5));
        assert!(Plan::new(variant(Dtype::Fp16), Some(&change)).expect_err("no divisor").to_string().contains("must divide 32"));
    }
}
