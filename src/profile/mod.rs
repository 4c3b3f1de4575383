//! Where a kernel loses time: bank conflicts and uncoalesced accesses by line of source, which the emulator counts
//! without a GPU, and counters of a GPU, which Nsight Compute (`ncu`) reads. Each kernel runs once, at one size, in a
//! worker process, and its results are compared with the reference. Independent of families, templates and terminals.

mod emulated;
mod line;
mod metrics;
mod ncu;
mod report;
mod run;
mod source;
mod worker;

pub use line::{Count, Line, Totals};
pub use metrics::{METRICS, Metric};
pub use ncu::{Ncu, NcuError};
pub use report::{Counter, KernelCounters};
pub use run::{Found, Options, on_emulator, with_counters};
pub use source::Sources;
pub use worker::{Job, serve as serve_worker};

/// Flag of the host compiler with which the emulator counts accesses. It is part of the key of what is compiled.
pub const FLAG: &str = "-DKGEN_PROFILE";
