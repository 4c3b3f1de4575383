//! How a variant will be done: every number a template prints is decided here, where it can be tested.
//! Knows which flags a kernel is compiled with, and nothing of where nvcc is, GPUs present, files or terminals.

mod compile;
mod design;
mod gpus;
mod limits;
mod model;
mod tensor_core;
mod tiling;

pub use compile::{EVERY_NEWER_GPU, newest_for_machine_code, newest_with_ptx, nvcc_flags, runs_on, shell_words};
pub use design::{AnyDesign, Design, Tile};
pub use gpus::{capabilities_of_machine_code, gpus_of_machine_code, target_for, where_files_run};
pub use limits::Limits;
pub(crate) use model::Resources;
pub use tensor_core::TensorCore;
pub use tiling::Tiling;

use crate::kernel::{Target, Variant};
use serde::Serialize;

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
    /// Consecutive regions, from their names, sizes in bytes and constants.
    pub(crate) fn lay_out(regions: impl Iterator<Item = (impl Into<String>, u32, Option<&'static str>)>) -> Vec<Self> {
        Self::lay_out_aligned(regions, 1)
    }

    /// The same, each at a multiple of `alignment` bytes.
    pub(crate) fn lay_out_aligned(
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
    pub(crate) fn sum(output: u32, scores: u32, query: u32, other: u32) -> Self {
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
    /// Its template, a file below `templates/`.
    pub template: &'static str,
    /// What only its family knows: the tile, and what follows from it.
    #[serde(flatten)]
    pub design: AnyDesign,
    /// Threads of a block.
    pub threads: u32,
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
    /// The target whose compiler flags make it, and whose GPUs run it.
    pub fn compiled_for(&self) -> Target {
        self.run_as.unwrap_or(self.variant.target())
    }
}
