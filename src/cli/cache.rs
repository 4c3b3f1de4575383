//! `kgen cache`.

use super::{Global, show, values::whole};
use crate::{
    command::{
        CommandError,
        cache::{self, Outcome, PrunedPart, Request, Sizes},
        limits,
    },
    text::{count, size},
};
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  kgen cache show              what the cache holds
  kgen cache prune             remove what has not been used for 30 days
  kgen cache prune --dry-run   how much that would be
  kgen cache prune --days 0    remove everything but the compiler";

/// Arguments.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Action on the cached results of earlier runs.
#[derive(Debug, Clone, Copy, Subcommand)]
enum Action {
    /// Print its size.
    Show,
    /// Remove entries that have not been used for some time; kgen rebuilds them when needed.
    Prune {
        /// Remove entries that have not been used for this many days.
        #[arg(long, value_name = "N", default_value_t = 30, value_parser = whole::<u64>(limits::DAYS))]
        days: u64,

        /// Remove nothing; say what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs the command.
///
/// # Errors
/// The errors of [`cache::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let (request, days) = match args.action {
        Action::Show => (Request::Show, 0),
        Action::Prune { days, dry_run } => (Request::Prune { days, dry_run }, days),
    };
    let outcome = cache::run(&request, &global.context(), &global.console())?;
    show(global, &outcome, || match &outcome {
        Outcome::Shown(sizes) => describe_sizes(sizes),
        Outcome::Pruned(parts) => describe_pruned(parts, days),
    })
}

fn describe_sizes(sizes: &Sizes) -> String {
    let what = |name: &str| match name {
        "objects" => "compiled kernels and libraries",
        "emulator" => "kernels compiled for the emulator",
        _ => "passed checks",
    };
    let line = |name: &str, bytes: u64, what: &str| format!("{:>8}  {name}: {what}\n", size(bytes));
    let parts: String = sizes.parts.iter().map(|part| line(part.name, part.bytes, what(part.name))).collect();
    let compiler = "kgen's own compiler; `kgen toolchain remove` takes it away";
    format!("{}\n{parts}{}", sizes.folder.display(), line("toolchain", sizes.toolchain_bytes, compiler))
}

fn describe_pruned(parts: &[PrunedPart], days: u64) -> String {
    let (entries, bytes) = parts.iter().fold((0, 0), |sum, part| (sum.0 + part.what.entries, sum.1 + part.what.bytes));
    let stay = match parts.iter().map(|part| part.what.in_use).sum() {
        0 => String::new(),
        1 => "; 1 more stays, which a running kgen uses".to_owned(),
        in_use => format!("; {in_use} more stay, which a running kgen uses"),
    };
    let removed = if parts.iter().any(|part| part.dry_run) { "would be removed" } else { "removed" };
    format!("{} not used for {days} days {removed}, {} freed{stay}\n", count(entries, "item"), size(bytes))
}
