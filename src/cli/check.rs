//! `kgen check`: kernels against the float64 reference, on a GPU or on the emulator.

use super::{
    CliError, Format, Global,
    build::output_folder,
    checking::{self, How, Place},
    escape::plain,
    fuzz::{self, Fuzz, FuzzArgs},
    junit,
    select::SelectionArgs,
    table::{self, Column, Row},
    target::{TargetParser, TargetWord},
    ui,
    workshop::Workshop,
};
use crate::{
    check::{self, CheckRequest, DEFAULT_SEED, Kernel, Level, Status, Subject, Verdict},
    device::{DeviceChoice, DeviceKind, GpuInfo, Order},
    family, jobs,
    kernel::Target,
    plan::Plan,
    toolchain::host_compiler,
};
use console::style;
use std::{
    fmt::Write,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

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
    #[arg(short, long, value_name = "N", value_parser = ui::at_least_one)]
    jobs: Option<NonZeroUsize>,

    /// The library of kernels a GPU check runs [default: build/lib/libkgen.so, or with `--run-as` the one below
    /// build/run-as-TARGET].
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,

    /// Check kernels as `kgen build --run-as` makes them for the GPUs of this target.
    #[arg(long, value_name = "TARGET", ignore_case = true, hide_possible_values = true)]
    #[arg(value_parser = TargetParser)]
    run_as: Option<TargetWord>,
}

/// What to check and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Check")]
struct CheckArgs {
    /// Where kernels run: auto (the GPU if there is one), gpu or emulator.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// All cases instead of the smoke cases; takes minutes per variant on the emulator.
    #[arg(long)]
    thorough: bool,

    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,

    /// Seed of the inputs and, on the emulator, of the thread order.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Thread order on the emulator, as a failure names it: `shuffled`, or `priorities:N` (after a shuffled run), where
    /// warps run by priorities, of which N are lowered [default: both, N chosen per case].
    #[arg(long, value_name = "ORDER")]
    schedule: Option<Order>,

    /// Time limit per variant, in seconds [default: 60, thorough 600]; with `--fuzz` per call [default: 120].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=ui::LONGEST_LIMIT))]
    time_limit: Option<u64>,

    /// Also write the result to this file as JUnit XML.
    #[arg(long, value_name = "FILE", conflicts_with = "fuzz")]
    junit: Option<PathBuf>,

    /// Run everything again, also what passed before and has not changed.
    #[arg(long, visible_alias = "no-cache")]
    fresh: bool,
}

impl CheckArgs {
    /// How much is checked.
    fn level(&self) -> Level {
        if self.thorough { Level::Thorough } else { Level::Smoke }
    }

    /// Refuses a `--case` that names nothing, before anything is compiled for it.
    fn refuse_unknown_case(&self, plans: &[Plan], place: &Place) -> Result<(), CliError> {
        let (level, part) = (self.level(), self.case.as_deref());
        let named = |plan: &Plan, part| {
            let device = place.device_of(plan);
            check::selected_cases(family::cases, &Subject { variant: plan.variant, tiling: plan.tiling(), device }, level, part)
        };
        if part.is_none() || plans.iter().any(|plan| !named(plan, part).is_empty()) {
            return Ok(());
        }
        let example = plans.iter().flat_map(|plan| named(plan, None)).map(|case| case.name()).next().unwrap_or_default();
        Err(CliError::Usage(format!(
            "no {} case's name contains `{}`; a name is for example `{example}`",
            level.word(),
            part.unwrap_or_default()
        )))
    }

    /// Finds the device. With `auto` a GPU also needs the library; where that is missing the emulator serves.
    ///
    /// # Errors
    /// [`CliError::Environment`] where `gpu` is asked for and there is none, or no library.
    fn place(&self, library: &Path, run_as: Option<Target>) -> Result<Place, CliError> {
        let place = Place::find(self.device)?;
        if place.gpu.is_none() || library.is_file() {
            return Ok(place);
        }
        let flag = run_as.map_or_else(String::new, |target| format!(" --run-as {target}"));
        let missing = format!("there is no `{}` to run on the GPU; `kgen build{}` makes it", library.display(), flag);
        if place.only_gpu {
            return Err(CliError::Environment(missing));
        }
        ui::note(&format!("{missing}; checking on the emulator"));
        Ok(Place::EMULATOR)
    }

