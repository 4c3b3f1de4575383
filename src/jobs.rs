//! Degrees of parallelism.

use std::{num::NonZeroUsize, thread};

/// Processor cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// The useful number out of `requested` CPU-bound jobs: at most the number of cores, which is also the default. More
/// would make each slower, and the first result late.
pub fn busy(requested: Option<NonZeroUsize>) -> usize {
    requested.map_or(usize::MAX, NonZeroUsize::get).min(cores())
}

/// Upper limit on the number of parallel tasks, even if more are requested: each is a process and a thread that waits
/// for it, and no machine is faster with more.
pub const MOST: usize = 1024;

/// The useful number out of `requested` jobs for `things` tasks: at least one, at most [`MOST`].
pub fn useful(requested: usize, things: usize) -> usize {
    requested.min(things).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_jobs_than_cores_keep_cores_busy() {
        let requested = |jobs| busy(NonZeroUsize::new(jobs));
        assert_eq!([requested(0), requested(1), requested(usize::MAX)], [cores(), 1, cores()]);
    }

    #[test]
    fn there_are_never_more_jobs_than_things_to_do_nor_fewer_than_one() {
        assert_eq!([useful(8, 3), useful(2, 3), useful(usize::MAX, 2), useful(0, 5), useful(4, 0)], [3, 2, 2, 1, 1]);
        assert_eq!(useful(usize::MAX, usize::MAX), MOST);
    }
}
