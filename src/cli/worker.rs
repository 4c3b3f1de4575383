//! `kgen __worker`: one piece of work in an isolated process; see `isolate`.

use super::{Global, ui};
use crate::{
    command::{
        CommandError,
        worker::{Task, serve},
    },
    isolate, toolchain,
};
use std::io;

/// Arguments.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Args {
    /// Kind of the request on standard input.
    #[arg(value_enum)]
    task: TaskWord,
}

/// Kinds of work.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum TaskWord {
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
    /// The C++ compiler that the environment names.
    HostCompiler,
}

/// Serves one request from standard input, if the task has one; answers go to the original standard output, which
/// kernels cannot print to.
///
/// # Errors
/// The errors of [`serve`].
pub fn run(_global: &Global, args: Args) -> Result<(), CommandError> {
    let task = match args.task {
        TaskWord::Check => Task::Check,
        TaskWord::Bench => Task::Bench,
        TaskWord::Fuzz => Task::Fuzz,
        TaskWord::Profile => Task::Profile,
        TaskWord::Probe => Task::Probe,
        TaskWord::HostCompiler => return ui::print_json(&toolchain::named_by_environment()),
    };
    let output = isolate::private_output();
    let output = output.map_err(|error| CommandError::Environment(format!("cannot keep the pipe to kgen apart: {error}")))?;
    serve(task, &mut io::stdin().lock(), output)
}
