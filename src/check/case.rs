//! The cases of a check, for every kind of kernel: each draws a call from a seed and judges its results.

use super::{Level, compare::Comparison};
use crate::plan::Tiling;
use crate::{
    device::{Call, DeviceKind, ERROR_UNSUPPORTED, Outputs},
    kernel::Variant,
};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// The properties of a kernel that its cases depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject<P = Variant> {
    /// The kernel: of any family, or of a particular one.
    pub variant: P,
    /// Tiling of the kernel.
    pub tiling: Tiling,
    /// The kind of device it runs on. On a GPU, which has many multiprocessors, cases have work for all of them.
    pub device: DeviceKind,
}

/// One case of one variant.
pub trait Case: Debug {
    /// The stable name, which describes the case completely.
    fn name(&self) -> String;

    /// Draws the inputs.
    fn draw(&self, seed: u64) -> Drawn;

    /// The message with which the launcher must refuse tensors whose layout the kernel cannot read, without starting
    /// anything.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// The error code of that refusal.
    fn refusal_code(&self) -> i32 {
        ERROR_UNSUPPORTED
    }

    /// Bytes that `<name>_workspace` must request, if the workspace is part of the call: 0 for parameters that it
    /// refuses.
    fn expected_workspace(&self) -> Option<usize> {
        None
    }

    /// A call with the same inputs in a different memory layout, if there is one; its outputs must be bit-identical.
    fn twin(&self, _seed: u64) -> Option<Twin> {
        None
    }
}

/// Compares the outputs of two calls.
pub type Difference = dyn Fn(&Outputs, &Outputs) -> Option<String>;

/// A second call whose results must equal the first's.
pub struct Twin {
    /// The call to run.
    pub call: Call,
    /// Reports the first difference between the outputs of the case and of this call, if they differ.
    pub difference: Box<Difference>,
}

/// A case with its inputs.
pub struct Drawn {
    /// The call to run.
    pub call: Call,
    /// Compares the outputs of a run with the reference, which it computes.
    pub judge: Box<dyn Fn(&Outputs) -> Comparison>,
    /// Outputs that may have different bits after a second run; they are judged again.
    pub may_differ: Vec<&'static str>,
}

impl<P> Subject<P> {
    /// The subject with `variant` instead, the kernel as a type of its family; tiling and device are unchanged.
    pub fn of<Q>(&self, variant: Q) -> Subject<Q> {
        Subject { variant, tiling: self.tiling, device: self.device }
    }
}

/// A function that returns the cases of a kernel at a level, in order. `family::cases` is one; this module is
/// independent of families.
pub type Cases = fn(&Subject, Level) -> Vec<Box<dyn Case>>;

/// The cases of a kernel at a level whose names contain `part`, in order.
pub fn selected_cases(cases: Cases, subject: &Subject, level: Level, part: Option<&str>) -> Vec<Box<dyn Case>> {
    let mut cases = cases(subject, level);
    cases.retain(|case| part.is_none_or(|part| case.name().contains(part)));
    cases
}
