//! Kernels and peers that take turns: all contenders of a point are alive at once, each in a worker of its own, and are
//! timed round by round in an order that is reversed after each round. A contender that dies loses its own rounds only.

mod contender;
mod protocol;
mod ratio;

pub use protocol::{Answer, Facts, Order, PROTOCOL, PeerRequest, Point};
pub use ratio::{Outcome as RatioOutcome, Ratio};

use super::{
    BenchOptions, BenchRequest, Ceiling, Measurement, Observer, Size, Status, Work,
    experiment::Finding,
    peers::Python,
    run::{WORKER, worker_request},
};
use crate::{
    device::{Round, RoundTimes, TimingPlan},
    isolate::Session,
    kernel::{Kind, Variant},
};
use contender::{Contender, Failure};
use serde::{Deserialize, Serialize};
use std::{iter, process::Command, time::Duration};

/// A peer at a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerMeasurement {
    /// Name of the peer.
    pub peer: String,
    /// The implementation with its version; empty if it is absent.
    pub library: String,
    /// Its times by those of the kernels of the point.
    pub ratios: Vec<Ratio>,
    /// The measurement: its variant is the first kernel of the point, its name that of the peer.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// Who takes turns with the kernels.
pub struct Peers<'a> {
    /// Names of peers, without duplicates.
    pub names: &'a [String],
    /// Runs their workers.
    pub python: &'a Python,
    /// The work of a kernel at a size.
    pub work: fn(&Variant, &Size) -> Option<Work>,
    /// Rates that nothing may exceed.
    pub ceiling: Ceiling,
}

/// Kernels that do the same work, and its size.
struct Meeting {
    /// Places of the requests, and of the size in each.
    kernels: Vec<(usize, usize)>,
    variant: Variant,
    size: Size,
}

/// Times every request at every shape, in turns with the peers. Never fails as a whole: a failure is a measurement with
/// its status. Measurements are in the order of the points; kernels that do the same work share a point.
pub fn run(
    requests: &[BenchRequest],
    peers: &Peers<'_>,
    options: &BenchOptions,
    observer: &dyn Observer,
) -> (Vec<Measurement>, Vec<PeerMeasurement>) {
    let meetings = meetings(requests);
    let points: Vec<Point> = meetings.iter().map(|m| Point { variant: m.variant, shape: m.size.clone() }).collect();
    let interrupted = || observer.interrupted();
    let contender = |start| Contender::new(start, options.time_limit, &interrupted);
    let mut kernels: Vec<Contender<'_>> =
        requests.iter().map(|request| contender(Box::new(move || start_kernel(request, options))).that_loads()).collect();
    let mut others: Vec<Contender<'_>> = peers
        .names
        .iter()
        .map(|name| {
            let request = PeerRequest {
                version: PROTOCOL,
                peer: name.clone(),
                points: points.clone(),
                plan: options.plan,
                seed: options.seed,
                time_limit_seconds: options.time_limit.as_secs_f64(),
            };
            contender(Box::new(move || Session::start(peers.python.command(), &request)))
        })
        .collect();
    // Python loads its libraries meanwhile.
    others.iter_mut().for_each(Contender::wake);
    let (mut found, mut of_peers) = (Vec::new(), Vec::new());
    for (number, meeting) in meetings.iter().enumerate() {
        if observer.interrupted() {
            break;
        }
        let names = meeting.kernels.iter().map(|(request, _)| requests[*request].variant.name());
        let names: Vec<String> = names.chain(peers.names.iter().cloned()).collect();
        let mut seats: Vec<Seat<'_, '_>> = Vec::new();
        for (place, kernel) in kernels.iter_mut().enumerate() {
            seats.extend(meeting.kernels.iter().find(|(request, _)| *request == place).map(|(_, shape)| (*shape, kernel)));
        }
        seats.extend(others.iter_mut().map(|peer| (number, peer)));
        let results = take_turns(&mut seats, &names, options.plan.rounds, observer);
        let libraries: Vec<String> = seats.iter().map(|(_, contender)| contender.library.clone()).collect();
        let own = meeting.kernels.len();
        let rounds: Vec<Vec<Round>> =
            results.iter().map(|result| result.as_ref().map_or_else(|_| Vec::new(), |(rounds, ..)| rounds.clone())).collect();
        for (place, result) in results.into_iter().enumerate() {
            let request = &requests[meeting.kernels[place.min(own - 1)].0];
            let variant = if place < own { request.variant } else { meeting.variant };
            let measurement = measurement(variant, &meeting.size, result, peers.work, &peers.ceiling, options.seed);
            if place < own {
                let measurement = Measurement { made: request.made.clone(), ..measurement };
                observer.measured(&measurement);
                found.push(measurement);
                continue;
            }
            let ratio = |kernel: usize| Ratio::of(&rounds[place], &names[kernel], &rounds[kernel], options.seed);
            let peer = PeerMeasurement {
                peer: names[place].clone(),
                library: libraries[place].clone(),
                ratios: if measurement.status == Status::Ok { (0..own).filter_map(ratio).collect() } else { Vec::new() },
                measurement: Measurement { name: names[place].clone(), ..measurement },
            };
            observer.peer_measured(&peer);
            of_peers.push(peer);
        }
        // Its memory and its context are of no more use.
        for (request, _) in &meeting.kernels {
            let is_needed = meetings[number + 1..].iter().any(|later| later.kernels.iter().any(|(r, _)| r == request));
            if !is_needed {
                kernels[*request].dismiss();
            }
        }
    }
    (found, of_peers)
}

