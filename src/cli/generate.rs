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
        generate::{Compared, Hashed, Outcome, Request, Written, folder_of},
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
                                my.cu, my.h, include/, and beside them a test,
                                an explanation and predicted times
  kgen generate --all --check   verify that ./generated is up to date
  kgen generate --all --hashes grid.b3
                                hashes of all kernels, and no kernel: `--check`
                                names those that an edited template changes

A folder keeps the kernels it holds: those selected are added, and all are
brought up to date. With `--exact`, and when the selection is the whole grid,
the folder becomes exactly the selection. Files kgen did not write are never
touched; one that has been edited since is replaced, and the edited text kept
beside it.";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    helpers: HelperArgs,

    /// Folder to write, or a file ending in .cu if one variant is selected.
    #[arg(long, short, value_name = "PATH", default_value = "generated")]
    output: PathBuf,

    /// Make the folder exactly the selection: kernels of earlier runs that are not selected are removed.
    #[arg(long)]
    exact: bool,

    /// Write the BLAKE3 of each selected kernel's file to FILE, as `b3sum` prints it, and no kernels.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "exact"])]
    hashes: Option<PathBuf>,

    /// Write a `.cu` file with its headers only: without predicted times, explanation, test and emulator.
    #[arg(long)]
    no_companions: bool,

    /// Write nothing; fail and name the files that differ from what would be written.
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::generate::run`], and [`CommandError::Failed`] if `--check` finds a difference.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, helpers, output, exact, hashes, no_companions, check } = args;
    let companions = !no_companions;
    let request = Request { selection: selection.into(), helpers: helpers.wanted(), output, exact, hashes, check, companions };
    let outcome = command::generate::run(&request, &global.context(), &global.console())?;
    show(global, &outcome, || match &outcome {
        Outcome::Written(written) => describe_written(written),
        Outcome::Compared(compared) => describe_compared(compared),
        Outcome::Hashed(hashed) => describe_hashed(hashed),
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

fn describe_hashed(hashed: &Hashed) -> String {
    let (place, kernels) = (hashed.hashes.display(), count(hashed.variants.len(), "kernel"));
    match &hashed.drift {
        None => format!("{place}: hashes of {kernels}{}\n", if hashed.written { "" } else { ", unchanged" }),
        Some(drift) if drift.is_empty() => format!("{place}: {kernels} as generated\n"),
        Some(drift) => format!("{}\n", drift.iter().join("\n")),
    }
}
