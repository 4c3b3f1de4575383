//! The laboratory: a store of measurements, each with everything that determines it, and the evaluations of them.
//!
//! ```text
//! bench, benches/ ─▶ row ─▶ store ─▶ condition ─▶ export, regress, noise, report
//! ```
//!
//! A row is one contender's measurement in one case, in the format that `benches/` also writes (docs/lab.md lists the
//! fields). A failure is a row as well. Independent of terminals, compilers, and templates of kernels.

mod condition;
mod export;
mod flat;
mod foreign;
mod import;
mod knowledge;
pub mod ladder;
mod noise;
pub mod predict;
mod probed;
mod profiled;
mod regress;
pub mod report;
mod row;
mod store;
pub mod tune;

pub use condition::Condition;
pub use export::{ExportError, Form, export};
pub(crate) use flat::flat;
pub use import::{ImportError, Imported, parse};
pub use knowledge::{Record, Standing, records_of};
pub use noise::{Noise, noise};
pub use profiled::Profiled;
pub use regress::{Change, Regression, Side, Verdict, regress};
pub use row::{FORMAT, Row, Run, Status};
pub use store::{Merged, Store, StoreError};
