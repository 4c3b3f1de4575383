//! FP8 K and V with 16-bit queries.

use super::{
    FeatureRoom, first_of, named,
    shapes::{Borders, SPLITS, UNLIKE, counted, counts},
};
use crate::{
    check::{Change, Expected::Refused, begin},
    device::{DTYPE_FP8_E4M3, DTYPE_FP8_E5M2, DTYPE_FP32, ERROR_INVALID_VALUE, ERROR_MISMATCH, Header},
    family::attention::{
        CallOptions, KvFormat, Point,
        edits::fwd,
        fuzz::{Entry, FuzzCase},
        oracle::split::Listed,
        oracle::{
            descale::Descales,
            problem::{Inputs, Layout, Lengths, Problem, Scale},
        },
        random::Draw,
    },
    kernel::Feature,
};

/// The feature for a format.
pub struct Kv(KvFormat);

/// The feature `kv_e4m3`.
pub const E4M3: Kv = Kv(KvFormat::E4m3);

/// The feature `kv_e5m2`.
pub const E5M2: Kv = Kv(KvFormat::E5m2);

/// Invalid calls to kernels with K and V of Q's type.
const WITHOUT: &[Change] = &[
    ("K and V in E4M3", |c| fwd(c).kv_dtype = DTYPE_FP8_E4M3, Refused(ERROR_MISMATCH, "built without the feature `kv_e4m3`")),
    ("K and V in E5M2", |c| fwd(c).kv_dtype = DTYPE_FP8_E5M2, Refused(ERROR_MISMATCH, "built without the feature `kv_e5m2`")),
    ("K and V in fp32", |c| fwd(c).kv_dtype = DTYPE_FP32, Refused(ERROR_INVALID_VALUE, "kv_dtype 3 must be")),
];

/// Invalid calls to kernels with E4M3.
const WITH_E4M3: &[Change] = &[
    ("K and V of the type of Q", |c| fwd(c).kv_dtype = 0, Refused(ERROR_MISMATCH, "called without kv_dtype KGEN_DTYPE_FP8_E4M3")),
    ("K and V in E5M2", |c| fwd(c).kv_dtype = DTYPE_FP8_E5M2, Refused(ERROR_MISMATCH, "built without the feature `kv_e5m2`")),
];

/// Invalid calls to kernels with E5M2.
const WITH_E5M2: &[Change] = &[
    ("K and V of the type of Q", |c| fwd(c).kv_dtype = 0, Refused(ERROR_MISMATCH, "called without kv_dtype KGEN_DTYPE_FP8_E5M2")),
    ("K and V in E4M3", |c| fwd(c).kv_dtype = DTYPE_FP8_E4M3, Refused(ERROR_MISMATCH, "built without the feature `kv_e4m3`")),
];

const OF_FIRST_VERSION: &[Change] = &[(
    "a structure of the first version",
    |c| begin(c, Header::FirstVersion),
    Refused(ERROR_MISMATCH, "called without kv_dtype KGEN_DTYPE_FP8_E"),
)];

impl FeatureRoom for Kv {
    fn feature(&self) -> Feature {
        self.0.feature()
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.kv == Some(self.0)
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.kv.filter(|format| *format == self.0).map(|format| format!(" {}", format.word()))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        options.kv = Some(named([self.0], word, |format| format.word())?);
        Some(Ok(()))
    }

    fn fit(&self, problem: &mut Problem, _kernel: Point) {
        problem.options.kv = Some(self.0);
        problem.fp8 = problem.fp8.or_else(|| Some(usual_descales(problem)));
    }

    fn complaint(&self, case: &FuzzCase) -> Option<String> {
        let is_wanted = self.is_wanted(&case.problem.options, case.causal);
        first_of([(is_wanted && case.entry == Entry::Bwd, "`bwd` takes no K and V in fp8")])
    }

    fn forward(&self, &Borders { m, n, .. }: &Borders) -> Vec<Problem> {
        let mut cases = in_bytes(&[(m + 1, 2 * n + 9), (17, n), (0, 3), (1, 3 * n + 2), (9, 0)]);
        cases.push(counted(Problem::new(&[(m + 1, 2 * n + 3); 2], 4, 2)).in_fp8(Descales::ByHead));
        cases
    }

    fn splits(&self) -> Vec<Listed> {
        splits_of_bytes().collect()
    }

    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        vec![if self.0 == KvFormat::E4m3 { WITH_E4M3 } else { WITH_E5M2 }]
    }

    /// Kernels of either format refuse the other one; for kernels with neither, the changes are listed once.
    fn without(&self, kernel: Point) -> &'static [Change] {
        if self.0 == KvFormat::E4m3 && KvFormat::of(kernel.features).is_none() { WITHOUT } else { &[] }
    }

    fn draw(&self, _draw: &mut Draw<'_>, options: &mut CallOptions) {
        options.kv = Some(self.0);
    }

    fn of_first_version(&self) -> Option<&'static [Change]> {
        Some(OF_FIRST_VERSION)
    }
}

/// Descales that alternate from case to case.
fn usual_descales(problem: &Problem) -> Descales {
    const WAYS: [Descales; 4] = [Descales::ByHead, Descales::Uniform, Descales::ByHead, Descales::Absent];
    let keys: usize = problem.sequences.iter().map(|&(_, keys)| keys).sum();
    WAYS[(keys + problem.heads_k) % WAYS.len()]
}

/// Cases of splits for K and V in FP8.
pub fn splits_of_bytes() -> impl Iterator<Item = Listed> {
    let unlike = in_bytes(&UNLIKE).into_iter().map(|problem| (problem, 4, Some(counts())));
    let counted = counted(Problem::new(&[(1, 203); 3], 8, 2)).in_fp8(Descales::ByHead);
    unlike.chain([(counted, SPLITS, None)])
}

/// Every layout of the descales of FP8 K and V, for sequences of unequal lengths; one-hot columns, in views with gaps
/// and in views without 16-byte alignment; V with the maximum of E4M3.
fn in_bytes(sequences: &[(usize, usize)]) -> Vec<Problem> {
    let problem = |heads, heads_k| Problem::new(sequences, heads, heads_k).lengths(Lengths::PackedQuery);
    vec![
        problem(4, 2).in_fp8(Descales::ByHead),
        problem(2, 2).in_fp8(Descales::Uniform).layout(Layout::Bhsd),
        problem(4, 1).in_fp8(Descales::Absent),
        problem(4, 2).in_fp8(Descales::ByHead).inputs(Inputs::OneHot, Scale::One).layout(Layout::Padded),
        problem(2, 1).in_fp8(Descales::ByHead).inputs(Inputs::OneHot, Scale::One).layout(Layout::Unaligned),
        problem(2, 1).in_fp8(Descales::ByHead).inputs(Inputs::Widest, Scale::Zero),
    ]
}
