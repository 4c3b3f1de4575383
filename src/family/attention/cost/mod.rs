//! Parameters with which times are predicted: [`KernelCost`] and [`DEVICES`], which are written into the dispatcher,
//! and [`estimate`], which predicts the time of one kernel.
//!
//! The formulas are only in `templates/include/kgen/path_cost.cuh`. docs/dispatch.md explains them and the origin of
//! the numbers.

mod device;
mod estimate;
mod kernel;
mod packed;
mod shipped;

pub use device::{DEVICES, DeviceRow};
pub use estimate::{estimate, estimate_packed};
pub use kernel::KernelCost;
