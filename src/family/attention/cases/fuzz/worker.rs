//! The worker process: makes its share of the calls, and reports the start and the result of each.

use super::{
    call::{self, Outcome, Pool},
    draw::Drawer,
    library_call::LibraryCall,
    scope::{Scope, ScopeDevice},
};
use crate::{
    device::{Device, DeviceError, Emulator, Gpu},
    isolate,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    io::{BufRead, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

/// Version of the messages between parent and worker.
pub const PROTOCOL: u32 = 1;

/// Request to a worker: one line of JSON on its standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Version of the protocol, [`PROTOCOL`].
    pub version: u32,
    /// Shared library of kernels and dispatcher.
    #[serde(with = "crate::files::path::exact")]
    pub library: PathBuf,
    /// Kernels of the library, and the device.
    pub scope: Scope,
    /// The calls.
    pub work: Work,
    /// The parent's time limit for each call.
    pub call_limit_seconds: f64,
}

/// The calls that a worker makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Numbers `first`, `first + step`, ... below `end`, drawn from the seed, until the time limit.
    Draw {
        /// Seed of the run.
        seed: u64,
        /// First number.
        first: u64,
        /// Number of workers of the run.
        step: u64,
        /// End of the numbers.
        end: u64,
        /// Time in seconds after which no call starts; `None`: no limit.
        seconds: Option<f64>,
    },
    /// A list of calls by name, up to and including the first that fails. Numbered from 0.
    Cases(Vec<String>),
}

/// Messages of a worker: lines of JSON on its standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The device is ready.
    Device {
        /// Name of the device in reports.
        name: String,
    },
    /// The device cannot be used.
    NoDevice {
        /// Reason.
        message: String,
    },
    /// A call starts.
    Begin {
        /// Call number.
        number: u64,
    },
    /// A call has ended.
    Done {
        /// Call number.
        number: u64,
        /// Outcome of the call.
        outcome: Outcome,
    },
    /// All calls are made, or the time limit is reached.
    Finished,
}

/// Serves one request.
///
/// # Errors
/// A message for the parent's log, if the request is invalid or the parent has closed the pipe.
pub fn serve(input: &mut impl BufRead, output: impl Write) -> Result<(), String> {
    let (request, mut reply): (Request, _) = isolate::request(input, output)?;
    if request.version != PROTOCOL {
        return Err(format!("the request has version {}, this worker speaks {PROTOCOL}", request.version));
    }
    // Workers share the cores. Creating a second thread pool fails, and the first one is used.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    let mut say = |event: &Event| reply.say(event).map_err(|e| format!("cannot report: {e}"));
    let mut caller = Caller { request: &request, devices: HashMap::new(), pool: Pool::draw() };
    match &request.work {
        Work::Cases(names) => {
            for (number, name) in names.iter().enumerate() {
                let case: LibraryCall = name.parse().map_err(|e| format!("`{name}` is no case: {e}"))?;
                if caller.call(number as u64, &case, &mut say)?.is_failure() {
                    break;
                }
            }
        }
        Work::Draw { seed, first, step, end, seconds } => {
            let begun = Instant::now();
            let limit = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let drawer = Drawer::new(&request.scope, *seed);
            let mut number = *first;
            while number < *end && limit.is_none_or(|limit| begun.elapsed() < limit) {
                if caller.call(number, &drawer.draw(number), &mut say)?.is_fatal() {
                    return Ok(());
                }
                number += step;
            }
        }
    }
    say(&Event::Finished)
}

/// State for making calls.
struct Caller<'a> {
    request: &'a Request,
    /// Functions by name, opened at their first call.
    devices: HashMap<&'static str, Opened>,
    pool: Pool,
}

/// A function of the library on its device.
enum Opened {
    Gpu(Gpu),
    Emulator(Emulator),
}

impl Opened {
    fn new(request: &Request, function: &str) -> Result<Self, DeviceError> {
        Ok(match request.scope.device {
            ScopeDevice::Gpu { .. } => Self::Gpu(Gpu::open(&request.library, function)?),
            ScopeDevice::Emulator => Self::Emulator(Emulator::open(&request.library, function, 80)?),
        })
    }

    /// The device for a case.
    fn device(&mut self, scope: &Scope, case: &LibraryCall) -> &mut dyn Device {
        match self {
            Self::Gpu(gpu) => gpu,
            Self::Emulator(emulator) => {
                emulator.emulate(scope.capability_for(case));
                emulator
            }
        }
    }
}

impl Caller<'_> {
    /// Makes one call and reports it.
    fn call(
        &mut self,
        number: u64,
        case: &LibraryCall,
        say: &mut impl FnMut(&Event) -> Result<(), String>,
    ) -> Result<Outcome, String> {
        let request = self.request;
        let unopened = !self.devices.contains_key(case.function());
        if unopened {
            match Opened::new(request, case.function()) {
                Ok(opened) => {
                    self.devices.insert(case.function(), opened);
                }
                Err(error) => {
                    say(&Event::NoDevice { message: error.to_string() })?;
                    return Err(error.to_string());
                }
            }
        }
        let Some(opened) = self.devices.get_mut(case.function()) else { return Err("the device is gone".to_owned()) };
        let device = opened.device(&request.scope, case);
        if unopened {
            say(&Event::Device { name: device.name() })?;
        }
        say(&Event::Begin { number })?;
        let watch = isolate::end_when_forgotten(request.call_limit_seconds);
        let outcome = match case {
            LibraryCall::Attention(case) => call::make(case, &request.scope, &self.pool, device),
            LibraryCall::Drawn(call) => Outcome { path: call.kind, result: call.make(device) },
        };
        drop(watch);
        say(&Event::Done { number, outcome: outcome.clone() })?;
        Ok(outcome)
    }
}
