//! The worker's side: runs one kernel once, at one size, in a separate process because it may hang or crash.

use super::{Line, emulated};
use crate::{
    bench::{self, Bench, Draws, ExperimentFailure, Size, Status, Trials},
    device::{DEFAULT_MULTIPROCESSORS, DeviceError, DeviceKind, Emulator, Gpu, GpuFacts},
    isolate,
    kernel::Variant,
};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, Write},
    path::PathBuf,
};

/// Version of the messages between parent and worker.
pub const PROTOCOL: u32 = 1;

/// A run of one kernel at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The variant to run.
    pub variant: Variant,
    /// The device to run it on.
    pub device: DeviceKind,
    /// Compute capability of the emulated device, `major * 10 + minor`.
    pub capability: u32,
    /// Shared library that holds the variant's launcher.
    #[serde(with = "crate::files::path::exact")]
    pub library: PathBuf,
    /// The size.
    pub size: Size,
    /// Draws the inputs and, on the emulator, the thread order.
    pub seed: u64,
}

/// Request to a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// Version of the protocol, [`PROTOCOL`].
    pub version: u32,
    /// The run.
    pub job: Job,
    /// The parent's time limit.
    pub time_limit_seconds: f64,
}

/// The worker's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The kernel ran.
    Ran {
        /// Its accesses by line; none on a GPU.
        lines: Vec<Line>,
        /// Largest relative error of the sampled rows.
        relative_error: f64,
    },
    /// There is nothing to report.
    Failed {
        /// The reason's kind.
        status: Status,
        /// The reason.
        message: String,
    },
}

/// Serves one request.
///
/// # Errors
/// A message for the parent's log if the request cannot be read or the answer cannot be written.
pub fn serve(trials: Trials, input: &mut impl BufRead, output: impl Write) -> Result<(), String> {
    let (request, mut reply): (Request, _) = isolate::request(input, output)?;
    if request.version != PROTOCOL {
        return Err(format!("the request has version {}, this worker speaks {PROTOCOL}", request.version));
    }
    let _watch = isolate::end_when_forgotten(request.time_limit_seconds);
    let answer = match run(trials, &request.job) {
        Ok((lines, relative_error)) => Answer::Ran { lines, relative_error },
        Err(Failure { status, message }) => Answer::Failed { status, message },
    };
    reply.say(&answer).map_err(|e| format!("cannot report: {e}"))
}

/// The reason why there are no counts.
#[derive(Debug)]
pub(super) struct Failure {
    pub status: Status,
    pub message: String,
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        ExperimentFailure::from(error).into()
    }
}

impl From<ExperimentFailure> for Failure {
    fn from(failure: ExperimentFailure) -> Self {
        let (status, message) = failure.into();
        Self { status, message }
    }
}

fn run(trials: Trials, job: &Job) -> Result<(Vec<Line>, f64), Failure> {
    let Job { variant, size, seed, library, .. } = job;
    let draws = Draws::new(*seed);
    let trial = |multiprocessors| {
        let trial = trials(variant, size, Bench { draws: &draws, seed: *seed, multiprocessors });
        trial.ok_or_else(|| Failure { status: Status::Error, message: format!("`{size}` is no size of this kernel") })
    };
    match job.device {
        DeviceKind::Emulator => {
            let trial = trial(DEFAULT_MULTIPROCESSORS as u32)?;
            let mut emulator = Emulator::open(library, &variant.name(), job.capability)?;
            emulated::run(&mut emulator, trial.as_ref(), *seed)
        }
        DeviceKind::Gpu => {
            let trial = trial(GpuFacts::probe()?.multiprocessors)?;
            let gpu = Gpu::open(library, &variant.name())?;
            Ok((Vec::new(), bench::once(&gpu, trial.as_ref())?))
        }
    }
}
