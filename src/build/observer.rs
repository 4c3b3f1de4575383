//! Progress events of a build. Called from many threads.

use super::{Artifact, BuildFailure};

/// Outcome of one unit.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    /// The unit compiled, now or in an earlier run.
    Built(&'a Artifact),
    /// The unit did not compile.
    Failed(&'a BuildFailure),
}

/// Receives the events of a build. Every method does nothing unless overridden.
pub trait Observer: Sync {
    /// One sentence about something unusual or long.
    fn note(&self, _message: &str) {}
    /// `kernels` kernels will be built, `known` of which seem to be in the cache. Host code is not counted.
    fn planned(&self, _kernels: usize, _known: usize) {}
    /// A compiler has been started for this kernel; `finished` follows.
    fn started(&self, _name: &str) {}
    /// This kernel is done, whether it was started or found in the cache.
    fn finished(&self, _outcome: Outcome<'_>) {}
}
