//! Times a kernel on the GPU by device events, as single launches or as replays of a CUDA graph.
#![allow(unsafe_code)]

use super::{CardState, DeviceError, DeviceMemory, Gpu, Nvml, abi::Structure, gpu::words};
use cudarc::driver::{
    result::{self, DriverError},
    sys,
};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// Launches for the first estimate of a launch's duration.
const GUESS_LAUNCHES: usize = 3;

/// Minimum duration of a graph in milliseconds: replaying one costs the host a few microseconds, which must not count.
const GRAPH_MS: f64 = 0.5;

/// Maximum number of launches in a graph.
const MOST_IN_GRAPH: usize = 1000;

/// Maximum number of launches between two events.
const MOST_IN_ROUND: usize = 100_000;

/// Duration and number of rounds of a timing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimingPlan {
    /// Duration of launches before the first round that counts, milliseconds.
    pub warm_up_ms: f64,
    /// Total duration of the rounds that count, milliseconds; longer if one launch per round already exceeds it.
    pub measure_ms: f64,
    /// Rounds, each timed on its own.
    pub rounds: usize,
    /// Replay a CUDA graph of many launches: for kernels shorter than the host's launch overhead.
    pub graph: bool,
}

/// Result of a timing.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundTimes {
    /// Microseconds per launch, for each round.
    pub microseconds: Vec<f64>,
    /// Launches in each round.
    pub launches: usize,
    /// State of the card during the last rounds.
    pub card: CardState,
}

/// A launch of one kernel, borrowing its tensors.
pub struct Launch<'a> {
    structure: Structure,
    tensors: PhantomData<&'a DeviceMemory>,
}

impl Launch<'_> {
    pub(super) fn new(structure: Structure) -> Self {
        Self { structure, tensors: PhantomData }
    }
}

/// A stream of the current context, destroyed on drop.
struct Stream(sys::CUstream);

impl Stream {
    fn new() -> Result<Self, DeviceError> {
        result::stream::create(result::stream::StreamKind::NonBlocking).map(Self).map_err(failed("creating a stream"))
    }

    fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the stream is alive.
        unsafe { result::stream::synchronize(self.0) }.map_err(|e| DeviceError::Fault(words(e)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once; the driver completes its work first.
        let _ = unsafe { result::stream::destroy(self.0) };
    }
}

/// An event recorded in a stream.
struct Event(sys::CUevent);

impl Event {
    fn record(stream: &Stream) -> Result<Self, DeviceError> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Self).map_err(failed("creating an event"))?;
        // SAFETY: both are alive.
        unsafe { result::event::record(event.0, stream.0) }.map_err(|e| DeviceError::Fault(words(e)))?;
        Ok(event)
    }

    /// Milliseconds from this event to `later`; both have completed.
    fn until(&self, later: &Self) -> Result<f64, DeviceError> {
        // SAFETY: both were recorded in one stream and are alive.
        unsafe { result::event::elapsed(self.0, later.0) }.map(f64::from).map_err(|e| DeviceError::Fault(words(e)))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `record`, destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// An executable graph, destroyed on drop.
struct Graph(sys::CUgraphExec);

impl Graph {
    /// A graph of the work that `act` puts into `stream`.
    fn capture(stream: &Stream, act: impl FnOnce() -> Result<(), DeviceError>) -> Result<Self, DeviceError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive and not capturing.
        unsafe { result::stream::begin_capture(stream.0, mode) }.map_err(failed("beginning to capture a graph"))?;
        let done = act();
        // SAFETY: the stream is capturing; that ends here, whatever `act` did.
        let graph = unsafe { result::stream::end_capture(stream.0) };
        done?;
        let graph = graph.map_err(failed("capturing a graph"))?;
        // SAFETY: the graph was captured above; it may be destroyed once it is instantiated.
        let executable = unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) };
        // SAFETY: as above.
        let _ = unsafe { result::graph::destroy(graph) };
        executable.map(Self).map_err(failed("instantiating a graph"))
    }

    fn replay(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both are alive.
        unsafe { result::graph::launch(self.0, stream.0) }.map_err(|e| DeviceError::Fault(words(e)))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: instantiated by `capture`, destroyed once.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}

/// A closure for `map_err` that reports that the driver refused `what`.
fn failed(what: &'static str) -> impl Fn(DriverError) -> DeviceError {
    move |e| DeviceError::Driver { what, reason: words(e) }
}

