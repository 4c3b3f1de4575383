//! The parent process of a fuzzing run: distributes calls over worker processes, replaces workers that die, and shrinks
//! failures.

use super::{
    call::{CallResult, Outcome},
    draw::Drawer,
    library_call::LibraryCall,
    scope::Scope,
    shrink,
    tally::{Ended, Failure, Report, Tally},
    worker::{Event, PROTOCOL, Request, Work},
};
use crate::{
    isolate::{End, Worker},
    jobs,
};
use std::{
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct FuzzOptions {
    /// Shared library of kernels and dispatcher.
    pub library: PathBuf,
    /// Kernels of the library, and the device.
    pub scope: Scope,
    /// The calls to make.
    pub calls: Calls,
    /// No call starts after this time.
    pub seconds: Option<Duration>,
    /// Number of concurrent workers.
    pub jobs: usize,
    /// Time limit of one call.
    pub call_limit: Duration,
    /// The kgen executable, started as `<program> __worker fuzz`.
    pub program: PathBuf,
}

/// The calls of a run.
#[derive(Debug, Clone)]
pub enum Calls {
    /// Random calls drawn from a seed.
    Drawn {
        /// Seed of the run.
        seed: u64,
        /// Number of calls.
        count: u64,
    },
    /// An explicit list of calls.
    Given(Vec<LibraryCall>),
}

impl Calls {
    fn count(&self) -> u64 {
        match self {
            Self::Drawn { count, .. } => *count,
            Self::Given(cases) => cases.len() as u64,
        }
    }
}

/// Receives progress of a run, from several threads concurrently.
pub trait FuzzObserver: Sync {
    /// A call has finished.
    fn called(&self, _failed: bool) {}
    /// A call failed.
    fn failed(&self, _number: u64, _case: &LibraryCall, _message: &str) {}
    /// Failing calls are being shrunk.
    fn shrinking(&self, _number: u64) {}
    /// Polled ten times per second; true ends the run.
    fn interrupted(&self) -> bool {
        false
    }
}

/// An observer that ignores all events.
impl FuzzObserver for () {}

/// Number of failures after which a run stops. Each may have killed a worker, and more failures add little information.
const MOST_FAILURES: usize = 200;

/// Number of failures to shrink, those with the least work first.
const SHRUNK: usize = 6;

/// Total time limit of shrinking, apart from calls already started.
const SHRINK_LIMIT: Duration = Duration::from_secs(90);

/// Number of consecutive workers of one share that may exit without having started a call.
const FRUITLESS_STARTS: usize = 3;

/// Error of a run.
#[derive(Debug, thiserror::Error)]
pub enum FuzzError {
    /// The device runs none of the requested kernels.
    #[error("none of these kernels runs on this device")]
    Nothing,
    /// Workers do not start, or have no device.
    #[error("{0}")]
    NoWorker(String),
}

/// Makes the calls and shrinks failures.
///
/// # Errors
/// [`FuzzError`] when no call could be made. Failing calls are not errors; they are in the report.
pub fn run(options: &FuzzOptions, observer: &dyn FuzzObserver) -> Result<Report, FuzzError> {
    let drawer = match options.calls {
        Calls::Drawn { seed, .. } => Some(Drawer::new(&options.scope, seed)),
        Calls::Given(_) => None,
    };
    if drawer.as_ref().is_some_and(Drawer::is_empty) {
        return Err(FuzzError::Nothing);
    }
    let begun = Instant::now();
    let run = Run { options, observer, drawer, begun, found: Mutex::default(), enough: AtomicBool::new(false) };
    let count = usize::try_from(options.calls.count()).unwrap_or(usize::MAX);
    let jobs = jobs::useful(options.jobs, count) as u64;
    thread::scope(|scope| {
        for job in 0..jobs {
            let run = &run;
            scope.spawn(move || run.share(job, jobs));
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let (enough, time_up) = (run.enough.into_inner(), options.seconds.is_some_and(|limit| begun.elapsed() >= limit));
    let mut found = run.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let (Some(message), true) = (found.no_worker.take(), found.calls < options.calls.count()) {
        return Err(FuzzError::NoWorker(message));
    }
    let ended = match (observer.interrupted(), enough) {
        (true, _) => Ended::Interrupted,
        (false, true) => Ended::TooManyFailures,
        (false, false) if found.calls < options.calls.count() && time_up => Ended::TimeUp,
        (false, false) => Ended::Done,
    };
    found.failures.sort_by_key(|failure| failure.number);
    if matches!(options.calls, Calls::Drawn { .. }) {
        shrink_all(options, observer, &mut found.failures);
    }
    let seed = if let Calls::Drawn { seed, .. } = options.calls { seed } else { 0 };
    let (rows, refusals) = found.tally.finish();
    let device = found.device.unwrap_or_default();
    let (failures, workers_lost) = (found.failures, found.workers_lost);
    Ok(Report { device, seed, asked: options.calls.count(), rows, refusals, failures, seconds, ended, workers_lost })
}

/// Shrinks the failures with the least work.
fn shrink_all(options: &FuzzOptions, observer: &dyn FuzzObserver, failures: &mut [Failure]) {
    let deadline = Instant::now() + SHRINK_LIMIT;
    let mut smallest_first: Vec<usize> = (0..failures.len()).collect();
    smallest_first.sort_by_key(|&index| failures[index].drawn.work());
    for &index in smallest_first.iter().take(SHRUNK) {
        let failure = &mut failures[index];
        observer.shrinking(failure.number);
        let proceed = || !observer.interrupted() && Instant::now() < deadline;
        let smaller = shrink::shrink(&failure.drawn, &proceed, &mut |cases| first_failure(options, observer, cases));
        if let Some((case, message)) = smaller {
            (failure.shrunk, failure.message) = (Some(case), message);
        }
    }
}

/// The first case that fails in a fresh worker, with its failure.
fn first_failure(options: &FuzzOptions, observer: &dyn FuzzObserver, cases: &[LibraryCall]) -> Option<(usize, String)> {
    let request = request(options, Work::Cases(cases.iter().map(LibraryCall::to_string).collect()));
    let mut failed = None;
    let ended = attend(options, &request, observer, &mut |number, outcome| {
        if let CallResult::Failed { message, .. } = &outcome.result {
            failed = Some((number as usize, message.clone()));
        }
    });
    failed.or_else(|| ended.died_in.map(|(number, message)| (number as usize, message)))
}

fn request(options: &FuzzOptions, work: Work) -> Request {
    let FuzzOptions { library, scope, call_limit, .. } = options;
    let call_limit_seconds = call_limit.as_secs_f64();
    Request { version: PROTOCOL, library: library.clone(), scope: scope.clone(), work, call_limit_seconds }
}

/// A run in progress.
struct Run<'a> {
    options: &'a FuzzOptions,
    observer: &'a dyn FuzzObserver,
    drawer: Option<Drawer>,
    begun: Instant,
    found: Mutex<Found>,
    /// Set when the run should make no more calls.
    enough: AtomicBool,
}

/// Results so far.
#[derive(Default)]
struct Found {
    device: Option<String>,
    calls: u64,
    tally: Tally,
    failures: Vec<Failure>,
    workers_lost: u64,
    no_worker: Option<String>,
}

impl Run<'_> {
    /// Makes every `jobs`-th call from number `first` on, with as many workers as necessary.
    fn share(&self, first: u64, jobs: u64) {
        let (mut next, end) = (first, self.options.calls.count());
        let mut fruitless = 0;
        while next < end && !self.is_over() {
            let request = request(self.options, self.work(next, jobs, end));
            // Each worker numbers its list from 0.
            let number_of = |number: u64| if self.drawer.is_some() { number } else { next + number * jobs };
            let mut reached = None;
            let ended = attend(self.options, &request, self, &mut |number, outcome| {
                reached = Some(number_of(number));
                self.count(number_of(number), outcome);
            });
            if let Some(name) = ended.device {
                self.found().device.get_or_insert(name);
            }
            if ended.finished && self.drawer.is_some() {
                return;
            }
            if let Some((number, message)) = ended.died_in {
                reached = Some(number_of(number));
                self.found().workers_lost += 1;
                let case = self.case(number_of(number));
                self.count(
                    number_of(number),
                    &Outcome { path: case.kind(), result: CallResult::Failed { message, fatal: true } },
                );
            }
            match reached {
                Some(reached) => (next, fruitless) = (reached + jobs, 0),
                None => fruitless += 1,
            }
            if fruitless == FRUITLESS_STARTS {
                let words = ended.complaint.unwrap_or_else(|| "workers end without a word".to_owned());
                self.found().no_worker = Some(format!("cannot call the library: {words}"));
                return;
            }
        }
    }

    fn work(&self, first: u64, step: u64, end: u64) -> Work {
        let seconds = self.options.seconds.map(|limit| limit.saturating_sub(self.begun.elapsed()).as_secs_f64());
        match &self.options.calls {
            Calls::Drawn { seed, .. } => Work::Draw { seed: *seed, first, step, end, seconds },
            Calls::Given(cases) => {
                let own = cases.iter().skip(first as usize).step_by(step as usize);
                Work::Cases(own.map(LibraryCall::to_string).collect())
            }
        }
    }

    /// Call number `number`.
    fn case(&self, number: u64) -> LibraryCall {
        match (&self.drawer, &self.options.calls) {
            (None, Calls::Given(cases)) => cases[number as usize].clone(),
            (Some(drawer), _) => drawer.draw(number),
            (None, Calls::Drawn { .. }) => unreachable!("drawn calls have a drawer"),
        }
    }

    fn count(&self, number: u64, outcome: &Outcome) {
        let case = self.case(number);
        let failed = outcome.is_failure();
        self.observer.called(failed);
        let mut found = self.found();
        found.calls += 1;
        found.tally.count(&case, outcome);
        if let CallResult::Failed { message, .. } = &outcome.result {
            self.observer.failed(number, &case, message);
            let message = message.clone();
            found.failures.push(Failure { number, kind: outcome.path, drawn: case, shrunk: None, message });
            if found.failures.len() >= MOST_FAILURES {
                self.enough.store(true, Ordering::SeqCst);
            }
        }
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        let time_up = self.options.seconds.is_some_and(|limit| self.begun.elapsed() >= limit);
        time_up || self.interrupted()
    }
}

/// Reason to stop a worker early.
impl FuzzObserver for Run<'_> {
    fn interrupted(&self) -> bool {
        self.enough.load(Ordering::SeqCst) || self.observer.interrupted()
    }
}

/// Result of a worker.
#[derive(Debug, Default)]
struct WorkerEnd {
    device: Option<String>,
    /// True if it finished all calls.
    finished: bool,
    /// The call in which the worker died or hung, and the reason.
    died_in: Option<(u64, String)>,
    /// Message of the worker if it could not make calls.
    complaint: Option<String>,
}

/// State of a running worker, from its messages.
#[derive(Default)]
struct WorkerState {
    ended: WorkerEnd,
    /// The current call and its start time.
    current: Option<(u64, Instant)>,
}

/// Runs a request in a worker; calls `done` with the outcome of each call.
fn attend(
    options: &FuzzOptions,
    request: &Request,
    observer: &dyn FuzzObserver,
    done: &mut (dyn FnMut(u64, &Outcome) + Send),
) -> WorkerEnd {
    let state = Mutex::new(WorkerState::default());
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let hangs = AtomicBool::new(false);
    let stop = || {
        let late = lock().current.is_some_and(|(_, since)| since.elapsed() > options.call_limit);
        hangs.fetch_or(late, Ordering::SeqCst);
        late || observer.interrupted()
    };
    // The time limit is per call.
    let worker = Worker { program: &options.program, task: "fuzz", limit: FOREVER, interrupted: &stop };
    let ended = worker.run(request, |line| match serde_json::from_slice(line) {
        Ok(Event::Device { name }) => lock().ended.device = Some(name),
        Ok(Event::NoDevice { message }) => lock().ended.complaint = Some(message),
        Ok(Event::Begin { number }) => lock().current = Some((number, Instant::now())),
        Ok(Event::Done { number, outcome }) => {
            lock().current = None;
            done(number, &outcome);
        }
        Ok(Event::Finished) => lock().ended.finished = true,
        // A kernel under test may print to the same stream.
        Err(_) => {}
    });
    let WorkerState { ended: mut how, current } = state.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (end, said) = match ended {
        Ok(ended) => ended,
        Err(error) => {
            how.complaint = Some(format!("cannot run a worker (`{}`): {error}", options.program.display()));
            return how;
        }
    };
    let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
    let hung = hangs.into_inner();
    match (current, end) {
        (Some((number, _)), End::Interrupted) if hung => {
            let limit = options.call_limit.as_secs_f64();
            how.died_in = Some((number, format!("no result within {limit} s, stuck{said}")));
        }
        (_, End::Interrupted) => {}
        (Some((number, _)), _) => how.died_in = Some((number, format!("{}{said}", end.words(options.call_limit)))),
        (None, _) if how.complaint.is_none() && !how.finished => how.complaint = Some(format!("{}{said}", end.words(FOREVER))),
        (None, _) => {}
    }
    how
}

/// Ten years, longer than any run.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
