//! The plan of a variant: every number a template prints is decided here, where it can be tested. It includes the
//! compiler flags of a kernel, and is independent of the location of nvcc, installed GPUs, files and terminals.

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
    /// Contents of the region: `Q (then O)`, `K`, `V`.
    pub name: String,
    /// The kernel's constant for the offset; `None` if the kernel computes the address from another region's.
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

    /// Consecutive regions, each at a multiple of `alignment` bytes.
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

/// Estimated 32-bit registers a thread needs, by contents.
///
/// In a backward kernel `output` are the accumulators of the gradients and `scores` those of S and dP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RegisterEstimate {
    /// fp32 output accumulator.
    pub output: u32,
    /// fp32 scores of one tile.
    pub scores: u32,
    /// Q fragments kept across the key loop (0 if they are re-read from shared memory).
    pub query: u32,
    /// Operand fragments in flight, addresses, softmax state, loop counters.
    pub other: u32,
    /// Sum of the above.
    pub total: u32,
}

impl RegisterEstimate {
    /// The estimate from these parts.
    pub(crate) fn sum(output: u32, scores: u32, query: u32, other: u32) -> Self {
        Self { output, scores, query, other, total: output + scores + query + other }
    }
}

/// Number of blocks that share one multiprocessor, and the limiting resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Occupancy {
    /// Resident blocks per multiprocessor.
    pub blocks_per_sm: u32,
    /// Resident warps per multiprocessor.
    pub warps_per_sm: u32,
    /// `registers`, `shared memory`, `warps` or `blocks`.
    pub limited_by: &'static str,
}

/// All decisions about one variant before any text is rendered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The requested variant.
    pub variant: Variant,
    /// The GPU that the kernel is compiled for if that is not the variant's target: portable instructions only, for
    /// tests on available hardware.
    pub run_as: Option<Target>,
    /// Template of the kernel, a file in `templates/`.
    pub template: &'static str,
    /// The part specific to the kernel's family: the tile, and values derived from it.
    #[serde(flatten)]
    pub design: AnyDesign,
    /// Threads of a block.
    pub threads: u32,
    /// Shared-memory map.
    pub shared_memory: Vec<Region>,
    /// End of the map (bytes of dynamic shared memory of a launch).
    pub shared_memory_bytes: u32,
    /// Register model.
    pub registers: RegisterEstimate,
    /// Occupancy model, from the two above.
    pub occupancy: Occupancy,
    /// Limits of the target, against which the plan was checked.
    pub limits: Limits,
    /// Tensor-core instructions required in the kernel's machine code.
    pub tensor_core: TensorCore,
}

/// Reasons why a variant has no plan: a resource that is exceeded, or a missing instruction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A resource is exceeded.
    #[error("`{variant}` does not fit: {resource} needs {needed} of {available} {unit}; {remedy}")]
    DoesNotFit {
        /// Variant name.
        variant: String,
        /// `shared memory`, `registers`, `threads`, ...
        resource: &'static str,
        /// The amount that the plan needs.
        needed: u32,
        /// The amount that the target has.
        available: u32,
        /// The unit of the numbers: `bytes`, `registers per thread`, ...
        unit: &'static str,
        /// The remedy.
        remedy: String,
    },
    /// The tile's numbers contradict each other or the instruction's shape.
    #[error("`{variant}` has an impossible tile: {reason}")]
    BadTile {
        /// Variant name.
        variant: String,
        /// The broken rule, with the numbers.
        reason: String,
    },
    /// No template or instruction supports this on this target.
    #[error("`{variant}` cannot be generated: {reason}")]
    Unsupported {
        /// Variant name.
        variant: String,
        /// The reason, and the nearest alternative.
        reason: String,
    },
}

impl Plan {
    /// The target whose compiler flags are used, and whose GPUs run it.
    pub fn compiled_for(&self) -> Target {
        self.run_as.unwrap_or(self.variant.target())
    }
}
