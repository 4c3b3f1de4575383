//! `kgen build-all`: the main job. What `kgen build` does, for the whole grid, and then a smoke check of every kernel.

use super::{
    CliError, Format, Global,
    ahead::Ahead,
    build::{
        BuildArgs,
        made::{self, Extra, Made},
        verdict,
    },
    checking::{self, How, Place, judge},
    escape::plain,
    select::SelectionArgs,
    table::Column,
    ui::{self, Progress},
    workshop,
};
use crate::{
    build::Unit,
    check::{CheckRequest, DEFAULT_SEED, Kernel, Level, Verdict},
    device::{DeviceChoice, DeviceKind},
    plan::Plan,
    toolchain::Cancel,
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

    /// Where kernels are smoke-tested: auto (the GPU if there is one), gpu or emulator.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::VariantFailed`] when a variant did not build or not pass, after the report; what [`made::make`] gives
/// otherwise.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let Args { selection, build, device } = args;
    let cancel = ui::cancel_on_ctrl_c();
    let compiling = Progress::new(global.format, "compiling");
    // Asked before anything is built: a missing GPU is told at once.
    let place = Place::find(device)?;
    let alone = place.gpu.is_some() || build.jobs() == 1;
    let ahead = if alone { None } else { Some(Ahead::start(workshop::templates(global)?)) };
    let mut made = made::make(global, &selection, &build, &cancel, &compiling)?;
    drop(compiling);

    if let Some(ahead) = ahead {
        ahead.finish(&cancel);
    }
    let start = Instant::now();
    let verdicts = smoke(&mut made, &build, place, &cancel, global.format)?;
    match global.format {
        Format::Human => ui::print(&describe(&made, &verdicts, start.elapsed().as_secs_f64()))?,
        Format::Json => ui::print_json(&json!({ "build": made.report, "checks": verdicts }))?,
    }
    verdict(&made)?;
    judge(&verdicts)
}

/// Checks every kernel that compiled, on the device of `place`. Where nothing was linked there is nothing for a GPU to
/// run: the emulator serves, or none where only the GPU may.
fn smoke(made: &mut Made, args: &BuildArgs, place: Place, cancel: &Cancel, format: Format) -> Result<Vec<Verdict>, CliError> {
    let library = made.report.library.as_ref().map(|library| std::path::absolute(made.out_dir.join(&library.path)));
    let library = library.transpose().map_err(|error| CliError::Environment(error.to_string()))?;
    let compiled = |(plan, unit): (&Plan, &Unit)| {
        made.report.artifact(&unit.name)?;
        let kernel = match &library {
            Some(path) if place.takes(plan.compiled_for(), args.ptx()) => {
                Kernel::Library { device: DeviceKind::Gpu, path: path.clone() }
            }
            None if place.only_gpu => return None,
            _ => Kernel::Source(unit.text.clone()),
        };
        Some(CheckRequest { variant: plan.variant, tiling: plan.tiling(), compiled_for: plan.compiled_for(), kernel })
    };
    let requests: Vec<CheckRequest> = made.plans.iter().zip(&made.kernels).take(made.selected).filter_map(compiled).collect();
    if requests.iter().all(|request| request.device() == DeviceKind::Emulator) {
        // The emulator is given text; a GPU's workers load the library that was built, and not one that replaced it.
        made.unlock();
    }
    let how = How {
        level: Level::Smoke,
        filter: None,
        seed: DEFAULT_SEED,
        schedule: None,
        time_limit: None,
        fresh: false,
        jobs: args.jobs(),
        gpu_jobs: 1,
        gpu: place.gpu,
        done_before: Some(compiled_kernels(made)),
    };
    checking::run(&requests, how, &made.templates, || Ok(made.tools.host.clone()), cancel, format)
}

/// A clause on the kernels that were compiled, all of which are in the cache.
fn compiled_kernels(made: &Made) -> String {
    let compiled = made.kernels.iter().filter(|unit| made.report.artifact(&unit.name).is_some()).count();
    format!("{compiled} of {} compiled", ui::count(made.kernels.len(), "kernel"))
}

/// The one table of both steps, what failed, and totals.
fn describe(made: &Made, verdicts: &[Verdict], seconds: f64) -> String {
    let cells = |verdict: &Verdict| {
        let word = if verdict.passed() { style("pass").green() } else { style(verdict.status.word()).red().bold() };
        let worst = verdict.worst.as_ref().map_or_else(|| "-".to_owned(), |w| format!("{:.1e} of {:.1e}", w.error, w.tolerance));
        vec![word.to_string(), worst]
    };
    let extra = Extra {
        columns: &[Column::text("smoke").needed(), Column::text("worst error")],
        notable: verdicts.iter().filter(|v| !v.passed()).map(|v| v.name.as_str()).collect(),
        cells: verdicts.iter().map(|v| (v.name.as_str(), cells(v))).collect(),
    };
    let mut text = made.describe(&extra);
    let passed = verdicts.iter().filter(|v| v.passed()).count();
    let cached = verdicts.iter().filter(|v| v.cached).count();
    let mut devices: Vec<&str> = verdicts.iter().map(|v| v.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let (count, devices) = (verdicts.len(), devices.join(" and "));
    let twins = match verdicts.iter().filter(|v| v.same_as.is_some()).count() {
        0 => String::new(),
        twins => format!(", {twins} the same program as another"),
    };
    // Writing into a string cannot fail.
    match count {
        0 => writeln!(text, "smoke: nothing compiled, so nothing was checked"),
        _ => {
            writeln!(
                text,
                "smoke: {passed} of {count} passed on {devices} in {seconds:.1} s, {cached} of them known from before{twins}"
            )
        }
    }
    .ok();
    for verdict in verdicts.iter().filter(|v| !v.passed()) {
        write!(text, "\n{} `{}`: {}\n", style("error:").red().bold(), verdict.name, plain(verdict.message.trim_end())).ok();
    }
    text
}
