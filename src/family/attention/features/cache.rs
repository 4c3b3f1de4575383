//! The cache: an index maps sequences to entries of K and V, and entries can have padding rows before the first key.

use super::{
    FeatureRoom, Simpler, first_of, named,
    shapes::{Borders, SPLITS},
};
use crate::{
    check::{
        Change,
        Expected::{Refused, Same},
    },
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, Image},
    family::attention::{
        CallOptions, Point,
        fuzz::{Entry, FuzzCase},
        oracle::memory_layout::Side,
        oracle::problem::{Inputs, Layout, Lengths, Problem, Scale},
        oracle::split::Listed,
        random::Draw,
        random::pick,
    },
    kernel::{Feature, HeadDim},
};

/// The feature `cache`.
pub struct Cached;

/// Optional parts of a cache's description in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// `cache_batch_idx`: the entry of K and V that each sequence reads.
    Indexed,
    /// `leftpad_k`: the number of rows before each sequence's first key.
    Padded,
    /// `cache_batch_idx` and `leftpad_k`.
    IndexedAndPadded,
}

impl Cache {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::Indexed, Self::Padded, Self::IndexedAndPadded];

    /// The word used in case names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Indexed => "cache-idx",
            Self::Padded => "leftpad",
            Self::IndexedAndPadded => "cache-idx+leftpad",
        }
    }

    /// True if the call has an index of entries.
    pub fn is_indexed(self) -> bool {
        self != Self::Padded
    }

    /// True if there are rows before the keys.
    pub fn is_padded(self) -> bool {
        self != Self::Indexed
    }
}

/// Invalid calls to kernels that read no cache.
const WITHOUT: &[Change] = &[
    ("entries of a cache", |c| push_zero(c, "cache_batch_idx"), Refused(ERROR_MISMATCH, "built without the feature `cache`")),
    ("rows before the keys", |c| push_zero(c, "leftpad_k"), Refused(ERROR_MISMATCH, "built without the feature `cache`")),
];

/// Invalid calls to kernels that read a cache.
const WITH: &[Change] = &[
    (
        "entries of packed keys",
        |c| packed_with(c, "cache_batch_idx"),
        Refused(ERROR_INVALID_VALUE, "NULL with cu_seqlens_k or a"),
    ),
    ("rows before packed keys", |c| packed_with(c, "leftpad_k"), Refused(ERROR_INVALID_VALUE, "NULL with cu_seqlens_k or a")),
    ("each its own entry", |c| push_zero(c, "cache_batch_idx"), Same),
    ("no rows before the keys", |c| push_zero(c, "leftpad_k"), Same),
];

impl FeatureRoom for Cached {
    fn feature(&self) -> Feature {
        Feature::Cache
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.cache.is_some()
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.cache.map(|cache| format!(" {}", cache.word()))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        options.cache = Some(named(Cache::ALL, word, |cache| cache.word())?);
        Some(Ok(()))
    }

    fn fit(&self, problem: &mut Problem, _kernel: Point) {
        if problem.options.cache.is_some() {
            problem.lengths = problem.lengths.without_packed_keys();
        }
    }

    fn complaint(&self, case: &FuzzCase) -> Option<String> {
        let problem = &case.problem;
        problem.options.cache?;
        let elsewhere = "a cache has neither pages nor `cu_seqlens_k`: say `cu_seqlens_q+seqused_k` or `seqused`";
        let is_elsewhere = problem.is_packed(Side::Key) || problem.options.pages.is_some();
        first_of([(case.entry == Entry::Bwd, "`bwd` takes no cache"), (is_elsewhere, elsewhere)])
    }

    fn request(&self, options: &mut CallOptions, _n: usize) {
        options.cache = Some(Cache::IndexedAndPadded);
    }

    /// Caches with sequences of unequal lengths, including no key and one key, after 0, 1 and many rows of padding,
    /// less and more than a tile; and with equal lengths.
    fn forward(&self, &Borders { m, n, .. }: &Borders) -> Vec<Problem> {
        let lengths = [(17, 2 * n + 9), (m + 3, n), (9, 0), (1, 1), (33, 3 * n + 2), (5, n - 1), (0, 3), (40, n + 70)];
        let forms = Cache::ALL.into_iter().flat_map(|cache| {
            let unequal = Problem::new(&lengths, 4, 2).asking(cache_of(cache));
            [
                unequal.clone().lengths(Lengths::Used),
                unequal.clone().lengths(Lengths::PackedQuery).layout(Layout::Padded).inputs(Inputs::OneHot, Scale::Usual),
                unequal.lengths(Lengths::PackedQuery).layout(Layout::Unaligned),
                Problem::new(&[(m + 5, n + 7); 3], 2, 1).layout(Layout::Bhsd).asking(cache_of(cache)),
            ]
        });
        forms.collect()
    }

    fn splits(&self) -> Vec<Listed> {
        // Padding that leaves a split one key, none, or many.
        let keys = [(1, 300), (2, 1), (3, 0), (1, 16), (5, 131), (1, 17), (2, 40), (1, 33)];
        let forms = Cache::ALL.into_iter().flat_map(|cache| {
            let unequal = Problem::new(&keys, 4, 2).asking(cache_of(cache));
            let counts = Some(vec![4, 1, 0, 2, 3, 1, 2, 4]);
            [
                (unequal.clone().lengths(Lengths::Used), SPLITS, None),
                (unequal.clone().lengths(Lengths::PackedQuery).layout(Layout::Padded), 4, counts),
                (unequal.lengths(Lengths::Used).layout(Layout::Unaligned), 2, None),
                (Problem::new(&[(2, 150); 3], 8, 2).layout(Layout::Bhsd).asking(cache_of(cache)), SPLITS, None),
            ]
        });
        forms.collect()
    }

    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        vec![WITH]
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn is_optional(&self) -> bool {
        true
    }

    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        options.cache = Some(pick(draw.rng, &Cache::ALL));
    }

    fn fit_drawn(&self, problem: &mut Problem, _head_dim: HeadDim) {
        problem.lengths = problem.lengths.without_packed_keys();
    }

    fn leave_out(&self, options: &mut CallOptions) {
        options.cache = None;
    }

    fn plainer(&self) -> &'static [Simpler] {
        &[|options| options.cache = options.cache.map(|_| Cache::Padded)]
    }
}

/// A call that reads a cache.
pub fn cache_of(cache: Cache) -> CallOptions {
    CallOptions { cache: Some(cache), ..CallOptions::default() }
}

/// An index for one sequence: entry 0.
fn push_zero(call: &mut Call, name: &'static str) {
    call.inputs.push((name, Image::of_integers(&[0])));
}

fn packed_with(call: &mut Call, name: &'static str) {
    push_zero(call, name);
    call.inputs.push(("cu_seqlens_k", Image::of_integers(&[0, 40])));
}
