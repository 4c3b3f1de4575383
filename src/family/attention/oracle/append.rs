//! New rows of K and V that a kernel writes into the cache before it attends to them: their values, their destinations,
//! the rotated Q, and the check of the cache afterwards.

use super::{
    dims::Dims,
    memory_layout::{Placement, RowPlan, Side},
    problem::{Layout, Lengths, Problem},
    tensors::{Source, Tensors, Values, image, place_of, side_and_heads},
};
use crate::{
    check::{Comparison, Number, Tally},
    device::{Call, Image, Outputs},
    family::attention::abi,
    family::attention::abi::{NewRows, Strides},
    family::{
        attention::{Append, Starts},
        rotary::{Rotary, Tables, nearest_right},
    },
};
use std::borrow::Cow;

/// Names of the caches in `kgen.h`, which become outputs.
const CACHES: [&str; 2] = ["k", "v"];

/// Rows of a block's tile.
const TILE_ROWS: usize = 16;

/// Length passed for a sequence without keys, if nothing is hidden before its first key.
const NEGATIVE: i32 = -3;

/// The new rows of a problem as passed by the caller, and Q before its rotation.
#[derive(Debug, Clone)]
pub struct Appended {
    q: Values,
    /// K and V: by sequence, key head and row.
    rows: [Vec<Vec<Vec<Vec<f32>>>>; 2],
    tables: Option<Tables>,
}

/// Destination of a sequence's new rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    /// Rows of the cache before them, as passed by the caller.
    before: i32,
    /// Number of rows written.
    count: usize,
    /// Rows of the entry before the first key.
    hidden: usize,
}

impl Span {
    /// The key index of a row; `None` if it is before the first key.
    fn key(self, row: usize) -> Option<usize> {
        (self.before as usize + row).checked_sub(self.hidden)
    }
}

impl Problem {
    /// Destination of each sequence's new rows.
    fn new_spans(&self, append: Append) -> Vec<Span> {
        let table = self.cache_table();
        let bound = self.seqlen_k_of(append);
        let span = |(sequence, &(_, keys)): (usize, &(usize, usize))| {
            let hidden = table.as_ref().map_or(0, |table| table.padding[sequence]);
            let length = table.as_ref().map_or(keys, |table| table.lengths[sequence]);
            let clipped = append.clipped && keys > 0 && length == bound;
            let before = length as i32 - append.rows as i32 + i32::from(clipped);
            let before = if before < 0 || keys + hidden == 0 { NEGATIVE } else { before };
            let count = if before < 0 { 0 } else { append.rows.min(bound.saturating_sub(before as usize)) };
            assert!(before >= 0 || keys == 0, "a sequence of {keys} keys has no room for {} new ones", append.rows);
            Span { before, count, hidden }
        };
        self.sequences.iter().enumerate().map(span).collect()
    }

    /// `seqlen_k` of the call: the longest sequence's if rows beyond it are to be skipped.
    fn seqlen_k_of(&self, append: Append) -> usize {
        let plan = self.rows(Side::Key);
        if !append.clipped {
            return plan.bound;
        }
        let table = self.cache_table();
        let length =
            |(sequence, &(_, keys)): (usize, &(usize, usize))| table.as_ref().map_or(keys, |table| table.lengths[sequence]);
        self.sequences.iter().enumerate().map(length).max().unwrap_or(0)
    }

    /// A property of the problem that a kernel with new rows, or this module, does not support, if there is one.
    pub fn what_new_rows_need(&self, head_dim: usize) -> Option<String> {
        let append = self.options.append?;
        let rows = self.rows(Side::Query).bound * self.heads / self.heads_k.max(1);
        let longest = self.seqlen_k_of(append);
        let short = |&(_, keys): &(usize, usize)| keys > 0 && keys < append.rows;
        let needs = [
            (self.lengths != Lengths::PackedQuery, "`cu_seqlens_q+seqused_k`"),
            (rows == 0 || rows > TILE_ROWS, "1 to 16 rows of queries and heads that read one key head"),
            (self.sequences.iter().any(short), "as many keys, or none"),
            (append.clipped && (append.rows == 0 || longest == 0), "one that is left out"),
            (append.rotary.is_some_and(|(sixteenths, _)| sixteenths == 0 || 16 * sixteenths > head_dim), "columns to rotate"),
            (append.rotary.is_none() && append.starts == Starts::Given, "a rotation to begin"),
            (self.options.pages.is_some_and(|pages| pages.shared > 0 || pages.descales.is_some()), "pages of their own"),
            (self.options.qv || self.options.query_limits != [0; 2], "all queries, of one part"),
            (matches!(self.layout, Layout::Unaligned | Layout::UnalignedPart(0..3, _)), "tensors that are aligned"),
            (self.options.kv.is_some() && self.layout != Layout::Padded, "`padded` rows of bytes"),
        ];
        needs.into_iter().find_map(|(lacks, what)| lacks.then(|| format!("new rows need {what}")))
    }

