//! Proves kernels right: draws cases from a seed, runs them on a device in a worker process, and compares every output
//! with the family's reference. Independent of families, templates, compilers and terminals.
#![allow(clippy::cast_possible_wrap, reason = "sizes of test cases are far below 2³¹")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

mod case;
mod compare;
mod level;
mod numbers;
mod refusals;
mod run;
mod same_program;
mod schedules;
mod vector;
mod verdict;
mod verdict_cache;
mod worker;

pub(crate) use case::Twin;
pub use case::{Case, Cases, Drawn, Subject, selected_cases};
pub(crate) use compare::Distance;
pub use compare::{Comparison, Tally};
pub use level::Level;
pub use numbers::Number;
pub use refusals::{Change, Expected, STRUCTURE, begin, changed, changed_without_workspace, drop_tensor};
pub use run::{CheckOptions, CheckRequest, Kernel, Observer, default_time_limit, run, source_key};
pub use vector::Vector;
pub(crate) use vector::fill_normal;
pub use verdict::{Status, Verdict, Worst};
pub use worker::serve as serve_worker;

/// Default seed of inputs and thread order: fixed, so that a failure can be reproduced.
pub const DEFAULT_SEED: u64 = 1;
