//! `kgen toolchain`.

use super::{Format, Global, show, ui};
use crate::{
    command::{
        self, CommandError,
        toolchain::{Installed, Outcome, Request},
    },
    text::size,
};
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  kgen toolchain install    fetch CUDA's compiler and disassembler with pip
  kgen toolchain show       where it is and how big
  CUDACXX=$(kgen toolchain show --path) cmake -B build
                            the path of nvcc alone, for CMake and scripts
  kgen toolchain remove     delete it";

/// Arguments.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Action on kgen's own compiler and disassembler.
#[derive(Debug, Clone, Copy, Subcommand)]
enum Action {
    /// Install them, unless they are there (about 110 MB to download, 290 MB on disk).
    Install,
    /// Show their paths and sizes.
    Show {
        /// Print only the path of nvcc; exit code 3 if kgen has installed none.
        #[arg(long)]
        path: bool,
    },
    /// Remove them.
    Remove,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::toolchain::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let request = match args.action {
        Action::Install => Request::Install,
        Action::Show { path: false } => Request::Show,
        Action::Show { path: true } => Request::NvccPath,
        Action::Remove => Request::Remove,
    };
    let outcome = command::toolchain::run(&request, &global.interruptible(), &global.console())?;
    match &outcome {
        // The path alone, unbroken on one line.
        Outcome::NvccPath { path } if global.format == Format::Human => ui::print_verbatim(&format!("{}\n", path.display())),
        _ => show(global, &outcome, || describe(&outcome)),
    }
}

fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Installed(all) => all.iter().map(line).collect(),
        Outcome::NvccPath { path } => path.display().to_string(),
        Outcome::Removed { freed_bytes: 0 } => "kgen has no compiler and no disassembler of its own here\n".to_owned(),
        Outcome::Removed { freed_bytes } => format!("removed what kgen had installed: {} freed\n", size(*freed_bytes)),
    }
}

fn line(one: &Installed) -> String {
    match (&one.program, one.size_bytes) {
        (Some(program), Some(bytes)) => format!("{}: {} ({})\n", one.name, program.display(), size(bytes)),
        _ => format!("{}: not installed; `kgen toolchain install` fetches it where you have none\n", one.name),
    }
}
