//! `kgen check`: kernels against the float64 reference, on a GPU or on the emulator.

use super::{
    CliError, Format, Global,
    list::print,
    select::{SelectionArgs, load_grid, plan},
    ui::{self, Progress},
};
use crate::{
    check::{self, CheckOptions, CheckRequest, DEFAULT_SEED, Kernel, Level, Observer, Status, Verdict},
    device::{DeviceChoice, DeviceError, DeviceKind, EmulatorKit, GpuInfo},
    grid::Target,
    plan::{Plan, newest_with_ptx},
    render::{Renderer, Templates},
    toolchain::{Cancel, cache_dir, host_compiler},
};
use console::style;
use std::{
    fmt::Write,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  kgen check                          the whole grid, on the GPU if there is one
  kgen check --device emulator --head-dim 128 --dtype bf16
                                      a slice of it, with no GPU
  kgen check --head-dim 64 --thorough every case: lengths, layouts, contents
  kgen check --head-dim 64 --case one-hot --seed 7
                                      cases by name, other inputs
  kgen check --device gpu --library build/lib/libkgen.so
                                      what `kgen build` has made";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    check: CheckArgs,

    /// Variants at once on the emulator [default: one for each core]; a GPU takes one at a time.
    #[arg(short, long, value_name = "N", value_parser = ui::at_least_one)]
    jobs: Option<NonZeroUsize>,

    /// The library of kernels a GPU check runs.
    #[arg(long, value_name = "FILE", default_value = "build/lib/libkgen.so")]
    library: PathBuf,
}

/// What to check and where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Check")]
struct CheckArgs {
    /// Where kernels run: auto (the GPU if there is one), gpu or emulator.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// Every case instead of the few that reach every branch: minutes a variant on the emulator.
    #[arg(long)]
    thorough: bool,

    /// Only cases whose name contains this.
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,

    /// Draws the inputs, and on the emulator the order of threads.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Longest one variant may take, in seconds [default: 60, thorough 600].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: Option<u64>,

    /// Run also what passed before unchanged.
    #[arg(long, visible_alias = "no-cache")]
    fresh: bool,
}

/// The device that `--device` leads to on this machine.
struct Place {
    /// `None`: the emulator.
    gpu: Option<GpuInfo>,
    /// The GPU was asked for by name: nothing goes to the emulator instead.
    only_gpu: bool,
}

impl Place {
    /// Whether kernels for `target` go to the GPU. The library is taken to carry PTX where it can.
    fn takes(&self, target: Target) -> bool {
        let range = target.compute_capability()..=newest_with_ptx(target);
        self.gpu.as_ref().is_some_and(|gpu| self.only_gpu || range.contains(&gpu.compute_capability))
    }
}

impl CheckArgs {
    /// How much is checked.
    fn level(&self) -> Level {
        if self.thorough { Level::Thorough } else { Level::Smoke }
    }

    /// Refuses a `--case` that names nothing, before anything is compiled for it.
    fn refuse_unknown_case(&self, plans: &[Plan]) -> Result<(), CliError> {
        let (level, part) = (self.level(), self.case.as_deref());
        if plans.iter().any(|plan| !check::selected_cases(level, plan.variant.causal, part).is_empty()) {
            return Ok(());
        }
        let example = level.cases().first().map(|case| case.name(false)).unwrap_or_default();
        Err(CliError::Usage(format!(
            "no {} case's name contains `{}`; a name is for example `{example}`",
            level.word(),
            part.unwrap_or_default()
        )))
    }

    /// Finds the device. With `auto` a GPU also needs the library; where that is missing, and for kernels
    /// that do not run on it, the emulator serves.
    ///
    /// # Errors
    /// [`CliError::Environment`] where `gpu` is asked for and there is none, or no library.
    fn place(&self, library: &Path) -> Result<Place, CliError> {
        let emulator = Place { gpu: None, only_gpu: false };
        if self.device == DeviceChoice::Only(DeviceKind::Emulator) {
            return Ok(emulator);
        }
        let only_gpu = self.device == DeviceChoice::Only(DeviceKind::Gpu);
        match GpuInfo::probe() {
            Err(error) if only_gpu => Err(CliError::Environment(error.to_string())),
            Err(DeviceError::NoGpu(_)) => Ok(emulator),
            Err(error) => {
                ui::note(&format!("the GPU cannot be used ({error}); checking on the emulator"));
                Ok(emulator)
            }
            Ok(gpu) if library.is_file() => Ok(Place { gpu: Some(gpu), only_gpu }),
            Ok(_) => {
                let missing = format!("there is no `{}` to run on the GPU; `kgen build` makes it", library.display());
                if only_gpu {
                    return Err(CliError::Environment(missing));
                }
                ui::note(&format!("{missing}; checking on the emulator"));
                Ok(emulator)
            }
        }
    }

