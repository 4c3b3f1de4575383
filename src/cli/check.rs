//! `kgen check`.

use super::{
    Global,
    escape::plain,
    fuzz::{self, FuzzArgs},
    junit,
    select::{SelectionArgs, TargetParser},
    show,
    table::{self, Column, Row},
    values::{at_least_one, whole},
};
use crate::{
    check::{DEFAULT_SEED, Level, Status, Verdict},
    command::{self, CommandError, TargetWord, check::Request, limits},
    device::{DeviceChoice, Order},
    text::count,
};
use console::style;
use std::{fmt::Write, num::NonZeroUsize, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen check                          the whole grid, on the GPU if there is one
  kgen check --device emulator --head-dim 128 --dtype bf16
                                      a slice of it, with no GPU
  kgen check --head-dim 64 --thorough
                                      every case: lengths, layouts, contents
  kgen check --head-dim 64 --case one-hot --seed 7
                                      cases by name, other inputs
  kgen check --device emulator --target sm90 --case low --schedule priorities:3
                                      under a schedule that a failure names
  kgen check --source my.cu           a kernel that you edited, on the emulator
  kgen check --device gpu --library build/lib/libkgen.so
                                      what `kgen build` has made
  kgen check --device gpu --run-as sm90 --target sm120
                                      what `kgen build --run-as sm90` has made
  kgen check --fuzz 50000 --seconds 400
                                      random calls through the dispatcher
  kgen check --fuzz-case 'fwd hdim64 bf16 b1 h3/3 sq15 sk5 causal seed7'
                                      one of them, as a failed run prints it";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    check: CheckArgs,

    #[command(flatten)]
    fuzz: FuzzArgs,

    /// Number of parallel variants [default: one per core on the emulator, one on a GPU], or of `--fuzz` workers
    /// [default: one per core].
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    jobs: Option<NonZeroUsize>,

    /// The library of kernels a GPU check runs [default: build/lib/libkgen.so, or with `--run-as` the one below
    /// build/run-as-TARGET].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Check kernels built with `kgen build --run-as` for the GPUs of this target.
    #[arg(long, value_name = "TARGET", ignore_case = true, hide_possible_values = true)]
    #[arg(value_parser = TargetParser)]
    run_as: Option<TargetWord>,
}

/// Cases and device of a check.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Check")]
struct CheckArgs {
    /// Device that runs the kernels: auto (the GPU if there is one), gpu or emulator.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// All cases instead of the smoke cases; takes minutes per variant on the emulator.
    #[arg(long)]
    thorough: bool,

    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,

    /// Seed of the inputs and, on the emulator, of the thread order.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,

    /// Thread order on the emulator, as a failure names it: `shuffled`, or `priorities:N` (after a shuffled run), in
    /// which warps run by priorities that are lowered N times [default: both, N chosen per case].
    #[arg(long, value_name = "ORDER")]
    schedule: Option<Order>,

    /// Time limit per variant, in seconds [default: 60, thorough 600]; with `--fuzz` per call [default: 120].
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>(limits::SECONDS))]
    time_limit: Option<u64>,

    /// Also write the result to this file as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Run all kernels again, including those that passed before and have not changed.
    #[arg(long, visible_alias = "no-cache")]
    fresh: bool,

    /// A file with one kernel of kgen's ABI, edited by hand, checked on the emulator instead of the rendered one. Its
    /// launcher names the variant, or the flags of selection do.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fuzz", "fuzz_case"])]
    source: Option<PathBuf>,

    /// Add each verdict to this store of measurements, except those of earlier runs [default: `KGEN_DB`, else none].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fuzz", "fuzz_case"])]
    db: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::check::run`], and [`CommandError::Failed`] after the report.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, check, fuzz, jobs, library, run_as } = args;
    let CheckArgs { device, thorough, case, seed, schedule, time_limit: time_limit_s, junit, fresh, source, db } = check;
    let selection = selection.into();
    if fuzz.is_asked() {
        return fuzz::run(global, &fuzz.request(selection, device, library, seed, jobs, time_limit_s));
    }
    let level = if thorough { Level::Thorough } else { Level::Smoke };
    let request =
        Request { selection, device, level, case, seed, schedule, time_limit_s, fresh, jobs, library, run_as, source, db };
    let outcome = command::check::run(&request, &global.interruptible(), &global.console())?;
    if let Some(file) = &junit {
        junit::write(file, &outcome.verdicts)?;
    }
    show(global, &outcome, || describe(&outcome.verdicts))?;
    outcome.verdict()
}

/// The table, the failures, and totals.
fn describe(verdicts: &[Verdict]) -> String {
    let columns = [
        Column::text("variant").needed(),
        Column::text("device"),
        Column::number("cases"),
        Column::number("worst error"),
        Column::number("allowed"),
        Column::number("ratio"),
        Column::number("seconds"),
        Column::text("result").needed(),
    ];
    let rows = verdicts.iter().map(|verdict| {
        let mut row = vec![verdict.name.clone(), verdict.kind.to_string(), verdict.cases_run.to_string()];
        row.extend(worst_cells(verdict));
        // The seconds of a cached verdict are those of another run.
        row.push(if verdict.cached { "-".to_owned() } else { format!("{:.2}", verdict.seconds) });
        row.push(result_cell(verdict));
        Row { cells: row, notable: !verdict.passed() }
    });
    let mut text = table::of_results(&columns, rows.collect());
    for verdict in verdicts.iter().filter(|verdict| !verdict.passed()) {
        let head = style(format!("{} {}", verdict.name, verdict.status.word())).red().bold();
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{head}\n");
        for line in plain(&verdict.message).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    let passed = verdicts.iter().filter(|verdict| verdict.passed()).count();
    let cached = verdicts.iter().filter(|verdict| verdict.cached).count();
    if let Some(first) = verdicts.first() {
        let before = if cached > 0 { format!(" ({cached} of them before, unchanged since)") } else { String::new() };
        let twins = match verdicts.iter().filter(|verdict| verdict.same_as.is_some()).count() {
            0 => String::new(),
            twins => format!("; {twins} are the same program as another"),
        };
        let _ = writeln!(
            text,
            "\n{passed} of {} passed{before}: {} cases, seed {}, {}{twins}",
            count(verdicts.len(), "variant"),
            first.level.word(),
            first.seed,
            first.device
        );
    }
    text
}

/// Worst error, tolerance, and their ratio; blank if no case completed.
fn worst_cells(verdict: &Verdict) -> [String; 3] {
    verdict.worst.as_ref().map_or_else(Default::default, |worst| {
        [format!("{:.1e} {}", worst.error, worst.output), format!("{:.1e}", worst.tolerance), format!("{:.2}", worst.ratio)]
    })
}

/// The result, coloured on a terminal.
fn result_cell(verdict: &Verdict) -> String {
    let word = style(verdict.status.word());
    match verdict.status {
        Status::Pass => word.green().to_string(),
        _ => word.red().bold().to_string(),
    }
}
