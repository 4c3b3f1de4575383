//! Parameters with which the dispatcher predicts times: [`KernelCost`] and [`DEVICES`].
//!
//! They are written into the dispatcher. The formulas stand in `templates/include/kgen/path_cost.cuh`, and nowhere
//! else. docs/dispatch.md explains them, and where the numbers come from.

mod device;
mod kernel;

pub use device::{DEVICES, DRAM_PER_MILLE, DeviceRow};
pub use kernel::KernelCost;
