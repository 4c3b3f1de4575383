//! The parent's side: one worker process for each variant, in parallel on the emulator and one by one on a GPU. A
//! worker that hangs is killed at its time limit; one that dies leaves a verdict too; the others carry on.

use super::{
    Level, Status, Verdict,
    verdict_cache::VerdictCache,
    worker::{Event, PROTOCOL, Request},
};
use crate::{
    device::{DeviceKind, EmulatorKit, GpuInfo},
    grid::{Target, Variant},
};
use rayon::prelude::*;
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};
use wait_timeout::ChildExt;

/// How often a waiting parent looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Bytes of a worker's standard error that a verdict's message quotes.
const QUOTED_BYTES: usize = 2000;

/// What to check.
#[derive(Debug, Clone)]
pub struct CheckRequest {
    /// The kernel's identity.
    pub variant: Variant,
    /// The GPU it was compiled for; on the emulator, the one to be emulated.
    pub compiled_for: Target,
    /// The kernel itself.
    pub kernel: Kernel,
}

impl CheckRequest {
    /// The kind of device its kernel is for.
    pub fn device(&self) -> DeviceKind {
        match &self.kernel {
            Kernel::Source(_) => DeviceKind::Emulator,
            Kernel::Library { device, .. } => *device,
        }
    }
}

/// A kernel in the form its device takes.
#[derive(Debug, Clone)]
pub enum Kernel {
    /// Generated source, compiled for the emulator by the kit of [`CheckOptions`].
    Source(String),
    /// A shared library that holds the variant's launcher, for either device.
    Library {
        /// The device whose code it holds.
        device: DeviceKind,
        /// The file.
        path: PathBuf,
    },
}

/// How to check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// How much.
    pub level: Level,
    /// Only cases whose name contains this.
    pub filter: Option<String>,
    /// Seed of inputs and thread order.
    pub seed: u64,
    /// Workers at a time on the emulator.
    pub jobs: usize,
    /// Workers at a time on a GPU: what they spend most time on, the reference, is computed on the host.
    pub gpu_jobs: usize,
    /// Limit for each variant; [`default_time_limit`] unless a user says otherwise.
    pub time_limit: Duration,
    /// Run even what passed before.
    pub fresh: bool,
    /// The user's cache folder, which holds verdicts.
    pub cache: PathBuf,
    /// Compiles sources; needed for [`Kernel::Source`].
    pub kit: Option<EmulatorKit>,
    /// The GPU, as the key of its verdicts; needed to reuse those.
    pub gpu: Option<GpuInfo>,
    /// The kgen executable, started as `<program> __worker`.
    pub program: PathBuf,
}

/// A minute for smoke, ten for everything.
pub fn default_time_limit(level: Level) -> Duration {
    match level {
        Level::Smoke => Duration::from_secs(60),
        Level::Thorough => Duration::from_secs(600),
    }
}