    /// `seqused_k` of a call with new rows.
    pub fn keys_before_new_rows(&self) -> Option<Vec<i32>> {
        let append = self.options.append?;
        Some(self.new_spans(append).into_iter().map(|span| span.before).collect())
    }
}

/// The first position of each sequence.
fn starts(append: Append, spans: &[Span]) -> Vec<i32> {
    let given = |sequence: usize| ((7 * sequence + 3) % 29) as i32;
    spans.iter().enumerate().map(|(b, span)| if append.starts == Starts::Given { given(b) } else { span.before }).collect()
}

/// Draws new rows, and turns `tensors` into those that the kernel attends to: rotated queries, and new keys as stored
/// in the cache.
pub fn apply(problem: &Problem, tensors: &mut Tensors, head_dim: Dims, number: Number, source: &mut Source<'_>) {
    let Some(append) = problem.options.append else { return };
    let spans = problem.new_spans(append);
    let starts = starts(append, &spans);
    let tables = append.rotary.map(|(sixteenths, interleaved)| {
        let last = starts.iter().max().map_or(0, |start| (*start).max(0) as usize + append.rows);
        let rows = if append.short_tables { last } else { last + 40 };
        Tables::new(Rotary { dim: 16 * sixteenths, interleaved, rows: rows.max(1) }, number)
    });
    let mut draw = |dim: usize| {
        let mut row = vec![0.0; dim];
        source.fill_normal(&mut row);
        for value in &mut row {
            *value = number.through(*value);
        }
        row
    };
    let mut rows_of = |dim: usize| -> Vec<Vec<Vec<Vec<f32>>>> {
        let sequence = |_| (0..problem.heads_k).map(|_| (0..append.rows).map(|_| draw(dim)).collect()).collect();
        spans.iter().map(sequence).collect()
    };
    let rows = [rows_of(head_dim.qk), rows_of(head_dim.v)];
    let appended = Appended { q: tensors.q.clone(), rows, tables };
    for (sequence, span) in spans.iter().enumerate() {
        for (head, row) in itertools::iproduct!(0..problem.heads_k, 0..span.count) {
            let Some(key) = span.key(row) else { continue };
            for tensor in [1, 2] {
                let stored = appended.stored(problem, number, tensor, [sequence, head, row], starts[sequence]);
                let values = if tensor == 1 { &mut tensors.k } else { &mut tensors.v };
                values.row_mut(sequence, head, key).copy_from_slice(&stored);
            }
        }
        let queries = problem.sequences[sequence].0;
        for (head, row) in itertools::iproduct!(0..problem.heads, 0..queries) {
            let position = starts[sequence] + if append.by_row { row as i32 } else { 0 };
            let rotated = appended.turned(appended.q.row(sequence, head, row), position);
            let rounded: Vec<f32> = rotated.iter().map(|&x| number.through(x as f32)).collect();
            tensors.q.row_mut(sequence, head, row).copy_from_slice(&rounded);
        }
    }
    tensors.appended = Some(appended);
}

impl Appended {
    /// A row at a position, in float64; unchanged if the tables do not contain the position.
    fn turned(&self, row: &[f32], position: i32) -> Vec<f64> {
        let tables = self.tables.as_ref().filter(|tables| (0..tables.rotary.rows as i32).contains(&position));
        tables.map_or_else(|| row.iter().map(|&x| x.into()).collect(), |tables| tables.rotated(row, position as usize))
    }

    /// The exact value of a new row of K (tensor 1) or V (2), before it is divided by its factor.
    fn exact(&self, tensor: usize, [sequence, head, row]: [usize; 3], start: i32) -> Vec<f64> {
        let new = &self.rows[tensor - 1][sequence][head][row];
        if tensor == 1 { self.turned(new, start + row as i32) } else { new.iter().map(|&x| x.into()).collect() }
    }

