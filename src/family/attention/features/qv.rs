//! `qv`: queries have a second part that is multiplied by V (MLA).

use super::{FeatureRoom, first_of};
use crate::{
    check::{Change, Expected::Refused, drop_tensor},
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH},
    family::attention::{
        CallOptions, Point,
        abi::Strides,
        edits::{BEYOND_MEMORY, fwd, push},
        fuzz::{Entry, FuzzCase},
        oracle::problem::Problem,
        random::Draw,
    },
    kernel::Feature,
};

/// The feature `qv`. Its kernels have separate cases (`cases/mla_cases.rs`).
pub struct Qv;

/// Invalid calls to kernels without `qv`.
const WITHOUT: &[Change] =
    &[("queries of two parts", |c| push(c, "qv"), Refused(ERROR_MISMATCH, "built without the feature `qv`"))];

/// Invalid calls to kernels with `qv`.
const WITH: &[Change] = &[
    ("queries of one part", |c| drop_tensor(c, "qv"), Refused(ERROR_MISMATCH, "called without qv")),
    ("rows of qv beyond all memory", |c| qv(c).row = BEYOND_MEMORY, Refused(ERROR_INVALID_VALUE, "qv_row_stride 1152")),
    ("heads of qv beyond all memory", |c| qv(c).head = BEYOND_MEMORY, Refused(ERROR_INVALID_VALUE, "qv_head_stride 1152")),
];

impl FeatureRoom for Qv {
    fn feature(&self) -> Feature {
        Feature::Qv
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.qv
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.qv.then(|| " qv".to_owned())
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        options.qv |= word == "qv";
        (word == "qv").then_some(Ok(()))
    }

    fn fit(&self, problem: &mut Problem, _kernel: Point) {
        problem.options.qv = true;
    }

    fn complaint(&self, case: &FuzzCase) -> Option<String> {
        first_of([(case.problem.options.qv && case.entry == Entry::Bwd, "`bwd` has no `qv`")])
    }

    fn with(&self, _kernel: Point) -> Vec<&'static [Change]> {
        vec![WITH]
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn draw(&self, _draw: &mut Draw<'_>, options: &mut CallOptions) {
        options.qv = true;
    }
}

fn qv(call: &mut Call) -> &mut Strides {
    fwd(call).qv_strides.as_mut().expect("its queries have two parts")
}
