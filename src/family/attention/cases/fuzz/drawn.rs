//! A call of a family other than attention. Kind, element type and size set the distribution; the seed selects the
//! call.

use super::call::{CallResult, run_twice};
use crate::{
    check::Case,
    device::{Device, Order},
    family,
    kernel::{Axis, Coordinates, Kind},
    kernel::{Dtype, Target, Variant},
};
use std::fmt;

/// Maximum size drawn by a run.
pub const LARGEST: u32 = 64;

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawnCall {
    /// Kernel kind, one that its family can draw calls of.
    pub kind: Kind,
    /// Element type of the inputs.
    pub dtype: Dtype,
    /// Approximate size, from 1 to [`LARGEST`].
    pub size: u32,
    /// Repeats the call, on the emulator with this order of threads, and compares the bits.
    pub again: Option<Order>,
    /// Seed of the call and of the emulator's thread order.
    pub seed: u64,
    /// Compute capability of the emulated device, `major * 10 + minor`; ignored on a GPU.
    pub capability: Option<u32>,
}

/// The call that is drawn for a kind, if calls are drawn for it.
pub fn case_of(kind: Kind, dtype: Dtype, size: u32, seed: u64) -> Option<Box<dyn Case>> {
    if kind.info().axes != [Axis::Dtype] {
        return None;
    }
    // The call goes to the dispatcher and is the same for each target.
    let at = Coordinates { head_dim: None, dtype: Some(dtype), causal: None, features: None, target: Target::Sm80 };
    family::of(kind).random_case(&kind.at(&at), size, seed)
}

/// True if calls are drawn for a kernel.
pub fn draws_calls(variant: Variant) -> bool {
    variant.dtype().is_some() && family::of(variant.kind()).random_case(&variant, 1, 0).is_some()
}

impl DrawnCall {
    /// The dispatcher's function.
    pub fn function(&self) -> &'static str {
        self.kind.info().function()
    }

    /// True if a kernel can compute it, regardless of the device.
    pub fn is_served_by(&self, variant: Variant) -> bool {
        variant.kind() == self.kind && variant.dtype() == Some(self.dtype)
    }

    /// The reason why the call is invalid, if it is.
    pub fn complaint(&self) -> Option<String> {
        match self.size {
            1..=LARGEST if case_of(self.kind, self.dtype, self.size, self.seed).is_some() => None,
            1..=LARGEST => Some(format!("no calls of `{}` are drawn for {}", self.kind, self.dtype)),
            size => Some(format!("`size{size}` must lie in 1 .. {LARGEST}")),
        }
    }

    /// Makes the call and checks it.
    pub(super) fn make(&self, device: &mut dyn Device) -> CallResult {
        let Some(case) = case_of(self.kind, self.dtype, self.size, self.seed) else {
            return CallResult::Failed { message: self.complaint().unwrap_or_default(), fatal: false };
        };
        let drawn = case.draw(self.seed);
        match run_twice(&drawn, None, device, self.seed, self.again) {
            Ok(CallResult::Failed { message, fatal }) => {
                CallResult::Failed { message: format!("{message}\nit is: {}", case.name()), fatal }
            }
            Ok(result) => result,
            Err(error) => {
                CallResult::Failed { message: format!("{error}\nit is: {}", case.name()), fatal: error.spoils_device() }
            }
        }
    }

    /// Smaller calls, smallest first. A seed draws a different call at each size.
    pub(super) fn simpler(&self) -> Vec<Self> {
        const SEEDS: u64 = 8;
        let plain = |size, seed| Self { size, seed, ..*self };
        let smaller = (1..self.size).flat_map(|size| (0..SEEDS).chain([self.seed]).map(move |seed| plain(size, seed)));
        let once = self.again.map(|_| Self { again: None, ..*self });
        smaller.chain(once).collect()
    }
}

impl fmt::Display for DrawnCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} size{}", self.kind, self.dtype, self.size)?;
        match self.again {
            None => {}
            Some(Order::Shuffled) => f.write_str(" twice")?,
            Some(Order::Priorities { depth }) => write!(f, " priorities:{depth}")?,
        }
        if let Some(capability) = self.capability {
            write!(f, " sm{capability}")?;
        }
        write!(f, " seed{}", self.seed)
    }
}
