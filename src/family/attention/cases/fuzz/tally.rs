//! What a fuzzing run found, for people and as JSON.

use super::{
    call::{CallResult, Outcome},
    library_call::LibraryCall,
};
use crate::{kernel::Dtype, kernel::Kind};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Calls computed by one kind of kernel, of one dtype.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The kind, by the dispatcher's rules.
    pub kind: Kind,
    /// Of Q, K and V.
    pub dtype: Dtype,
    /// Calls made.
    pub calls: u64,
    /// Right.
    pub passed: u64,
    /// Refused as `kgen.h` says.
    pub refused: u64,
    /// Wrong, or fatal.
    pub failed: u64,
    /// The call that came nearest to its tolerance, of those that passed.
    pub worst: Option<WorstCall>,
}

/// A call that came near to its tolerance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstCall {
    /// Largest error as a part of what is allowed.
    pub ratio: f64,
    /// Of which output.
    pub output: String,
    /// The call's name.
    pub case: String,
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    /// Its number in the run.
    pub number: u64,
    /// The kind that was to compute it.
    pub kind: Kind,
    /// The call as it was drawn.
    #[serde(serialize_with = "name")]
    pub drawn: LibraryCall,
    /// A smaller one that fails too, where one was found.
    #[serde(serialize_with = "optional_name")]
    pub shrunk: Option<LibraryCall>,
    /// What was wrong with the smallest.
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
    /// The smallest call known to fail.
    pub fn smallest(&self) -> &LibraryCall {
        self.shrunk.as_ref().unwrap_or(&self.drawn)
    }
}

/// Why a run made no more calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All were made.
    Done,
    /// Its time was up.
    TimeUp,
    /// So many failed that more would tell nothing.
    TooManyFailures,
    /// The user asked for it.
    Interrupted,
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// `emulator`, or the GPU with its compute capability and driver.
    pub device: String,
    /// Of the run.
    pub seed: u64,
    /// Calls asked for.
    pub asked: u64,
    /// By kind and dtype.
    pub rows: Vec<Row>,
    /// How often a call was refused, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// What failed, by number.
    pub failures: Vec<Failure>,
    /// Wall-clock seconds of the calls.
    pub seconds: f64,
    /// Why it ended.
    pub ended: Ended,
    /// Workers that died or hung and were replaced.
    pub workers_lost: u64,
}

impl Report {
    /// Calls of every kind, by what is counted.
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
    /// Takes in one call.
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

    /// The rows, and the refusals by reason.
    pub fn finish(self) -> (Vec<Row>, BTreeMap<String, u64>) {
        (self.rows.into_values().collect(), self.refusals)
    }
}
