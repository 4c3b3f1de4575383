//! How a variant will be done: every number a template prints is decided here, where it can be tested.
//! Knows which flags a kernel is compiled with, and nothing of where nvcc is, GPUs present, files or terminals.

mod bwd;
mod compile;
mod fp8;
mod fwd;
mod fwd_sm75;
mod fwd_tiles;
mod gpus;
mod helpers;
mod hopper;
mod hopper_fp8;
mod hopper_short;
mod limits;
mod model;
mod recipe;
mod split;
mod tensor_core;
mod tile;

pub use bwd::Backward;
pub use compile::{EVERY_NEWER_GPU, newest_for_machine_code, newest_with_ptx, nvcc_flags, runs_on, shell_words};
pub use fp8::{ByteTransposition, Fp8Choices};
pub use gpus::{GPUS, Gpu, capabilities_of_machine_code, capability_text, gpus_of_machine_code, where_files_run};
pub use hopper::Hopper;
pub use limits::Limits;

pub use tensor_core::TensorCore;
pub use tile::Tile;

use crate::grid::{Target, TileOverride, Variant};
use recipe::Recipe;
use serde::Serialize;

/// A run of columns of a shared-memory tile, stored as a block of its own: rows of 128, 64 or 32 bytes, each with
/// the swizzle that makes eight consecutive rows of one 16-byte column hit eight different bank groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Panel {
    /// First column (elements).
    pub first_column: u32,
    /// Width in elements: 64, 32 or 16.
    pub columns: u32,
}

/// One named piece of a block's shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// What lies there: `Q (then O)`, `K`, `V`.
    pub name: String,
    /// The kernel's name for the offset; none where the kernel reaches the region from another one's.
    pub constant: Option<&'static str>,
    /// Bytes from the start of the block's shared memory.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

impl Region {
    /// Regions one behind the other, from their names, sizes in bytes and constants.
    fn lay_out(regions: impl Iterator<Item = (impl Into<String>, u32, Option<&'static str>)>) -> Vec<Self> {
        Self::lay_out_aligned(regions, 1)
    }

    /// The same, each at a multiple of `alignment` bytes.
    fn lay_out_aligned(
        regions: impl Iterator<Item = (impl Into<String>, u32, Option<&'static str>)>,
        alignment: u32,
    ) -> Vec<Self> {
        let mut end: u32 = 0;
        let place = |(name, bytes, constant): (_, u32, _)| {
            let offset = end.next_multiple_of(alignment);
            end = offset + bytes;
            Self { name: Into::into(name), constant, offset, bytes }
        };
        regions.map(place).collect()
    }
}

/// Estimated 32-bit registers a thread needs, by what they hold.
///
/// In a backward kernel `output` are the accumulators of the gradients and `scores` those of S and dP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterEstimate {
    /// fp32 output accumulator.
    pub output: u32,
    /// fp32 scores of one tile.
    pub scores: u32,
    /// Q fragments kept across the key loop (0 when they are re-read from shared memory).
    pub query: u32,
    /// Operand fragments in flight, addresses, softmax state, loop counters.
    pub other: u32,
    /// Sum of the above.
    pub total: u32,
}

impl RegisterEstimate {
    /// The estimate of these parts.
    fn sum(output: u32, scores: u32, query: u32, other: u32) -> Self {
        Self { output, scores, query, other, total: output + scores + query + other }
    }
}

/// How many blocks share one multiprocessor, and what stops more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Occupancy {
    /// Resident blocks per multiprocessor.
    pub blocks_per_sm: u32,
    /// Resident warps per multiprocessor.
    pub warps_per_sm: u32,
    /// `registers`, `shared memory`, `warps` or `blocks`.
    pub limited_by: &'static str,
}

