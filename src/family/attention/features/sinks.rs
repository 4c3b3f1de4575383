//! Sinks: one extra logit per query head in the softmax denominator.

use super::{
    FeatureRoom, Simpler, named,
    shapes::{Borders, SPLITS, both, decode},
};
use crate::{
    check::{Change, Expected::Refused, Number},
    device::{Call, DTYPE_BF16, DTYPE_FP16, DTYPE_FP32, ERROR_INVALID_VALUE, ERROR_MISMATCH, Field, Image},
    family::attention::{
        CallOptions, Point,
        abi::AttentionFeatures,
        edits::{numbers, push},
        oracle::backward::BackwardProblem,
        oracle::problem::{Inputs, Lengths, Problem, Scale},
        oracle::split::Listed,
        random::Draw,
        random::pick,
    },
    kernel::Feature,
};

/// The feature `sinks`.
pub struct Sinks;

/// The type of the sinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkType {
    /// binary32.
    Fp32,
    /// bfloat16.
    Bf16,
}

impl SinkType {
    const ALL: [Self; 2] = [Self::Fp32, Self::Bf16];

    fn word(self) -> &'static str {
        match self {
            Self::Fp32 => "sinks",
            Self::Bf16 => "sinks-bf16",
        }
    }

    fn number(self) -> Number {
        match self {
            Self::Fp32 => Number::Fp32,
            Self::Bf16 => Number::Bf16,
        }
    }
}

const WITHOUT: &[Change] = &[("sinks", |c| push(c, "sinks"), Refused(ERROR_MISMATCH, "built without the feature `sinks`"))];

const OUT_OF_RANGE: &[Change] =
    &[("sinks in fp16", in_fp16, Refused(ERROR_INVALID_VALUE, "sinks_dtype 0 must be KGEN_DTYPE_FP32"))];

fn in_fp16(call: &mut Call) {
    call.inputs.push(("sinks", Image::of_numbers(&[(0, 1.0)])));
    numbers(call).features.put(DTYPE, Field::I32(DTYPE_FP16));
}

const DTYPE: &str = "features.sinks_dtype";

const NUMBERS: &[(&str, Field)] = &[(DTYPE, Field::I32(DTYPE_FP32))];

impl FeatureRoom for Sinks {
    fn feature(&self) -> Feature {
        Feature::Sinks
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.sinks.is_some()
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.sinks.map(|sinks| format!(" {}", sinks.word()))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        options.sinks = Some(named(SinkType::ALL, word, |sinks| sinks.word())?);
        Some(Ok(()))
    }

    fn numbers(&self) -> &'static [(&'static str, Field)] {
        NUMBERS
    }

    fn enter(&self, options: &CallOptions, _heads: usize, params: &mut AttentionFeatures) {
        params.put(DTYPE, Field::I32(if options.sinks == Some(SinkType::Bf16) { DTYPE_BF16 } else { DTYPE_FP32 }));
    }

    fn tensors(&self, problem: &Problem, _number: Number) -> Vec<(&'static str, Image)> {
        let &Problem { options, heads, .. } = problem;
        let Some(number) = options.sinks.map(SinkType::number) else { return Vec::new() };
        let mut image = Image::poisoned(number.element(), heads, 0);
        for head in 0..heads {
            image.put(head as i64, number.round(options.sink(head).unwrap_or_default() as f32));
        }
        vec![("sinks", image)]
    }

    fn request(&self, options: &mut CallOptions, _n: usize) {
        options.sinks = Some(SinkType::Bf16);
    }

    fn forward(&self, &Borders { m, n, .. }: &Borders) -> Vec<Problem> {
        vec![
            Problem::new(&[(m + 1, n + 17)], 10, 5).asking(sunk(SinkType::Bf16)),
            short(m, n),
            Problem::new(&[(33, 70)], 5, 1).inputs(Inputs::Low, Scale::Usual).asking(sunk(SinkType::Fp32)),
        ]
    }

    fn splits(&self) -> Vec<Listed> {
        vec![(decode(10, 5).asking(sunk(SinkType::Bf16)), SPLITS, None)]
    }

    fn backward(&self, &Borders { m, n, .. }: &Borders) -> Vec<BackwardProblem> {
        let plain = |problem: Problem| BackwardProblem::plain(problem.asking(sunk(SinkType::Fp32)));
        let mut cases = Vec::new();
        cases.extend(both(Problem::new(&[(m + 1, 70)], 10, 5).asking(sunk(SinkType::Bf16))));
        cases.extend(both(short(m, n)));
        cases.push(plain(Problem::new(&[(0, 17); 2], 5, 1)));
        cases.push(plain(Problem::new(&[(17, 17); 3], 5, 5).lengths(Lengths::Used)));
        // Scores of both signs, with sinks far above and far below them. (Low scores give gradients below 2^-126, which
        // the GPU's exponentials flush to zero.)
        cases.push(plain(Problem::new(&[(33, 70)], 5, 1).inputs(Inputs::Large, Scale::Quarter)));
        // dLSE of rows that see no key contributes to the sink's gradient.
        cases.extend(both(short(m, n)).map(BackwardProblem::with_lse_gradient));
        cases.push(BackwardProblem { sink_gradient: false, ..plain(Problem::new(&[(17, 33)], 2, 1)) });
        cases
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        options.sinks = Some(pick(draw.rng, &SinkType::ALL));
    }

    fn out_of_range(&self) -> &'static [Change] {
        OUT_OF_RANGE
    }

    fn leave_out(&self, options: &mut CallOptions) {
        options.sinks = None;
    }

    fn plainer(&self) -> &'static [Simpler] {
        &[|options| options.sinks = options.sinks.map(|_| SinkType::Fp32)]
    }
}

/// A call with sinks.
pub fn sunk(sinks: SinkType) -> CallOptions {
    CallOptions { sinks: Some(sinks), ..CallOptions::default() }
}

/// Rows without keys, where only the sink contributes.
fn short(m: usize, n: usize) -> Problem {
    Problem::new(&[(2 * m, 17), (3, 0), (5, n)], 5, 5).lengths(Lengths::Packed).asking(sunk(SinkType::Fp32))
}

impl CallOptions {
    /// The sink of a query head: from far below the scores to so far above that exp of the difference is 0 in fp32.
    /// Exact in both types.
    pub fn sink(&self, head: usize) -> Option<f64> {
        const LOGITS: [f64; 6] = [0.75, -3.5, 300.0, 40.0, -200.0, 2.0];
        self.sinks.map(|_| LOGITS[head % LOGITS.len()])
    }
}