/// Is told how checks go on, from several threads at once.
pub trait Observer: Sync {
    /// The variant's turn has come; what passed before is done without it.
    fn started(&self, _variant: &str) {}
    /// A case of the variant begins: its number from 1, how many there are, and its name.
    fn case(&self, _variant: &str, _number: usize, _of: usize, _name: &str) {}
    /// The variant is done.
    fn done(&self, _verdict: &Verdict) {}
    /// Asked ten times a second: true makes every worker end and the rest not begin.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Watches nothing.
impl Observer for () {}

/// Checks every request; gives the verdicts in the same order. Nothing here fails as a whole: what goes wrong with a
/// variant is its verdict.
pub fn run(requests: &[CheckRequest], options: &CheckOptions, observer: &dyn Observer) -> Vec<Verdict> {
    let turns: Vec<Mutex<()>> = (0..options.gpu_jobs.max(1)).map(|_| Mutex::new(())).collect();
    let one = |(index, request): (usize, &CheckRequest)| {
        let verdict = check_one(request, options, observer, &turns[index % turns.len()]);
        observer.done(&verdict);
        verdict
    };
    match rayon::ThreadPoolBuilder::new().num_threads(options.jobs.max(options.gpu_jobs).max(1)).build() {
        Ok(pool) => pool.install(|| requests.par_iter().enumerate().with_max_len(1).map(one).collect()),
        Err(_) => requests.iter().enumerate().map(one).collect(),
    }
}

/// One variant: from the cache, or compiled and run.
fn check_one(request: &CheckRequest, options: &CheckOptions, observer: &dyn Observer, gpu: &Mutex<()>) -> Verdict {
    let device = request.device();
    let mut message = Request {
        version: PROTOCOL,
        variant: request.variant,
        compiled_for: request.compiled_for,
        device,
        library: PathBuf::new(),
        level: options.level,
        filter: options.filter.clone(),
        seed: options.seed,
        threads: reference_threads(device, options),
        time_limit_seconds: options.time_limit.as_secs_f64(),
    };
    let cache = VerdictCache::new(&options.cache);
    let key = cache_key(request, options, &message);
    if let Some(verdict) = key.as_ref().filter(|_| !options.fresh).and_then(|key| cache.find(key)) {
        return verdict;
    }
    let without_result = |status, message| Verdict {
        name: request.variant.name(),
        device: device.word().to_owned(),
        kind: device,
        level: options.level,
        seed: options.seed,
        status,
        cases_run: 0,
        worst: None,
        seconds: 0.0,
        message,
        cached: false,
    };
    if observer.interrupted() {
        return without_result(Status::Error, "interrupted".to_owned());
    }
    observer.started(&request.variant.name());
    message.library = match (&request.kernel, &options.kit) {
        (Kernel::Library { path, .. }, _) => path.clone(),
        (Kernel::Source(text), Some(kit)) => match kit.library(&request.variant.name(), text) {
            Ok(path) => path,
            Err(error) => return without_result(Status::Error, error.to_string()),
        },
        (Kernel::Source(_), None) => return without_result(Status::Error, "no emulator to compile the source for".to_owned()),
    };
    // A poisoned lock only says that another check panicked; the GPU is free all the same.
    let _turn = (device == DeviceKind::Gpu).then(|| gpu.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    let verdict = supervise(&message, &options.program, observer, &without_result);
    if let Some(key) = key {
        cache.keep(&key, &verdict);
    }
    verdict
}

/// Threads for a worker's reference: its share of the cores.
fn reference_threads(device: DeviceKind, options: &CheckOptions) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    match device {
        DeviceKind::Gpu => cores.div_ceil(options.gpu_jobs.max(1)),
        DeviceKind::Emulator => cores.div_ceil(options.jobs.max(1)),
    }
}

/// The key of a verdict that may be reused. A library is known by its bytes, a GPU by its name and driver.
fn cache_key(request: &CheckRequest, options: &CheckOptions, message: &Request) -> Option<String> {
    match &request.kernel {
        Kernel::Source(text) => Some(VerdictCache::key(&[text, options.kit.as_ref()?.hash()], message)),
        Kernel::Library { device, path } => {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(std::fs::File::open(path).ok()?).ok()?;
            let place = match device {
                DeviceKind::Gpu => options.gpu.as_ref()?.to_string(),
                DeviceKind::Emulator => String::new(),
            };
            Some(VerdictCache::key(&[hasher.finalize().to_hex().as_str(), &place], message))
        }
    }
}

/// How a worker ended.
enum End {
    Exited(ExitStatus),
    TimedOut,
    Interrupted,
}

/// Starts a worker, hands it the request, passes its progress on and waits for its end, whichever it is.
fn supervise(
    request: &Request,
    program: &Path,
    observer: &dyn Observer,
    without_result: &dyn Fn(Status, String) -> Verdict,
) -> Verdict {
    let begun = Instant::now();
    let mut child = match start(request, program) {
        Ok(child) => child,
        Err(error) => return without_result(Status::Error, format!("cannot start a worker (`{}`): {error}", program.display())),
    };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let name = request.variant.name();
    let (end, heard, complaint) = thread::scope(|scope| {
        let heard = scope.spawn(|| listen(stdout, &name, observer));
        let complaint = scope.spawn(|| last_words(stderr));
        let end = wait(&mut child, Duration::from_secs_f64(request.time_limit_seconds), observer);
        (end, heard.join().unwrap_or_default(), complaint.join().unwrap_or_default())
    });
    if let (Some(verdict), Ok(End::Exited(_))) = (heard.verdict, &end) {
        return verdict;
    }
    let at = if heard.case.is_empty() { "before the first case".to_owned() } else { format!("in case `{}`", heard.case) };
    let said = if complaint.is_empty() { String::new() } else { format!("; it said: {complaint}") };
    let (status, message) = match end {
        Ok(End::TimedOut) => (Status::Timeout, format!("no result within {} s, stuck {at}{said}", request.time_limit_seconds)),
        Ok(End::Interrupted) => (Status::Error, "interrupted".to_owned()),
        Ok(End::Exited(exit)) => match exit.signal() {
            Some(signal) => (Status::Crash, format!("died of {} {at}{said}", signal_name(signal))),
            None => (Status::Crash, format!("the worker ended without a verdict {at} ({exit}){said}")),
        },
        Err(error) => (Status::Error, format!("lost the worker: {error}")),
    };
    let mut verdict = without_result(status, message);
    verdict.device = heard.device.unwrap_or(verdict.device);
    verdict.cases_run = heard.cases_begun.saturating_sub(1);
    verdict.seconds = begun.elapsed().as_secs_f64();
    verdict
}

fn start(request: &Request, program: &Path) -> std::io::Result<Child> {
    // A group of its own: a terminal's Ctrl-C then reaches kgen first, which ends its workers itself.
    let mut command = Command::new(program);
    command.arg("__worker").process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    if let Some(mut stdin) = child.stdin.take() {
        // A worker that is gone already is found out about by waiting for it.
        let _ = stdin.write_all(line.as_bytes());
    }
    Ok(child)
}

/// Waits, and ends the worker where its time is up or kgen is interrupted.
fn wait(child: &mut Child, limit: Duration, observer: &dyn Observer) -> std::io::Result<End> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Some(status) = child.wait_timeout(left.min(LOOK_EVERY))? {
            return Ok(End::Exited(status));
        }
        let end = match (observer.interrupted(), left.is_zero()) {
            (true, _) => End::Interrupted,
            (false, true) => End::TimedOut,
            (false, false) => continue,
        };
        child.kill()?;
        child.wait()?;
        return Ok(end);
    }
}

