//! How a variant will be done: every number a template prints is decided here, where it can be tested.
//! Knows which flags a kernel is compiled with, and nothing of where nvcc is, GPUs present, files or terminals.

mod compile;
mod limits;
mod model;
mod tensor_core;
mod tile;

pub use compile::{EVERY_NEWER_GPU, newest_for_machine_code, newest_with_ptx, nvcc_flags, runs_on, shell_words};
pub use limits::Limits;
pub use tensor_core::TensorCore;
pub use tile::Tile;

use crate::grid::{TileOverride, Variant};
use serde::Serialize;

/// The instruction family a kernel is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InstructionPath {
    /// `mma.sync` m16n8k16, `cp.async`, `ldmatrix`: `sm_80` and everything newer.
    MmaSync,
}

impl InstructionPath {
    /// File stem of its template below `templates/flash/` for forward attention: `fwd_<stem>.cu.tera`.
    pub fn template_stem(self) -> &'static str {
        match self {
            Self::MmaSync => "sm80",
        }
    }
}

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

/// Estimated 32-bit registers a thread needs, by what they hold.
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
    /// Instruction family.
    pub path: InstructionPath,
    /// Tile sizes and pipeline choices.
    pub tile: Tile,
    /// Threads of a block.
    pub threads: u32,
    /// Query rows each warp owns.
    pub rows_per_warp: u32,
    /// `head_dim` rounded up to the MMA's K (16): the width of Q, K and V tiles in shared memory.
    pub head_dim_padded: u32,
    /// Column panels of every tile in shared memory.
    pub panels: Vec<Panel>,
    /// Shared-memory map.
    pub shared_memory: Vec<Region>,
    /// Sum of the map (bytes of dynamic shared memory a launch asks for).
    pub shared_memory_bytes: u32,
    /// Register model.
    pub registers: RegisterEstimate,
    /// Occupancy model, from the two above.
    pub occupancy: Occupancy,
    /// Limits of the target the plan was checked against.
    pub limits: Limits,
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
        let tile = Tile::choose(&variant, tile_override)?;
        model::resolve(variant, tile)
    }

    /// The tensor-core instructions its machine code has to be made of.
    pub fn tensor_core(&self) -> TensorCore {
        match self.path {
            InstructionPath::MmaSync => TensorCore::Hmma,
        }
    }
}
