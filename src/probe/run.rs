//! The parent's side: one worker process per probe, one after another. A probe that crashes or hangs is lost alone.

use super::{
    Constant, Probe, Sheet,
    worker::{Answer, Request},
};
use crate::{
    bench::Status,
    device::{CardState, TimingPlan},
    isolate::{End, Worker},
};
use serde::Serialize;
use std::{path::PathBuf, time::Duration};

/// The task of the worker that runs a probe.
const WORKER: &str = "probe";

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The library of probes.
    pub library: PathBuf,
    /// What the card can do at most.
    pub sheet: Sheet,
    /// Rounds and durations of each probe.
    pub plan: TimingPlan,
    /// Seed of operands and bootstrap samples.
    pub seed: u64,
    /// Time limit of a probe.
    pub time_limit: Duration,
    /// The kgen executable.
    pub program: PathBuf,
}

/// A probe's outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The probe.
    pub probe: &'static str,
    /// `ok`, or why there are no constants.
    pub status: Status,
    /// The reason in words; empty if there are constants.
    pub message: String,
    /// The constants.
    pub constants: Vec<Constant>,
    /// State of the card after the last round.
    pub card: CardState,
}

/// Receives the progress of a run.
pub trait Observer: Sync {
    /// A probe begins.
    fn started(&self, probe: &str);
    /// A probe is over.
    fn measured(&self, measured: &Measured);
    /// Polled ten times a second; true stops the run.
    fn interrupted(&self) -> bool;
}

/// Runs the probes in order. Never fails as a whole: a probe that fails has its status.
pub fn run<'a>(probes: impl Iterator<Item = &'a Probe>, options: &Options, observer: &dyn Observer) -> Vec<Measured> {
    let one = |probe: &Probe| {
        observer.started(probe.name);
        let measured = run_one(probe, options, observer);
        observer.measured(&measured);
        measured
    };
    probes.take_while(|_| !observer.interrupted()).map(one).collect()
}

fn run_one(probe: &Probe, options: &Options, observer: &dyn Observer) -> Measured {
    let without =
        |status, message| Measured { probe: probe.name, status, message, constants: Vec::new(), card: CardState::default() };
    let limit = options.time_limit;
    let request = Request {
        probe: probe.name.to_owned(),
        library: std::path::absolute(&options.library).unwrap_or_else(|_| options.library.clone()),
        plan: options.plan,
        seed: options.seed,
        time_limit_seconds: limit.as_secs_f64(),
    };
    let worker = Worker { program: &options.program, task: WORKER, limit, interrupted: &|| observer.interrupted() };
    let mut answer = None;
    let ended = worker.run(&request, |line| answer = serde_json::from_slice(line).ok().or(answer.take()));
    match (answer, ended) {
        (Some(Answer::Failed(message)), _) => without(Status::Error, message),
        (Some(Answer::Done { readings, card }), _) => {
            let constants = match Constant::of(probe, &readings, options.seed) {
                Ok(constants) => constants,
                Err(why) => return without(Status::Error, why),
            };
            if let Some(why) = constants.iter().find_map(|constant| options.sheet.refusal(probe, constant)) {
                return without(Status::Refused, why);
            }
            Measured { probe: probe.name, status: Status::Ok, message: String::new(), constants, card }
        }
        (None, Err(error)) => without(Status::Error, format!("cannot run a worker (`{}`): {error}", options.program.display())),
        (None, Ok((end, said))) => {
            let status = match end {
                End::TimedOut => Status::Timeout,
                End::Interrupted => Status::Error,
                End::Exited(_) => Status::Crash,
            };
            let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
            without(status, format!("{}{said}", end.words(limit)))
        }
    }
}
