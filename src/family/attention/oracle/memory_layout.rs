//! Memory layout of a problem's tensors: strides, gaps, and the first row of each sequence.

use super::{
    dims::Dims,
    pages::PageTable,
    problem::{Layout, Lengths, Part, Problem},
};
use crate::{check::Number, family::attention::Cache, family::attention::abi::Strides};

/// The two row axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Rows of Q, O and LSE.
    Query,
    /// Rows of K and V.
    Key,
}

/// Placement of the rows of one side, before strides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPlan {
    /// First row of each sequence along the row axis; all 0 unless packed.
    pub first: Vec<usize>,
    /// Rows along the row axis of one batch entry; of all sequences, if packed.
    pub rows: usize,
    /// Batch entries in memory; 1 if packed.
    pub entries: usize,
    /// `seqlen_q` or `seqlen_k` of the call: the rows of an entry, or of the longest sequence if packed.
    pub bound: usize,
    /// The page table for paged rows; `rows` is then the page size, and `entries` the number of pages.
    pub pages: Option<PageTable>,
    /// The entry of each sequence, if K and V are a cache; `first` is then relative to it, and `entries` the number of
    /// cache entries.
    pub cache: Option<Vec<usize>>,
}

/// Memory layout of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Element strides.
    pub strides: Strides,
    /// Elements from the first to the last, including gaps.
    pub span: usize,
    /// Elements before element (0, 0, 0).
    pub origin: usize,
}

/// Rows in memory after each sequence's used ones, if the call has `seqused`.
const UNUSED_ROWS: usize = 3;

/// Rows of a page that TMA loads at once (`GRANULE` of `kgen/paged_tma.cuh`).
const TMA_PAGE_ROWS: usize = 16;

/// Value of a stride that the kernel must not read.
const NOT_READ: i64 = 0x5bad_5bad;

impl Problem {
    /// True if `side` is described by `cu_seqlens`.
    pub fn is_packed(&self, side: Side) -> bool {
        match self.lengths {
            Lengths::Uniform | Lengths::Used => false,
            Lengths::Packed | Lengths::PackedUsed => true,
            Lengths::PackedQuery => side == Side::Query,
            Lengths::PackedKey => side == Side::Key,
        }
    }

    /// True if `side` is described by `seqused`.
    pub fn is_used(&self, side: Side) -> bool {
        match self.lengths {
            Lengths::Uniform | Lengths::Packed => false,
            Lengths::Used | Lengths::PackedUsed => true,
            Lengths::PackedQuery => side == Side::Key,
            Lengths::PackedKey => side == Side::Query,
        }
    }

    /// Number of used rows of each sequence of `side`.
    pub fn used_rows(&self, side: Side) -> impl Iterator<Item = usize> {
        self.sequences.iter().map(move |&(q, k)| if side == Side::Query { q } else { k })
    }

    /// Placement of the rows of `side`.
    pub fn rows(&self, side: Side) -> RowPlan {
        let longest = self.used_rows(side).max().unwrap_or(0);
        let unused = if self.is_used(side) { UNUSED_ROWS } else { 0 };
        if self.is_packed(side) {
            let mut total = 0;
            let mut first = Vec::with_capacity(self.sequences.len());
            for rows in self.used_rows(side) {
                first.push(total);
                total += rows + unused;
            }
            return RowPlan { first, rows: total, entries: 1, bound: longest, pages: None, cache: None };
        }
        if let Some(table) = self.cache_table().filter(|_| side == Side::Key) {
            let rows = table.rows(self) + unused;
            let (first, entries) = (table.padding, table.count);
            return RowPlan { first, rows, entries, bound: rows, pages: None, cache: Some(table.entries) };
        }
        let bound = longest + unused;
        let first = vec![0; self.sequences.len()];
        match self.page_table().filter(|_| side == Side::Key) {
            Some(table) => RowPlan { first, rows: table.rows, entries: table.count, bound, pages: Some(table), cache: None },
            None => RowPlan { first, rows: bound, entries: self.sequences.len(), bound, pages: None, cache: None },
        }
    }

