//! `kgen doctor`.

use super::{Global, escape::plain, show};
use crate::command::{
    CommandError,
    doctor::{self, Finding, Request, State},
};
use console::style;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kgen doctor                  what is found, and how to get what is not
  kgen doctor --format json    the same for scripts";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Inspect this nvcc instead of searching for one.
    #[arg(long, value_name = "PATH")]
    nvcc: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`doctor::run`], and [`CommandError::Environment`] after the findings.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let outcome = doctor::run(&Request { nvcc: args.nvcc }, &global.context(), &global.console())?;
    show(global, &outcome, || outcome.findings.iter().map(line).collect())?;
    outcome.verdict()
}

fn line(finding: &Finding) -> String {
    let mark = match finding.state {
        State::Found => style("found  ").green(),
        State::Absent => style("absent ").yellow(),
        State::Missing => style("missing").red(),
    };
    format!("{mark}  {:<14} {}\n", finding.name, plain(&finding.detail))
}
