//! How many things are done at once.

/// Most at once, whatever is asked for: each is a process and a thread that waits for it, and no machine gains from
/// more.
pub const MOST: usize = 1024;

/// Of `asked` jobs for `things` things, those that have something to do: at least one, at most [`MOST`].
pub fn useful(asked: usize, things: usize) -> usize {
    asked.min(things).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_jobs_than_things_to_do_nor_fewer_than_one() {
        assert_eq!([useful(8, 3), useful(2, 3), useful(usize::MAX, 2), useful(0, 5), useful(4, 0)], [3, 2, 2, 1, 1]);
        assert_eq!(useful(usize::MAX, usize::MAX), MOST);
    }
}
