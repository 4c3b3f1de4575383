//! Micro-benchmarks of a card: what launches, memories, latencies and units of a multiprocessor give, measured by small
//! kernels that do one thing (`templates/probe/`). Independent of templates, compilers and terminals.
//!
//! ```text
//! catalogue ─▶ run ─▶ worker ─▶ readings ─▶ constants ─▶ file
//! ```

mod abi;
mod catalogue;
mod constants;
#[cfg(test)]
mod emulated;
mod file;
mod run;
mod sheet;
mod worker;

pub use catalogue::Probe;
pub use constants::{Constant, Unit};
pub use file::{Facts, File, FileError};
pub use run::{Measured, Observer, Options, run};
pub use sheet::Sheet;
pub use worker::{Reading, serve as serve_worker};
