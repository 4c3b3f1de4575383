//! The pages that hold the rows of a sequence's K and V.

use super::{memory_layout::Side, problem::Problem};
use crate::{device::Image, family::attention::Pages};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Pages that no sequence uses; they hold poison.
const UNUSED_PAGES: usize = 2;

/// Extra entries after the longest sequence's, in every row of the table.
const UNUSED_ENTRIES: usize = 3;

/// Value of entries that must not be read: not a page.
const NO_PAGE: i32 = 0x7fa5_7fa5;

/// The page table of a problem. Pages are in random order; all sequences may share the first sequence's leading pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageTable {
    /// Rows of a page.
    pub rows: usize,
    /// The pages of each sequence.
    pages: Vec<Vec<usize>>,
    /// Pages in memory.
    pub count: usize,
}

impl PageTable {
    /// The page table of a problem; always the same for the same problem.
    pub fn new(problem: &Problem, Pages { rows, .. }: Pages) -> Self {
        let keys: Vec<usize> = problem.used_rows(Side::Key).collect();
        let owned = |sequence: usize, page: usize| problem.source_of_row(sequence, page * rows) == sequence;
        let of_sequence = |sequence: usize| (0..keys[sequence].div_ceil(rows)).map(move |page| (sequence, page));
        let all = || (0..keys.len()).flat_map(of_sequence);
        let count = all().filter(|&(sequence, page)| owned(sequence, page)).count() + UNUSED_PAGES;
        let mut order: Vec<usize> = (0..count).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(count as u64));
        let mut free = order.into_iter();
        let mut pages: Vec<Vec<usize>> = vec![Vec::new(); keys.len()];
        for (sequence, page) in all() {
            let number = if owned(sequence, page) { free.next().expect("there is one for each") } else { pages[0][page] };
            pages[sequence].push(number);
        }
        Self { rows, pages, count }
    }

    /// The page, and the row within it, of a sequence's row.
    pub fn place(&self, sequence: usize, row: usize) -> (usize, usize) {
        (self.pages[sequence][row / self.rows], row % self.rows)
    }

    /// Every page that a sequence uses; shared pages occur more than once.
    pub fn used(&self) -> impl Iterator<Item = usize> {
        self.pages.iter().flatten().copied()
    }

    /// Row stride of the table, in entries.
    pub fn stride(&self) -> usize {
        self.pages.iter().map(Vec::len).max().unwrap_or(0) + UNUSED_ENTRIES
    }

    /// The table in memory. It ends with the last entry that may be read, so that a read beyond it leaves the tensor.
    pub fn image(&self) -> Image {
        let mut entries = Vec::new();
        for (sequence, pages) in self.pages.iter().enumerate() {
            entries.resize(sequence * self.stride(), NO_PAGE);
            entries.extend(pages.iter().map(|&page| page as i32));
        }
        entries.resize(entries.len().max(1), NO_PAGE);
        Image::of_integers(&entries)
    }
}

impl Problem {
    /// The table, if K and V are paged.
    pub fn page_table(&self) -> Option<PageTable> {
        self.options.pages.map(|pages| PageTable::new(self, pages))
    }

    /// Query rows of each sequence that have results; none if the kernel skips the sequence.
    pub fn served_rows(&self) -> impl Iterator<Item = usize> {
        self.used_rows(Side::Query).map(|rows| if self.options.serves_queries(rows) { rows } else { 0 })
    }

    /// The sequence for which a row of K and V is stored: the first one if the row is in a shared page or in a cache
    /// entry that another sequence reads too.
    pub fn source_of_row(&self, sequence: usize, row: usize) -> usize {
        if self.shares_entry(sequence, row) {
            return 0;
        }
        let Some(Pages { rows, shared, .. }) = self.options.pages else { return sequence };
        let page = row / rows;
        if page < shared && (page + 1) * rows <= self.sequences[0].1 { 0 } else { sequence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::CallOptions;

    fn table(shared: usize) -> (Problem, PageTable) {
        let pages = Pages { rows: 16, shared, counter: false, descales: None };
        let problem = Problem::new(&[(1, 40), (1, 70), (1, 0), (1, 16)], 2, 1)
            .asking(CallOptions { pages: Some(pages), ..CallOptions::default() });
        let table = problem.page_table().expect("it has pages");
        (problem, table)
    }

    #[test]
    fn every_page_is_one_sequences_unless_all_share_it() {
        let (_, alone) = table(0);
        let all: Vec<usize> = alone.pages.concat();
        assert_eq!(alone.count, 3 + 5 + 1 + UNUSED_PAGES);
        assert!(itertools::Itertools::all_unique(&mut all.iter()), "{all:?}");
        let (_, shared) = table(3);
        assert_eq!(shared.pages[1][..2], shared.pages[0][..2], "the third page of the first sequence is not full");
        assert_ne!(shared.pages[1][2], shared.pages[0][2]);
        assert_eq!(shared.pages[3][0], shared.pages[0][0]);
    }

    #[test]
    fn the_table_ends_with_the_last_entry_that_may_be_read() {
        let (_, table) = table(0);
        assert_eq!(table.image().span_bytes(), (3 * table.stride() + 1) * 4);
    }
}
