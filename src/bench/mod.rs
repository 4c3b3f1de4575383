//! Times kernels on the GPU at hand: random inputs, device events, a check before and after, and rates that no card can
//! reach are refused. Knows nothing of templates, compilers or terminals, and proves nothing right: that is `check`'s.
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests compare numbers that are exact"))]

mod ceiling;
mod data;
mod declared;
mod experiment;
mod layout;
mod measurement;
mod report;
mod run;
mod sample;
mod shape;
mod size;
mod statistics;
mod trial;
mod work;
mod worker;

pub use ceiling::Ceiling;
pub(crate) use layout::{Layout, splits};
pub use measurement::{Made, Measurement, Numbers, Status};
pub use report::{FORMAT, Report, day, now};
pub use run::{BenchOptions, BenchRequest, Observer, run};
pub(crate) use sample::{elements, fp32};
pub use shape::{SEQLENS, Shape, TOKENS, WIDTH, Wanted};
pub use size::{Matrix, Size};
pub use statistics::Summary;
pub use trial::{Bench, Output, Trial, Work, copies_beyond};
pub use work::{flops, key_value_bytes};
pub use worker::serve as serve_worker;