/// Everything decided about one variant before any text is rendered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What is asked for.
    pub variant: Variant,
    /// The GPU it is compiled for where that is not the variant's target: portable instructions only, to be tried on
    /// hardware at hand.
    pub run_as: Option<Target>,
    /// Its template, a file below `templates/flash/`.
    pub template: &'static str,
    /// Tile sizes and pipeline choices.
    pub tile: Tile,
    /// Threads of a block.
    pub threads: u32,
    /// Query rows each warp owns.
    pub rows_per_warp: u32,
    /// `head_dim` rounded up to the MMA's K (16, with FP8 32): the width of Q, K and V tiles in shared memory.
    pub head_dim_padded: u32,
    /// Column panels of every tile in shared memory.
    pub panels: Vec<Panel>,
    /// Shared-memory map.
    pub shared_memory: Vec<Region>,
    /// End of the map (bytes of dynamic shared memory a launch asks for).
    pub shared_memory_bytes: u32,
    /// Register model.
    pub registers: RegisterEstimate,
    /// Occupancy model, from the two above.
    pub occupancy: Occupancy,
    /// Limits of the target the plan was checked against.
    pub limits: Limits,
    /// What its machine code must hold.
    pub tensor_core: TensorCore,
    /// FP8 kernels only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp8: Option<Fp8Choices>,
    /// What a backward kernel has besides.
    pub backward: Option<Backward>,
    /// What a kernel with `wgmma` has besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hopper: Option<Hopper>,
}

/// Why a variant has no plan: the number that does not fit, or the instruction that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A resource is exceeded.
    #[error("`{variant}` does not fit: {resource} needs {needed} of {available} {unit}; {remedy}")]
    DoesNotFit {
        /// Variant name.
        variant: String,
        /// `shared memory`, `registers`, `threads`, ...
        resource: &'static str,
        /// What the plan needs.
        needed: u32,
        /// What the target has.
        available: u32,
        /// `bytes`, `registers per thread`, ...
        unit: &'static str,
        /// What to change.
        remedy: String,
    },
    /// The tile's numbers contradict each other or the instruction's shape.
    #[error("`{variant}` has an impossible tile: {reason}")]
    BadTile {
        /// Variant name.
        variant: String,
        /// Which rule is broken, with the numbers.
        reason: String,
    },
    /// No template or instruction does this on this target.
    #[error("`{variant}` cannot be generated: {reason}")]
    Unsupported {
        /// Variant name.
        variant: String,
        /// Why, and the nearest thing that works.
        reason: String,
    },
}

impl Plan {
    /// Plans `variant` with its default tile, or with `tile_override` where `variants.toml` holds one.
    ///
    /// # Errors
    /// [`PlanError`] when the target cannot run it or a resource is exceeded.
    pub fn new(variant: Variant, tile_override: Option<&TileOverride>) -> Result<Self, PlanError> {
        let recipe = recipe(variant)?;
        let tile = Tile::choose(variant, recipe, tile_override)?;
        model::resolve(variant, None, recipe, tile)
    }

    /// The same kernel compiled for `target` instead of its own, as near to this plan as the instructions that both have
    /// allow.
    ///
    /// # Errors
    /// [`PlanError`] where the kernel has no such form, or does not fit there.
    pub fn to_run_as(&self, target: Target) -> Result<Self, PlanError> {
        let recipe = recipe(self.variant)?;
        let tile = recipe.portable(self.variant, self.tile, target);
        let tile = tile.map_err(|reason| PlanError::Unsupported { variant: self.variant.name(), reason })?;
        model::resolve(self.variant, Some(target), recipe, tile)
    }

    /// The target whose compiler flags make it, and whose GPUs run it.
    pub fn compiled_for(&self) -> Target {
        self.run_as.unwrap_or(self.variant.target)
    }
}

/// Whether the kernel of `variant` reads Q, K and V by TMA alone, and so refuses tensors that TMA does not take.
pub fn needs_tma(variant: Variant) -> bool {
    recipe(variant).is_ok_and(Recipe::needs_tma)
}

fn recipe(variant: Variant) -> Result<&'static dyn Recipe, PlanError> {
    recipe::recipe_of(variant).map_err(|reason| PlanError::Unsupported { variant: variant.name(), reason })
}