/// Times kernels at the same sizes in turns, each with its own library: for each, its measurements in the order of the
/// sizes of the first. `work` and `ceiling` as those of [`Peers`].
pub fn together(
    kernels: &[(BenchRequest, BenchOptions)],
    work: fn(&Variant, &Size) -> Option<Work>,
    ceiling: Ceiling,
    observer: &dyn Observer,
) -> Vec<Vec<Measurement>> {
    let Some(((first, options), _)) = kernels.split_first() else { return Vec::new() };
    let interrupted = || observer.interrupted();
    let mut contenders: Vec<Contender<'_>> = kernels
        .iter()
        .map(|(request, options)| {
            Contender::new(Box::new(move || start_kernel(request, options)), options.time_limit, &interrupted).that_loads()
        })
        .collect();
    contenders.iter_mut().for_each(Contender::wake);
    let names: Vec<String> = kernels.iter().map(|(request, _)| request.variant.name()).collect();
    let mut found: Vec<Vec<Measurement>> = kernels.iter().map(|_| Vec::new()).collect();
    for (number, size) in first.shapes.iter().enumerate() {
        let mut seats: Vec<Seat<'_, '_>> = contenders.iter_mut().map(|contender| (number, contender)).collect();
        let results = take_turns(&mut seats, &names, options.plan.rounds, observer);
        for ((request, options), (result, found)) in kernels.iter().zip(results.into_iter().zip(&mut found)) {
            let measurement = measurement(request.variant, size, result, work, &ceiling, options.seed);
            found.push(Measurement { made: request.made.clone(), ..measurement });
        }
    }
    found
}

/// Which of these peers this machine has, each with its library; or why it is absent.
pub fn look_for(
    names: &[String],
    python: &Python,
    time_limit: Duration,
    interrupted: &dyn Fn() -> bool,
) -> Vec<Result<String, (Status, String)>> {
    // Nothing is timed.
    let plan = TimingPlan { warm_up_ms: 0.0, measure_ms: 1.0, rounds: 1, graph: false, counts: None };
    let start = |name: &String| {
        let (peer, time_limit_seconds) = (name.clone(), time_limit.as_secs_f64());
        let request = PeerRequest { version: PROTOCOL, peer, points: Vec::new(), plan, seed: 0, time_limit_seconds };
        Contender::new(Box::new(move || Session::start(python.command(), &request)), time_limit, interrupted)
    };
    let mut contenders: Vec<Contender<'_>> = names.iter().map(start).collect();
    contenders.iter_mut().for_each(Contender::wake);
    contenders.iter_mut().map(|contender| contender.greet().map(|()| contender.library.clone())).collect()
}

