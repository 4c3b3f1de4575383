//! One kernel at one size, independent of any device: the data a family supplies for timing it.

use super::{Draws, Size};
use crate::{check::Number, device::Params, kernel::Variant};

/// Amount of work, by which a time is converted to a rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read from or written to device memory, if memory bandwidth limits the kernel.
    pub bytes: Option<f64>,
}

/// Arguments for making a trial.
#[derive(Clone, Copy)]
pub struct Bench<'a> {
    /// Blocks of numbers from which inputs are copied.
    pub draws: &'a Draws,
    /// Seed of the inputs.
    pub seed: u64,
    /// Multiprocessors of the GPU.
    pub multiprocessors: u32,
}

/// A tensor that a kernel writes.
pub struct Output {
    /// Name in `kgen.h`.
    pub name: &'static str,
    /// Size in bytes.
    pub bytes: usize,
    /// Type of its elements; `None` for fp32.
    pub number: Option<Number>,
    /// True if a second run may produce different bits.
    pub may_differ: bool,
}

/// Number of tensor sets to rotate through so that together they exceed ten times L2 and every launch starts cold.
pub fn copies_beyond(l2_bytes: u32, set_bytes: usize) -> usize {
    (10 * l2_bytes as usize).div_ceil(set_bytes.max(1)).clamp(1, MOST_COPIES)
}

/// Largest number of tensor sets.
const MOST_COPIES: usize = 512;

/// A function that returns the trial of a kernel at a size; `None` if the size does not belong to its family.
/// `family::trial` is one; this module is independent of families.
pub type Trials = for<'a> fn(&Variant, &Size, Bench<'a>) -> Option<Box<dyn Trial + 'a>>;

/// One kernel at one size.
pub trait Trial {
    /// The amount of work.
    fn work(&self) -> Work;

    /// Number of tensor sets that launches rotate through: one, or enough that no input is still in an L2 of `l2_bytes`
    /// when it is read again.
    fn copies(&self, l2_bytes: u32) -> usize;

    /// True if `copies` sets are enough to keep the L2 cold. False for small sets, whose number would exceed the limit.
    fn is_cold(&self, copies: usize, l2_bytes: u32) -> bool;

    /// The tensors that the kernel reads, by their names in `kgen.h`. `copy` selects one of several sets.
    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)>;

    /// True if the library exports a function for the size of the kernel's workspace.
    fn has_workspace(&self) -> bool {
        false
    }

    /// The tensors that the kernel writes; the last is its workspace of `workspace_bytes`, if it has one.
    fn outputs(&self, workspace_bytes: usize) -> Vec<Output>;

    /// The parameters of a launch.
    fn params(&self) -> Params;

    /// Number of splits, if the kernel splits the keys.
    fn splits(&self) -> Option<u32> {
        None
    }

    /// The arguments of a declared score, if the kernel has one, as case names write them.
    fn passed(&self) -> Option<String> {
        None
    }

    /// Largest relative error of the sampled rows.
    ///
    /// # Errors
    /// A sentence: a NaN anywhere, or numbers too far from the reference.
    fn judge(&self, host: &[(&'static str, Vec<u8>)], outputs: &[Output], written: &[Vec<u8>]) -> Result<f64, String>;
}
