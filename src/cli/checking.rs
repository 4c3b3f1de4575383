//! Runs checks and shows how they go on. Shared by `check` and `build-all`.

use super::{CliError, Format, escape::plain, ui, ui::Progress};
use crate::{
    check::{self, CheckOptions, CheckRequest, Level, Observer, Status, Verdict},
    device::{DeviceChoice, DeviceError, DeviceKind, EmulatorKit, GpuInfo, KitError, Order},
    family,
    kernel::Target,
    plan::{self, Plan},
    render::Templates,
    toolchain::{Cancel, HostCompiler, cache_dir},
};
use console::style;
use std::time::Duration;

/// The device that `--device` leads to on this machine.
pub(super) struct Place {
    /// `None`: the emulator.
    pub gpu: Option<GpuInfo>,
    /// The GPU was asked for by name: nothing goes to the emulator instead.
    pub only_gpu: bool,
}

impl Place {
    /// Everything goes to the emulator.
    pub const EMULATOR: Self = Self { gpu: None, only_gpu: false };

    /// Finds the device. With `auto`, an unusable GPU is reported and the emulator is used.
    ///
    /// # Errors
    /// [`CliError::Environment`] where `gpu` is asked for and there is none.
    pub fn find(choice: DeviceChoice) -> Result<Self, CliError> {
        if choice == DeviceChoice::Only(DeviceKind::Emulator) {
            return Ok(Self::EMULATOR);
        }
        let only_gpu = choice == DeviceChoice::Only(DeviceKind::Gpu);
        match GpuInfo::probe() {
            Ok(gpu) => Ok(Self { gpu: Some(gpu), only_gpu }),
            Err(error) if only_gpu => Err(unusable_gpu(&error)),
            Err(DeviceError::NoGpu(_)) => Ok(Self::EMULATOR),
            Err(error) => {
                ui::note(&format!("the GPU cannot be used ({error}); checking on the emulator"));
                Ok(Self::EMULATOR)
            }
        }
    }

    /// Where a kernel of a library goes, which is taken to carry PTX where it can.
    pub fn device_of(&self, plan: &Plan) -> DeviceKind {
        if self.takes(plan.compiled_for(), true) { DeviceKind::Gpu } else { DeviceKind::Emulator }
    }

    /// Whether kernels for `target`, built with or without `ptx`, go to the GPU.
    pub fn takes(&self, target: Target, ptx: bool) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| self.only_gpu || plan::runs_on(target, gpu.compute_capability, ptx))
    }
}

/// A GPU that was asked for by name and cannot be used, for commands that have `--device`.
pub(super) fn unusable_gpu(error: &DeviceError) -> CliError {
    CliError::Environment(match error {
        DeviceError::NoGpu(_) => format!("{error}; use `--device emulator`"),
        other => other.to_string(),
    })
}

/// Which cases, and how they are run; what [`CheckOptions`] holds besides is found here.
pub(super) struct How {
    /// How much.
    pub level: Level,
    /// Only cases whose name contains this.
    pub filter: Option<String>,
    /// Seed of inputs and thread order.
    pub seed: u64,
    /// The order of threads on the emulator, where it is not the usual ones.
    pub schedule: Option<Order>,
    /// Longest one variant may take; `None` for the usual limit of the level.
    pub time_limit: Option<Duration>,
    /// Run even what passed before.
    pub fresh: bool,
    /// Variants at once on the emulator.
    pub jobs: usize,
    /// Variants at once on a GPU.
    pub gpu_jobs: usize,
    /// The GPU that requests for one run on.
    pub gpu: Option<GpuInfo>,
    /// What the command has done before, which is kept, as a clause: to be said where the checks are interrupted.
    pub done_before: Option<String>,
}

