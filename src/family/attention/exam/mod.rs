//! What proves attention right: problems drawn from a seed, their tensors wherever a caller may let them lie, float64
//! attention and its gradients with the errors that arithmetic allows, and calls that must be refused.
#![allow(clippy::cast_possible_wrap, reason = "sizes of test cases are far below 2³¹")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

mod append;
mod append_cases;
mod arithmetic;
pub(super) mod backward;
mod cache;
mod cases;
mod combine;
mod declared;
pub(super) mod descale;
mod dims;
mod featured;
mod featured_backward;
mod forward;
pub mod fuzz;
mod gradients;
mod latent;
mod page_descales;
mod pages;
mod place;
pub(super) mod problem;
mod reference;
pub(super) mod refusals;
mod rules;
mod scheduler;
pub(super) mod split;
mod tensors;
mod tolerance;

use super::{Kind, Point};
use crate::check::{Case, Level, Subject};

pub(crate) use split::merge as merge_splits;

/// The cases of an attention kernel at a level, in order.
pub(super) fn cases_of(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
    let mut cases = match subject.variant.kind {
        Kind::Fwd | Kind::FwdShort => forward::cases(subject, level),
        Kind::FwdSplit => split::cases(subject.variant, level),
        Kind::FwdCombine => combine::cases(level),
        Kind::PrepareScheduler => scheduler::cases(subject, level),
        Kind::Bwd => backward::cases(subject, level),
    };
    cases.extend(refusals::cases(subject));
    cases
}
