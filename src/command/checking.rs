//! Checks of kernels on the local device. Shared by `check` and `build-all`.

use super::{CommandError, Context, Event, Observer, Work, observer::Relay, record::Recorder};
use crate::{
    bench::{self, Made},
    check::{self, CheckOptions, CheckRequest, Level, Verdict},
    device::{DeviceChoice, DeviceError, DeviceKind, EmulatorKit, GpuInfo, KitError, Order},
    family,
    kernel::{Target, Variant},
    lab::Row,
    plan::{self, Plan},
    render::Templates,
    text::count,
    toolchain::HostCompiler,
};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, time::Duration};

/// The device that `--device` selects on this machine.
pub(super) struct Place {
    /// `None`: the emulator.
    pub gpu: Option<GpuInfo>,
    /// The user requested the GPU explicitly: nothing falls back to the emulator.
    pub only_gpu: bool,
}

impl Place {
    /// Everything runs on the emulator.
    pub const EMULATOR: Self = Self { gpu: None, only_gpu: false };

    /// Finds the device. With [`DeviceChoice::Auto`], an unusable GPU is reported and the emulator is used.
    ///
    /// # Errors
    /// [`CommandError::Environment`] if a GPU is requested and there is none.
    pub fn find(choice: DeviceChoice, observer: &dyn Observer) -> Result<Self, CommandError> {
        if choice == DeviceChoice::Only(DeviceKind::Emulator) {
            return Ok(Self::EMULATOR);
        }
        let only_gpu = choice == DeviceChoice::Only(DeviceKind::Gpu);
        match GpuInfo::probe() {
            Ok(gpu) => Ok(Self { gpu: Some(gpu), only_gpu }),
            Err(error) if only_gpu => Err(unusable_gpu(&error)),
            Err(DeviceError::NoGpu(_)) => Ok(Self::EMULATOR),
            Err(error) => {
                observer.note(&format!("the GPU cannot be used ({error}); checking on the emulator"));
                Ok(Self::EMULATOR)
            }
        }
    }

    /// Device for a kernel of a library, which is assumed to carry PTX if it can.
    pub fn device_of(&self, plan: &Plan) -> DeviceKind {
        if self.takes(plan.compiled_for(), true) { DeviceKind::Gpu } else { DeviceKind::Emulator }
    }

    /// True if kernels for `target`, built with or without `ptx`, run on the GPU.
    pub fn takes(&self, target: Target, ptx: bool) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| self.only_gpu || plan::runs_on(target, gpu.compute_capability, ptx))
    }
}

/// The error of a requested GPU that cannot be used, for commands that have `--device`.
pub(super) fn unusable_gpu(error: &DeviceError) -> CommandError {
    CommandError::Environment(match error {
        DeviceError::NoGpu(_) => format!("{error}; use `--device emulator`"),
        other => other.to_string(),
    })
}

/// Cases and options of a run; the rest of [`CheckOptions`] is determined here.
pub(super) struct How {
    /// Level of the cases.
    pub level: Level,
    /// Text that the names of the selected cases contain.
    pub filter: Option<String>,
    /// Seed of inputs and thread order.
    pub seed: u64,
    /// Thread order on the emulator; `None` for the usual ones.
    pub schedule: Option<Order>,
    /// Time limit per variant; `None` for the usual limit of the level.
    pub time_limit: Option<Duration>,
    /// Run kernels again even if they passed before.
    pub fresh: bool,
    /// Parallel variants on the emulator.
    pub jobs: usize,
    /// Parallel variants on a GPU.
    pub gpu_jobs: usize,
    /// The GPU of requests that run on one.
    pub gpu: Option<GpuInfo>,
    /// Earlier results of the command that are kept, as a clause for the message of an interruption.
    pub done_before: Option<String>,
    /// The store of the verdicts, if they are stored.
    pub record: Option<Record>,
}

