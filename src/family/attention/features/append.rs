//! New rows: the call passes keys and values that the kernel writes into the cache before it attends to them.

use super::{FeatureRoom, first_of, paged::pages};
use crate::{
    check::{Change, Expected::Refused, drop_tensor},
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, ERROR_UNSUPPORTED},
    family::attention::{
        CallOptions, Point,
        abi::NewRows as Params,
        edits::{fwd, numbers, push},
        fuzz::{Entry, FuzzCase},
        oracle::problem::{Layout, Lengths, Problem},
        random::{Draw, once_in, weighted},
    },
    kernel::{Feature, HeadDim},
};

/// The feature `append`. Its kernels have separate cases (`cases/append_cases.rs`).
pub struct NewRows;

/// New rows of K and V that a kernel writes into the cache: the last keys of each sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append {
    /// Number of new rows of each sequence that has keys.
    pub rows: usize,
    /// True if the longest sequences have one more, beyond `seqlen_k`.
    pub clipped: bool,
    /// Rotated columns, in units of 16, and whether pairs are adjacent (interleaved).
    pub rotary: Option<(usize, bool)>,
    /// Start of the rotary positions.
    pub starts: Starts,
    /// True if the rotary tables end at the last new row's position.
    pub short_tables: bool,
    /// True if queries have individual positions: the call has a causal mask or a window.
    pub by_row: bool,
}

/// Numbers of new rows per sequence that a case may have.
const MOST_ROWS: usize = 4096;

/// Rotary position of a sequence's first new row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// The number of earlier keys.
    Cached,
    /// Passed by the caller.
    Given,
}

impl CallOptions {
    /// These options for a call that is causal or not, which determines whether queries have individual positions.
    #[must_use]
    pub fn placed(mut self, causal: bool) -> Self {
        let (causal, wanted) = self.wanted(causal);
        if let Some(append) = &mut self.append {
            append.by_row = causal || wanted.has(Feature::Window);
        }
        self
    }
}

impl Append {
    /// Some new rows, without rotation.
    pub fn new(rows: usize) -> Self {
        Self { rows, clipped: false, rotary: None, starts: Starts::Cached, short_tables: false, by_row: false }
    }

    /// The part of a case's name that describes them.
    fn words(self) -> String {
        let Self { rows, clipped, rotary, starts, short_tables, by_row: _ } = self;
        let rotary = rotary.map_or_else(String::new, |(sixteenths, interleaved)| {
            format!("-rotary{}{}", 16 * sixteenths, if interleaved { "-interleaved" } else { "" })
        });
        let flags = [(clipped, "-clipped"), (starts == Starts::Given, "-starts"), (short_tables, "-short-tables")];
        let flags: String = flags.into_iter().filter_map(|(set, word)| set.then_some(word)).collect();
        format!(" new{rows}{rotary}{flags}")
    }

    /// Parses `rest`: `3`, `3-rotary32-interleaved-clipped-starts-short-tables`.
    fn read(rest: &str) -> Option<Self> {
        let mut words = rest.split('-').peekable();
        let rows = words.next().and_then(|rows| rows.parse().ok()).filter(|rows| *rows <= MOST_ROWS)?;
        let rotary = words.next_if(|word| word.starts_with("rotary")).map(|word| word["rotary".len()..].parse::<usize>());
        let columns = rotary.transpose().ok()?;
        let mut has = |word: &str| words.next_if_eq(&word).is_some();
        let interleaved = has("interleaved");
        let (clipped, starts, short) = (has("clipped"), has("starts"), has("short"));
        let starts = if starts { Starts::Given } else { Starts::Cached };
        if short != has("tables") || words.next().is_some() || columns.is_none() && (interleaved || short) {
            return None;
        }
        let rotary = columns.map(|columns| (columns / 16, interleaved));
        Some(Self { clipped, rotary, starts, short_tables: short, ..Self::new(rows) })
    }
}

/// Invalid calls to kernels that do not write new rows.
const WITHOUT: &[Change] = &[("new rows", |c| push(c, "k_new"), Refused(ERROR_MISMATCH, "built without the feature `append`"))];

/// Invalid calls to kernels that write new rows.
const WITH: &[Change] = &[
    ("no new rows", |c| drop_tensor(c, "k_new"), Refused(ERROR_MISMATCH, "called without k_new")),
    ("new rows of K alone", |c| drop_tensor(c, "v_new"), Refused(ERROR_INVALID_VALUE, "v_new must not be NULL")),
    ("no lengths", |c| drop_tensor(c, "seqused_k"), Refused(ERROR_INVALID_VALUE, "k_new needs seqused_k")),
    ("fewer than no new rows", |c| new_rows(c).seqlen = -1, Refused(ERROR_INVALID_VALUE, "seqlen_new -1 must not")),
    ("cosines alone", |c| drop_tensor(c, "rotary_sin"), Refused(ERROR_INVALID_VALUE, "rotary_cos and rotary_sin must both")),
    ("sines alone", |c| drop_tensor(c, "rotary_cos"), Refused(ERROR_INVALID_VALUE, "rotary_cos and rotary_sin must both")),
    ("a rotation without tables", no_tables, Refused(ERROR_INVALID_VALUE, "rotary_dim 16 must be 0 without rotary_cos")),
    (
        "positions without tables",
        |c| {
            no_tables(c);
            new_rows(c).rotary_dim = 0;
        },
        Refused(ERROR_INVALID_VALUE, "seqlens_rotary needs rotary_cos"),
    ),
    ("a rotation of 8 columns", |c| new_rows(c).rotary_dim = 8, Refused(ERROR_INVALID_VALUE, "rotary_dim 8 must be a multiple")),
    ("a rotation of nothing", |c| new_rows(c).rotary_dim = 0, Refused(ERROR_INVALID_VALUE, "rotary_dim 0 must be a multiple")),
    (
        "a rotation of more than there is",
        |c| new_rows(c).rotary_dim = 272,
        Refused(ERROR_INVALID_VALUE, "rotary_dim 272 must be a multiple"),
    ),
    ("tables of no rows", |c| new_rows(c).rotary_rows = 0, Refused(ERROR_INVALID_VALUE, "rotary_rows 0 must be at least 1")),
    ("no queries", |c| *numbers(c).seqlen_q = 0, Refused(ERROR_UNSUPPORTED, "0 rows of queries and heads that read one key")),
    ("rows of K that are not aligned", |c| new_rows(c).strides[0].row += 4, Refused(ERROR_UNSUPPORTED, "aligned to 16 bytes")),
    ("heads of K that are not", |c| new_rows(c).strides[0].head += 4, Refused(ERROR_UNSUPPORTED, "aligned to 16 bytes")),
    ("sequences of V that are not", |c| new_rows(c).strides[1].batch += 4, Refused(ERROR_UNSUPPORTED, "aligned to 16 bytes")),
    ("tables that are not", |c| new_rows(c).rotary_row_stride += 4, Refused(ERROR_UNSUPPORTED, "aligned to 16 bytes")),
];

