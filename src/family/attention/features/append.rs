//! New rows: the call brings keys and values, which the kernel writes into the cache before it attends to them.

use super::{FeatureRoom, paged::pages};
use crate::{
    check::{Change, Expected::Refused, drop_tensor},
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, ERROR_UNSUPPORTED},
    family::attention::{
        CallOptions, Point, abi::NewRows as Params, edits::fwd, edits::numbers, edits::push, random::Draw, random::once_in,
        random::weighted,
    },
    kernel::Feature,
};

/// The feature `append`. Kernels that have it have cases of their own (`exam/append_cases.rs`).
pub struct NewRows;

/// New rows of K and V that a kernel writes into the cache: the last keys of each sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append {
    /// New rows of each sequence that has keys.
    pub rows: usize,
    /// The longest sequences have one more, for which there is no room.
    pub clipped: bool,
    /// Columns that are rotated, in sixteens, and whether pairs of them lie side by side.
    pub rotary: Option<(usize, bool)>,
    /// Where positions begin.
    pub starts: Starts,
    /// The tables of the rotation end with the last new row's position.
    pub short_tables: bool,
    /// Queries have positions of their own: the call has a causal mask or a window.
    pub by_row: bool,
}

/// The position of a sequence's first new row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// The number of keys before it.
    Cached,
    /// As the call says.
    Given,
}

impl CallOptions {
    /// The same where queries of new rows have positions, as in a call with a causal mask or without.
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
}

/// The refusals of kernels that write no new rows.
const WITHOUT: &[Change] = &[("new rows", |c| push(c, "k_new"), Refused(ERROR_MISMATCH, "built without the feature `append`"))];

/// The refusals of those that do.
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

/// The refusals of those that write them into pages.
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

    fn with(&self, kernel: Point) -> Vec<&'static [Change]> {
        if kernel.features.has(Feature::Paged) { vec![WITH, WITH_PAGES] } else { vec![WITH] }
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    /// Mostly one row; the rotation of a kernel that has too few columns is left out later.
    fn draw(&self, Draw { rng, .. }: &mut Draw<'_>, options: &mut CallOptions) {
        let rows = weighted(rng, &[(6, 1), (2, 2), (1, 3), (1, 4), (1, 0), (1, 17), (1, 40)]);
        let rotary = weighted(rng, &[(2, None), (2, Some(1)), (2, Some(usize::MAX)), (1, Some(2))]);
        let rotary = rotary.map(|sixteenths| (sixteenths, once_in(rng, 2)));
        let starts = if rotary.is_some() && once_in(rng, 3) { Starts::Given } else { Starts::Cached };
        let (clipped, short_tables) = (rows > 0 && once_in(rng, 4), rotary.is_some() && once_in(rng, 4));
        options.append = Some(Append { clipped, rotary, starts, short_tables, ..Append::new(rows) });
    }
}

fn new_rows(call: &mut Call) -> &mut Params {
    fwd(call).new_rows.as_mut().expect("the kernel writes new rows")
}

fn no_tables(call: &mut Call) {
    drop_tensor(call, "rotary_cos");
    drop_tensor(call, "rotary_sin");
}
