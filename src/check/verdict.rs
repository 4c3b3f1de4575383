//! The outcome of checking one variant on one device.

use super::Level;
use crate::device::DeviceKind;
use serde::{Deserialize, Serialize};

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Every case passed.
    Pass,
    /// A case gave wrong results, or the kernel broke a rule of the machine.
    Fail,
    /// The check could not run: no device, no library, or a source that does not compile.
    Error,
    /// The worker ran past its time limit and was killed.
    Timeout,
    /// The worker died of a signal.
    Crash,
    /// The run was interrupted before or during this check: nothing is known about the kernel.
    Interrupted,
}

impl Status {
    /// The word in tables and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Crash => "crash",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The case whose error is nearest to its tolerance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// Name of the case.
    pub case: String,
    /// Name of the output: `O` or `LSE`.
    pub output: String,
    /// Largest absolute error; `null` in JSON if infinite.
    #[serde(with = "infinite_as_null")]
    pub error: f64,
    /// Largest allowed error; `null` in JSON if infinite.
    #[serde(with = "infinite_as_null")]
    pub tolerance: f64,
    /// Error relative to the allowed error: at most 1 passes. `null` in JSON if infinite.
    #[serde(with = "infinite_as_null")]
    pub ratio: f64,
}

/// The verdict on one variant: the cases that ran and the device, how near the worst error came to its tolerance, and
/// pass or the reason for failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name of the variant.
    pub name: String,
    /// `emulator`, or the GPU with its compute capability and driver.
    pub device: String,
    /// Kind of that device.
    pub kind: DeviceKind,
    /// The requested level.
    pub level: Level,
    /// Seed of the inputs and of the emulator's order of threads.
    pub seed: u64,
    /// The outcome.
    pub status: Status,
    /// Number of completed cases, including the failing one.
    pub cases_run: usize,
    /// The worst case, if any ran.
    pub worst: Option<Worst>,
    /// Wall-clock seconds of the cases; for a cached verdict, those of the original run.
    pub seconds: f64,
    /// The reason for failure; empty after a pass.
    pub message: String,
    /// Taken from an earlier run of the same kernel and cases.
    #[serde(default)]
    pub cached: bool,
    /// On the emulator, another kernel that passed and is the same program except for its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
}

impl Verdict {
    /// True if every case passed.
    pub fn passed(&self) -> bool {
        self.status == Status::Pass
    }
}

/// Infinite numbers as `null`: JSON has no infinity.
mod infinite_as_null {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_infinite_error_survives_json() {
        let worst =
            Worst { case: "c".to_owned(), output: "O".to_owned(), error: f64::INFINITY, tolerance: 0.5, ratio: f64::INFINITY };
        let json = serde_json::to_string(&worst).expect("it serialises");
        assert!(json.contains("\"error\":null,\"tolerance\":0.5"), "{json}");
        assert_eq!(serde_json::from_str::<Worst>(&json).expect("it reads"), worst);
    }
}