/// The store of verdicts.
pub(super) struct Record {
    pub recorder: Recorder,
    /// Kernels by name: the variant, its tile and text, and its entry in the library's manifest.
    pub kernels: BTreeMap<String, (Variant, Made, Map<String, Value>)>,
}

/// Adds each verdict to the store before it is reported.
struct Recording<'a> {
    relay: Relay<'a>,
    record: &'a Record,
    date: String,
}

impl check::Observer for Recording<'_> {
    fn started(&self, variant: &str) {
        check::Observer::started(&self.relay, variant);
    }

    fn case(&self, variant: &str, number: usize, of: usize, name: &str) {
        self.relay.case(variant, number, of, name);
    }

    fn done(&self, verdict: &Verdict) {
        let Record { recorder, kernels } = self.record;
        if let Some((variant, made, built)) = kernels.get(&verdict.name)
            && let Some(row) = Row::of_verdict(verdict, *variant, made, built, &recorder.run, &self.date)
        {
            recorder.add(&row, self.relay.observer);
        }
        self.relay.done(verdict);
    }

    fn interrupted(&self) -> bool {
        check::Observer::interrupted(&self.relay)
    }
}

/// The error of checks that were interrupted after `passed` passes, with the results that are kept.
fn interrupted(done_before: Option<&str>, passed: usize, all: usize) -> CommandError {
    let kept = match (done_before, passed) {
        (None, 0) => "no variant has passed yet".to_owned(),
        (None, _) => format!("{passed} of {} passed; results are kept", count(all, "variant")),
        (Some(done), 0) => format!("{done}; results are kept"),
        (Some(done), _) => format!("{done} and {} passed; results are kept", count(passed, "check")),
    };
    CommandError::Interrupted(format!("{kept}; run the same command to resume"))
}

/// Checks every request and returns the verdicts in order. Calls `host` for the emulator's compiler if a request needs
/// it.
///
/// # Errors
/// [`CommandError`] if the whole run stops: no host compiler, an unwritable cache, an interruption.
pub(super) fn run(
    requests: &[CheckRequest],
    how: How,
    templates: &Templates,
    host: impl FnOnce() -> Result<HostCompiler, CommandError>,
    context: &Context,
    observer: &dyn Observer,
) -> Result<Vec<Verdict>, CommandError> {
    let cancel = &context.cancel;
    let cache = context.cache_dir()?;
    let mut kit = None;
    if requests.iter().any(|request| request.device() == DeviceKind::Emulator) {
        let host = host()?;
        let (include, emulator) = (templates.include_files(), templates.emulator_files());
        let made = EmulatorKit::new(&cache, include, emulator, &host, cancel);
        kit = Some(made.map_err(|error| match error {
            KitError::Interrupted => interrupted(how.done_before.as_deref(), 0, requests.len()),
            other => CommandError::Environment(other.to_string()),
        })?);
    }
    let How { level, filter, seed, schedule, time_limit, fresh, jobs, gpu_jobs, gpu, done_before, record } = how;
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
        program: context.program()?,
    };
    observer.event(Event::Begun { work: Work::Checking, steps: requests.len(), known: 0 });
    let relay = Relay { observer, cancel };
    let verdicts = match &record {
        None => check::run(requests, &options, &relay),
        Some(record) => check::run(requests, &options, &Recording { relay, record, date: bench::now() }),
    };
    observer.event(Event::Ended);
    if !cancel.requested() {
        return Ok(verdicts);
    }
    let passed = verdicts.iter().filter(|verdict| verdict.passed()).count();
    Err(interrupted(done_before.as_deref(), passed, requests.len()))
}

/// Fails unless every verdict is a pass.
///
/// # Errors
/// [`CommandError::Failed`] with the number of other verdicts.
pub(super) fn judge(verdicts: &[Verdict]) -> Result<(), CommandError> {
    match verdicts.iter().filter(|verdict| !verdict.passed()).count() {
        0 => Ok(()),
        failed => {
            let of = count(verdicts.len(), "variant");
            Err(CommandError::Failed(format!("{failed} of {of} did not pass the check")))
        }
    }
}
