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
    /// Exact numbers of calls in place of the durations; each call is timed on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}

/// Exact numbers of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Calls before the first one that counts.
    pub warm_ups: usize,
    /// Calls that count, in equal parts over the rounds, rounded up.
    pub runs: usize,
}

impl TimingPlan {
    /// Times that a round takes: one over all its launches, or one for each of its calls.
    fn times_a_round(&self) -> usize {
        self.counts.map_or(1, |counts| counts.runs.div_ceil(self.rounds.max(1)))
    }
}

/// A round of a timing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Microseconds per launch: one number, or with exact counts one for each call.
    pub microseconds: Vec<f64>,
    /// State of the card at the end of the round.
    pub card: CardState,
}

/// Result of a timing.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundTimes {
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// Launches that each time is the mean of.
    pub launches: usize,
}

/// The caller of a timing that takes turns with others: it says when each round begins.
pub trait Turns {
    /// Everything is in device memory. Returns once the caller may use the GPU alone; false if it ends here.
    fn loaded(&mut self) -> bool;

    /// Everything is warm; each time will be the mean of `launches` launches.
    fn ready(&mut self, launches: usize);

    /// Waits for this contender's turn; false if there are no more rounds.
    fn wait(&mut self) -> bool;

    /// A round is over.
    fn timed(&mut self, round: &Round);
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

    /// Waits until the stream has reached this event.
    fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: the event is alive.
        unsafe { result::event::synchronize(self.0) }.map_err(|e| DeviceError::Fault(words(e)))
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
    /// Alone, an uncounted round precedes the first, and each round is queued before the last one ends, so that the
    /// device never waits for the host. With `turns`, a round begins when it says so, after an uncounted launch.
    ///
    /// # Errors
    /// The errors of [`launch`](Self::launch).
    pub fn time(
        &self,
        launches: &[Launch<'_>],
        plan: &TimingPlan,
        nvml: Option<&Nvml>,
        turns: Option<&mut dyn Turns>,
    ) -> Result<RoundTimes, DeviceError> {
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
            return rounds(&stream, guess, 1, plan, nvml, turns, &mut one);
        }
        let in_turn = count_to_fill(GRAPH_MS, guess, MOST_IN_GRAPH).next_multiple_of(launches.len());
        let graph = Graph::capture(&stream, || {
            (0..in_turn).try_for_each(|turn| self.enqueue(&launches[turn % launches.len()], &stream))
        })?;
        let mut replay = || graph.replay(&stream);
        replay()?;
        stream.wait()?;
        let guess = timed(&stream, GUESS_LAUNCHES, &mut replay)?;
        rounds(&stream, guess, in_turn, plan, nvml, turns, &mut replay)
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
    turns: Option<&mut dyn Turns>,
    act: &mut dyn FnMut() -> Result<(), DeviceError>,
) -> Result<RoundTimes, DeviceError> {
    // The first calls are slower, so the first estimate gives too few launches; the warm-up gives a better one.
    let warm_ups =
        plan.counts.map_or_else(|| count_to_fill(plan.warm_up_ms, guess, MOST_IN_ROUND), |counts| counts.warm_ups.max(1));
    let guess = timed(stream, warm_ups, act)?;
    let to_fill = || count_to_fill(plan.measure_ms / plan.rounds as f64, guess, MOST_IN_ROUND);
    let acts = plan.counts.map_or_else(to_fill, |_| 1);
    let launches = acts * launches;
    let mut round = |uncounted: usize| {
        (0..uncounted).try_for_each(|_| act())?;
        let mut marks = vec![Event::record(stream)?];
        for _ in 0..plan.times_a_round() {
            (0..acts).try_for_each(|_| act())?;
            marks.push(Event::record(stream)?);
        }
        Ok(Marks(marks))
    };
    let finish = |marks: &Marks| {
        let microseconds = marks.microseconds(launches)?;
        Ok::<_, DeviceError>(Round { microseconds, card: nvml.map(Nvml::state).unwrap_or_default() })
    };
    let mut rounds = Vec::new();
    if let Some(turns) = turns {
        turns.ready(launches);
        while turns.wait() {
            // The first launch finds the caches as the others left them.
            let done = finish(&round(1)?)?;
            turns.timed(&done);
            rounds.push(done);
        }
        return Ok(RoundTimes { rounds, launches });
    }
    let mut last = round(0)?;
    for number in 0..plan.rounds {
        let next = round(0)?;
        let done = finish(&std::mem::replace(&mut last, next))?;
        if number > 0 {
            rounds.push(done);
        }
    }
    rounds.push(finish(&last)?);
    Ok(RoundTimes { rounds, launches })
}

/// The events before, between and after the times of a round.
struct Marks(Vec<Event>);

impl Marks {
    /// Waits for the end of the round. Microseconds of a launch in each of its times.
    fn microseconds(&self, launches: usize) -> Result<Vec<f64>, DeviceError> {
        self.0.last().map_or(Ok(()), Event::wait)?;
        self.0.windows(2).map(|pair| pair[0].until(&pair[1]).map(|ms| ms * 1e3 / launches as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_launch_fills_any_time_and_no_time_at_all_is_not_infinity() {
        assert_eq!(count_to_fill(25.0, 1.0, 1000), 25);
        assert_eq!(count_to_fill(25.0, 40.0, 1000), 1);
        assert_eq!(count_to_fill(25.0, 0.0, 1000), 1000);
    }

    #[test]
    fn exact_counts_are_spread_over_the_rounds_and_a_plan_without_them_is_written_as_before() {
        let plan = TimingPlan { warm_up_ms: 25.0, measure_ms: 100.0, rounds: 20, graph: false, counts: None };
        let text = r#"{"warm_up_ms":25.0,"measure_ms":100.0,"rounds":20,"graph":false}"#;
        assert_eq!(serde_json::to_string(&plan).expect("JSON"), text);
        assert_eq!(serde_json::from_str::<TimingPlan>(text).expect("a plan"), plan);
        let of = |runs| TimingPlan { counts: Some(Counts { warm_ups: 100, runs }), ..plan }.times_a_round();
        assert_eq!([plan.times_a_round(), of(1000), of(21)], [1, 50, 2]);
    }
}
