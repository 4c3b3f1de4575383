//! The parent's side: one worker process per variant, in parallel on the emulator and one at a time on a GPU. A worker
//! that hangs is killed at its time limit; if one dies, its variant gets a verdict too; the others continue.

use super::{
    Cases, Level, Status, Subject, Verdict, same_program,
    verdict_cache::VerdictCache,
    worker::{Event, PROTOCOL, Request},
};
use crate::{
    device::{DeviceKind, EmulatorKit, GpuInfo, KitError, Order},
    files,
    isolate::{End, Worker},
    jobs,
    kernel::{Target, Variant},
    plan::Tiling,
};
use rayon::prelude::*;
use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// A variant to check.
#[derive(Debug, Clone)]
pub struct CheckRequest {
    /// The kernel's identity.
    pub variant: Variant,
    /// Tiling of the kernel.
    pub tiling: Tiling,
    /// The GPU it was compiled for; on the emulator, the one to emulate.
    pub compiled_for: Target,
    /// The kernel.
    pub kernel: Kernel,
}

impl CheckRequest {
    /// The kind of device the kernel runs on.
    pub fn device(&self) -> DeviceKind {
        match &self.kernel {
            Kernel::Source(_) => DeviceKind::Emulator,
            Kernel::Library { device, .. } => *device,
        }
    }
}

/// A kernel in the form that its device needs.
#[derive(Debug, Clone)]
pub enum Kernel {
    /// Generated source, which the kit of [`CheckOptions`] compiles for the emulator.
    Source(String),
    /// A shared library that holds the variant's launcher, for either device.
    Library {
        /// The device whose code it contains.
        device: DeviceKind,
        /// The file.
        path: PathBuf,
    },
}

/// Options of a check.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// Source of the cases.
    pub cases: Cases,
    /// The level.
    pub level: Level,
    /// Text that the names of the selected cases contain.
    pub filter: Option<String>,
    /// Seed of inputs and thread order.
    pub seed: u64,
    /// Thread order on the emulator in every run after a case's first; `None` for the usual orders.
    pub schedule: Option<Order>,
    /// Parallel workers on the emulator, at least one; never more than requests.
    pub jobs: usize,
    /// Parallel workers on a GPU; they spend most of their time on the reference, which the host computes.
    pub gpu_jobs: usize,
    /// Time limit per variant; [`default_time_limit`] unless the user sets one.
    pub time_limit: Duration,
    /// Run kernels again even if they passed before.
    pub fresh: bool,
    /// The user's cache folder, which holds verdicts.
    pub cache: PathBuf,
    /// The compiler of sources; required for [`Kernel::Source`].
    pub kit: Option<EmulatorKit>,
    /// The GPU, as part of its verdicts' keys; required to reuse them.
    pub gpu: Option<GpuInfo>,
    /// The kgen executable, started as `<program> __worker check`.
    pub program: PathBuf,
}

/// A minute for smoke, ten minutes for thorough.
pub fn default_time_limit(level: Level) -> Duration {
    match level {
        Level::Smoke => Duration::from_secs(60),
        Level::Thorough => Duration::from_secs(600),
    }
}