    /// The stored values of a row, computed with the kernel's own arithmetic: the values attended to.
    fn stored(&self, problem: &Problem, number: Number, tensor: usize, at: [usize; 3], start: i32) -> Vec<f32> {
        let (cache, factor) = (problem.number_of(tensor, number), 1.0 / problem.factors(at[0], at[1])[tensor]);
        let scaled = |x: f32| if problem.options.kv.is_some() { x * factor } else { x };
        self.exact(tensor, at, start).into_iter().map(|x| cache.through(scaled(x as f32))).collect()
    }

    /// Adds the new rows to a call: the caches become outputs in which the new rows must be written, and Q is
    /// unrotated.
    pub fn arrange(&self, call: &mut Call, tensors: &Tensors, problem: &Problem, head_dim: Dims, number: Number) {
        let append = problem.options.append.expect("the rows were drawn for it");
        let spans = problem.new_spans(append);
        call.inputs.retain(|(name, _)| !CACHES.contains(name) && *name != "q");
        let row = |sequence, head, row| Some(self.q.row(sequence, head, row));
        call.inputs.push(("q", image(problem, 0, head_dim, number, row)));
        for tensor in [1, 2] {
            call.outputs.push((CACHES[tensor - 1], cache_image(problem, tensors, tensor, head_dim, number, &spans)));
        }
        let strides = [1, 2].map(|tensor| {
            let dim = head_dim.of(tensor);
            // Gaps after each head, row and sequence, different for K and V.
            let head = dim.next_multiple_of(8) + 8 * tensor;
            let row = problem.heads_k * head + 8;
            [append.rows * row + 8 * tensor, row, head].map(|stride| stride as i64)
        });
        for (tensor, [batch, row, head]) in [1, 2].into_iter().zip(strides) {
            let span = (spans.len() as i64 * batch) as usize;
            let mut image = Image::poisoned(number.element(), span, 0);
            for (b, span) in spans.iter().enumerate() {
                for (h, r) in itertools::iproduct!(0..problem.heads_k, 0..span.count) {
                    let first = b as i64 * batch + r as i64 * row + h as i64 * head;
                    for (d, &value) in self.rows[tensor - 1][b][h][r].iter().enumerate() {
                        image.put(first + d as i64, number.round(value));
                    }
                }
            }
            call.inputs.push((["k_new", "v_new"][tensor - 1], image));
        }
        let mut new_rows = NewRows {
            strides: strides.map(|[batch, row, head]| Strides { batch, row, head }),
            seqlen: append.rows as i32,
            ..NewRows::default()
        };
        if let Some(Tables { rotary, cos, sin }) = &self.tables {
            let columns = rotary.columns();
            let stride = columns.next_multiple_of(8) + 8;
            for (name, values) in [("rotary_cos", cos), ("rotary_sin", sin)] {
                let mut image = Image::poisoned(number.element(), rotary.rows * stride, 0);
                for (at, &value) in values.iter().enumerate() {
                    image.put((at / columns * stride + at % columns) as i64, number.round(value));
                }
                call.inputs.push((name, image));
            }
            (new_rows.rotary_row_stride, new_rows.rotary_dim) = (stride as i64, rotary.dim as i32);
            (new_rows.rotary_rows, new_rows.interleaved) = (rotary.rows as i32, rotary.interleaved);
            if append.starts == Starts::Given {
                call.inputs.push(("seqlens_rotary", Image::of_integers(&starts(append, &spans))));
            }
        }
        let params: &mut abi::FwdParams = call.params.get_mut().expect("a forward call");
        (params.new_rows, params.seqlen_k) = (Some(new_rows), problem.seqlen_k_of(append) as i32);
    }

