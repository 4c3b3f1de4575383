//! Verification of attention: problems drawn from a seed with all supported tensor layouts, float64 references of
//! outputs and gradients with error bounds of the arithmetic, and calls that must be refused.
#![allow(clippy::cast_possible_wrap, reason = "sizes of test cases are far below 2³¹")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

mod append_cases;
pub(super) mod backward;
mod combine;
mod declared;
mod feature_cases;
mod feature_cases_backward;
mod forward;
pub mod fuzz;
mod lists;
mod mla_cases;
pub(super) mod refusals;
mod scheduler;
mod shared_tiles;
pub(super) mod split;

use super::{Kind, Point};
use crate::check::{Case, Level, Subject};

pub(crate) use split::merge as merge_splits;

/// The cases of an attention kernel at a level, in order.
pub(super) fn cases_of(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
    let mut cases = match subject.variant.kind {
        Kind::Fwd | Kind::FwdShort => {
            let mut cases = forward::cases(subject, level);
            if subject.variant.shares_tiles() {
                cases.extend(shared_tiles::cases(subject, level));
            }
            cases
        }
        Kind::FwdSplit => split::cases(subject.variant, level),
        Kind::FwdCombine => combine::cases(level),
        Kind::PrepareScheduler => scheduler::cases(subject, level),
        Kind::Bwd => backward::cases(subject, level),
    };
    cases.extend(refusals::cases(subject));
    cases
}
