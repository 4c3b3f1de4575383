//! `kgen build-all`: the main job. What `kgen build` does, for the whole grid, and then a smoke check of every kernel.

use super::{
    CliError, Format, Global,
    build::{
        BuildArgs,
        made::{self, Extra, Made},
        verdict,
    },
    list::print,
    select::SelectionArgs,
    ui::{self, Progress},
};
use crate::{
    build::Unit,
    check::{self, CheckOptions, CheckRequest, DEFAULT_SEED, Kernel, Level, Verdict, default_time_limit},
    device::{DeviceKind, EmulatorKit, GpuInfo},
    grid::Target,
    plan::{self, Plan},
    toolchain::{Cancel, cache_dir},
};
use console::style;
use serde_json::json;
use std::{fmt::Write, time::Instant};

const EXAMPLES: &str = "\
Examples:
  kgen build-all             nvcc if there is none, then all of it
  kgen build-all -j 32       32 compilers at once, as far as memory allows
  kgen build-all --offline   never use the network";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    build: BuildArgs,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::VariantFailed`] when a variant did not build or not pass, after the report; what [`made::make`] gives
/// otherwise.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let Args { selection, build } = args;
    let cancel = ui::cancel_on_ctrl_c();
    let compiling = Progress::new(global.format, "compiling");
    let made = made::make(global, &selection, &build, &cancel, &compiling)?;
    drop(compiling);

    let start = Instant::now();
    let verdicts = smoke(&made, &build, &cancel, global.format)?;
    if cancel.requested() {
        return Err(CliError::Interrupted);
    }
    match global.format {
        Format::Human => print(describe(&made, &verdicts, start.elapsed().as_secs_f64()).as_bytes())?,
        Format::Json => print(format!("{:#}\n", json!({ "build": made.report, "checks": verdicts })).as_bytes())?,
    }
    verdict(&made)?;
    match verdicts.iter().filter(|v| !v.passed()).count() {
        0 => Ok(()),
        failed => {
            let of = ui::count(verdicts.len(), "variant");
            Err(CliError::VariantFailed(format!("{failed} of {of} did not pass the smoke check")))
        }
    }
}

/// Checks every kernel that compiled: on the GPU where it can run there, else on the emulator.
fn smoke(made: &Made, args: &BuildArgs, cancel: &Cancel, format: Format) -> Result<Vec<Verdict>, CliError> {
    let environment = |error: &dyn std::fmt::Display| CliError::Environment(error.to_string());
    let cache = cache_dir()?;
    let gpu = GpuInfo::probe().ok();
    let library = made.report.library.as_ref().map(|library| made.out_dir.join(&library.path));
    let library = library.map(std::path::absolute).transpose().map_err(|e| environment(&e))?;

    let compiled = |(plan, unit): (&Plan, &Unit)| {
        made.report.artifact(&unit.name)?;
        let kernel = match (&gpu, &library) {
            (Some(gpu), Some(path)) if runs_on(plan.variant.target, gpu, args.ptx()) => {
                Kernel::Library { device: DeviceKind::Gpu, path: path.clone() }
            }
            _ => Kernel::Source(unit.text.clone()),
        };
        Some(CheckRequest { variant: plan.variant, kernel })
    };
    let requests: Vec<CheckRequest> = made.plans.iter().zip(&made.kernels).filter_map(compiled).collect();

    let mut kit = None;
    if requests.iter().any(|r| matches!(r.kernel, Kernel::Source(_))) {
        let (templates, host) = (&made.templates, &made.tools.host);
        let made = EmulatorKit::new(&cache, templates.include_files(), templates.emulator_files(), &host.path, &host.version);
        kit = Some(made.map_err(|e| environment(&e))?);
    }
    let options = CheckOptions {
        level: Level::Smoke,
        filter: None,
        seed: DEFAULT_SEED,
        jobs: args.jobs(),
        time_limit: default_time_limit(Level::Smoke),
        fresh: false,
        cache,
        kit,
        gpu,
        program: std::env::current_exe().map_err(|e| environment(&e))?,
    };
    let watch = Watch { progress: Progress::new(format, "checking"), cancel };
    watch.progress.expect(requests.len());
    Ok(check::run(&requests, &options, &watch))
}

/// Whether code for `target` runs on `gpu`.
fn runs_on(target: Target, gpu: &GpuInfo, ptx: bool) -> bool {
    let newest = if ptx { plan::newest_with_ptx(target) } else { plan::newest_for_machine_code(target) };
    (target.compute_capability()..=newest).contains(&gpu.compute_capability)
}

/// Shows how checks go on.
struct Watch<'a> {
    progress: Progress,
    cancel: &'a Cancel,
}

impl check::Observer for Watch<'_> {
    fn case(&self, variant: &str, number: usize, _of: usize, _name: &str) {
        if number == 1 {
            self.progress.start(variant);
        }
    }

    fn done(&self, verdict: &Verdict) {
        let line = (!verdict.cached).then(|| format!("{}, {:.1} s", verdict.status.word(), verdict.seconds));
        self.progress.finish(&verdict.name, line.as_deref(), !verdict.passed());
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}

/// The one table of both steps, what failed, and totals.
fn describe(made: &Made, verdicts: &[Verdict], seconds: f64) -> String {
    let cells = |verdict: &Verdict| {
        let word = if verdict.passed() { style("pass").green() } else { style(verdict.status.word()).red().bold() };
        let worst = verdict.worst.as_ref().map_or_else(|| "-".to_owned(), |w| format!("{:.1e} of {:.1e}", w.error, w.tolerance));
        vec![word.to_string(), worst]
    };
    let extra =
        Extra { header: &["smoke", "worst error"], cells: verdicts.iter().map(|v| (v.name.as_str(), cells(v))).collect() };
    let mut text = made.describe(&extra);
    let passed = verdicts.iter().filter(|v| v.passed()).count();
    let cached = verdicts.iter().filter(|v| v.cached).count();
    let mut devices: Vec<&str> = verdicts.iter().map(|v| v.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let (count, devices) = (verdicts.len(), devices.join(" and "));
    // Writing into a string cannot fail.
    match count {
        0 => writeln!(text, "smoke: nothing compiled, so nothing was checked"),
        _ => {
            writeln!(text, "smoke: {passed} of {count} passed on {devices} in {seconds:.1} s, {cached} of them known from before")
        }
    }
    .ok();
    for verdict in verdicts.iter().filter(|v| !v.passed()) {
        write!(text, "\n{} `{}`: {}\n", style("error:").red().bold(), verdict.name, verdict.message.trim_end()).ok();
    }
    text
}
