//! Recipes of attention kernels, one per template, and their assignment to kernels.

mod bwd;
mod candidates;
mod defaults;
mod fp8;
mod fwd;
mod fwd_sm75;
mod helpers;
mod hopper;
mod hopper_bwd;
mod hopper_fp8;
mod hopper_short;
mod ladder;
mod mla;
mod recipe;
mod registry;
mod resolve;
mod shared_keys;
mod split;
mod staged_elements;
mod tile;

pub(super) use candidates::candidates;
pub(super) use ladder::rungs;
pub(super) use resolve::{plan, to_run_as};
pub(super) use staged_elements::STAGED_OFFSET;
pub use tile::Tile;

use super::{
    CopyPath, Fp8Mma, Kind, KvFormat, Point, StorePath, Turns,
    design::{Backward, ByteTransposition, DeterministicTile, Fp8Choices, Hopper, Kv, KvColumns, KvSource},
};
use crate::{
    grid::TileRow,
    plan::{Limits, PlanError, Region, RegisterEstimate, TensorCore},
};
use recipe::Recipe;
use registry::recipe_of;

/// The rows of `tiles/` that determine the default tile of `point`, the last of which wins.
pub(super) fn tile_rows(point: Point) -> Vec<&'static TileRow> {
    let file = recipe_of(point).ok().and_then(Recipe::tiles);
    let rows = file.map(|file| file.table.rows()).unwrap_or_default();
    rows.iter().filter(|row| row.matches(&point.into())).collect()
}

/// True if there is a kernel for `point` without one of its features.
pub(super) fn lacks_a_feature(point: Point) -> bool {
    recipe_of(point).is_ok_and(|recipe| point.features.iter().any(|feature| !recipe.features().has(feature)))
}

/// True if the kernel of `point` loads Q, K and V by TMA only, so that it refuses tensors that TMA does not support.
pub(super) fn needs_tma(point: Point) -> bool {
    recipe_of(point).is_ok_and(Recipe::needs_tma)
}
