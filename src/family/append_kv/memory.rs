//! Memory layouts of rows: in tensors with strides, and in a cache by table, by slot or densely.

use super::case::{AppendCase, Cache};
use crate::{check::Number, device::Image, family::attention::abi::Strides};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Value of table entries that must not be read: not a page.
const NO_PAGE: i32 = 0x7fa5_7fa5;

/// Pages that receive no row.
const UNUSED_PAGES: usize = 2;

/// Parts of a tensor's layout that are not multiples of 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crooked {
    Origin,
    Batch,
    Row,
    Head,
}

/// Memory layout of a tensor (batch or page, row, head, column).
#[derive(Debug, Clone, Copy)]
pub(super) struct Lie {
    pub(super) strides: Strides,
    pub(super) span: usize,
    pub(super) origin: usize,
}

impl Lie {
    /// A layout with `pad` elements after each head, row and batch.
    pub(super) fn new([batches, rows, heads, dim]: [usize; 4], pad: usize, crooked: Option<Crooked>) -> Self {
        let longer = |elements: usize, what| elements.next_multiple_of(8) + pad + usize::from(crooked == Some(what));
        let head = longer(dim, Crooked::Head);
        let row = longer(heads * head, Crooked::Row);
        let batch = longer(rows * row, Crooked::Batch);
        let strides = Strides { batch: batch as i64, row: row as i64, head: head as i64 };
        let origin = usize::from(crooked == Some(Crooked::Origin));
        Self { strides, span: origin + batches * batch, origin }
    }

    /// An unwritten tensor.
    pub(super) fn image(&self, number: Number) -> Image {
        Image::poisoned(number.element(), self.span, self.origin)
    }

    /// The offset of an element.
    pub(super) fn at(&self, [batch, row, head, column]: [usize; 4]) -> i64 {
        let Strides { batch: b, row: r, head: h } = self.strides;
        batch as i64 * b + row as i64 * r + head as i64 * h + column as i64
    }
}

/// A row of K and V, or of Q.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Index among the rows of all sequences.
    pub(super) index: usize,
    pub(super) batch: usize,
    /// Index within its sequence.
    #[expect(clippy::struct_field_names, reason = "what it is called everywhere")]
    pub(super) row: usize,
}

impl Row {
    /// Batch entry and row in a tensor; in a packed tensor, the row is its index.
    pub(super) fn place(&self, packed: bool) -> [usize; 2] {
        if packed { [0, self.index] } else { [self.batch, self.row] }
    }
}

/// Destinations of the new rows of a case.
pub(super) struct Places {
    /// Page and row within it, for each row of K by index; `None` if it is not written.
    pub(super) of_rows: Vec<Option<(usize, usize)>>,
    pub(super) page_rows: usize,
    pub(super) pages: usize,
    /// The tensors that specify them.
    pub(super) inputs: Vec<(&'static str, Image)>,
    pub(super) pages_per_sequence: usize,
    pub(super) table_stride: usize,
}

/// A tensor of 64-bit integers.
pub(super) fn image_of_long(values: &[i64]) -> Image {
    let halves: Vec<i32> = values.iter().flat_map(|&value| [value as i32, (value >> 32) as i32]).collect();
    Image::of_integers(&halves)
}

impl Places {
    /// The destinations of a case; always the same for the same case.
    pub(super) fn new(case: &AppendCase) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(case.sequences.len() as u64);
        match case.cache {
            Cache::Dense { rows, named } => Self::dense(case, rows, named, rng),
            Cache::Paged { page, pages, holes } => Self::paged(case, [page, pages], holes, rng),
            Cache::Slots { page } => Self::slots(case, page, rng),
        }
    }

    fn dense(case: &AppendCase, rows: usize, named: bool, mut rng: ChaCha8Rng) -> Self {
        let pages = case.sequences.len() + if named { UNUSED_PAGES } else { 0 };
        let mut entries: Vec<usize> = (0..pages).collect();
        let mut inputs = Vec::new();
        if named {
            entries.shuffle(&mut rng);
            let mut given: Vec<i32> = entries[..case.sequences.len()].iter().map(|&entry| entry as i32).collect();
            // The last two sequences have no entry.
            for (entry, none) in given.iter_mut().rev().zip([-1, pages as i32]) {
                *entry = none;
            }
            inputs.push(("cache_batch_idx", Image::of_integers(&given)));
        }
        let has_entry = |batch: usize| !named || batch + 2 < case.sequences.len();
        let place = |row: &Row| {
            let at = case.cached_row(row).filter(|&at| at < rows && has_entry(row.batch))?;
            Some((entries[row.batch], at))
        };
        let of_rows = case.rows().iter().map(place).collect();
        Self { of_rows, page_rows: rows, pages, inputs, pages_per_sequence: 0, table_stride: 0 }
    }

    fn paged(case: &AppendCase, [page, per_sequence]: [usize; 2], holes: bool, mut rng: ChaCha8Rng) -> Self {
        let stride = per_sequence + 1;
        let rows = case.rows();
        // The entries that are read: those of rows that fit in the table.
        let entry = |row: &Row| case.cached_row(row).map(|at| at / page).filter(|&entry| entry < per_sequence);
        let mut read: Vec<(usize, usize)> = rows.iter().filter_map(|row| Some((row.batch, entry(row)?))).collect();
        read.dedup();
        let pages = read.len() + UNUSED_PAGES;
        let mut free: Vec<usize> = (0..pages).collect();
        free.shuffle(&mut rng);
        let span = case.sequences.len() * stride;
        let mut table = Image::poisoned(crate::device::Element::Bits32, span.max(1), 0);
        let mut entries = vec![NO_PAGE; span];
        for (number, (&(batch, entry), &page)) in read.iter().zip(&free).enumerate() {
            // Some entries name no page, as an engine's padding does.
            let named = match number {
                1 if holes => -1,
                3 if holes => pages as i32,
                _ => page as i32,
            };
            entries[batch * stride + entry] = named;
            table.put((batch * stride + entry) as i64, named.cast_unsigned());
        }
        let place = |row: &Row| {
            let named = usize::try_from(entries[row.batch * stride + entry(row)?]).ok().filter(|&named| named < pages)?;
            Some((named, case.cached_row(row)? % page))
        };
        let of_rows = rows.iter().map(place).collect();
        let inputs = vec![("page_table", table)];
        Self { of_rows, page_rows: page, pages, inputs, pages_per_sequence: per_sequence, table_stride: stride }
    }

    fn slots(case: &AppendCase, page: usize, mut rng: ChaCha8Rng) -> Self {
        let rows = case.rows();
        let pages = (rows.len() + 2 * page).div_ceil(page);
        let mut free: Vec<i64> = (0..(pages * page) as i64).collect();
        free.shuffle(&mut rng);
        let slot = |index: usize| match index {
            1 => -1,
            2 => (pages * page) as i64,
            // The lower half alone would be a valid slot.
            3 => 1 << 32,
            4 => i64::MIN,
            _ => free[index],
        };
        // The slots of packed rows after the last sequence are not read.
        let slots: Vec<i64> = (0..rows.len()).map(slot).collect();
        let place = |row: &Row| usize::try_from(slots[row.index]).ok().filter(|&slot| slot < pages * page);
        let of_rows = rows.iter().map(|row| place(row).map(|slot| (slot / page, slot % page))).collect();
        let inputs = vec![("slot_mapping", image_of_long(&slots))];
        Self { of_rows, page_rows: page, pages, inputs, pages_per_sequence: 0, table_stride: 0 }
    }
}
