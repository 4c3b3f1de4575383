//! Pages: K and V are stored in blocks, which a page table lists.

use super::{
    FeatureRoom, PageDescales, Simpler, first_of,
    shapes::{Borders, SPLITS, counts, unlike},
};
use crate::{
    check::{Change, Expected::Refused, begin, drop_tensor},
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, ERROR_UNSUPPORTED, Header, Image},
    family::attention::{
        CallOptions, Point,
        abi::PagedKeys,
        edits::fwd,
        fuzz::{Entry, FuzzCase},
        oracle::memory_layout::Side,
        oracle::problem::{Layout, Lengths, Problem},
        oracle::split::Listed,
        random::Draw,
        random::once_in,
        random::pick,
        random::weighted,
    },
    kernel::{Feature, HeadDim},
};
use rand::RngExt;

/// The feature `paged`.
pub struct Paged;

/// The layout of K and V in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Rows per page.
    pub rows: usize,
    /// Number of leading pages of the first sequence that the others share, if they have as many keys.
    pub shared: usize,
    /// True if the call has a counter from which blocks take work items; kernels that do not use it leave it unchanged.
    pub counter: bool,
    /// Descale factors per page of K and V.
    pub descales: Option<PageDescales>,
}

/// Invalid calls to kernels without pages.
const WITHOUT: &[Change] = &[
    (
        "a limit on queries without pages",
        |c| fwd(c).pages = Some(PagedKeys { query_limits: [2, 0], ..PagedKeys::default() }),
        Refused(ERROR_UNSUPPORTED, "least_queries 2 and most_queries 0 must be 0"),
    ),
    ("a page table", page_table, Refused(ERROR_MISMATCH, "built without the feature `paged`")),
];

/// Invalid calls to kernels with pages.
const WITH: &[Change] = &[
    ("no page table", |c| drop_tensor(c, "page_table"), Refused(ERROR_MISMATCH, "called without a page_table")),
    ("pages of no rows", |c| pages(c).size = 0, Refused(ERROR_INVALID_VALUE, "page_size 0 must be at least 1")),
    ("no pages", |c| pages(c).count = 0, Refused(ERROR_INVALID_VALUE, "num_pages 0 must be at least 1")),
    ("fewer than no pages", |c| pages(c).count = -1, Refused(ERROR_INVALID_VALUE, "num_pages -1 must be at least 1")),
    (
        "a negative limit on queries",
        |c| pages(c).query_limits = [0, -1],
        Refused(ERROR_INVALID_VALUE, "most_queries -1 must not be negative"),
    ),
    (
        "packed keys in pages",
        |c| c.inputs.push(("cu_seqlens_k", Image::of_integers(&[0, 40]))),
        Refused(ERROR_INVALID_VALUE, "cu_seqlens_k must be NULL with a page_table"),
    ),
];

const OF_FIRST_VERSION: &[Change] = &[(
    "a structure of the first version",
    |c| begin(c, Header::FirstVersion),
    Refused(ERROR_MISMATCH, "called without a page_table"),
)];

impl Pages {
    /// Pages of multiples of 16 rows; the size changes from case to case.
    fn usual(problem: &Problem) -> Self {
        const SIZES: [usize; 4] = [16, 64, 16, 48];
        let keys: usize = problem.sequences.iter().map(|&(_, keys)| keys).sum();
        Self { rows: SIZES[(keys + problem.heads) % SIZES.len()], shared: 0, counter: keys % 2 == 1, descales: None }
    }
}

impl FeatureRoom for Paged {
    fn feature(&self) -> Feature {
        Feature::Paged
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.pages.is_some()
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.pages.map(|Pages { rows, shared, counter, descales }| {
            let shared = if shared == 0 { String::new() } else { format!("-shared{shared}") };
            let descales = descales.map_or("", PageDescales::word);
            format!(" page{rows}{shared}{}{descales}", if counter { "-counter" } else { "" })
        })
    }

