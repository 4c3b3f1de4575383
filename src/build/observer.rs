//! How a build tells what it is doing. Called from many threads.

use super::{Artifact, BuildFailure};

/// What became of one unit.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// It compiled, now or in an earlier run.
    Built(&'a Artifact),
    /// It did not.
    Failed(&'a BuildFailure),
}

/// Someone who watches a build. Every method does nothing unless it is overridden.
pub trait Observer: Sync {
    /// One sentence about something unusual or long.
    fn note(&self, _message: &str) {}
    /// That many units will be compiled or found in the cache.
    fn planned(&self, _units: usize) {}
    /// A compiler has been started for this unit; `finished` follows.
    fn started(&self, _name: &str) {}
    /// This unit is done, whether it was started or found in the cache.
    fn finished(&self, _outcome: Outcome<'_>) {}
}
