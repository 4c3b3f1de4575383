//! Parameters of a case.

use super::{
    call::Drawing,
    memory::{Crooked, Lie, Row},
};
use crate::check::{Case, Drawn, Number};
use crate::family::rotary::Rotary;

/// Lengths of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    /// Rows in the cache before the call.
    pub(super) cached: i32,
    pub(super) new: usize,
    pub(super) queries: usize,
}

/// Layouts of the cache that receives the new rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cache {
    /// One batch entry of `rows` rows per sequence; with `named`, `cache_batch_idx` selects the entry, and none for the
    /// last two sequences.
    Dense { rows: usize, named: bool },
    /// Pages of `page` rows, `pages` of them per table row; with `holes`, some entries name no page.
    Paged { page: usize, pages: usize, holes: bool },
    /// Slots in pages of `page` rows; some rows have no slot.
    Slots { page: usize },
}

/// Destinations of Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queries {
    None,
    InPlace,
    Apart,
}

/// Origin of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Starts {
    /// The cached length.
    Cached,
    /// `seqlens_rotary`.
    Given,
    /// Each row has its own position, in `positions`.
    EachRow,
}

/// One call.
#[derive(Debug, Clone)]
pub(super) struct AppendCase {
    pub(super) number: Number,
    pub(super) stored: Number,
    pub(super) heads: usize,
    pub(super) heads_k: usize,
    /// Head dims of K and V.
    pub(super) head_dims: [usize; 2],
    pub(super) sequences: Vec<Sequence>,
    /// The call has `cu_seqlens_new` and `cu_seqlens_q`; otherwise all sequences are as long as the first.
    pub(super) packed: bool,
    /// Packed rows after the last sequence.
    pub(super) spare: usize,
    pub(super) cache: Cache,
    /// K and V are views of one cache, V after K in each head.
    pub(super) one_cache: bool,
    pub(super) rotary: Option<Rotary>,
    pub(super) queries: Queries,
    pub(super) starts: Starts,
    /// `KGEN_FLAG_CAUSAL` or `KGEN_FLAG_WINDOW`, or neither.
    pub(super) mask: u32,
    pub(super) descales: Descales,
    /// Elements after each head, row and batch.
    pub(super) pad: usize,
    /// A tensor, and the part of its layout that is not a multiple of 16 bytes.
    pub(super) crooked: Option<(&'static str, Crooked)>,
}

/// Index of the factors of an FP8 cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Descales {
    None,
    BySequence,
    ByPage,
}

impl AppendCase {
    pub(super) fn rows_of(&self, length: fn(&Sequence) -> usize) -> Vec<Row> {
        let rows = self.sequences.iter().enumerate().flat_map(|(batch, s)| (0..length(s)).map(move |row| (batch, row)));
        rows.enumerate().map(|(index, (batch, row))| Row { index, batch, row }).collect()
    }

    /// The rows of K and V.
    pub(super) fn rows(&self) -> Vec<Row> {
        self.rows_of(|s| s.new)
    }

    pub(super) fn query_rows(&self) -> Vec<Row> {
        if self.queries == Queries::None { Vec::new() } else { self.rows_of(|s| s.queries) }
    }

    /// The row of the sequence's cache that a row of K goes to, if the cached length is valid.
    pub(super) fn cached_row(&self, row: &Row) -> Option<usize> {
        usize::try_from(self.sequences[row.batch].cached).ok().map(|cached| cached + row.row)
    }

    pub(super) fn longest(&self, length: fn(&Sequence) -> usize) -> usize {
        self.sequences.iter().map(length).max().unwrap_or(0)
    }

    /// Memory layout of a tensor with `length` rows per sequence.
    pub(super) fn lie(&self, name: &str, length: fn(&Sequence) -> usize, heads: usize, dim: usize) -> Lie {
        let packed_rows = self.rows_of(length).len() + self.spare;
        let extents = if self.packed { [1, packed_rows] } else { [self.sequences.len(), self.longest(length)] };
        Lie::new([extents[0], extents[1], heads, dim], self.pad, self.crooked(name))
    }

