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
/// [`NcuError::NotPermitted`] if no counter of this kernel or any other can be read.
pub fn with_counters(ncu: &Ncu, job: &Job, options: &Options) -> Result<Found, NcuError> {
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return Ok(Found::nothing(Status::Error, format!("cannot make a temporary folder: {error}"))),
    };
    let log = folder.path().join("ncu.csv");
    let prefix = ncu.prefix(&ncu.counters(&options.cancel), &log);
    let answer = answer(job, &prefix, options);
    let launches = ncu::launches(&fs::read_to_string(&log).unwrap_or_default());
    Ok(match (answer, launches) {
        (_, Err(NcuError::NotPermitted)) => return Err(NcuError::NotPermitted),
        (Ok(Answer::Failed { status, message }) | Err((status, message)), _) => Found::nothing(status, message),
        (Ok(Answer::Ran { .. }), Err(error)) => Found::nothing(Status::Error, error.to_string()),
        (Ok(Answer::Ran { relative_error, .. }), Ok(launches)) => {
            Found { relative_error: Some(relative_error), counters: Some(launches), ..Found::nothing(Status::Ok, String::new()) }
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::Size,
        device::DeviceKind,
        family::attention::{Kind, Point},
        files::write_script,
        kernel::{Dtype, Features, HeadDim, Target},
    };

    /// Answers a request as a worker does.
    const WORKER: &str = r#"read -r line
token=$(echo "$line" | sed 's/.*"token":"\([0-9a-f]*\)".*/\1/')
echo "$token {\"ran\":{\"lines\":[],\"relative_error\":0.25}}""#;

    /// An `ncu` that knows one counter of those that kgen asks for, and runs the program behind its own arguments. It
    /// writes what `say` prints to its log.
    fn ncu(say: &str) -> String {
        let known = "if [ \"$1\" = --query-metrics ]; then echo \"dram__bytes Counter byte\"; exit 0; fi";
        let log = "while [ \"$1\" != --log-file ]; do shift; done\nlog=$2\nshift 2";
        format!("{known}\necho \"$@\" >arguments\n{log}\n{say} >\"$log\"\nexec \"$@\"")
    }

    /// Prints the report of one launch.
    const REPORT: &str = r#"printf '"Kernel Name","Block Size","Grid Size","dram__bytes.sum"\n"","","","byte"\n"attention","(1, 1, 1)","(2, 1, 1)","7"\n'"#;

    fn job() -> Job {
        let point = Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(64),
            dtype: Dtype::Fp16,
            causal: true,
            features: Features::NONE,
            target: Target::Sm80,
        };
        let (device, size) = (DeviceKind::Gpu, Size::new([("batch", 1)]));
        Job { variant: point.into(), device, capability: 80, library: "any.so".into(), size, seed: 1 }
    }

    /// The outcome with these scripts as worker and as `ncu`, which run in the folder.
    fn run(folder: &Path, worker: &str, profiler: &str) -> Result<Found, NcuError> {
        let (program, ncu) = (folder.join("worker"), folder.join("ncu"));
        write_script(&program, worker);
        write_script(&ncu, &format!("cd '{}'\n{profiler}", folder.display()));
        let options = Options { program, time_limit: Duration::from_secs(20), cancel: Cancel::default() };
        with_counters(&Ncu::at(ncu), &job(), &options)
    }

    #[test]
    fn a_worker_behind_ncu_gives_its_answer_and_ncu_the_counters() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = run(folder.path(), WORKER, &ncu(REPORT)).expect("counters");
        assert_eq!((found.status, found.relative_error), (Status::Ok, Some(0.25)));
        let launches = found.counters.expect("a launch");
        assert_eq!((launches.len(), launches[0].value("dram__bytes.sum")), (1, Some(7.0)));
        let arguments = fs::read_to_string(folder.path().join("arguments")).expect("they were kept");
        assert!(arguments.contains("--metrics dram__bytes.sum --log-file"), "{arguments}");
        assert!(arguments.trim_end().ends_with("worker __worker profile"), "{arguments}");
    }

    #[test]
    fn a_refusal_of_the_driver_stops_everything_and_a_kernel_that_dies_only_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = ncu("echo '==ERROR== ERR_NVGPUCTRPERM - no'");
        assert_eq!(run(folder.path(), WORKER, &refused), Err(NcuError::NotPermitted));
        let found = run(folder.path(), "echo oh >&2; exit 3", &ncu(REPORT)).expect("the next kernel may run");
        assert!(found.status == Status::Crash && found.message.contains("it said: oh"), "{found:?}");
        let silent = ncu("echo '==WARNING== No kernels were profiled.'");
        let found = run(folder.path(), WORKER, &silent).expect("the next kernel may run");
        assert!(found.status == Status::Error && found.message.contains("No kernels were profiled"), "{found:?}");
    }
}
