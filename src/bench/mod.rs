//! Times kernels on the local GPU: random inputs, device events, and a correctness check before and after. Rates above
//! a card's peak are refused. Independent of templates, compilers and terminals. It does not prove a kernel right;
//! `check` does.
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

mod ceiling;
mod data;
mod estimate;
mod experiment;
mod measurement;
pub mod peers;
mod report;
mod run;
mod size;
mod statistics;
mod trial;
pub mod turns;
mod wanted;
mod worker;

pub use ceiling::Ceiling;
pub use data::Draws;
pub use data::Normals;
pub(crate) use data::{elements, fp32};
pub use estimate::{Estimate, Part, Unit};
pub(crate) use experiment::{Failure as ExperimentFailure, once};
pub use measurement::{Made, Measurement, Numbers, Status};
pub use report::{FORMAT, Report, day, now};
pub use run::{BenchOptions, BenchRequest, Observer, run};
pub use size::{Matrix, Size};
pub use statistics::{Summary, median, percentile};
pub use trial::{Bench, Output, Trial, Trials, Work, copies_beyond};
pub use wanted::Wanted;
pub use worker::serve as serve_worker;