    /// First position of each sequence.
    pub(super) fn starts(&self) -> Vec<i64> {
        let of = |(number, s): (usize, &Sequence)| match self.starts {
            Starts::Cached | Starts::EachRow => s.cached.into(),
            Starts::Given => 3 * number as i64 + 1,
        };
        self.sequences.iter().enumerate().map(of).collect()
    }

    /// The position of a row for the rotation, if the tables contain it.
    pub(super) fn position(&self, row: &Row, by_row: bool) -> Option<usize> {
        let position = match self.starts {
            Starts::EachRow => position_of_index(row.index),
            Starts::Cached | Starts::Given => self.starts()[row.batch] + if by_row { row.row as i64 } else { 0 },
        };
        let rows = self.rotary?.rows;
        usize::try_from(position).ok().filter(|&position| position < rows)
    }

    /// Factors of K or V by batch entry, or page, and head: powers of two and others, so that some stored values are
    /// the largest, and some are below the smallest normal one.
    pub(super) fn descale(&self, of_v: bool, entry: usize, head: usize) -> f32 {
        if self.descales == Descales::None {
            return 1.0;
        }
        let number = 7 * entry + 3 * head + usize::from(of_v);
        [0.002, 0.25, 1.7, 130.0, 0.00003, 11.0][number % 6]
    }

    /// Stride of the factors between batch entries, or pages.
    pub(super) fn descale_stride(&self) -> usize {
        self.heads_k + 1
    }

    /// The part of the layout of tensor `name` that is not a multiple of 16 bytes.
    pub(super) fn crooked(&self, name: &str) -> Option<Crooked> {
        self.crooked.filter(|(known, _)| *known == name).map(|(_, what)| what)
    }
}

/// Positions out of order, some of them outside the tables.
pub(super) fn position_of_index(index: usize) -> i64 {
    match index {
        2 => -1,
        3 => 1 << 32,
        _ => (index as i64 * 7 + 3) % 23,
    }
}

impl Case for AppendCase {
    fn name(&self) -> String {
        let [d, dv] = self.head_dims;
        let lengths: Vec<String> = self.sequences.iter().map(|s| format!("{}+{}/{}", s.cached, s.new, s.queries)).collect();
        let cache = match self.cache {
            Cache::Dense { rows, named } => format!("dense{rows}{}", if named { " named" } else { "" }),
            Cache::Paged { page, pages, holes } => format!("page{page}x{pages}{}", if holes { " holes" } else { "" }),
            Cache::Slots { page } => format!("slots{page}"),
        };
        let rotary = self.rotary.map_or_else(String::new, |r| {
            format!(" rotary{}{} of {} {:?}", r.dim, if r.interleaved { "i" } else { "" }, r.rows, self.starts)
        });
        let mut more = String::new();
        for (holds, word) in [(self.packed, " packed"), (self.one_cache, " in one")] {
            more.push_str(if holds { word } else { "" });
        }
        more.push_str(match self.descales {
            Descales::None => "",
            Descales::BySequence => " descaled",
            Descales::ByPage => " descaled by page",
        });
        let crooked = self.crooked.map_or_else(String::new, |(name, what)| format!(" {name} {what:?}"));
        let Self { heads, heads_k, stored, queries, mask, pad, spare, .. } = self;
        format!(
            "h{heads}/{heads_k} d{d}/{dv} {} {cache} {stored:?}{rotary} q{queries:?}{mask} pad{pad} spare{spare}{more}{crooked}",
            lengths.join(" ")
        )
        .to_lowercase()
    }

    fn draw(&self, seed: u64) -> Drawn {
        let drawing = Drawing::new(self.clone(), seed);
        let call = drawing.call();
        Drawn { call, judge: Box::new(move |outputs| drawing.judge(outputs)), may_differ: Vec::new() }
    }
}
