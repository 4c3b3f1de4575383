//! One piece of work in an isolated process; see `isolate`.

use super::CommandError;
use crate::{
    bench, check,
    family::{self, attention::fuzz},
    probe, profile,
};
use std::io::{BufRead, Write};

/// Kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// A kernel's check.
    Check,
    /// A kernel's timing.
    Bench,
    /// Random calls to a library's dispatcher.
    Fuzz,
    /// One run of a kernel that is profiled.
    Profile,
    /// One probe of the GPU.
    Probe,
}

/// Serves the one request in `input` and writes its answers to `output`.
///
/// # Errors
/// [`CommandError::Usage`] if the request cannot be parsed: it was not sent by kgen.
pub fn serve(task: Task, input: &mut impl BufRead, output: impl Write) -> Result<(), CommandError> {
    let served = match task {
        Task::Check => check::serve_worker(family::cases, input, output),
        Task::Bench => bench::serve_worker(family::trial, input, output),
        Task::Fuzz => fuzz::serve(input, output),
        Task::Profile => profile::serve_worker(family::trial, input, output),
        Task::Probe => probe::serve_worker(input, output),
    };
    served.map_err(CommandError::Usage)
}