/// What a worker had to say.
#[derive(Default)]
struct Heard {
    device: Option<String>,
    /// The last case that began.
    case: String,
    cases_begun: usize,
    verdict: Option<Verdict>,
}

/// Reads events to the end. A kernel under test may print to the same stream: what is no event is skipped.
fn listen(stdout: Option<impl Read>, variant: &str, observer: &dyn Observer) -> Heard {
    let mut heard = Heard::default();
    let Some(stdout) = stdout else { return heard };
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        match serde_json::from_slice(&line) {
            Ok(Event::Device { name }) => heard.device = Some(name),
            Ok(Event::Case { number, of, name }) => {
                observer.case(variant, number, of, &name);
                (heard.case, heard.cases_begun) = (name, number);
            }
            Ok(Event::Verdict(verdict)) => heard.verdict = Some(verdict),
            Err(_) => {}
        }
    }
    heard
}

/// The end of a worker's standard error.
fn last_words(stderr: Option<impl Read>) -> String {
    let mut text = Vec::new();
    if let Some(mut stderr) = stderr {
        // What was read before an error is still worth quoting.
        let _ = stderr.read_to_end(&mut text);
    }
    let text = &text[text.len().saturating_sub(QUOTED_BYTES)..];
    String::from_utf8_lossy(text).trim().to_owned()
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGSEGV => "SIGSEGV, an access to memory that is not there",
        libc::SIGBUS => "SIGBUS, a misaligned or impossible access",
        libc::SIGABRT => "SIGABRT, it gave up",
        libc::SIGFPE => "SIGFPE, an impossible integer division",
        libc::SIGILL => "SIGILL, an unknown instruction",
        libc::SIGKILL => "SIGKILL, perhaps for want of memory",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}
