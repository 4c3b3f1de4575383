//! One kernel at one size, without a device: what a family says of it so that it can be timed.

use super::{Draws, Size};
use crate::{check::Number, device::Params, kernel::Variant};

/// How much there is to do, so that a time becomes a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes that device memory has to give or take, where that is what limits the kernel.
    pub bytes: Option<f64>,
}

/// What a trial is made with.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// Blocks of numbers that inputs are cut from.
    pub draws: &'a Draws,
    /// Draws the inputs.
    pub seed: u64,
    /// Multiprocessors of the GPU.
    pub multiprocessors: u32,
}

/// A tensor that a kernel writes.
pub struct Output {
    /// By its name in `kgen.h`.
    pub name: &'static str,
    /// Its size.
    pub bytes: usize,
    /// Type of its elements; `None` for fp32.
    pub number: Option<Number>,
    /// A second run may give other bits.
    pub may_differ: bool,
}

/// Number of tensor sets to rotate through so that together they exceed ten times L2 and every launch starts cold.
pub fn copies_beyond(l2_bytes: u32, set_bytes: usize) -> usize {
    (10 * l2_bytes as usize).div_ceil(set_bytes.max(1)).clamp(1, MOST_COPIES)
}

/// Most sets of tensors.
const MOST_COPIES: usize = 512;

/// A function that gives a kernel at a size, to be timed; `None` if the size is not one of its family's.
/// `family::trial` is one; this room does not know families.
pub type Trials = for<'a> fn(&Variant, &Size, Bench<'a>) -> Option<Box<dyn Trial + 'a>>;

/// One kernel at one size.
pub trait Trial {
    /// How much there is to do.
    fn work(&self) -> Work;

    /// Sets of tensors that launches take turns with: one, or as many as leave nothing of what is read in an L2 of so
    /// many bytes.
    fn copies(&self, l2_bytes: u32) -> usize;

    /// Whether so many sets leave nothing of it in the L2: small ones would need too many.
    fn is_cold(&self, copies: usize, l2_bytes: u32) -> bool;

    /// The tensors that the kernel reads, by their names in `kgen.h`. `copy` tells several sets apart.
    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)>;

    /// Whether the library says how large a workspace the kernel needs.
    fn has_workspace(&self) -> bool {
        false
    }

    /// The tensors that it writes; the last is its workspace, if it has one, of `workspace_bytes`.
    fn outputs(&self, workspace_bytes: usize) -> Vec<Output>;

    /// What a launch is told.
    fn params(&self) -> Params;

    /// Splits of the keys, where the kernel splits them.
    fn splits(&self) -> Option<u32> {
        None
    }

    /// What a call passes to a declared score, where the kernel has one, as names of cases say it.
    fn passed(&self) -> Option<String> {
        None
    }

    /// Largest relative error of what is sampled.
    ///
    /// # Errors
    /// A sentence: a NaN anywhere, or numbers too far from the reference.
    fn judge(&self, host: &[(&'static str, Vec<u8>)], outputs: &[Output], written: &[Vec<u8>]) -> Result<f64, String>;
}