    /// `page16`, `page16-shared3`, `page16-shared3-counter`, `page16-k-descales`.
    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        let rest = word.strip_prefix("page")?;
        // The words for only K and for only V end with the word for both.
        let forms = [PageDescales::OfK, PageDescales::OfV, PageDescales::Both];
        let described = forms.into_iter().find_map(|form| Some((rest.strip_suffix(form.word())?, Some(form))));
        let (rest, descales) = described.unwrap_or((rest, None));
        let (sizes, counter) = rest.strip_suffix("-counter").map_or((rest, false), |sizes| (sizes, true));
        let (rows, shared) = sizes.split_once("-shared").unwrap_or((sizes, "0"));
        let numbers = rows.parse().ok().filter(|rows| *rows > 0).zip(shared.parse().ok());
        options.pages = numbers.map(|(rows, shared)| Pages { rows, shared, counter, descales });
        let wrong = || format!("`page{rest}` does not name the rows of a page, as `page16` or `page16-shared3` does");
        Some(options.pages.map(|_| ()).ok_or_else(wrong))
    }

    fn fit(&self, problem: &mut Problem, _kernel: Point) {
        let usual = Pages::usual(problem);
        problem.options.pages.get_or_insert(usual);
        problem.lengths = problem.lengths.without_packed_keys();
    }

    fn complaint(&self, case: &FuzzCase) -> Option<String> {
        case.problem.options.pages?;
        let packed = "keys in pages have no `cu_seqlens_k`: say `cu_seqlens_q+seqused_k` or `seqused`";
        first_of([(case.entry == Entry::Bwd, "`bwd` takes no pages"), (case.problem.is_packed(Side::Key), packed)])
    }

    /// Pages as long as a key tile, shorter, longer, and with more rows than keys; shared pages. Kernels that load
    /// whole tiles support only multiples of 16 rows.
    fn forward(&self, borders: &Borders) -> Vec<Problem> {
        let &Borders { m, n, whole_tiles, .. } = borders;
        let sizes = if whole_tiles { [16, 32, 48, 64, 128, 256, 1024, 20] } else { [1, 7, 16, n, n + 1, 2 * n, 64, 1000] };
        let mut cases: Vec<_> = sizes.into_iter().map(|rows| borders.long().asking(in_pages(rows, 0))).collect();
        // For each size, the last page is full, has one row, or lacks one row.
        let lengths = [n, n + 1, n - 1, 16, 17, 15, 1, 0, 2 * n + 1];
        let ends: Vec<_> = lengths.into_iter().map(|keys| (keys.min(20), keys)).collect();
        let prefix = [(70, 2 * n + 40), (33, n + 50), (17, 3 * n + 2), (1, 5), (2, 0)];
        cases.extend([
            Problem::new(&ends, 2, 1).lengths(Lengths::PackedQuery).asking(in_pages(16, 0)),
            Problem::new(&prefix, 4, 2).lengths(Lengths::PackedQuery).asking(in_pages(16, n / 16 + 1)),
            Problem::new(&prefix, 2, 2).lengths(Lengths::Used).layout(Layout::Padded).asking(in_pages(32, 2)),
            Problem::new(&prefix, 2, 1).lengths(Lengths::PackedQuery).layout(Layout::Bhsd).asking(in_pages(64, 1)),
        ]);
        // More sequences than a warp has lanes, because it counts the work of 32 at once.
        let short = Problem::new(&[(1, 20), (0, 3), (3, 17), (2, 35), (4, 0)], 2, 1).repeated(14).on(2);
        cases.push(short.clone().lengths(Lengths::PackedQuery).asking(in_pages(16, 0)));
        cases.push(short.lengths(Lengths::PackedQuery).asking(by_counter(16, 0)));
        // One long sequence among short ones, with a smaller last group of heads.
        let one_long = [(5, 40), (2 * m + 9, 2 * n + 33), (0, 7), (m + 1, n), (1, 1)];
        for options in [in_pages(16, 0), by_counter(16, 0)] {
            cases.push(Problem::new(&one_long, 6, 3).lengths(Lengths::PackedQuery).asking(options));
        }
        cases.push(
            Problem::new(&[(m + 3, n + 40); 3], 4, 2).lengths(Lengths::Used).layout(Layout::Padded).asking(by_counter(32, 0)),
        );
        // O and LSE of sequences below the minimum of queries must be unchanged; at the minimum they are computed.
        for least in [17, 18] {
            let options = CallOptions { query_limits: [least, 0], ..in_pages(16, 0) };
            cases.push(Problem::new(&prefix, 2, 1).lengths(Lengths::PackedQuery).asking(options));
            cases.push(Problem::new(&prefix, 2, 2).lengths(Lengths::Used).layout(Layout::Padded).asking(options));
        }
        cases
    }

    fn splits(&self) -> Vec<Listed> {
        let mut cases = Vec::new();
        // Pages of one slice, of several, of a size that slices straddle, of one row, and larger than the keys; shared
        // pages.
        for (rows, shared) in [(16, 0), (16, 3), (64, 1), (8, 0), (17, 2), (1, 0), (48, 0), (512, 0)] {
            cases.push((Problem::new(&[(1, 300)], 8, 2).asking(in_pages(rows, shared)), SPLITS, None));
            cases.push((unlike().lengths(Lengths::PackedQuery).asking(in_pages(rows, shared)), 4, Some(counts())));
        }
        // Results of sequences above the maximum of queries must be unchanged; at the maximum they are computed.
        for most in [1, 2, 3] {
            let options = CallOptions { query_limits: [0, most], ..in_pages(16, 0) };
            cases.push((unlike().lengths(Lengths::PackedQuery).asking(options), 4, Some(counts())));
            cases.push((unlike().lengths(Lengths::Used).layout(Layout::Padded).asking(options), SPLITS, None));
        }
        let shares = Problem::new(&[(1, 150), (2, 300), (1, 33)], 4, 2).lengths(Lengths::Used);
        cases.push((shares.clone().layout(Layout::Padded).asking(in_pages(16, 4)), SPLITS, None));
        cases.push((shares.layout(Layout::Unaligned).asking(in_pages(32, 2)), SPLITS, None));
        cases
    }

    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        vec![WITH]
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    /// Mostly pages of 16 rows, as in inference engines.
    fn draw(&self, Draw { rng, .. }: &mut Draw<'_>, options: &mut CallOptions) {
        let odd = rng.random_range(1..100);
        let rows = weighted(rng, &[(8, 16), (3, 32), (3, 64), (2, 128), (1, 256), (1, 48), (1, 1), (2, odd)]);
        let (shared, counter) = (pick(rng, &[0, 0, 0, 1, 3, 10]), once_in(rng, 2));
        options.pages = Some(Pages { rows, shared, counter, descales: None });
    }

    fn fit_drawn(&self, problem: &mut Problem, _head_dim: HeadDim) {
        problem.lengths = problem.lengths.without_packed_keys();
    }

    fn of_first_version(&self) -> Option<&'static [Change]> {
        Some(OF_FIRST_VERSION)
    }

    fn plainer(&self) -> &'static [Simpler] {
        &[
            |options| options.pages.iter_mut().for_each(|pages| pages.shared = 0),
            |options| options.pages.iter_mut().for_each(|pages| pages.rows = 16),
        ]
    }
}

/// A call with pages of this many rows, some of them shared by the sequences.
pub fn in_pages(rows: usize, shared: usize) -> CallOptions {
    CallOptions { pages: Some(Pages { rows, shared, counter: false, descales: None }), ..CallOptions::default() }
}

/// [`in_pages`] with a counter from which blocks take work items.
pub fn by_counter(rows: usize, shared: usize) -> CallOptions {
    CallOptions { pages: Some(Pages { rows, shared, counter: true, descales: None }), ..CallOptions::default() }
}

fn page_table(call: &mut Call) {
    call.inputs.push(("page_table", Image::of_integers(&[0])));
    fwd(call).pages = Some(PagedKeys { table_stride: 1, size: 40, count: 1, ..PagedKeys::default() });
}

/// The pages of a call.
pub fn pages(call: &mut Call) -> &mut PagedKeys {
    fwd(call).pages.as_mut().expect("the kernel reads pages")
}