    /// The layout of tensor number `tensor` (Q, K, V, O, dO, dQ, dK, dV, QV = 0 .. 8), which has `heads` heads on
    /// `side`.
    pub fn place(&self, tensor: usize, side: Side, heads: usize, head_dim: usize) -> Placement {
        let plan = self.rows(side);
        let (rows, entries, number) = (plan.rows as i64, plan.entries as i64, tensor as i64);
        let (heads, dim) = (heads as i64, head_dim as i64);
        // Elements in 16 bytes, and a row rounded up to such pieces.
        let piece: i64 = if self.is_of_bytes(tensor) { 16 } else { 8 };
        let whole = |elements: i64| elements.unsigned_abs().next_multiple_of(piece.unsigned_abs()).cast_signed();
        let (mut batch, mut row, head, mut lead);
        match self.layout {
            Layout::Bshd | Layout::Reversed | Layout::ReversedTensor(_) => {
                (head, row, batch, lead) = (dim, heads * dim, rows * heads * dim, 0);
            }
            Layout::Bhsd => (head, row, batch, lead) = (rows * dim, dim, rows * heads * dim, 0),
            Layout::Padded => {
                head = whole(dim) + piece * (number % 2);
                row = heads * head + piece * (number + 1);
                batch = rows * row + 64;
                lead = piece * number;
            }
            Layout::UnalignedPart(which, part) => {
                // Half a piece: a check of fewer bytes would accept it.
                let odd = |p| if which == tensor && part == p { piece / 2 } else { 0 };
                head = whole(dim) + odd(Part::Head);
                row = whole(heads * head) + odd(Part::Row);
                batch = whole(rows * row) + odd(Part::Batch);
                lead = odd(Part::Start);
            }
            Layout::Unaligned => {
                head = dim + 1 + 2 * number;
                row = heads * head + 1 + number;
                batch = rows * row + 3;
                lead = 1;
            }
        }
        if (self.layout == Layout::Reversed || self.layout == Layout::ReversedTensor(tensor)) && rows > 0 {
            lead = (rows - 1) * row;
            row = -row;
        }
        let empty = rows == 0 || entries == 0;
        let last = if empty { 0 } else { (entries - 1) * batch + ((rows - 1) * row).max(0) + (heads - 1) * head + dim };
        if self.is_packed(side) {
            batch = NOT_READ;
        }
        Placement { strides: Strides { batch, row, head }, span: (lead + last) as usize, origin: lead as usize }
    }

    /// The launcher's message for the first of Q, K and V that TMA cannot load: the start is not a multiple of 16
    /// bytes, or in a dimension of more than one element the stride is not a positive multiple of 16 bytes, or the page
    /// size is not a multiple of 16 rows.
    pub fn what_tma_refuses(&self, head_dim: impl Into<Dims>, number: Number) -> Option<String> {
        self.what_tma_refuses_if(head_dim, number, true)
    }

    /// [`what_tma_refuses`](Self::what_tma_refuses) for dO of a backward pass.
    pub fn what_tma_refuses_of_output_gradients(&self, head_dim: Dims, number: Number) -> Option<String> {
        self.refused_tensor(("dO", 4, Side::Query, self.heads), head_dim, number, true)
    }

    /// The launcher's message if TMA cannot load the tensor with this name and number, of this many heads.
    fn refused_tensor(
        &self,
        (name, tensor, side, heads): (&str, usize, Side, usize),
        head_dim: Dims,
        number: Number,
        total_passed: bool,
    ) -> Option<String> {
        let bytes = if self.is_of_bytes(tensor) { 1 } else { number.element().bytes() as i64 };
        let plan = self.rows(side);
        let Placement { strides, origin, .. } = self.place(tensor, side, heads, head_dim.of(tensor));
        if origin as i64 * bytes % 16 != 0 {
            return Some(format!("{name}: the tensor starts at "));
        }
        let rows = if self.is_packed(side) && (!total_passed || plan.rows == 0) { usize::MAX } else { plan.rows };
        // The number of entries of a cache is not passed.
        let indexed = side == Side::Key && self.options.cache.is_some_and(Cache::is_indexed);
        let entries = if indexed { usize::MAX } else { plan.entries };
        let counting = [(rows, strides.row), (heads, strides.head), (entries, strides.batch)];
        let bad = |&(_, (extent, stride)): &(i32, (usize, i64))| extent > 1 && (stride <= 0 || stride * bytes % 16 != 0);
        let (dimension, (_, stride)) = (1..).zip(counting).find(bad)?;
        Some(format!("{name}: the stride of dimension {dimension} is {}; TMA takes ", stride * bytes))
    }