/// Receives the progress of checks, from several threads at once.
pub trait Observer: Sync {
    /// The variant's check begins; not called for verdicts from the cache.
    fn started(&self, _variant: &str) {}
    /// A case of the variant begins: its number from 1, the number of cases, and its name.
    fn case(&self, _variant: &str, _number: usize, _of: usize, _name: &str) {}
    /// The variant is done, or has been interrupted.
    fn done(&self, _verdict: &Verdict) {}
    /// Polled ten times a second; true stops all workers and prevents further ones.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Ignores all events.
impl Observer for () {}

/// Checks every request and returns the verdicts in order. Never fails as a whole: an error of one variant is its
/// verdict. Of several kernels that are the same program on the emulator, only one is run; if it does not pass, all of
/// them are.
pub fn run(requests: &[CheckRequest], options: &CheckOptions, observer: &dyn Observer) -> Vec<Verdict> {
    let useful = |requested| jobs::useful(requested, requests.len());
    let options = &CheckOptions { jobs: useful(options.jobs), gpu_jobs: useful(options.gpu_jobs), ..options.clone() };
    let turns: Vec<Mutex<()>> = (0..options.gpu_jobs).map(|_| Mutex::new(())).collect();
    let groups = same_program::groups(requests, options.cases, options.level, options.filter.as_deref());
    let check = |group: &Vec<usize>| {
        let mut verdicts: Vec<(usize, Verdict)> = Vec::with_capacity(group.len());
        for &index in group {
            let verdict = match verdicts.first() {
                Some((_, first)) if first.passed() => twin_of(first, &requests[index]),
                _ => check_one(&requests[index], options, observer, &turns[index % turns.len()]),
            };
            observer.done(&verdict);
            verdicts.push((index, verdict));
        }
        verdicts
    };
    let mut verdicts: Vec<(usize, Verdict)> =
        match rayon::ThreadPoolBuilder::new().num_threads(options.jobs.max(options.gpu_jobs)).build() {
            Ok(pool) => pool.install(|| groups.par_iter().with_max_len(1).flat_map_iter(check).collect()),
            Err(_) => groups.iter().flat_map(check).collect(),
        };
    verdicts.sort_unstable_by_key(|(index, _)| *index);
    verdicts.into_iter().map(|(_, verdict)| verdict).collect()
}

/// The verdict on a kernel that is the same program as `passed`.
fn twin_of(passed: &Verdict, request: &CheckRequest) -> Verdict {
    Verdict { name: request.variant.name(), seconds: 0.0, same_as: Some(passed.name.clone()), ..passed.clone() }
}

/// One variant: from the cache, or compiled and run.
fn check_one(request: &CheckRequest, options: &CheckOptions, observer: &dyn Observer, gpu: &Mutex<()>) -> Verdict {
    let device = request.device();
    let mut message = message(request, options);
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
        same_as: None,
    };
    if observer.interrupted() {
        return without_result(Status::Interrupted, "interrupted".to_owned());
    }
    observer.started(&request.variant.name());
    message.library = match (&request.kernel, &options.kit) {
        (Kernel::Library { path, .. }, _) => path.clone(),
        (Kernel::Source(text), Some(kit)) => match kit.library(&request.variant.name(), text) {
            Ok(path) => path,
            Err(KitError::Interrupted) => return without_result(Status::Interrupted, "interrupted".to_owned()),
            Err(error) => return without_result(Status::Error, error.to_string()),
        },
        (Kernel::Source(_), None) => return without_result(Status::Error, "no emulator to compile the source for".to_owned()),
    };
    // A poisoned lock only means that another check panicked; the GPU is free.
    let _turn = (device == DeviceKind::Gpu).then(|| gpu.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    let verdict = supervise(&message, &options.program, observer, &without_result);
    if let Some(key) = key {
        cache.keep(&key, &verdict);
    }
    verdict
}

/// The message to a worker, but for the library.
fn message(request: &CheckRequest, options: &CheckOptions) -> Request {
    let device = request.device();
    Request {
        version: PROTOCOL,
        subject: Subject { variant: request.variant, tiling: request.tiling, device },
        compiled_for: request.compiled_for,
        library: PathBuf::new(),
        level: options.level,
        filter: options.filter.clone(),
        seed: options.seed,
        schedule: options.schedule,
        threads: reference_threads(device, options),
        time_limit_seconds: options.time_limit.as_secs_f64(),
    }
}

/// Threads of a worker's reference: its share of the cores.
fn reference_threads(device: DeviceKind, options: &CheckOptions) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    match device {
        DeviceKind::Gpu => cores.div_ceil(options.gpu_jobs),
        DeviceKind::Emulator => cores.div_ceil(options.jobs),
    }
}

