//! Estimates the remaining time from the work done so far. Cached results do not count as work.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Progress of equal pieces of work, some of which turn out to be cached and take no time.
#[derive(Debug, Default)]
pub(super) struct Estimate(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    start: Option<Instant>,
    pieces: usize,
    /// Pieces expected to be cached.
    known: usize,
    /// Pieces that were cached.
    found: usize,
    /// Pieces that took time.
    done: usize,
    /// Pieces that have begun, done or not.
    begun: usize,
}

impl Estimate {
    /// Starts with `pieces`, `known` of which are expected to be cached.
    pub fn begin(&self, pieces: usize, known: usize) {
        *self.lock() = State { start: Some(Instant::now()), pieces, known, found: 0, done: 0, begun: 0 };
    }

    /// Counts a piece that has begun.
    pub fn start(&self) {
        self.lock().begun += 1;
    }

    /// Counts a finished piece; `worked` if it took time.
    pub fn count(&self, worked: bool) {
        let mut state = self.lock();
        if worked {
            state.done += 1;
        } else {
            state.found += 1;
        }
    }

    /// Remaining time; `None` before the first piece that took time.
    pub fn left(&self) -> Option<Duration> {
        let State { start, pieces, known, found, done, begun } = *self.lock();
        left(start?.elapsed(), pieces.saturating_sub(known.max(found)), done, begun.saturating_sub(done))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Remaining time. The pieces that are `running` count as half done: otherwise the estimate would be too long by a
/// factor of the pieces in flight per finished one.
fn left(elapsed: Duration, work: usize, done: usize, running: usize) -> Option<Duration> {
    let (rest, half) = (work.saturating_sub(done), running as f64 / 2.0);
    (done > 0).then(|| elapsed.mul_f64((rest as f64 - half).max(0.0) / (done as f64 + half)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_promised_before_the_first_result() {
        assert_eq!(left(Duration::from_secs(9), 10, 0, 2), None);
        assert_eq!(Estimate::default().left(), None);
    }

    #[test]
    fn the_rest_takes_as_long_apiece_as_what_is_done() {
        assert_eq!(left(Duration::from_secs(10), 10, 2, 0), Some(Duration::from_secs(40)));
        assert_eq!(left(Duration::from_secs(10), 2, 2, 0), Some(Duration::ZERO));
    }

    #[test]
    fn half_of_what_runs_is_done() {
        // Two at once, 10 s each. After 10 s the first has ended and the second will soon: 9 of 10 are left or running.
        assert_eq!(left(Duration::from_secs(10), 10, 1, 2), Some(Duration::from_secs(40)));
        assert_eq!(left(Duration::from_secs(10), 2, 1, 4), Some(Duration::ZERO));
    }

    #[test]
    fn what_was_there_already_is_neither_work_done_nor_work_left() {
        for known in [0, 1] {
            let estimate = Estimate::default();
            estimate.begin(3, known);
            estimate.count(false);
            assert_eq!(estimate.left(), None, "a hit says nothing of how long a piece takes");
            estimate.count(true);
            estimate.count(true);
            assert_eq!(estimate.left(), Some(Duration::ZERO));
        }
    }
}
