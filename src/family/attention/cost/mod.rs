//! How long each path of `kgen_fwd` takes, and which one it therefore chooses.
//!
//! The dispatcher evaluates the same formulas (`templates/include/kgen/path_cost.cuh`) with the numbers of
//! [`KernelCost`] and [`DeviceCost`], which are written into it. `tests/library/dispatch.rs` compares the two.
//! Formulas, numbers and their sources: docs/dispatch.md.

mod device;
mod kernel;
#[cfg(test)]
mod measured;
mod paths;
mod predict;

pub use device::{DEVICES, DRAM_PER_MILLE, DeviceCost, DeviceRow};
pub use kernel::KernelCost;
pub use paths::{Candidate, Held, Kernels, Path, PathTimes, chosen, weigh};
pub use predict::{Lengths, Request, Sharing, Times};