    /// [`what_tma_refuses`](Self::what_tma_refuses) for a caller that passes the total number of packed rows or not; if
    /// passed, it counts as the dimension's size.
    pub fn what_tma_refuses_if(&self, head_dim: impl Into<Dims>, number: Number, total_passed: bool) -> Option<String> {
        let head_dim = head_dim.into();
        let refused =
            |name, tensor, side, heads| self.refused_tensor((name, tensor, side, heads), head_dim, number, total_passed);
        if self.rows(Side::Query).bound == 0 || self.sequences.is_empty() {
            return None;
        }
        let keys = || {
            let refused = |name, tensor| refused(name, tensor, Side::Key, self.heads_k);
            refused("K", 1).or_else(|| refused("V", 2))
        };
        let no_keys = self.rows(Side::Key).bound == 0;
        let pages = || {
            let odd = self.options.pages.filter(|pages| !pages.rows.is_multiple_of(TMA_PAGE_ROWS))?;
            Some(format!("page_size {} is no multiple of {TMA_PAGE_ROWS}", odd.rows))
        };
        // With `qv`, threads copy Q, so TMA's requirements do not apply to it.
        let queries = if self.options.qv { None } else { refused("Q", 0, Side::Query, self.heads) };
        queries.or_else(pages).or_else(|| if no_keys { None } else { keys() })
    }

    /// The layout of the log-sum-exp, whose rows are contiguous; the strides are for batch and head.
    pub fn place_lse(&self) -> Placement {
        let plan = self.rows(Side::Query);
        let gap = match self.layout {
            Layout::Padded | Layout::Unaligned => 5,
            _ => 0,
        };
        self.place_rows_of_numbers(&plan, gap)
    }

    /// The layout of its gradient: the same as the log-sum-exp's, except that layouts with gaps have other gaps.
    pub fn place_dlse(&self) -> Placement {
        let plan = self.rows(Side::Query);
        let gap = match self.layout {
            Layout::Padded | Layout::Unaligned => 3,
            _ => 0,
        };
        self.place_rows_of_numbers(&plan, gap)
    }

    /// One number per row and query head: rows contiguous, `gap` numbers after each head and batch entry.
    fn place_rows_of_numbers(&self, plan: &RowPlan, gap: usize) -> Placement {
        let head = plan.rows + gap;
        let batch = self.heads * head + gap;
        let span = batch * plan.entries;
        let batch = if self.is_packed(Side::Query) { NOT_READ } else { batch as i64 };
        Placement { strides: Strides { batch, row: 1, head: head as i64 }, span, origin: 0 }
    }

