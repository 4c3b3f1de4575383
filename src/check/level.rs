//! Levels of checking.

use serde::{Deserialize, Serialize};

/// Number of cases in a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A few small cases that reach every branch of a kernel.
    Smoke,
    /// Every case.
    Thorough,
}

impl Level {
    /// `smoke` or `thorough`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Thorough => "thorough",
        }
    }
}
