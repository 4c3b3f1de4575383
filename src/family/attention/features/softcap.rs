//! Softcap: a score s becomes cap · tanh(s / cap).

use super::{
    FeatureRoom, number_after,
    shapes::{Borders, SPLITS, both, counted, decode},
};
use crate::{
    check::{Change, Expected::Refused},
    device::{Call, ERROR_INVALID_VALUE, ERROR_MISMATCH, Field},
    family::attention::{
        CallOptions, Point,
        abi::AttentionFeatures,
        edits::numbers,
        oracle::backward::BackwardProblem,
        oracle::problem::{Inputs, Problem, Scale},
        oracle::split::Listed,
        random::Draw,
        random::pick,
    },
    kernel::Feature,
};

/// The feature `softcap`.
pub struct Softcap;

const WITHOUT: &[Change] = &[("a softcap", |c| put(c, 0.5), Refused(ERROR_MISMATCH, "built without the feature `softcap`"))];

const OUT_OF_RANGE: &[Change] = &[
    ("a negative softcap", |c| put(c, -1.0), Refused(ERROR_INVALID_VALUE, "softcap -1 must be finite")),
    ("an infinite softcap", |c| put(c, f32::INFINITY), Refused(ERROR_INVALID_VALUE, "softcap inf must")),
    ("a softcap that is no number", |c| put(c, f32::NAN), Refused(ERROR_INVALID_VALUE, "must be finite")),
];

const SOFTCAP: &str = "features.softcap";

const NUMBERS: &[(&str, Field)] = &[(SOFTCAP, Field::F32(0.0))];

fn put(call: &mut Call, softcap: f32) {
    numbers(call).features.put(SOFTCAP, Field::F32(softcap));
}

impl FeatureRoom for Softcap {
    fn feature(&self) -> Feature {
        Feature::Softcap
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.softcap_hundredths > 0
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        (options.softcap_hundredths > 0).then(|| format!(" softcap{}", f64::from(options.softcap_hundredths) / 100.0))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        let cap = number_after::<f64>("softcap", word)?;
        Some(cap.map(|cap| options.softcap_hundredths = (cap * 100.0).round() as u32))
    }

    fn numbers(&self) -> &'static [(&'static str, Field)] {
        NUMBERS
    }

    fn enter(&self, options: &CallOptions, _heads: usize, params: &mut AttentionFeatures) {
        params.put(SOFTCAP, Field::F32(options.softcap()));
    }

    fn request(&self, options: &mut CallOptions, _n: usize) {
        options.softcap_hundredths = 250;
    }

    fn forward(&self, &Borders { n, .. }: &Borders) -> Vec<Problem> {
        vec![
            Problem::new(&[(65, n + 9)], 2, 1).inputs(Inputs::Large, Scale::Quarter).asking(capped(3000)),
            Problem::new(&[(33, 2 * n + 1)], 2, 2).inputs(Inputs::Normal, Scale::One).asking(capped(50)),
            Problem::new(&[(17, n)], 1, 1).inputs(Inputs::Normal, Scale::Zero).asking(capped(200)),
        ]
    }

    fn splits(&self) -> Vec<Listed> {
        vec![
            (Problem::new(&[(5, 257)], 4, 1).inputs(Inputs::Large, Scale::Quarter).asking(capped(3000)), SPLITS, None),
            (Problem::new(&[(3, 203)], 2, 2).inputs(Inputs::Normal, Scale::One).asking(capped(50)), 2, None),
            (counted(decode(4, 2)).asking(capped(200)), SPLITS, None),
        ]
    }

    fn backward(&self, &Borders { m, n, .. }: &Borders) -> Vec<BackwardProblem> {
        let mut cases = Vec::new();
        cases.extend(both(Problem::new(&[(65, n + 9)], 2, 1).inputs(Inputs::Large, Scale::Quarter).asking(capped(3000))));
        cases.extend(both(Problem::new(&[(33, n + 1)], 2, 2).inputs(Inputs::Normal, Scale::One).asking(capped(50))));
        cases.push(BackwardProblem::plain(Problem::new(&[(m + 1, 70)], 2, 1).asking(capped(100))).with_lse_gradient());
        cases.extend(both(Problem::new(&[(17, n)], 1, 1).inputs(Inputs::Normal, Scale::Zero).asking(capped(200))));
        cases
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        options.softcap_hundredths = pick(draw.rng, &[50, 100, 250, 1000, 1500, 3000, 5000, 100_000]);
    }

    fn out_of_range(&self) -> &'static [Change] {
        OUT_OF_RANGE
    }

    fn leave_out(&self, options: &mut CallOptions) {
        options.softcap_hundredths = 0;
    }
}

fn capped(hundredths: u32) -> CallOptions {
    CallOptions { softcap_hundredths: hundredths, ..CallOptions::default() }
}

impl CallOptions {
    /// Softcap as the kernel receives it; 0: none.
    pub fn softcap(&self) -> f32 {
        (f64::from(self.softcap_hundredths) / 100.0) as f32
    }
}