/// The points, in the order of the requests. Kernels of the same work meet at the first one's place.
fn meetings(requests: &[BenchRequest]) -> Vec<Meeting> {
    let mut meetings: Vec<Meeting> = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        for (shape, size) in request.shapes.iter().enumerate() {
            let same = |m: &&mut Meeting| m.size == *size && work_of(&m.variant) == work_of(&request.variant);
            match meetings.iter_mut().find(same) {
                // A kernel meets itself at another point only.
                Some(meeting) if !meeting.kernels.iter().any(|(known, _)| *known == place) => {
                    meeting.kernels.push((place, shape));
                }
                _ => meetings.push(Meeting { kernels: vec![(place, shape)], variant: request.variant, size: size.clone() }),
            }
        }
    }
    meetings
}

/// What a kernel computes, whatever it is compiled for.
fn work_of(variant: &Variant) -> impl PartialEq + use<> {
    let at = variant.coordinates();
    let kind = if variant.kind() == Kind::FwdShort { Kind::Fwd } else { variant.kind() };
    (kind, at.head_dim, at.dtype, at.causal, at.features)
}

/// A contender's rounds so far, and the launches of each time.
type Playing = (Vec<Round>, usize);

/// A contender's place: the number of its point, and itself.
type Seat<'s, 'a> = (usize, &'s mut Contender<'a>);

/// A contender's rounds, the launches of each time, and what else its worker reports.
type Played = (Vec<Round>, usize, Facts);

/// Has all contenders load at the same time, prepares them one after the other, times a round of each in turn, and has
/// all check their results at the same time.
fn take_turns(
    seats: &mut [Seat<'_, '_>],
    names: &[String],
    rounds: usize,
    observer: &dyn Observer,
) -> Vec<Result<Played, Failure>> {
    for (point, contender) in seats.iter_mut() {
        contender.load(*point);
    }
    let loaded: Vec<Result<(), Failure>> = seats.iter_mut().map(|(_, contender)| contender.loaded()).collect();
    let mut playing: Vec<Result<Playing, Failure>> = iter::zip(iter::zip(seats.iter_mut(), names), loaded)
        .map(|(((point, contender), name), loaded)| {
            observer.started(name);
            loaded.and_then(|()| contender.prepare(*point)).map(|launches| (Vec::new(), launches))
        })
        .collect();
    for number in 0..rounds {
        let mut order: Vec<usize> = (0..seats.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        for place in order {
            if let Ok((rounds, _)) = &mut playing[place] {
                match seats[place].1.round() {
                    Ok(round) => rounds.push(round),
                    Err(failure) => playing[place] = Err(failure),
                }
            }
        }
    }
    for ((_, contender), _) in iter::zip(seats.iter_mut(), &playing).filter(|(_, played)| played.is_ok()) {
        contender.finish();
    }
    let finished = |((_, contender), played): (&mut Seat<'_, '_>, Result<Playing, Failure>)| {
        let (rounds, launches) = played?;
        contender.finished().map(|facts| (rounds, launches, facts))
    };
    seats.iter_mut().zip(playing).map(finished).collect()
}

fn measurement(
    variant: Variant,
    size: &Size,
    result: Result<Played, Failure>,
    work: fn(&Variant, &Size) -> Option<Work>,
    ceiling: &Ceiling,
    seed: u64,
) -> Measurement {
    let without = |status, message| Measurement::without(variant, size.clone(), status, message);
    let (rounds, launches, facts) = match result {
        Ok(played) => played,
        Err((status, message)) => return without(status, message),
    };
    let Some(work) = work(&variant, size) else {
        return without(Status::Error, format!("`{size}` is no size of this kernel"));
    };
    let Facts { relative_error, graph, cold_l2, memory_bytes, num_splits, passed } = facts;
    let times = RoundTimes { rounds, launches };
    let finding = Finding { times, relative_error, num_splits, passed, cold_l2, graph, memory_bytes };
    Measurement::of(variant, size.clone(), work, finding, ceiling, seed)
}

/// The worker of a kernel.
fn start_kernel(request: &BenchRequest, options: &BenchOptions) -> std::io::Result<Session> {
    let mut command = Command::new(&options.program);
    command.args(["__worker", WORKER]);
    Session::start(command, &worker_request(request, &request.shapes, options, options.time_limit, true))
}
