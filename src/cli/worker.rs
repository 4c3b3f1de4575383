//! `kgen __worker`: one piece of work in an isolated process; see `isolate`.

use super::{CliError, Global, ui};
use crate::{
    bench, check,
    family::{self, attention::fuzz},
    isolate, toolchain,
};
use std::{
    fs::File,
    io::{self, StdinLock},
};

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
    /// What the environment names as C++ compiler.
    HostCompiler,
}

/// Serves one request from standard input, if the task has one, on what is standard output until a kernel can print.
///
/// # Errors
/// [`CliError::Usage`] where the request cannot be understood, which says that something else than kgen sent it.
pub fn run(_global: &Global, args: Args) -> Result<(), CliError> {
    match args.task {
        Task::Check => serve(|input, output| check::serve_worker(family::cases, input, output)),
        Task::Bench => serve(|input, output| bench::serve_worker(family::trial, input, output)),
        Task::Fuzz => serve(|input, output| fuzz::serve(input, output)),
        Task::HostCompiler => ui::print_json(&toolchain::named_by_environment()),
    }
}

/// Has `work` serve the request, with a pipe for its answers that a kernel cannot print to.
fn serve(work: impl FnOnce(&mut StdinLock<'_>, File) -> Result<(), String>) -> Result<(), CliError> {
    let output = isolate::private_output();
    let output = output.map_err(|error| CliError::Environment(format!("cannot keep the pipe to kgen apart: {error}")))?;
    work(&mut io::stdin().lock(), output).map_err(CliError::Usage)
}
