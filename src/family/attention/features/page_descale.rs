//! Descale factors per page of FP8 K and V.

use super::{
    FeatureRoom, Simpler, first_of,
    paged::{Pages, pages},
    shapes::{Borders, UNLIKE, counts},
};
use crate::{
    check::{Change, Expected::Refused, drop_tensor},
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH},
    family::attention::{
        CallOptions, Point,
        edits::BEYOND_MEMORY,
        edits::numbers,
        edits::push,
        fuzz::FuzzCase,
        oracle::split::Listed,
        oracle::split::SPLIT_KEYS,
        oracle::{
            descale::Descales,
            problem::{Inputs, Layout, Lengths, Problem, Scale},
        },
        random::Draw,
        random::pick,
    },
    kernel::Feature,
};

/// The feature `page_descale`.
pub struct PageDescale;

/// The tensors with factors per page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageDescales {
    /// Factors of K and of V.
    Both,
    /// Factors of K only.
    OfK,
    /// Factors of V only.
    OfV,
}

impl PageDescales {
    /// Every form.
    pub const ALL: [Self; 3] = [Self::Both, Self::OfK, Self::OfV];

    /// The suffix of the pages' word in case names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Both => "-descales",
            Self::OfK => "-k-descales",
            Self::OfV => "-v-descales",
        }
    }

    /// True if tensor number `tensor` (Q, K, V) has factors per page.
    pub fn has(self, tensor: usize) -> bool {
        match self {
            Self::Both => matches!(tensor, 1 | 2),
            Self::OfK => tensor == 1,
            Self::OfV => tensor == 2,
        }
    }
}

/// Invalid calls to kernels without factors per page.
const WITHOUT: &[Change] = &[
    ("factors of K by page", |c| push(c, "k_page_descale"), Refused(ERROR_MISMATCH, "built without the feature `page_descale`")),
    ("factors of V by page", |c| push(c, "v_page_descale"), Refused(ERROR_MISMATCH, "built without the feature `page_descale`")),
];

/// Invalid calls to kernels with factors per page. There are two key heads, so that the head stride matters.
const WITH: &[Change] = &[
    (
        "factors of K beyond all memory",
        |c| page_factors(c, 0, "k_page_descale"),
        Refused(ERROR_INVALID_VALUE, "k_page_descale_head_stride 1152"),
    ),
    (
        "factors of V beyond all memory",
        |c| page_factors(c, 1, "v_page_descale"),
        Refused(ERROR_INVALID_VALUE, "v_page_descale_head_stride 1152"),
    ),
];

impl FeatureRoom for PageDescale {
    fn feature(&self) -> Feature {
        Feature::PageDescale
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.pages.is_some_and(|pages| pages.descales.is_some())
    }

    /// Used in some of the cases.
    fn fit(&self, problem: &mut Problem, _kernel: Point) {
        let keys: usize = problem.sequences.iter().map(|&(_, keys)| keys).sum();
        let usual = PageDescales::ALL.get((keys + problem.heads) % (PageDescales::ALL.len() + 1)).copied();
        problem.options.pages.iter_mut().for_each(|pages| pages.descales = pages.descales.or(usual));
    }

    fn complaint(&self, case: &FuzzCase) -> Option<String> {
        let options = &case.problem.options;
        let of_wide = self.is_wanted(options, case.causal) && options.kv.is_none();
        first_of([(of_wide, "descales of pages belong to K and V in fp8: say `kv-e4m3` or `kv-e5m2`")])
    }

    fn forward(&self, &Borders { m, n, .. }: &Borders) -> Vec<Problem> {
        descaled_by_page(&[(m + 1, 2 * n + 9), (17, n), (0, 3), (1, 3 * n + 2), (9, 0)], n)
    }

    fn splits(&self) -> Vec<Listed> {
        descaled_by_page(&UNLIKE, SPLIT_KEYS).into_iter().map(|problem| (problem, 4, Some(counts()))).collect()
    }

    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        vec![WITH]
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    /// Mostly used; a kernel with the feature also serves calls without factors.
    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        let [both, of_k, of_v] = PageDescales::ALL.map(Some);
        let drawn = pick(draw.rng, &[both, both, of_k, of_v, None]);
        options.pages.iter_mut().for_each(|pages| pages.descales = drawn);
    }

    fn plainer(&self) -> &'static [Simpler] {
        &[|options| options.pages.iter_mut().for_each(|pages| pages.descales = None)]
    }
}

/// A call with paged K and V and factors per page.
fn with_descales(rows: usize, shared: usize, descales: PageDescales) -> CallOptions {
    CallOptions { pages: Some(Pages { rows, shared, counter: false, descales: Some(descales) }), ..CallOptions::default() }
}

/// Factors per page for each tensor alone and for both, with pages as long as tiles, shorter and longer, and with
/// shared pages; and contents that differ between pages only in the factors.
fn descaled_by_page(sequences: &[(usize, usize)], n: usize) -> Vec<Problem> {
    let problem = || Problem::new(sequences, 4, 2).lengths(Lengths::PackedQuery);
    let alike = |rows, descales| problem().inputs(Inputs::Constant, Scale::One).asking(with_descales(rows, 0, descales));
    let mut cases: Vec<_> = [1, 16, 48, n, 256].map(|rows| problem().asking(with_descales(rows, 0, PageDescales::Both))).into();
    cases.extend([
        alike(16, PageDescales::OfK),
        alike(16, PageDescales::OfV),
        alike(7, PageDescales::Both),
        problem().in_fp8(Descales::ByHead).asking(with_descales(16, 2, PageDescales::Both)),
        problem().in_fp8(Descales::Absent).layout(Layout::Padded).asking(with_descales(32, 1, PageDescales::OfV)),
        problem().in_fp8(Descales::Uniform).layout(Layout::Unaligned).asking(with_descales(16, 0, PageDescales::OfK)),
        problem().inputs(Inputs::Falling, Scale::Usual).asking(with_descales(16, 0, PageDescales::Both)),
    ]);
    cases
}

fn page_factors(call: &mut Call, tensor: usize, name: &'static str) {
    drop_tensor(call, name);
    push(call, name);
    *numbers(call).num_heads_k = 2;
    pages(call).descale_strides[tensor][1] = BEYOND_MEMORY;
}
