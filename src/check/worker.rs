//! The worker's side: reads a [`Request`], runs its cases on its device, reports each and then the verdict.
//!
//! A worker is a separate process because a kernel under test may hang or crash; the parent notices that and continues.
//! Messages are JSON, one per line, and carry a version: a worker of another kgen is refused rather than misread.

use super::{
    case::{Case, Cases, Drawn, Subject, selected_cases},
    compare::Distance,
    level::Level,
    schedules,
    verdict::{Status, Verdict, Worst},
};
use crate::{
    device::{Call, Device, DeviceError, DeviceKind, Emulator, Gpu, Image, Order, Outputs, Schedule},
    isolate,
    kernel::Target,
};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
    time::Instant,
};

/// Version of the messages between parent and worker.
pub const PROTOCOL: u32 = 3;

/// Request to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Version of the protocol, [`PROTOCOL`].
    pub version: u32,
    /// The kernel and the device.
    pub subject: Subject,
    /// The GPU it was compiled for.
    pub compiled_for: Target,
    /// Shared library that holds the variant's launcher.
    #[serde(with = "crate::files::path::exact")]
    pub library: PathBuf,
    /// The level.
    pub level: Level,
    /// Text that the names of the selected cases contain.
    pub filter: Option<String>,
    /// Seed of the inputs and of the order of threads.
    pub seed: u64,
    /// Thread order on the emulator in every run after a case's first; `None` for the usual orders.
    pub schedule: Option<Order>,
    /// Number of threads for the reference computation.
    pub threads: usize,
    /// The parent's time limit.
    pub time_limit_seconds: f64,
}

/// Messages of a worker, in the order in which it sends them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The device is ready.
    Device {
        /// Name of the device in reports.
        name: String,
    },
    /// A case begins.
    Case {
        /// Number, from 1.
        number: usize,
        /// Number of cases.
        of: usize,
        /// Name.
        name: String,
    },
    /// The verdict, which ends the messages.
    Verdict(Verdict),
}

/// Serves one request.
///
/// # Errors
/// A message for the parent's log if the request cannot be read or the verdict cannot be written.
pub fn serve(cases: Cases, input: &mut impl BufRead, output: impl Write) -> Result<(), String> {
    let (request, mut reply): (Request, _) = isolate::request(input, output)?;
    if request.version != PROTOCOL {
        return Err(format!("the request has version {}, this worker speaks {PROTOCOL}", request.version));
    }
    let _watch = isolate::end_when_forgotten(request.time_limit_seconds);
    // A second pool is refused; the first one is then used.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(request.threads).build_global();
    let verdict = check(cases, &request, &mut |event| reply.say(event)).map_err(|e| format!("cannot report: {e}"))?;
    reply.say(&Event::Verdict(verdict)).map_err(|e| format!("cannot report: {e}"))
}

/// Opens the request's device.
fn open(request: &Request) -> Result<Box<dyn Device>, DeviceError> {
    let name = request.subject.variant.name();
    Ok(match request.subject.device {
        DeviceKind::Emulator => Box::new(Emulator::open(&request.library, &name, request.compiled_for.compute_capability())?),
        DeviceKind::Gpu => Box::new(Gpu::open(&request.library, &name)?),
    })
}