    /// Checks the kernels of `plans`: the launchers in `library` on a GPU, their rendered source on the emulator.
    /// Verdicts come in the order of `plans`.
    ///
    /// # Errors
    /// [`CliError`] for what stops all of it: no host compiler, templates that do not render, an interruption.
    fn run(&self, place: &Place, library: &Path, plans: &[Plan], around: &Around<'_>) -> Result<Vec<Verdict>, CliError> {
        let level = self.level();
        let cache = cache_dir()?;
        let renderer = Renderer::new(around.templates).map_err(|error| CliError::Usage(error.to_string()))?;
        let mut requests = Vec::with_capacity(plans.len());
        for plan in plans {
            let kernel = if place.takes(plan.variant.target) {
                Kernel::Library { device: DeviceKind::Gpu, path: library.to_owned() }
            } else {
                Kernel::Source(renderer.kernel(plan).map_err(|error| CliError::Usage(error.to_string()))?.text)
            };
            requests.push(CheckRequest { variant: plan.variant, kernel });
        }
        let mut kit = None;
        if requests.iter().any(|request| request.device() == DeviceKind::Emulator) {
            let host = host_compiler()?;
            let (include, emulator) = (around.templates.include_files(), around.templates.emulator_files());
            let made = EmulatorKit::new(&cache, include, emulator, &host.path, &host.version);
            kit = Some(made.map_err(|error| CliError::Environment(error.to_string()))?);
        }
        let options = CheckOptions {
            level,
            filter: self.case.clone(),
            seed: self.seed,
            jobs: around.jobs,
            time_limit: self.time_limit.map_or_else(|| check::default_time_limit(level), Duration::from_secs),
            fresh: self.fresh,
            cache,
            kit,
            gpu: place.gpu.clone(),
            program: std::env::current_exe()
                .map_err(|error| CliError::Environment(format!("cannot find kgen's own executable: {error}")))?,
        };
        around.progress.expect(requests.len());
        let verdicts = check::run(&requests, &options, &Watch { progress: around.progress, cancel: around.cancel });
        around.progress.clear();
        if around.cancel.requested() { Err(CliError::Interrupted) } else { Ok(verdicts) }
    }
}

/// What a check works with besides its own arguments.
struct Around<'a> {
    templates: &'a Templates,
    /// Variants at once on the emulator.
    jobs: usize,
    cancel: &'a Cancel,
    progress: &'a Progress,
}

/// Shows progress and hears of Ctrl-C.
struct Watch<'a> {
    progress: &'a Progress,
    cancel: &'a Cancel,
}

impl Observer for Watch<'_> {
    fn started(&self, variant: &str) {
        self.progress.start(variant);
    }

    fn done(&self, verdict: &Verdict) {
        let line = if verdict.passed() {
            (!verdict.cached).then(|| format!("{} cases passed, {:.1} s", verdict.cases_run, verdict.seconds))
        } else {
            let first = verdict.message.lines().next().unwrap_or_default();
            Some(format!("{} {first}", style(verdict.status.word()).red().for_stderr()))
        };
        self.progress.finish(&verdict.name, line.as_deref(), !verdict.passed());
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError::VariantFailed`] when a variant did not pass, after the report; [`CliError`] for what stops all of it.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let Args { selection, check, jobs, library } = args;
    let cancel = ui::cancel_on_ctrl_c();
    let grid = load_grid(global)?;
    let mut plans = Vec::new();
    for variant in selection.resolve(&grid)? {
        plans.push(plan(&grid, variant).map_err(CliError::Usage)?);
    }
    check.refuse_unknown_case(&plans)?;
    let templates = match &global.templates {
        Some(folder) => Templates::from_dir(folder).map_err(|error| CliError::Usage(error.to_string()))?,
        None => Templates::embedded(),
    };
    let progress = Progress::new(global.format, "checking");
    let jobs = jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let place = check.place(&library)?;
    let around = Around { templates: &templates, jobs, cancel: &cancel, progress: &progress };
    let verdicts = check.run(&place, &library, &plans, &around)?;
    match global.format {
        Format::Human => print(describe(&verdicts).as_bytes())?,
        Format::Json => {
            let json = serde_json::to_string_pretty(&verdicts).map_err(|error| CliError::Environment(error.to_string()))?;
            print((json + "\n").as_bytes())?;
        }
    }
    judge(&verdicts)
}

/// Exit code 1 unless every verdict is a pass.
fn judge(verdicts: &[Verdict]) -> Result<(), CliError> {
    let failed = verdicts.iter().filter(|verdict| !verdict.passed()).count();
    if failed == 0 {
        return Ok(());
    }
    Err(CliError::VariantFailed(format!("{failed} of {} did not pass", ui::count(verdicts.len(), "variant"))))
}

/// The table, what failed, and totals.
fn describe(verdicts: &[Verdict]) -> String {
    let header = ["variant", "device", "cases", "worst error", "allowed", "ratio", "seconds", "result"];
    let rows = verdicts.iter().map(|verdict| {
        let mut row = vec![verdict.name.clone(), verdict.kind.to_string(), verdict.cases_run.to_string()];
        row.extend(worst_cells(verdict));
        row.push(format!("{:.2}", verdict.seconds));
        row.push(result_cell(verdict));
        row
    });
    let mut text = ui::table(&header, &[2, 3, 4, 5, 6], rows);
    for verdict in verdicts.iter().filter(|verdict| !verdict.passed()) {
        let head = style(format!("{} {}", verdict.name, verdict.status.word())).red().bold();
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{head}\n");
        for line in verdict.message.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    let passed = verdicts.iter().filter(|verdict| verdict.passed()).count();
    let cached = verdicts.iter().filter(|verdict| verdict.cached).count();
    if let Some(first) = verdicts.first() {
        let before = if cached > 0 { format!(" ({cached} of them before, unchanged since)") } else { String::new() };
        let _ = writeln!(
            text,
            "\n{passed} of {} passed{before}: {} cases, seed {}, {}",
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
