//! The numbers of kernels and GPUs by which the dispatcher predicts times: [`KernelCost`] and [`DEVICES`].
//!
//! They are written into the dispatcher. The formulas stand in `templates/include/kgen/path_cost.cuh`, and nowhere else;
//! what they are and where the numbers come from is said in docs/dispatch.md.

mod device;
mod kernel;

pub use device::{DEVICES, DRAM_PER_MILLE, DeviceRow};
pub use kernel::KernelCost;