/// Runs the cases in order and stops at the first that fails.
fn check(cases: Cases, request: &Request, report: &mut dyn FnMut(&Event) -> io::Result<()>) -> io::Result<Verdict> {
    let begun = Instant::now();
    let mut verdict = Verdict {
        name: request.subject.variant.name(),
        device: request.subject.device.word().to_owned(),
        kind: request.subject.device,
        level: request.level,
        seed: request.seed,
        status: Status::Pass,
        cases_run: 0,
        worst: None,
        seconds: 0.0,
        message: String::new(),
        cached: false,
        same_as: None,
    };
    let fail = |verdict: &mut Verdict, status, message| (verdict.status, verdict.message) = (status, message);
    match open(request) {
        Err(error) => fail(&mut verdict, Status::Error, error.to_string()),
        Ok(mut device) => {
            let cases = selected_cases(cases, &request.subject, request.level, request.filter.as_deref());
            verdict.device = device.name();
            report(&Event::Device { name: device.name() })?;
            for (index, case) in cases.iter().enumerate() {
                let name = case.name();
                report(&Event::Case { number: index + 1, of: cases.len(), name: name.clone() })?;
                let outcome = run_case(request, case.as_ref(), device.as_mut());
                verdict.cases_run += 1;
                if let Some(distance) = outcome.distance {
                    consider(&mut verdict, &name, distance);
                }
                if let Some(Failure { status, order, message }) = outcome.failure {
                    let seed = request.seed;
                    let schedule = match request.subject.device {
                        DeviceKind::Emulator => format!(", schedule `{order}`"),
                        DeviceKind::Gpu => String::new(),
                    };
                    fail(&mut verdict, status, format!("case `{name}`, seed {seed}{schedule}: {message}"));
                    break;
                }
            }
            if cases.is_empty() {
                let filter = request.filter.as_deref().unwrap_or_default();
                fail(&mut verdict, Status::Error, format!("no {} case's name contains `{filter}`", request.level.word()));
            }
        }
    }
    verdict.seconds = begun.elapsed().as_secs_f64();
    Ok(verdict)
}

/// Records the case in the verdict if it is nearer to its tolerance than earlier ones, or further beyond it.
fn consider(verdict: &mut Verdict, case: &str, distance: Distance) {
    let ratio = distance.ratio();
    if verdict.worst.as_ref().is_none_or(|worst| ratio > worst.ratio) {
        let Distance { output, error, tolerance } = distance;
        verdict.worst = Some(Worst { case: case.to_owned(), output: output.to_owned(), error, tolerance, ratio });
    }
}

/// Outcome of one case.
struct Outcome {
    /// Distance of the outputs from the reference, if there were outputs.
    distance: Option<Distance>,
    /// The first failure.
    failure: Option<Failure>,
}

/// A failure in a run.
struct Failure {
    /// The status it causes: the kernel's fault or the machine's.
    status: Status,
    /// Thread order of the run.
    order: Order,
    message: String,
}

/// Draws the case, runs it, compares it with the reference, and runs it again: a GPU must give the same bits twice, the
/// emulator the same bits under every thread order.
fn run_case(request: &Request, case: &dyn Case, device: &mut dyn Device) -> Outcome {
    let seed = seed_of(request.seed, &case.name());
    let Drawn { call, judge, may_differ } = case.draw(seed);
    let shuffled = Schedule::shuffled(seed);
    let mut outcome = Outcome { distance: None, failure: None };
    let blame = |schedule: Schedule, message| Some(Failure { status: Status::Fail, order: schedule.order, message });
    if let Some(expected) = case.expected_workspace() {
        outcome.failure = match device.workspace_for(&call) {
            Ok(bytes) if bytes == expected => None,
            Ok(bytes) => blame(shuffled, format!("the workspace function asks for {bytes} bytes, not for {expected}")),
            Err(error) => blame(shuffled, format!("the workspace function must ask for {expected} bytes, but {error}")),
        };
        if outcome.failure.is_some() {
            return outcome;
        }
    }
    if let Some(words) = case.refusal() {
        outcome.failure = match device.run(&call, shuffled) {
            Err(DeviceError::Launcher { code, message, .. }) if code == case.refusal_code() && message.contains(&words) => None,
            Err(error) => blame(shuffled, format!("the launcher must refuse this and say `{words}`, but {error}")),
            Ok(_) => blame(shuffled, format!("the launcher must refuse this and say `{words}`, but takes it")),
        };
        return outcome;
    }
    let first = match launch(device, &call, shuffled) {
        Ok(outputs) => outputs,
        Err(failure) => return Outcome { failure: Some(failure), ..outcome },
    };
    let comparison = judge(&first);
    outcome.distance = Some(comparison.worst);
    outcome.failure = comparison.complaint.and_then(|complaint| blame(shuffled, complaint));
    if outcome.failure.is_none()
        && let Some(twin) = case.twin(seed)
    {
        outcome.failure = match launch(device, &twin.call, shuffled) {
            Err(failure) => Some(failure),
            Ok(other) => (twin.difference)(&first, &other)
                .and_then(|difference| blame(shuffled, format!("other bits than from aligned tensors: {difference}"))),
        };
    }
    let differs =
        |((name, one), (_, other)): &(&(&'static str, Image), &(&'static str, Image))| !may_differ.contains(name) && one != other;
    let subject = &request.subject;
    let (kernel, order_matters) = (subject.variant.name(), device.order_matters());
    for schedule in schedules::further(subject.device, request.level, request.schedule, &kernel, seed, order_matters) {
        if outcome.failure.is_some() {
            break;
        }
        outcome.failure = match launch(device, &call, schedule) {
            Err(failure) => Some(failure),
            Ok(again) => match first.0.iter().zip(&again.0).find(differs) {
                Some(((name, _), _)) => {
                    blame(schedule, format!("another run of the same inputs gave other bits in `{name}`: threads race"))
                }
                None if again == first => None,
                None => judge(&again).complaint.and_then(|complaint| blame(schedule, complaint)),
            },
        };
    }
    outcome
}

