//! What every kind of kernel is examined by: cases that draw a call from a seed and judge what it leaves behind.

use super::{Level, backward, combine, compare::Comparison, forward, scheduler, split};
use crate::{
    device::{Call, Outputs},
    grid::{Kind, Variant},
};
use std::fmt::Debug;

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

/// The cases of a variant at a level, in order.
pub fn cases(variant: Variant, level: Level) -> Vec<Box<dyn Case>> {
    match variant.kind {
        Kind::Fwd | Kind::FwdShort => forward::cases(variant, level),
        Kind::FwdSplit => split::cases(variant, level),
        Kind::FwdCombine => combine::cases(level),
        Kind::PrepareScheduler => scheduler::cases(level),
        Kind::Bwd => backward::cases(variant, level),
    }
}

/// Those whose name contains `part`.
pub fn selected_cases(variant: Variant, level: Level, part: Option<&str>) -> Vec<Box<dyn Case>> {
    let mut cases = cases(variant, level);
    cases.retain(|case| part.is_none_or(|part| case.name().contains(part)));
    cases
}
