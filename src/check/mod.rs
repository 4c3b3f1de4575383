//! Proves kernels right: draws cases from a seed, runs them on a device in a worker process, and compares every output
//! with float64 attention. Knows nothing of templates, compilers or terminals.
#![allow(clippy::cast_possible_wrap, reason = "sizes of test cases are far below 2³¹")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

mod arithmetic;
mod backward;
mod cases;
mod changed;
mod combine;
mod compare;
mod descale;
mod exam;
mod forward;
pub mod fuzz;
mod gradients;
mod level;
mod numbers;
mod place;
mod problem;
mod reference;
mod refusals;
mod run;
mod scheduler;
mod schedules;
mod split;
mod tensors;
mod tiling;
mod tolerance;
mod vector;
mod verdict;
mod verdict_cache;
mod worker;

use crate::family::attention::{self, Kind};

pub use changed::{Change, Expected, STRUCTURE, begin, changed, drop_tensor};
pub use compare::{Comparison, Tally};
pub use exam::{Case, Drawn, Subject, selected_cases};
pub use level::Level;
pub use numbers::Number;
pub use run::{CheckOptions, CheckRequest, Kernel, Observer, default_time_limit, run};
pub(crate) use split::merge as merge_splits;
pub(crate) use tensors::fill_normal;
pub use tiling::Tiling;
pub use vector::Vector;
pub use verdict::{Status, Verdict, Worst};
pub use worker::serve as serve_worker;

/// The cases of an attention kernel at a level, in order.
pub fn attention_cases(subject: &Subject<attention::Point>, level: Level) -> Vec<Box<dyn Case>> {
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

/// Seed of inputs and thread order where none is asked for: fixed, so that a failure seen once is seen again.
pub const DEFAULT_SEED: u64 = 1;