/// Invalid calls to kernels that write new rows into pages.
const WITH_PAGES: &[Change] = &[(
    "a limit on queries",
    |c| pages(c).query_limits = [0, 3],
    Refused(ERROR_INVALID_VALUE, "least_queries and most_queries must be 0 with k_new"),
)];

impl FeatureRoom for NewRows {
    fn feature(&self) -> Feature {
        Feature::Append
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.append.is_some()
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.append.map(Append::words)
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        let rest = word.strip_prefix("new")?;
        options.append = Append::read(rest);
        let wrong = || format!("`new{rest}` does not name new rows, as `new3` or `new3-rotary32` does");
        Some(options.append.map(|_| ()).ok_or_else(wrong))
    }

    fn fit(&self, problem: &mut Problem, kernel: Point) {
        problem.lengths = Lengths::PackedQuery;
        problem.options.append.get_or_insert(Append::new(1));
        problem.options = problem.options.placed(kernel.causal);
    }

    fn complaint(&self, case: &FuzzCase) -> Option<String> {
        case.problem.options.append?;
        let needed = case.problem.what_new_rows_need(case.head_dim.qk as usize);
        needed.or_else(|| first_of([(case.entry == Entry::Bwd, "`bwd` takes no new rows")]))
    }

    fn with(&self, kernel: Point) -> Vec<&'static [Change]> {
        if kernel.features.has(Feature::Paged) { vec![WITH, WITH_PAGES] } else { vec![WITH] }
    }

    /// New rows and a rotation.
    fn in_refusals(&self, plain: Problem) -> Problem {
        let append = Append { rotary: Some((1, false)), starts: Starts::Given, ..Append::new(2) };
        plain.layout(Layout::Padded).asking(CallOptions { append: Some(append), ..CallOptions::default() })
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    /// Mostly one row. A rotation with too many columns for the kernel is removed later.
    fn draw(&self, Draw { rng, .. }: &mut Draw<'_>, options: &mut CallOptions) {
        let rows = weighted(rng, &[(6, 1), (2, 2), (1, 3), (1, 4), (1, 0), (1, 17), (1, 40)]);
        let rotary = weighted(rng, &[(2, None), (2, Some(1)), (2, Some(usize::MAX)), (1, Some(2))]);
        let rotary = rotary.map(|sixteenths| (sixteenths, once_in(rng, 2)));
        let starts = if rotary.is_some() && once_in(rng, 3) { Starts::Given } else { Starts::Cached };
        let (clipped, short_tables) = (rows > 0 && once_in(rng, 4), rotary.is_some() && once_in(rng, 4));
        options.append = Some(Append { clipped, rotary, starts, short_tables, ..Append::new(rows) });
    }

    /// Limits the queries, and makes space for the new rows.
    fn fit_drawn(&self, problem: &mut Problem, head_dim: HeadDim) {
        const TILE_ROWS: usize = 16;
        if problem.heads / problem.heads_k > TILE_ROWS {
            problem.heads = problem.heads_k;
        }
        let most = TILE_ROWS * problem.heads_k / problem.heads;
        let rows = problem.options.append.map_or(0, |append| append.rows);
        for (queries, keys) in &mut problem.sequences {
            *queries = (*queries).min(most);
            *keys = if *keys == 0 { 0 } else { (*keys).max(rows) };
        }
        if problem.sequences.iter().all(|&(queries, _)| queries == 0) {
            problem.sequences[0].0 = 1;
        }
        let no_keys = problem.sequences.iter().all(|&(_, keys)| keys == 0);
        if let Some(append) = &mut problem.options.append {
            append.clipped = append.clipped && !no_keys;
            append.rotary = append.rotary.map(|(wanted, interleaved)| (wanted.min(head_dim.qk as usize / 16), interleaved));
        }
        if let Some(pages) = &mut problem.options.pages {
            pages.shared = 0;
        }
        problem.lengths = Lengths::PackedQuery;
        let aligned = !matches!(problem.layout, Layout::Unaligned | Layout::UnalignedPart(0..3, _));
        if !aligned || problem.options.kv.is_some() {
            problem.layout = Layout::Padded;
        }
    }
}

fn new_rows(call: &mut Call) -> &mut Params {
    fwd(call).new_rows.as_mut().expect("the kernel writes new rows")
}

fn no_tables(call: &mut Call) {
    drop_tensor(call, "rotary_cos");
    drop_tensor(call, "rotary_sin");
}
