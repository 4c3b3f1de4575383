//! The parent's side: a worker for each kernel, on the emulator by itself, on a GPU under Nsight Compute.

use super::{
    Job, KernelCounters, Line, Ncu, NcuError, ncu,
    worker::{Answer, PROTOCOL, Request},
};
use crate::{
    bench::Status,
    isolate::{End, Worker},
    toolchain::Cancel,
};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// What workers need.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kgen executable.
    pub program: PathBuf,
    /// Time limit of a kernel.
    pub time_limit: Duration,
    /// Stops workers.
    pub cancel: Cancel,
}

/// What was found of one kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The outcome.
    pub status: Status,
    /// The reason for missing numbers; empty if there are numbers.
    pub message: String,
    /// Largest relative error of the sampled rows of its results.
    pub relative_error: Option<f64>,
    /// Accesses by line, the largest waste first; `None` unless the emulator has counted them.
    pub lines: Option<Vec<Line>>,
    /// Counters of each launch; `None` unless a GPU has counted them.
    pub counters: Option<Vec<KernelCounters>>,
}

impl Found {
    /// Nothing, for a reason.
    pub fn nothing(status: Status, message: String) -> Self {
        Self { status, message, relative_error: None, lines: None, counters: None }
    }
}

/// Runs the kernel once on the emulator; its library must be compiled with [`super::FLAG`].
pub fn on_emulator(job: &Job, options: &Options) -> Found {
    match answer(job, &[], options) {
        Ok(Answer::Ran { lines, relative_error }) => {
            Found { relative_error: Some(relative_error), lines: Some(lines), ..Found::nothing(Status::Ok, String::new()) }
        }
        Ok(Answer::Failed { status, message }) | Err((status, message)) => Found::nothing(status, message),
    }
}

/// Runs the kernel on the GPU under `ncu`, which repeats its launch for each group of counters.
///
/// # Errors
/// [`NcuError`] if no counter can be read, for this kernel and any other.
pub fn with_counters(ncu: &Ncu, job: &Job, options: &Options) -> Result<Found, NcuError> {
    let unwritable = |error: std::io::Error| NcuError::Unreadable(format!("cannot write a temporary file: {error}"));
    let folder = tempfile::tempdir().map_err(unwritable)?;
    let log = folder.path().join("ncu.csv");
    let prefix = ncu.prefix(&ncu.counters(&options.cancel), &log);
    let answer = answer(job, &prefix, options);
    let log = fs::read_to_string(&log).unwrap_or_default();
    let launches = ncu::launches(&log);
    if launches == Err(NcuError::NotPermitted) {
        return Err(NcuError::NotPermitted);
    }
    match answer {
        Ok(Answer::Ran { relative_error, .. }) => Ok(Found {
            relative_error: Some(relative_error),
            counters: Some(launches?),
            ..Found::nothing(Status::Ok, String::new())
        }),
        Ok(Answer::Failed { status, message }) | Err((status, message)) => Ok(Found::nothing(status, message)),
    }
}

/// The answer of a worker that is started behind `prefix`; the reason if there is none.
fn answer(job: &Job, prefix: &[OsString], options: &Options) -> Result<Answer, (Status, String)> {
    let (program, limit) = (options.program.as_path(), options.time_limit);
    let job = Job { library: absolute(&job.library), ..job.clone() };
    let request = Request { version: PROTOCOL, job, time_limit_seconds: limit.as_secs_f64() };
    let worker = Worker { program, task: "profile", limit, interrupted: &|| options.cancel.requested() };
    let mut heard = None;
    let ended = worker.run_behind(prefix, &request, |line| heard = serde_json::from_slice(line).ok());
    let (end, complaint) =
        ended.map_err(|error| (Status::Error, format!("cannot run a worker (`{}`): {error}", program.display())))?;
    let status = match (heard, end) {
        (Some(answer), End::Exited(_)) => return Ok(answer),
        (_, End::TimedOut) => Status::Timeout,
        (_, End::Interrupted) => Status::Error,
        (None, End::Exited(_)) => Status::Crash,
    };
    let said = if complaint.is_empty() { String::new() } else { format!("; it said: {complaint}") };
    Err((status, format!("{}{said}", end.words(limit))))
}

/// The dynamic loader would search its own folders for a name without a slash.
fn absolute(library: &Path) -> PathBuf {
    std::path::absolute(library).unwrap_or_else(|_| library.to_owned())
}
