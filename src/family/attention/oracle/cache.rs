//! The cache entry of K and V that each sequence reads, and the rows before its first key.

use super::{memory_layout::Side, problem::Problem};
use crate::{device::Image, family::attention::Cache};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Entries that no sequence reads; they hold poison.
const UNUSED_ENTRIES: usize = 2;

/// Rows before the first key, from sequence to sequence.
const PADDING: [usize; 7] = [5, 0, 1, 37, 16, 130, 2];

/// The cache of a problem. Its entries are in random order, and the last sequence reads the first one's entry, so that
/// they share their common keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheTable {
    /// The entry of each sequence.
    pub entries: Vec<usize>,
    /// Entries in memory.
    pub count: usize,
    /// Rows before each sequence's first key.
    pub padding: Vec<usize>,
    /// Length passed for each sequence.
    pub lengths: Vec<usize>,
}

impl CacheTable {
    /// The cache of a problem; always the same for the same problem.
    pub fn new(problem: &Problem, cache: Cache) -> Self {
        let sequences = problem.sequences.len();
        let count = if cache.is_indexed() { sequences + UNUSED_ENTRIES } else { sequences };
        let mut entries: Vec<usize> = (0..count).collect();
        let mut padding = vec![0; sequences];
        if cache.is_padded() {
            // If lengths are not passed per sequence, paddings cannot differ.
            let unequal = problem.is_used(Side::Key);
            padding = (0..sequences).map(|sequence| PADDING[if unequal { sequence % PADDING.len() } else { 0 }]).collect();
        }
        if cache.is_indexed() {
            entries.shuffle(&mut ChaCha8Rng::seed_from_u64(count as u64));
            // Sequences with new rows need separate entries.
            if let Some(last) = sequences.checked_sub(1).filter(|_| problem.options.append.is_none()) {
                (entries[last], padding[last]) = (entries[0], padding[0]);
            }
        }
        entries.truncate(sequences);
        let keys = problem.used_rows(Side::Key);
        // For a sequence without keys, the padding may exceed its end.
        let lengths = keys.zip(&padding).map(|(keys, padding)| if keys == 0 { padding / 2 } else { keys + padding }).collect();
        Self { entries, count, padding, lengths }
    }

    /// Maximum number of rows of an entry.
    pub fn rows(&self, problem: &Problem) -> usize {
        problem.used_rows(Side::Key).zip(&self.padding).map(|(keys, padding)| keys + padding).max().unwrap_or(0)
    }
}

impl Problem {
    /// The cache, if K and V are one.
    pub fn cache_table(&self) -> Option<CacheTable> {
        self.options.cache.map(|cache| CacheTable::new(self, cache))
    }

    /// The arrays that describe the cache, by their names in `kgen.h`.
    pub fn cache_arrays(&self) -> impl Iterator<Item = (&'static str, Image)> {
        let image = |values: &[usize]| Image::of_integers(&values.iter().map(|&value| value as i32).collect::<Vec<_>>());
        let arrays = self.options.cache.zip(self.cache_table()).map(|(cache, table)| {
            let index = cache.is_indexed().then(|| ("cache_batch_idx", image(&table.entries)));
            let padding = cache.is_padded().then(|| ("leftpad_k", image(&table.padding)));
            [index, padding]
        });
        arrays.into_iter().flatten().flatten()
    }

    /// True if row `row` of `sequence`'s K and V is a row of the first sequence, because the last sequence reads the
    /// first one's cache entry.
    pub fn shares_entry(&self, sequence: usize, row: usize) -> bool {
        let last = sequence + 1 == self.sequences.len();
        self.options.cache.is_some_and(Cache::is_indexed) && self.options.append.is_none() && last && row < self.sequences[0].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::{CallOptions, oracle::problem::Lengths};

    #[test]
    fn entries_are_shuffled_shared_and_left_over_and_paddings_count_as_keys() {
        let options = CallOptions { cache: Some(Cache::IndexedAndPadded), ..CallOptions::default() };
        let problem = Problem::new(&[(1, 40), (1, 7), (1, 0), (1, 16)], 2, 1).lengths(Lengths::Used).asking(options);
        let table = problem.cache_table().expect("it has a cache");
        assert_eq!((table.count, table.entries[3], table.padding[3]), (6, table.entries[0], 5));
        assert!(table.entries.iter().zip(0..).any(|(entry, sequence)| *entry != sequence), "{table:?}");
        assert_eq!((table.padding[1], table.lengths[1], table.lengths[0], table.rows(&problem)), (0, 7, 45, 45));
        assert!(problem.shares_entry(3, 15) && !problem.shares_entry(1, 3));
    }

    #[test]
    fn paddings_of_equal_lengths_are_equal() {
        let options = CallOptions { cache: Some(Cache::Padded), ..CallOptions::default() };
        let problem = Problem::new(&[(1, 40); 3], 2, 1).asking(options);
        let table = problem.cache_table().expect("it has a cache");
        assert_eq!((table.entries, table.padding, table.lengths), (vec![0, 1, 2], vec![5; 3], vec![45; 3]));
    }
}