    /// Which cases, and how they are run.
    fn how(&self, jobs: usize, gpu_jobs: usize, gpu: Option<GpuInfo>) -> How {
        How {
            level: self.level(),
            filter: self.case.clone(),
            seed: self.seed,
            schedule: self.schedule,
            time_limit: self.time_limit.map(Duration::from_secs),
            fresh: self.fresh,
            jobs,
            gpu_jobs,
            gpu,
            done_before: None,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError::VariantFailed`] when a variant did not pass, after the report; [`CliError`] for what stops all of it.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let Args { selection, check, fuzz, jobs, library, run_as } = args;
    let run_as = run_as.as_ref().map(TargetWord::target).transpose()?;
    let named = library.clone();
    let library = library.unwrap_or_else(|| output_folder(Path::new("build"), run_as).join("lib").join("libkgen.so"));
    if fuzz.is_asked() {
        let place = check.place(&library, None)?;
        refuse_unused(named.as_deref(), &place)?;
        let jobs = jobs::busy(jobs);
        let (seed, call_limit) = (check.seed, check.time_limit.map(Duration::from_secs));
        let (library, selection) = (library.as_path(), &selection);
        return fuzz::run(global, Fuzz { args: fuzz, selection, place, library, seed, jobs, call_limit });
    }
    let cancel = ui::cancel_on_ctrl_c();
    let workshop = Workshop::new(global)?;
    let plans = workshop.plan_all(&selection.resolve(&workshop.grid)?, run_as)?;
    let place = check.place(&library, run_as)?;
    refuse_unused(named.as_deref(), &place)?;
    check.refuse_unknown_case(&plans, &place)?;
    if check.schedule.is_some() && plans.iter().any(|plan| place.device_of(plan) == DeviceKind::Gpu) {
        return Err(CliError::Usage("`--schedule` is for the emulator, a GPU has its own; add `--device emulator`".to_owned()));
    }
    // What a GPU runs is in the library, which is taken to carry PTX where it can; the emulator compiles what is
    // rendered.
    let kernel = |plan: &Plan| {
        if place.device_of(plan) == DeviceKind::Gpu {
            Ok(Kernel::Library { device: DeviceKind::Gpu, path: library.clone() })
        } else {
            workshop.renderer.kernel(plan).map(|source| Kernel::Source(source.text))
        }
    };
    let request = |plan: &Plan| {
        kernel(plan).map(|kernel| CheckRequest {
            variant: plan.variant,
            tiling: plan.tiling(),
            compiled_for: plan.compiled_for(),
            kernel,
        })
    };
    let requests: Vec<CheckRequest> = plans.iter().map(request).collect::<Result<_, _>>()?;
    let gpu_jobs = jobs.map_or(1, NonZeroUsize::get);
    let jobs = jobs::busy(jobs);
    let how = check.how(jobs, gpu_jobs, place.gpu);
    let host = || Ok(host_compiler(&cancel)?);
    let verdicts = checking::run(&requests, how, &workshop.templates, host, &cancel, global.format)?;
    if let Some(file) = &check.junit {
        junit::write(file, &verdicts)?;
    }
    match global.format {
        Format::Human => ui::print(&describe(&verdicts))?,
        Format::Json => ui::print_json(&verdicts)?,
    }
    checking::judge(&verdicts)
}

/// Refuses a library that was named and would not be run.
fn refuse_unused(named: Option<&Path>, place: &Place) -> Result<(), CliError> {
    match named {
        Some(library) if place.gpu.is_none() => Err(CliError::Environment(format!(
            "`--library {}` is run on a GPU, and the emulator compiles kernels itself; leave it out, or go where there is a GPU",
            library.display()
        ))),
        _ => Ok(()),
    }
}

/// The table, what failed, and totals.
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
        // An older run's seconds are not this one's.
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
            ui::count(verdicts.len(), "variant"),
            first.level.word(),
            first.seed,
            first.device
        );
    }
    text
}

/// Worst error, what is allowed, and the one as a part of the other; blank where no case ran to its end.
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
