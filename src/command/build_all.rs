//! The main command: `build` followed by a smoke check of every selected kernel.

use super::{
    CommandError, Context, Observer,
    ahead::Ahead,
    build::{
        self,
        made::{self, Made},
    },
    checking::{self, How, Place},
};
use crate::{
    build::Unit,
    check::{CheckRequest, DEFAULT_SEED, Kernel, Level, Verdict},
    device::{DeviceChoice, DeviceKind},
    plan::Plan,
    text::count,
};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Request of a build and a smoke check. The default is the whole grid, checked on the GPU if there is one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Request of the build.
    pub build: build::Request,
    /// Device that kernels are checked on.
    pub device: DeviceChoice,
}

/// Outcome of a build and a smoke check.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Outcome of the build.
    pub build: build::Outcome,
    /// Verdicts on the selected kernels that compiled.
    pub checks: Vec<Verdict>,
    /// Duration of the checks, in seconds.
    #[serde(skip)]
    pub check_seconds: f64,
}

/// Builds and checks.
///
/// # Errors
/// [`CommandError`] if the whole command stops. Failed variants are in the outcome.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let Request { build, device } = request;
    // Before anything is built, so that a missing GPU is reported at once.
    let place = Place::find(*device, observer)?;
    let alone = place.gpu.is_some() || build.busy_jobs() == 1;
    let ahead = if alone { None } else { Some(Ahead::start(context)?) };
    let mut made = made::make(build, context, observer)?;
    if let Some(ahead) = ahead {
        ahead.finish(&context.cancel);
    }
    let start = Instant::now();
    let checks = smoke(&mut made, build, place, context, observer)?;
    Ok(Outcome { build: made.outcome, checks, check_seconds: start.elapsed().as_secs_f64() })
}

impl Outcome {
    /// Fails if something did not build or a check did not pass.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with a summary.
    pub fn verdict(&self) -> Result<(), CommandError> {
        self.build.verdict()?;
        checking::judge(&self.checks)
    }
}

/// Checks every kernel that compiled, on the device of `place`. If nothing was linked, a GPU has nothing to run: the
/// emulator is used, or no device if only the GPU may be.
fn smoke(
    made: &mut Made,
    build: &build::Request,
    place: Place,
    context: &Context,
    observer: &dyn Observer,
) -> Result<Vec<Verdict>, CommandError> {
    let library =
        made.outcome.report.library.as_ref().map(|library| std::path::absolute(made.outcome.out_dir.join(&library.path)));
    let library = library.transpose().map_err(|error| CommandError::Environment(error.to_string()))?;
    let compiled = |(plan, unit): (&Plan, &Unit)| {
        made.outcome.report.artifact(&unit.name)?;
        let kernel = match &library {
            Some(path) if place.takes(plan.compiled_for(), build.ptx) => {
                Kernel::Library { device: DeviceKind::Gpu, path: path.clone() }
            }
            None if place.only_gpu => return None,
            _ => Kernel::Source(unit.text.clone()),
        };
        Some(CheckRequest { variant: plan.variant, tiling: plan.tiling(), compiled_for: plan.compiled_for(), kernel })
    };
    let requests: Vec<CheckRequest> = made.plans.iter().zip(&made.kernels).take(made.selected).filter_map(compiled).collect();
    if requests.iter().all(|request| request.device() == DeviceKind::Emulator) {
        // The emulator compiles text; a GPU's workers load the library just built, and not one that replaced it.
        made.unlock();
    }
    let how = How {
        level: Level::Smoke,
        filter: None,
        seed: DEFAULT_SEED,
        schedule: None,
        time_limit: None,
        fresh: false,
        jobs: build.busy_jobs(),
        gpu_jobs: 1,
        gpu: place.gpu,
        done_before: Some(compiled_kernels(made)),
        record: None,
    };
    checking::run(&requests, how, &made.templates, || Ok(made.tools.host.clone()), context, observer)
}

/// A clause on the kernels that were compiled, all of which are in the cache.
fn compiled_kernels(made: &Made) -> String {
    let compiled = made.kernels.iter().filter(|unit| made.outcome.report.artifact(&unit.name).is_some()).count();
    format!("{compiled} of {} compiled", count(made.kernels.len(), "kernel"))
}
