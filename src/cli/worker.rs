//! `kgen __worker`: one piece of work in an isolated process; see `isolate`.

use super::{CliError, Global};
use crate::{bench, check};
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
}

/// Serves one request from standard input.
///
/// # Errors
/// [`CliError::Usage`] where the request cannot be understood, which says that something else than kgen sent it.
pub fn run(_global: &Global, args: Args) -> Result<(), CliError> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let served = match args.task {
        Task::Check => check::serve_worker(&mut input, &mut output),
        Task::Bench => bench::serve_worker(&mut input, &mut output),
    };
    served.map_err(CliError::Usage)
}
