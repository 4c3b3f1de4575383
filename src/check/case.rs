//! What every kind of kernel is examined by: cases that draw a call from a seed and judge its results.

use super::{Level, compare::Comparison};
use crate::plan::Tiling;
use crate::{
    device::{Call, DeviceKind, ERROR_UNSUPPORTED, Outputs},
    kernel::Variant,
};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// A kernel, as far as the choice of its cases depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject<P = Variant> {
    /// Its identity: any kernel, or one of a family.
    pub variant: P,
    /// How it cuts its work.
    pub tiling: Tiling,
    /// Where it runs: a GPU has many multiprocessors and is given work for all of them.
    pub device: DeviceKind,
}

/// One case of one variant.
pub trait Case: Debug {
    /// Its stable name, which tells all of it.
    fn name(&self) -> String;

    /// Draws its inputs.
    fn draw(&self, seed: u64) -> Drawn;

    /// What the launcher must say of tensors that lie in a way that the kernel cannot read, starting nothing.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// The code that it says so with.
    fn refusal_code(&self) -> i32 {
        ERROR_UNSUPPORTED
    }

    /// Bytes that `<name>_workspace` must ask for, where the workspace is part of the call: 0 for parameters that it
    /// refuses.
    fn asked_workspace(&self) -> Option<usize> {
        None
    }

    /// The same inputs in a different memory layout; outputs must be bit-identical.
    fn twin(&self, _seed: u64) -> Option<Twin> {
        None
    }
}

/// Compares what two calls left.
pub type Difference = dyn Fn(&Outputs, &Outputs) -> Option<String>;

/// A second call that must give what the first gives.
pub struct Twin {
    /// What to run.
    pub call: Call,
    /// Says where the outputs of the case and then those of this call differ, if they do.
    pub difference: Box<Difference>,
}

/// A case with its inputs.
pub struct Drawn {
    /// What to run.
    pub call: Call,
    /// Compares what a run left with the reference, which is computed here.
    pub judge: Box<dyn Fn(&Outputs) -> Comparison>,
    /// The outputs that a second run may leave with other bits; they are judged again.
    pub may_differ: &'static [&'static str],
}

impl<P> Subject<P> {
    /// The same for a kernel that is known by its family.
    pub fn of<Q>(&self, variant: Q) -> Subject<Q> {
        Subject { variant, tiling: self.tiling, device: self.device }
    }
}

/// A function that gives the cases that prove a kernel right at a level, in order. `family::cases` is one; this room
/// does not know families.
pub type Cases = fn(&Subject, Level) -> Vec<Box<dyn Case>>;

/// The cases of a kernel at a level whose name contains `part`, in order.
pub fn selected_cases(cases: Cases, subject: &Subject, level: Level, part: Option<&str>) -> Vec<Box<dyn Case>> {
    let mut cases = cases(subject, level);
    cases.retain(|case| part.is_none_or(|part| case.name().contains(part)));
    cases
}
