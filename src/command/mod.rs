//! The commands as functions: a request that is plain data, an outcome that is plain data, and events in between. One
//! file per command. Independent of command lines and terminals; it prints nothing.
//!
//! ```no_run
//! use kgen::command::{Context, list};
//!
//! let request = serde_json::from_str(r#"{ "selection": { "targets": ["rtx3090"] }, "plan": true }"#)?;
//! let outcome = list::run(&request, &Context::default(), &())?;
//! assert!(outcome.verdict().is_ok(), "every variant has a plan");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A function returns an error only if the whole command stops. If it can continue after a failure, its outcome lists
//! the failures, and the method `verdict` returns the error that summarises them. The JSON of a request has the names
//! of its fields as keys; unknown keys are refused, and missing ones take the values of the request's default.

mod ahead;
pub mod bench;
pub mod build;
pub mod build_all;
pub mod cache;
pub mod call;
pub mod check;
mod checking;
pub mod config;
mod context;
pub mod db;
pub mod diff;
pub mod doctor;
mod edited;
pub mod emit;
mod emulated;
mod error;
pub mod explain;
pub mod expression;
pub mod fuzz;
pub mod generate;
mod head_dims;
mod helpers;
pub(crate) mod limits;
pub mod list;
mod names;
mod observer;
pub mod pack;
pub mod peers;
pub mod predict;
pub mod probe;
pub mod profile;
mod record;
pub mod report;
mod score;
mod selection;
mod session;
mod single;
pub mod suite;
mod target;
pub mod toolchain;
pub mod tune;
pub mod vendor;
pub mod wheel;
pub mod worker;

pub use context::Context;
pub use error::CommandError;
pub use observer::{Event, Observer, StepResult, Work};
pub use score::ScoreRequest;
pub(crate) use selection::ANY_FEATURES;
pub use selection::SelectionRequest;
pub(crate) use target::NATIVE;
pub use target::TargetWord;