/// Number of pieces of `each_ms` that fill `ms`: at least one and at most `most`.
fn count_to_fill(ms: f64, each_ms: f64, most: usize) -> usize {
    // A time of zero, below the resolution of events, gives infinity, which is clamped to the maximum.
    ((ms / each_ms).ceil() as usize).clamp(1, most)
}

impl Gpu {
    /// Launches once and waits.
    ///
    /// # Errors
    /// [`DeviceError`]: the launcher refused, or the kernel faulted.
    pub fn launch(&self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        let stream = Stream::new()?;
        self.enqueue(launch, &stream)?;
        stream.wait()
    }

    /// Times `launches` in rotation: launches on separate tensors evict each other's data from the L2 cache.
    ///
    /// The device never waits for the host: an uncounted round precedes the first, and events separate the rounds.
    ///
    /// # Errors
    /// The errors of [`launch`](Self::launch).
    pub fn time(&self, launches: &[Launch<'_>], plan: &TimingPlan, nvml: Option<&Nvml>) -> Result<RoundTimes, DeviceError> {
        let stream = Stream::new()?;
        let mut turn = 0..;
        let mut one = || match turn.next() {
            Some(turn) => self.enqueue(&launches[turn % launches.len()], &stream),
            None => Ok(()),
        };
        // The first launch loads the kernel.
        one()?;
        stream.wait()?;
        let guess = timed(&stream, GUESS_LAUNCHES, &mut one)?;
        if !plan.graph {
            return rounds(&stream, guess, 1, plan, nvml, &mut one);
        }
        let in_turn = count_to_fill(GRAPH_MS, guess, MOST_IN_GRAPH).next_multiple_of(launches.len());
        let graph = Graph::capture(&stream, || {
            (0..in_turn).try_for_each(|turn| self.enqueue(&launches[turn % launches.len()], &stream))
        })?;
        let mut replay = || graph.replay(&stream);
        replay()?;
        stream.wait()?;
        let guess = timed(&stream, GUESS_LAUNCHES, &mut replay)?;
        rounds(&stream, guess, in_turn, plan, nvml, &mut replay)
    }

    fn enqueue(&self, launch: &Launch<'_>, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: the launch borrows the memory of its pointers, and freeing that memory waits for the device; strides
        // and lengths are those the caller allocated for.
        unsafe { self.library.launch(&launch.structure, stream.0.cast()) }
    }
}

/// Milliseconds per call of `act`, over `count` calls back to back.
fn timed(stream: &Stream, count: usize, act: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
    let begin = Event::record(stream)?;
    for _ in 0..count {
        act()?;
    }
    let end = Event::record(stream)?;
    stream.wait()?;
    Ok(begin.until(&end)? / count as f64)
}

/// Warms up and times the rounds of `plan`. `act` takes about `guess` milliseconds and performs `launches` launches.
fn rounds(
    stream: &Stream,
    guess: f64,
    launches: usize,
    plan: &TimingPlan,
    nvml: Option<&Nvml>,
    act: &mut dyn FnMut() -> Result<(), DeviceError>,
) -> Result<RoundTimes, DeviceError> {
    // The first calls are slower, so the first estimate gives too few launches; the warm-up gives a better one.
    let guess = timed(stream, count_to_fill(plan.warm_up_ms, guess, MOST_IN_ROUND), act)?;
    let acts = count_to_fill(plan.measure_ms / plan.rounds as f64, guess, MOST_IN_ROUND);
    let mut round = || (0..acts).try_for_each(|_| act());
    round()?;
    let mut marks = vec![Event::record(stream)?];
    for _ in 0..plan.rounds {
        round()?;
        marks.push(Event::record(stream)?);
    }
    let card = nvml.map(Nvml::state).unwrap_or_default();
    stream.wait()?;
    let per_launch = |pair: &[Event]| pair[0].until(&pair[1]).map(|ms| ms * 1e3 / (acts * launches) as f64);
    let microseconds = marks.windows(2).map(per_launch).collect::<Result<_, _>>()?;
    Ok(RoundTimes { microseconds, launches: acts * launches, card })
}

#[cfg(test)]
mod tests {
    use super::count_to_fill;

    #[test]
    fn at_least_one_launch_fills_any_time_and_no_time_at_all_is_not_infinity() {
        assert_eq!(count_to_fill(25.0, 1.0, 1000), 25);
        assert_eq!(count_to_fill(25.0, 40.0, 1000), 1);
        assert_eq!(count_to_fill(25.0, 0.0, 1000), 1000);
    }
}