    /// Offset of element 0 of a row from element (0, 0, 0).
    pub fn offset(&self, placement: &Placement, side: Side, plan: &RowPlan, sequence: usize, row: usize, head: usize) -> i64 {
        let strides = placement.strides;
        if let Some(table) = &plan.pages {
            let (page, row) = table.place(sequence, row);
            return page as i64 * strides.batch + row as i64 * strides.row + head as i64 * strides.head;
        }
        let entry = plan.cache.as_ref().map_or(sequence, |entries| entries[sequence]);
        let batch = if self.is_packed(side) { 0 } else { entry as i64 * strides.batch };
        batch + (plan.first[sequence] + row) as i64 * strides.row + head as i64 * strides.head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const LAYOUTS: [Layout; 10] = [
        Layout::Bshd,
        Layout::Bhsd,
        Layout::Padded,
        Layout::Unaligned,
        Layout::Reversed,
        Layout::ReversedTensor(3),
        Layout::UnalignedPart(3, Part::Start),
        Layout::UnalignedPart(3, Part::Head),
        Layout::UnalignedPart(3, Part::Row),
        Layout::UnalignedPart(3, Part::Batch),
    ];

    #[test]
    fn no_two_elements_share_a_place_and_none_lies_outside_the_span() {
        for layout in LAYOUTS {
            for lengths in
                [Lengths::Uniform, Lengths::Used, Lengths::Packed, Lengths::PackedQuery, Lengths::PackedKey, Lengths::PackedUsed]
            {
                let sequences = if lengths == Lengths::Uniform { [(5, 5); 3] } else { [(5, 2), (0, 5), (3, 1)] };
                let problem = Problem::new(&sequences, 2, 2).layout(layout).lengths(lengths);
                for side in [Side::Query, Side::Key] {
                    let placement = problem.place(3, side, 2, 16);
                    let plan = problem.rows(side);
                    let mut seen = HashSet::new();
                    for (sequence, rows) in problem.used_rows(side).enumerate() {
                        for (row, head) in itertools::iproduct!(0..rows, 0..2) {
                            let offset = problem.offset(&placement, side, &plan, sequence, row, head);
                            for element in offset..offset + 16 {
                                assert!(seen.insert(element), "{layout:?} {lengths:?}: {element} twice");
                                let index = element + placement.origin as i64;
                                assert!((0..placement.span as i64).contains(&index), "{layout:?} {lengths:?}: {index}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn exactly_one_part_of_one_tensor_is_unaligned_where_asked() {
        for (which, part) in itertools::iproduct!(0..4, [Part::Start, Part::Head, Part::Row, Part::Batch]) {
            let problem = Problem::new(&[(5, 7); 2], 2, 1).layout(Layout::UnalignedPart(which, part));
            for tensor in 0..4 {
                let Placement { strides, origin, .. } = problem.place(tensor, Side::Key, 2, 72);
                let odd = [origin as i64, strides.head, strides.row, strides.batch].map(|n| n % 8 != 0);
                let expected = [Part::Start, Part::Head, Part::Row, Part::Batch].map(|p| which == tensor && part == p);
                assert_eq!(odd, expected, "tensor {tensor}, asked {which} {part:?}");
            }
        }
    }

    #[test]
    fn tma_refuses_the_first_tensor_that_it_cannot_bring_with_its_number() {
        let said = |problem: Problem| problem.what_tma_refuses(16, Number::Bf16);
        let two = Problem::new(&[(5, 7); 2], 2, 2);
        for layout in [Layout::Bshd, Layout::Bhsd, Layout::Padded, Layout::UnalignedPart(3, Part::Row)] {
            assert_eq!(said(two.clone().layout(layout)), None, "{layout:?}: O is nothing to TMA");
        }
        let part = |tensor, part| said(two.clone().layout(Layout::UnalignedPart(tensor, part))).expect("it is refused");
        assert_eq!(part(0, Part::Start), "Q: the tensor starts at ");
        assert_eq!(part(1, Part::Row), "K: the stride of dimension 1 is 72; TMA takes ");
        assert_eq!(part(2, Part::Head), "V: the stride of dimension 2 is 40; TMA takes ");
        assert_eq!(part(2, Part::Batch), "V: the stride of dimension 3 is 456; TMA takes ");
        let reversed = said(two.clone().layout(Layout::Reversed)).expect("it is refused");
        assert_eq!(reversed, "Q: the stride of dimension 1 is -64; TMA takes ");
        let one_key = Problem::new(&[(5, 1)], 2, 2).layout(Layout::UnalignedPart(1, Part::Row));
        assert_eq!(said(one_key), None, "nobody reads the stride of one row");
        assert_eq!(said(Problem::new(&[(5, 0)], 2, 2).layout(Layout::UnalignedPart(1, Part::Start))), None, "no keys at all");
    }

    #[test]
    fn an_unaligned_layout_keeps_no_row_on_a_16_byte_boundary_for_every_tensor() {
        let problem = Problem::new(&[(5, 7)], 2, 1).layout(Layout::Unaligned);
        for tensor in 0..4 {
            let placement = problem.place(tensor, Side::Query, 2, 64);
            assert_ne!(placement.origin % 8, 0);
        }
    }
}
