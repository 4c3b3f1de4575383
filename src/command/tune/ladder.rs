//! What each choice of a kernel's tile gains, as the command reports it.

use super::space::{Rungs, Space};
use crate::{
    bench::Size,
    kernel::Variant,
    lab::{
        Status,
        ladder::Switch,
        tune::{self, Failure, Ratio},
    },
};
use serde::Serialize;
use serde_json::{Map, Value};

/// The ladder of a kernel.
#[derive(Debug, Serialize)]
pub struct Ladder {
    /// Name of the kernel.
    pub name: String,
    /// The variant.
    #[serde(skip)]
    pub variant: Variant,
    /// The kernel's own tile.
    pub tile: Map<String, Value>,
    /// Sizes that were timed.
    pub sizes: Vec<Size>,
    /// The kernel without each of its choices: those that gain most first, then those without times.
    pub steps: Vec<Step>,
    /// Ratios that differ from 1 by at most this fraction are ties.
    pub floor: f64,
    /// The reason why there were fewer passes than usual.
    pub truncated: Option<String>,
    /// Seconds of compiling, proving and timing.
    pub spent_s: f64,
    /// The reason why the kernel with its own tile could not be timed.
    pub failure: Option<String>,
}

/// A kernel without one of its choices.
#[derive(Debug, Serialize)]
pub struct Step {
    /// The choice.
    #[serde(flatten)]
    pub switch: Switch,
    /// Time without the choice by the time with it; `None` unless the status is `ok`.
    pub time: Option<Ratio>,
    /// The same as predicted; `None` if there is no such kernel.
    pub predicted: Option<f64>,
    /// Registers of a thread without the choice.
    pub registers: Option<u32>,
    /// Dynamic shared memory of a block without the choice, in bytes.
    pub shared_memory_bytes: Option<u32>,
    /// The outcome.
    pub status: Status,
    /// The reason for a missing time.
    pub message: String,
}

impl Ladder {
    /// The report on a ladder.
    pub(super) fn of(space: &Space, rungs: &Rungs, found: Result<tune::Ladder, Failure>) -> Self {
        let Space { variant, candidates, tuned, .. } = space;
        let own = &candidates[0];
        let ladder = Self {
            name: variant.name(),
            variant: *variant,
            tile: own.tile.clone(),
            sizes: tuned.clone(),
            steps: Vec::new(),
            floor: 0.0,
            truncated: None,
            spent_s: 0.0,
            failure: None,
        };
        let tune::Ladder { rungs: timed, floor, truncated, spent_s } = match found {
            Ok(found) => found,
            Err(failure) => return Self { failure: Some(format!("{}: {}", failure.status, failure.message)), ..ladder },
        };
        let of_timed = rungs.timed.iter().zip(&candidates[1..]).zip(timed).map(|((switch, candidate), found)| {
            let (registers, time) = found.as_ref().ok().copied().unzip();
            let failure = found.err();
            Step {
                switch: switch.clone(),
                time,
                predicted: Some(candidate.predicted / own.predicted),
                registers,
                shared_memory_bytes: Some(candidate.shared_memory_bytes),
                status: failure.as_ref().map_or(Status::Ok, |failure| failure.status),
                message: failure.map(|failure| failure.message).unwrap_or_default(),
            }
        });
        let of_refused = rungs.refused.iter().map(|(switch, _, reason)| Step {
            switch: switch.clone(),
            time: None,
            predicted: None,
            registers: None,
            shared_memory_bytes: None,
            status: Status::Refused,
            message: reason.clone(),
        });
        let mut steps: Vec<Step> = of_timed.chain(of_refused).collect();
        let gain = |step: &Step| step.time.map_or(f64::NEG_INFINITY, |time| time.mean);
        steps.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        Self { steps, floor, truncated, spent_s, ..ladder }
    }
}
