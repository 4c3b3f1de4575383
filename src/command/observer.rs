//! Progress of a command, as events. The caller decides which of them to show.

use crate::{
    bench::{self, Measurement},
    build::{self, Artifact, BuildFailure},
    check::{self, Status, Verdict},
    family::attention::fuzz::{FuzzObserver, LibraryCall},
    probe::{self, Measured},
    toolchain::{Cancel, Say},
};
use serde::Serialize;

/// Receives the events of a command.
pub trait Observer: Sync {
    /// Receives one event, on the thread where it happens.
    fn event(&self, event: Event<'_>);

    /// Sends [`Event::Note`].
    fn note(&self, message: &str) {
        self.event(Event::Note { message });
    }
}

/// Ignores all events.
impl Observer for () {
    fn event(&self, _event: Event<'_>) {}
}

/// An event. The events of one piece of work come between [`Begun`](Self::Begun) and [`Ended`](Self::Ended).
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// One sentence about something unusual or long.
    Note {
        /// The sentence.
        message: &'a str,
    },
    /// One sentence that the caller must show: it concerns files that the user edited, and is reported nowhere else.
    Warning {
        /// The sentence.
        message: &'a str,
    },
    /// A piece of work of many steps has begun.
    Begun {
        /// Kind of the work.
        work: Work,
        /// Number of steps.
        steps: usize,
        /// Number of steps expected to be cached by an earlier run.
        known: usize,
    },
    /// A step has begun.
    Started {
        /// Name of the step: that of a kernel.
        step: &'a str,
    },
    /// A part of a step has begun.
    Advanced {
        /// Name of the step.
        step: &'a str,
        /// Number of the part, from 1.
        number: usize,
        /// Number of parts of the step.
        of: usize,
        /// Name of the part: that of a case.
        part: &'a str,
    },
    /// A step is done. Steps cached by an earlier run are not started.
    Finished {
        /// Name of the step.
        step: &'a str,
        /// Result of the step.
        result: StepResult<'a>,
    },
    /// A step was begun and will not be finished.
    GivenUp {
        /// Name of the step.
        step: &'a str,
    },
    /// A random call that failed is being reduced to a smaller one.
    Shrinking {
        /// Number of the call.
        call: u64,
    },
    /// The piece of work is over, or could not begin.
    Ended,
    /// Part of a download has arrived.
    Downloaded {
        /// Bytes so far.
        bytes: u64,
        /// Bytes expected, rounded.
        of: u64,
    },
    /// The download is over.
    DownloadEnded,
}

/// Kinds of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Compilation by nvcc; a step is a kernel.
    Compiling,
    /// Compilation of a library for the emulator; a step is a kernel or the dispatcher.
    CompilingForEmulator,
    /// Checks; a step is a variant.
    Checking,
    /// Timing; a step is a variant at one size.
    Timing,
    /// Random calls; a step is a call.
    Calling,
    /// Profiles; a step is a variant.
    Profiling,
    /// Micro-benchmarks of a card; a step is a probe.
    Probing,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepResult<'a> {
    /// The step succeeded, and there is nothing to add.
    Done,
    /// The kernel compiled, now or in an earlier run.
    Compiled(&'a Artifact),
    /// The kernel did not compile.
    NotCompiled(&'a BuildFailure),
    /// The kernel was checked.
    Checked(&'a Verdict),
    /// The kernel was timed.
    Measured(&'a Measurement),
    /// A probe has run.
    Probed(&'a Measured),
    /// A random call gave the expected result. The step has no name.
    Called,
    /// A random call failed.
    CallFailed {
        /// The call, in the form that `Request::calls` of [`fuzz`](super::fuzz) takes.
        call: &'a str,
        /// Description of the failure.
        message: &'a str,
    },
}

/// Forwards progress of other modules as events, and cancellation in the opposite direction.
pub(super) struct Relay<'a> {
    pub observer: &'a dyn Observer,
    pub cancel: &'a Cancel,
}

impl Relay<'_> {
    fn finished(&self, step: &str, result: StepResult<'_>) {
        self.observer.event(Event::Finished { step, result });
    }
}

impl build::Observer for Relay<'_> {
    fn note(&self, message: &str) {
        self.observer.note(message);
    }

    fn planned(&self, kernels: usize, known: usize) {
        self.observer.event(Event::Begun { work: Work::Compiling, steps: kernels, known });
    }

    fn started(&self, name: &str) {
        self.observer.event(Event::Started { step: name });
    }

    fn finished(&self, outcome: build::Outcome<'_>) {
        match outcome {
            build::Outcome::Built(artifact) => self.finished(&artifact.name, StepResult::Compiled(artifact)),
            build::Outcome::Failed(failure) => self.finished(&failure.name, StepResult::NotCompiled(failure)),
        }
    }
}

impl check::Observer for Relay<'_> {
    fn started(&self, variant: &str) {
        self.observer.event(Event::Started { step: variant });
    }

    fn case(&self, variant: &str, number: usize, of: usize, name: &str) {
        self.observer.event(Event::Advanced { step: variant, number, of, part: name });
    }

    fn done(&self, verdict: &Verdict) {
        if verdict.status == Status::Interrupted {
            return self.observer.event(Event::GivenUp { step: &verdict.name });
        }
        self.finished(&verdict.name, StepResult::Checked(verdict));
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}

impl bench::Observer for Relay<'_> {
    fn started(&self, variant: &str) {
        self.observer.event(Event::Started { step: variant });
    }

    fn measured(&self, measurement: &Measurement) {
        self.finished(&measurement.name, StepResult::Measured(measurement));
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}

impl probe::Observer for Relay<'_> {
    fn started(&self, probe: &str) {
        self.observer.event(Event::Started { step: probe });
    }

    fn measured(&self, measured: &Measured) {
        self.finished(measured.probe, StepResult::Probed(measured));
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}

impl FuzzObserver for Relay<'_> {
    fn called(&self, failed: bool) {
        // `failed` follows and carries the rest.
        if !failed {
            self.finished("", StepResult::Called);
        }
    }

    fn failed(&self, number: u64, call: &LibraryCall, message: &str) {
        self.finished(&format!("call {number}"), StepResult::CallFailed { call: &call.to_string(), message });
    }

    fn shrinking(&self, number: u64) {
        self.observer.event(Event::Shrinking { call: number });
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}

impl Say for Relay<'_> {
    fn say(&self, message: &str) {
        self.observer.note(message);
    }

    fn downloaded(&self, bytes: u64, of: u64) {
        self.observer.event(Event::Downloaded { bytes, of });
    }

    fn download_ended(&self) {
        self.observer.event(Event::DownloadEnded);
    }
}
