//! Parameters with which the dispatcher predicts times: [`KernelCost`] and [`DEVICES`].
//!
//! They are written into the dispatcher. The formulas are only in `templates/include/kgen/path_cost.cuh`.
//! docs/dispatch.md explains them and the origin of the numbers.

mod device;
mod kernel;

pub use device::{DEVICES, DRAM_PER_MILLE, DeviceRow};
pub use kernel::KernelCost;
