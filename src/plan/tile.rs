//! Tile choice: the defaults per target and head dim, and overrides on top of them.

use super::PlanError;
use crate::grid::{TileOverride, Variant};
use serde::Serialize;

/// Tile sizes and pipeline choices of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tile {
    /// Queries a block.
    pub m: u32,
    /// Keys a step.
    pub n: u32,
    /// Warps of a block; each owns `m / warps` query rows (16 or 32).
    pub warps: u32,
    /// Buffers each for K and V.
    pub kv_stages: u32,
    /// Q fragments live in registers across the key loop.
    pub q_in_registers: bool,
    /// Second argument of `__launch_bounds__`.
    pub min_blocks_per_sm: u32,
    /// Powers of two a row maximum may grow before O is rescaled.
    pub rescale_threshold: u32,
}

impl Tile {
    /// The tile for `variant`: the default of its target and head dim, changed by `tile_override`.
    ///
    /// # Errors
    /// [`PlanError::Unsupported`] where no default exists.
    pub fn choose(_variant: &Variant, _tile_override: Option<&TileOverride>) -> Result<Self, PlanError> {
        unimplemented!()
    }
}
