//! `kgen __worker`: one piece of work in an isolated process; see `isolate`.

use super::{CliError, Global};
use crate::{bench, check, family::attention::fuzz, isolate};
use std::io;

/// Arguments.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Args {
    /// What the request on standard input is about.
    #[arg(value_enum)]
    task: Task,
}

/// Kinds of work.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Task {
    /// A kernel's check.
    Check,
    /// A kernel's timing.
    Bench,
    /// Random calls of a library.
    Fuzz,
}

/// Serves one request from standard input, on what is standard output until a kernel can print.
///
/// # Errors
/// [`CliError::Usage`] where the request cannot be understood, which says that something else than kgen sent it.
pub fn run(_global: &Global, args: Args) -> Result<(), CliError> {
    let mut input = io::stdin().lock();
    let output = isolate::private_output();
    let output = output.map_err(|error| CliError::Environment(format!("cannot keep the pipe to kgen apart: {error}")))?;
    let served = match args.task {
        Task::Check => check::serve_worker(&mut input, output),
        Task::Bench => bench::serve_worker(&mut input, output),
        Task::Fuzz => fuzz::serve(&mut input, output),
    };
    served.map_err(CliError::Usage)
}
