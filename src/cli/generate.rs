//! `kgen generate`.

mod selected;

use super::{
    Global,
    select::{HelperArgs, SelectionArgs},
    show, verbosity,
};
use crate::{
    command::{
        self, CommandError,
        generate::{Compared, Outcome, Request, Written, folder_of},
    },
    text::count,
};
use itertools::Itertools;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kgen generate                 the whole grid into ./generated
  kgen generate --head-dim 128 --dtype bf16 --causal --target ampere
                                its kernels, added to ./generated
  kgen generate --head-dim 72 --dtype fp16 --target sm80 --output my.cu
                                my.cu, my.h and include/
  kgen generate --all --check   verify that ./generated is up to date

A folder keeps the kernels it holds: those selected are added, and all are
brought up to date. When the selection is the whole grid, the folder becomes
exactly that. Files kgen did not write are never touched; one that has been
edited since is replaced, and the edited text kept beside it.";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    helpers: HelperArgs,

    /// Folder to write, or a file ending in .cu where one variant is selected.
    #[arg(long, short, value_name = "PATH", default_value = "generated")]
    output: PathBuf,

    /// Write nothing; fail and name the files that differ from what would be written.
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// As [`command::generate::run`], and [`CommandError::Failed`] if `--check` finds a difference.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, helpers, output, check } = args;
    let request = Request { selection: selection.into(), helpers: helpers.wanted(), output, check };
    let outcome = command::generate::run(&request, &global.context(), &global.console())?;
    show(global, &outcome, || match &outcome {
        Outcome::Written(written) => describe_written(written),
        Outcome::Compared(compared) => describe_compared(compared),
    })?;
    outcome.verdict()
}

fn describe_written(written: &Written) -> String {
    let Written { output, variants, selected, summary, milliseconds, whole_grid } = written;
    let is_plain = *whole_grid && !verbosity::verbose();
    let shown = if is_plain { String::new() } else { selected::describe(folder_of(output), selected) };
    let removed = match summary.removed.len() {
        0 => String::new(),
        count => format!(", {count} removed"),
    };
    format!(
        "{shown}{}: {}; {} written, {} unchanged{removed} ({milliseconds} ms)\n",
        output.display(),
        count(variants.len(), "kernel"),
        count(summary.written.len(), "file"),
        summary.unchanged.len(),
    )
}

fn describe_compared(compared: &Compared) -> String {
    let Compared { output, variants, drift } = compared;
    if drift.is_empty() {
        return format!("{}: {} as generated\n", output.display(), count(variants.len(), "kernel"));
    }
    format!("{}\n", drift.iter().join("\n"))
}