/// Hash of all that the verdict on a source depends on: the text, the request, the cases, the code that judges, and
/// `emulator`, which identifies what the source is compiled against. The same on every machine if `emulator` is. `None`
/// for a library.
pub fn source_key(request: &CheckRequest, options: &CheckOptions, emulator: &str) -> Option<String> {
    let Kernel::Source(text) = &request.kernel else { return None };
    VerdictCache::key(options.cases, &[text, emulator], &message(request, options)).ok()
}

/// The key of a reusable verdict. A library is identified by its bytes, a GPU by its name and driver.
fn cache_key(request: &CheckRequest, options: &CheckOptions, message: &Request) -> Option<String> {
    match &request.kernel {
        Kernel::Source(_) => source_key(request, options, options.kit.as_ref()?.hash()),
        Kernel::Library { device, path } => {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(files::open(path).ok()?).ok()?;
            let place = match device {
                DeviceKind::Gpu => options.gpu.as_ref()?.to_string(),
                DeviceKind::Emulator => String::new(),
            };
            VerdictCache::key(options.cases, &[hasher.finalize().to_hex().as_str(), &place], message).ok()
        }
    }
}

/// Has a worker run the request, forwards its progress and waits until it ends in any way.
fn supervise(
    request: &Request,
    program: &Path,
    observer: &dyn Observer,
    without_result: &dyn Fn(Status, String) -> Verdict,
) -> Verdict {
    let begun = Instant::now();
    let name = request.subject.variant.name();
    let limit = Duration::from_secs_f64(request.time_limit_seconds);
    let worker = Worker { program, task: "check", limit, interrupted: &|| observer.interrupted() };
    let mut messages = Messages::default();
    let (end, complaint) = match worker.run(request, |line| messages.take(line, &name, observer)) {
        Ok(ended) => ended,
        Err(error) => {
            return without_result(Status::Error, format!("cannot run a worker (`{}`): {error}", program.display()));
        }
    };
    if let (Some(verdict), End::Exited(_)) = (messages.verdict.take(), end) {
        return verdict;
    }
    let at = if messages.case.is_empty() { "before the first case".to_owned() } else { format!("in case `{}`", messages.case) };
    let said = if complaint.is_empty() { String::new() } else { format!("; it said: {complaint}") };
    let (status, message) = match end {
        End::TimedOut => (Status::Timeout, format!("{} {at}{said}", end.words(limit))),
        End::Interrupted => (Status::Interrupted, end.words(limit)),
        End::Exited(exit) => {
            let meaning = if request.subject.device == DeviceKind::Emulator { meaning(exit) } else { "" };
            (Status::Crash, format!("{} {at}{meaning}{said}", end.words(limit)))
        }
    };
    let mut verdict = without_result(status, message);
    verdict.device = messages.device.unwrap_or(verdict.device);
    verdict.cases_run = messages.cases_begun.saturating_sub(1);
    verdict.seconds = begun.elapsed().as_secs_f64();
    verdict
}

/// Meaning of the signal that ended an emulated kernel, to be appended to a sentence.
fn meaning(exit: ExitStatus) -> &'static str {
    match exit.signal() {
        Some(libc::SIGILL | libc::SIGTRAP) => {
            "; an index is beyond the bounds of one of the kernel's arrays: kgen compiles it so that it traps there"
        }
        _ => "",
    }
}

/// The messages of a worker.
#[derive(Default)]
struct Messages {
    device: Option<String>,
    /// The last case that began.
    case: String,
    cases_begun: usize,
    verdict: Option<Verdict>,
}

impl Messages {
    /// Processes one message; a line that is not one means that the program is another kgen, and its exit explains it.
    fn take(&mut self, line: &[u8], variant: &str, observer: &dyn Observer) {
        match serde_json::from_slice(line) {
            Ok(Event::Device { name }) => self.device = Some(name),
            Ok(Event::Case { number, of, name }) => {
                observer.case(variant, number, of, &name);
                (self.case, self.cases_begun) = (name, number);
            }
            Ok(Event::Verdict(verdict)) => self.verdict = Some(verdict),
            Err(_) => {}
        }
    }
}