/// The seed of a case, independent of the other cases that run.
fn seed_of(seed: u64, case: &str) -> u64 {
    let hash = blake3::hash(case.as_bytes());
    let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from_le_bytes(*first)
}

fn launch(device: &mut dyn Device, call: &Call, schedule: Schedule) -> Result<Outputs, Failure> {
    device.run(call, schedule).map_err(|error| Failure {
        status: if error.blames_kernel() { Status::Fail } else { Status::Error },
        order: schedule.order,
        message: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family,
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim},
        plan::Tiling,
    };

    fn request() -> Request {
        Request {
            version: PROTOCOL,
            subject: Subject {
                variant: Point {
                    kind: Kind::Fwd,
                    head_dim: HeadDim::equal(64),
                    dtype: Dtype::Fp16,
                    causal: true,
                    features: Features::NONE,
                    target: Target::Sm80,
                }
                .into(),
                tiling: Tiling {
                    m: 128,
                    n: 64,
                    stages: 2,
                    row_groups: 1,
                    key_groups: 1,
                    whole_tiles: false,
                    cluster: 1,
                    persistent: false,
                },
                device: DeviceKind::Emulator,
            },
            compiled_for: Target::Sm80,
            library: PathBuf::from("no-such-library.so"),
            level: Level::Smoke,
            filter: None,
            seed: 1,
            schedule: None,
            threads: 1,
            time_limit_seconds: 5.0,
        }
    }

    fn answer(request: &Request) -> Result<String, String> {
        let mut output = Vec::new();
        serve(family::cases, &mut isolate::test_line(request).as_bytes(), &mut output)
            .map(|()| String::from_utf8(output).expect("JSON is text"))
    }

    #[test]
    fn a_library_that_does_not_load_is_a_verdict_and_no_panic() {
        let said = answer(&request()).expect("it answers");
        let event = said.strip_prefix("token ").expect("it gives the token back");
        let Event::Verdict(verdict) = serde_json::from_str(event).expect("one event") else { panic!("{said}") };
        assert_eq!(verdict.status, Status::Error);
        assert!(verdict.message.contains("`no-such-library.so`"), "{}", verdict.message);
    }

    #[test]
    fn a_request_of_another_version_is_refused() {
        let error = answer(&Request { version: 99, ..request() }).expect_err("refused");
        assert!(error.contains("version 99"), "{error}");
    }

    #[test]
    fn a_filter_keeps_the_cases_whose_name_contains_it() {
        let kept = selected_cases(family::cases, &request().subject, Level::Smoke, Some("one-hot"));
        assert!(!kept.is_empty() && kept.iter().all(|case| case.name().contains("one-hot")));
    }
}
