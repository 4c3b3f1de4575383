//! The search for the fastest tile of a kernel, as a function of candidates and a [`Measurer`]. It knows neither
//! compilers nor GPUs: a measurer is a machine with both, or a store of rows ([`Replay`]).
//!
//! ```text
//! candidates ─▶ waves: rank, prepare, one pass ─▶ halving: passes of the faster half ─▶ standings ─▶ confirmation
//! ```
//!
//! A *pass* times the default and some candidates in turns, round by round, at all sizes; times are compared as ratios
//! to the default's of the same pass, so that a drift of the card cancels. A [`ladder()`] has the same passes, of the
//! default and of tiles that lack one of its choices each.

mod evidence;
mod ladder;
mod quality;
mod rank;
mod replay;
mod search;

pub use evidence::{Evidence, Ratio};
pub use ladder::{Ladder, ladder};
pub use quality::{Quality, quality};
pub use replay::{Replay, is_timing, size_key, tile_of};
pub use search::{Confirmation, Found, Settings, Standing, search};

use super::{Status, ladder::LADDER};
use serde_json::{Map, Value};

/// Name of the program in rows of the tuner.
pub const TUNE: &str = "kgen tune";

/// A tile that may be measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The keys of the tile.
    pub tile: Map<String, Value>,
    /// Predicted microseconds: the geometric mean over the sizes.
    pub predicted: f64,
    /// Estimated registers of a thread.
    pub registers: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_memory_bytes: u32,
}

impl Candidate {
    /// The keys in which this tile differs from `default`, as `n=80 stages=3`; `default` if there are none.
    pub fn changes(&self, default: &Self) -> String {
        let changed = self.tile.iter().filter(|(key, value)| default.tile.get(*key) != Some(*value));
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let texts: Vec<String> = changed.map(|(key, value)| format!("{key}={}", word(value))).collect();
        if texts.is_empty() { "default".to_owned() } else { texts.join(" ") }
    }
}

/// Sizes that are timed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// The sizes that the search compares tiles at.
    Tuned,
    /// The sizes that confirm the winner.
    HeldOut,
    /// The sizes at which the gain of each choice of a tile is measured.
    Ladder,
}

impl Suite {
    /// The word in rows.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tuned => "tuned",
            Self::HeldOut => "held_out",
            Self::Ladder => LADDER,
        }
    }
}

/// The reason why a candidate has no times.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The outcome: spilled, wrong, error, …
    pub status: Status,
    /// The reason.
    pub message: String,
}

/// Times candidates.
pub trait Measurer {
    /// Compiles candidates and proves them right. An answer for each, in order: registers of a thread, or the failure.
    fn prepare(&mut self, candidates: &[&Candidate]) -> Vec<Result<u32, Failure>>;

    /// Microseconds of prepared candidates at each size of a suite: each in a process of its own, in turns, round by
    /// round. An answer for each, in order: a [`Failure`] if one of the sizes has no time.
    fn time(&mut self, candidates: &[&Candidate], suite: Suite) -> Vec<Result<Vec<f64>, Failure>>;

    /// Records that the search ended before the candidate was measured.
    fn cut(&mut self, candidate: &Candidate, why: &str);

    /// Seconds of compiling, proving and timing up to now.
    fn spent_s(&self) -> f64;

    /// True if the search is to end now.
    fn is_interrupted(&self) -> bool;
}
