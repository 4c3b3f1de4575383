//! How long the rest of some work will take, from what has been done of it so far. What a cache holds is no work.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Work of equal pieces, some of which turn out to be done already and take no time.
#[derive(Debug, Default)]
pub(super) struct Estimate(Mutex<State>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    start: Option<Instant>,
    pieces: usize,
    /// Pieces that seemed to be done before it began.
    known: usize,
    /// Pieces that were found done.
    found: usize,
    /// Pieces that took time.
    done: usize,
}

impl Estimate {
    /// Begins with `pieces`, of which `known` seem to be done already.
    pub fn begin(&self, pieces: usize, known: usize) {
        *self.lock() = State { start: Some(Instant::now()), pieces, known, found: 0, done: 0 };
    }

    /// One more is done; `worked` if that took time.
    pub fn count(&self, worked: bool) {
        let mut state = self.lock();
        if worked {
            state.done += 1;
        } else {
            state.found += 1;
        }
    }

    /// Time for the rest; `None` before the first piece that took time.
    pub fn left(&self) -> Option<Duration> {
        let State { start, pieces, known, found, done } = *self.lock();
        left(start?.elapsed(), pieces.saturating_sub(known.max(found)), done)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn left(elapsed: Duration, work: usize, done: usize) -> Option<Duration> {
    let rest = work.saturating_sub(done);
    (done > 0).then(|| elapsed.mul_f64(rest as f64 / done as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_promised_before_the_first_result() {
        assert_eq!(left(Duration::from_secs(9), 10, 0), None);
        assert_eq!(Estimate::default().left(), None);
    }

    #[test]
    fn the_rest_takes_as_long_apiece_as_what_is_done() {
        assert_eq!(left(Duration::from_secs(10), 10, 2), Some(Duration::from_secs(40)));
        assert_eq!(left(Duration::from_secs(10), 2, 2), Some(Duration::ZERO));
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