    /// Judges the caches afterwards: new rows against float64, and old ones for being unchanged.
    pub fn judge(&self, tensors: &Tensors, problem: &Problem, head_dim: Dims, number: Number, outputs: &Outputs) -> Comparison {
        let append = problem.options.append.expect("the rows were drawn for it");
        let spans = problem.new_spans(append);
        let starts = starts(append, &spans);
        let plan = problem.rows(Side::Key);
        let rotates = self.tables.as_ref().map_or(0, |tables| tables.rotary.dim);
        let mut tallies = Vec::new();
        let mut changed = None;
        for tensor in [1, 2] {
            let image = outputs.get(CACHES[tensor - 1]).expect("the caches are outputs");
            let (place, stored) = (place_of(problem, tensor, head_dim), problem.number_of(tensor, number));
            let mut tally = Tally::new(["new K", "new V"][tensor - 1], 0.0);
            for (b, span) in spans.iter().enumerate() {
                for (h, r) in itertools::iproduct!(0..problem.heads_k, 0..span.count) {
                    let start = offset_of(problem, &place, &plan, b, *span, r, h);
                    let factor = f64::from(problem.factors(b, h)[tensor]);
                    for (d, exact) in self.exact(tensor, [b, h, r], starts[b]).into_iter().enumerate() {
                        let got = stored.widen(image.bits(start + d as i64)).into();
                        let of_factor = if problem.options.kv.is_some() { 2 } else { 0 };
                        let roundings = u32::from(tensor == 1 && d < rotates) + of_factor;
                        let exact = if of_factor > 0 { exact / factor } else { exact };
                        tally.see([b, h, r, d], got, nearest_right(stored, exact, roundings, got), false);
                    }
                }
            }
            tallies.push(tally);
            let before = cache_image(problem, tensors, tensor, head_dim, number, &spans);
            let old = old_rows(problem, &plan, &place, &spans, head_dim.of(tensor));
            let other = old.into_iter().find(|&offset| image.bits(offset) != before.bits(offset));
            changed =
                changed.or(other.map(|offset| format!("element {offset} of an old row of {} was changed", CACHES[tensor - 1])));
        }
        let images: Vec<_> = CACHES.iter().filter_map(|name| Some((*name, outputs.get(name)?))).collect();
        let mut comparison = Comparison::of(&tallies, &images);
        comparison.complaint = comparison.complaint.or(changed);
        comparison
    }
}

/// The offset of the first element of a new row in its cache.
fn offset_of(problem: &Problem, place: &Placement, plan: &RowPlan, sequence: usize, span: Span, row: usize, head: usize) -> i64 {
    let from_start = span.before as usize + row;
    let mut of_entries = Cow::Borrowed(plan);
    if span.hidden > 0 {
        of_entries.to_mut().first[sequence] = 0;
    }
    problem.offset(place, Side::Key, &of_entries, sequence, from_start, head)
}

/// Offsets of the elements of all keys that existed before.
fn old_rows(problem: &Problem, plan: &RowPlan, place: &Placement, spans: &[Span], dim: usize) -> Vec<i64> {
    let mut offsets = Vec::new();
    for (b, span) in spans.iter().enumerate() {
        let old = old_keys(problem, b, *span);
        for (head, key) in itertools::iproduct!(0..problem.heads_k, 0..old) {
            let start = problem.offset(place, Side::Key, plan, b, key, head);
            offsets.extend(start..start + dim as i64);
        }
    }
    offsets
}

/// Keys of a sequence that are not new rows.
fn old_keys(problem: &Problem, sequence: usize, span: Span) -> usize {
    let keys = problem.sequences[sequence].1;
    if span.before < 0 { keys } else { (span.before as usize).saturating_sub(span.hidden).min(keys) }
}

/// K (1) or V (2) before the call, with the elements of new rows marked.
fn cache_image(problem: &Problem, tensors: &Tensors, tensor: usize, head_dim: Dims, number: Number, spans: &[Span]) -> Image {
    let values = if tensor == 1 { &tensors.k } else { &tensors.v };
    let old = |sequence: usize| old_keys(problem, sequence, spans[sequence]);
    let row = |sequence, head, row| (row < old(sequence)).then(|| values.row(sequence, head, row));
    let mut image = image(problem, tensor, head_dim, problem.number_of(tensor, number), row);
    let (place, plan) = (place_of(problem, tensor, head_dim), problem.rows(Side::Key));
    for (b, span) in spans.iter().enumerate() {
        // Rows before the first key are not keys, and `image` handles only keys.
        for (h, r) in itertools::iproduct!(0..side_and_heads(problem, tensor).1, 0..span.count) {
            let start = offset_of(problem, &place, &plan, b, *span, r, h);
            (start..start + head_dim.of(tensor) as i64).for_each(|offset| _ = image.mark(offset));
        }
    }
    image
}
