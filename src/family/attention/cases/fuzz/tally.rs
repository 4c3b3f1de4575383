//! Results of a fuzzing run, as text and as JSON.

use super::{
    call::{CallResult, Outcome},
    library_call::LibraryCall,
};
use crate::{kernel::Dtype, kernel::Kind};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Counts of calls by kernel kind and dtype.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Kernel kind that the dispatcher tries first.
    pub kind: Kind,
    /// Dtype of Q, K and V.
    pub dtype: Dtype,
    /// Number of calls made.
    pub calls: u64,
    /// Number of correct results.
    pub passed: u64,
    /// Number of refusals as documented in `kgen.h`.
    pub refused: u64,
    /// Number of wrong results and crashes.
    pub failed: u64,
    /// The passed call that came closest to its tolerance.
    pub worst: Option<WorstCall>,
}

/// The call closest to its tolerance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstCall {
    /// Largest error relative to the tolerance.
    pub ratio: f64,
    /// The output with that error.
    pub output: String,
    /// The call's name.
    pub case: String,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// Number of the call in the run.
    pub number: u64,
    /// Expected kernel kind.
    pub kind: Kind,
    /// The call as drawn.
    #[serde(serialize_with = "name")]
    pub drawn: LibraryCall,
    /// A smaller failing call, if shrinking found one.
    #[serde(serialize_with = "optional_name")]
    pub shrunk: Option<LibraryCall>,
    /// Failure message of the smallest call.
    pub message: String,
}

fn name<S: Serializer>(case: &LibraryCall, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(case)
}

#[expect(clippy::ref_option, reason = "serde gives a reference")]
fn optional_name<S: Serializer>(case: &Option<LibraryCall>, serializer: S) -> Result<S::Ok, S::Error> {
    case.as_ref().map(LibraryCall::to_string).serialize(serializer)
}

impl Failure {
    /// The smallest known failing call.
    pub fn smallest(&self) -> &LibraryCall {
        self.shrunk.as_ref().unwrap_or(&self.drawn)
    }
}

/// Reason for the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All calls were made.
    Done,
    /// The time limit was reached.
    TimeUp,
    /// There were too many failures.
    TooManyFailures,
    /// The user interrupted it.
    Interrupted,
}

/// Report of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// `emulator`, or the GPU with its compute capability and driver.
    pub device: String,
    /// Seed of the run.
    pub seed: u64,
    /// Number of requested calls.
    pub asked: u64,
    /// Counts by kind and dtype.
    pub rows: Vec<Row>,
    /// Number of refused calls per reason.
    pub refusals: BTreeMap<String, u64>,
    /// Failures, sorted by call number.
    pub failures: Vec<Failure>,
    /// Wall-clock time of the calls, in seconds.
    pub seconds: f64,
    /// Reason for the end of the run.
    pub ended: Ended,
    /// Workers that died or hung and were replaced.
    pub workers_lost: u64,
}

impl Report {
    /// Totals over all kinds, per count.
    pub fn total(&self, of: fn(&Row) -> u64) -> u64 {
        self.rows.iter().map(of).sum()
    }
}

/// Counts calls.
#[derive(Debug, Default)]
pub struct Tally {
    rows: BTreeMap<(Kind, Dtype), Row>,
    refusals: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds one call.
    pub fn count(&mut self, case: &LibraryCall, outcome: &Outcome) {
        let key = (outcome.path, case.dtype());
        let empty = || Row { kind: key.0, dtype: key.1, calls: 0, passed: 0, refused: 0, failed: 0, worst: None };
        let row = self.rows.entry(key).or_insert_with(empty);
        row.calls += 1;
        match &outcome.result {
            CallResult::Passed { ratio, output } => {
                row.passed += 1;
                if row.worst.as_ref().is_none_or(|worst| *ratio > worst.ratio) {
                    row.worst = Some(WorstCall { ratio: *ratio, output: output.clone(), case: case.to_string() });
                }
            }
            CallResult::Refused { reason } => {
                row.refused += 1;
                *self.refusals.entry(reason.clone()).or_default() += 1;
            }
            CallResult::Failed { .. } => row.failed += 1,
        }
    }

    /// The rows, and the refusals per reason.
    pub fn finish(self) -> (Vec<Row>, BTreeMap<String, u64>) {
        (self.rows.into_values().collect(), self.refusals)
    }
}