/// The error of checks that were interrupted after `passed` passed, with what is kept.
fn interrupted(done_before: Option<&str>, passed: usize, all: usize) -> CliError {
    let kept = match (done_before, passed) {
        (None, 0) => "no variant has passed yet".to_owned(),
        (None, _) => format!("{passed} of {} passed, which is kept", ui::count(all, "variant")),
        (Some(done), 0) => format!("{done}, which is kept"),
        (Some(done), _) => format!("{done} and {} passed, which is kept", ui::count(passed, "check")),
    };
    CliError::Interrupted(format!("{kept}; run the same command to resume"))
}

/// Checks every request; verdicts come in their order. `host` is asked for the compiler of the emulator where one of
/// them needs it.
///
/// # Errors
/// [`CliError`] for what stops all of it: no host compiler, an unwritable cache, an interruption.
pub(super) fn run(
    requests: &[CheckRequest],
    how: How,
    templates: &Templates,
    host: impl FnOnce() -> Result<HostCompiler, CliError>,
    cancel: &Cancel,
    format: Format,
) -> Result<Vec<Verdict>, CliError> {
    let cache = cache_dir()?;
    let mut kit = None;
    if requests.iter().any(|request| request.device() == DeviceKind::Emulator) {
        let host = host()?;
        let (include, emulator) = (templates.include_files(), templates.emulator_files());
        let made = EmulatorKit::new(&cache, include, emulator, &host, cancel);
        kit = Some(made.map_err(|error| match error {
            KitError::Interrupted => interrupted(how.done_before.as_deref(), 0, requests.len()),
            other => CliError::Environment(other.to_string()),
        })?);
    }
    let own = std::env::current_exe();
    let How { level, filter, seed, schedule, time_limit, fresh, jobs, gpu_jobs, gpu, done_before } = how;
    let options = CheckOptions {
        cases: family::cases,
        level,
        filter,
        seed,
        schedule,
        jobs,
        gpu_jobs,
        time_limit: time_limit.unwrap_or_else(|| check::default_time_limit(level)),
        fresh,
        cache,
        kit,
        gpu,
        program: own.map_err(|error| CliError::Environment(format!("cannot find kgen's own executable: {error}")))?,
    };
    let progress = Progress::new(format, "checking");
    progress.expect(requests.len(), 0);
    let verdicts = check::run(requests, &options, &Watch { progress, cancel });
    if !cancel.requested() {
        return Ok(verdicts);
    }
    let passed = verdicts.iter().filter(|verdict| verdict.passed()).count();
    Err(interrupted(done_before.as_deref(), passed, requests.len()))
}

/// Exit code 1 unless every verdict is a pass.
pub(super) fn judge(verdicts: &[Verdict]) -> Result<(), CliError> {
    match verdicts.iter().filter(|verdict| !verdict.passed()).count() {
        0 => Ok(()),
        failed => {
            let of = ui::count(verdicts.len(), "variant");
            Err(CliError::VariantFailed(format!("{failed} of {of} did not pass the check")))
        }
    }
}

/// Shows progress and hears of Ctrl-C.
struct Watch<'a> {
    progress: Progress,
    cancel: &'a Cancel,
}

impl Observer for Watch<'_> {
    fn started(&self, variant: &str) {
        self.progress.start(variant);
    }

    fn done(&self, verdict: &Verdict) {
        if verdict.status == Status::Interrupted {
            return self.progress.give_up(&verdict.name);
        }
        let line = if let Some(other) = &verdict.same_as {
            (!verdict.cached).then(|| format!("passed: the same program as {other}"))
        } else if verdict.passed() {
            let cases = || ui::count(verdict.cases_run, "case");
            (!verdict.cached).then(|| format!("{} passed, {:.1} s", cases(), verdict.seconds))
        } else {
            let first = plain(verdict.message.lines().next().unwrap_or_default());
            Some(format!("{} {first}", style(verdict.status.word()).red().for_stderr()))
        };
        self.progress.finish(&verdict.name, line.as_deref(), !verdict.passed());
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}
