//! `kgen check --fuzz`: random calls through the dispatcher of a library, each judged by what `kgen.h` promises.
//!
//! A call is a [`LibraryCall`], whose name reproduces it. [`Drawer`] draws them, workers make them, and what fails is
//! shrunk. Calls of attention are a [`FuzzCase`] each; other families draw theirs from a size and a seed.

mod call;
mod case;
mod draw;
mod drawn;
mod library_call;
mod options;
mod run;
mod sample;
mod scope;
mod shrink;
mod tally;
mod worker;

pub use call::{CallResult, Outcome};
pub use case::{Entry, FuzzCase, Workspace};
pub use draw::Drawer;
pub use drawn::{DrawnCall, draws_calls};
pub use library_call::LibraryCall;
pub use run::{Calls, FuzzError, FuzzObserver, FuzzOptions, run};
pub use scope::{Point, Scope, ScopeDevice};
pub use tally::{Ended, Failure, Report, Row, WorstCall};
pub use worker::serve;
