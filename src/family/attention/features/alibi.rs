//! `ALiBi`: each score is reduced by slope · distance between query and key.

use super::{
    FeatureRoom, Simpler, named,
    shapes::{Borders, SPLITS, both, counted, counts, unlike},
};
use crate::{
    check::{Change, Expected::Refused, Number},
    device::{ERROR_MISMATCH, Field, Image},
    family::attention::{
        CallOptions, Point, abi::AttentionFeatures, edits::push, oracle::backward::BackwardProblem, oracle::problem::Problem,
        oracle::split::Listed, random::Draw, random::pick,
    },
    kernel::Feature,
};

/// The feature `alibi`.
pub struct Alibi;

/// Layout of the slopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slopes {
    /// One slope per query head, shared by all batch entries.
    ByHead,
    /// One slope per batch entry and query head.
    ByBatchAndHead,
}

impl Slopes {
    const ALL: [Self; 2] = [Self::ByHead, Self::ByBatchAndHead];

    fn word(self) -> &'static str {
        match self {
            Self::ByHead => "alibi",
            Self::ByBatchAndHead => "alibi-by-batch",
        }
    }
}

const WITHOUT: &[Change] =
    &[("slopes", |c| push(c, "alibi_slopes"), Refused(ERROR_MISMATCH, "built without the feature `alibi`"))];

const BATCH_STRIDE: &str = "features.alibi_batch_stride";

const NUMBERS: &[(&str, Field)] = &[(BATCH_STRIDE, Field::I64(0))];

/// Stride in floats between the slopes of batch entries; 0: all share them.
fn batch_stride(options: &CallOptions, heads: usize) -> i64 {
    if options.alibi == Some(Slopes::ByBatchAndHead) { heads as i64 + 3 } else { 0 }
}

impl FeatureRoom for Alibi {
    fn feature(&self) -> Feature {
        Feature::Alibi
    }

    fn is_wanted(&self, options: &CallOptions, _causal: bool) -> bool {
        options.alibi.is_some()
    }

    fn words(&self, options: &CallOptions) -> Option<String> {
        options.alibi.map(|slopes| format!(" {}", slopes.word()))
    }

    fn read(&self, word: &str, options: &mut CallOptions) -> Option<Result<(), String>> {
        options.alibi = Some(named(Slopes::ALL, word, |slopes| slopes.word())?);
        Some(Ok(()))
    }

    fn numbers(&self) -> &'static [(&'static str, Field)] {
        NUMBERS
    }

    fn enter(&self, options: &CallOptions, heads: usize, params: &mut AttentionFeatures) {
        params.put(BATCH_STRIDE, Field::I64(batch_stride(options, heads)));
    }

    fn tensors(&self, problem: &Problem, _number: Number) -> Vec<(&'static str, Image)> {
        let &Problem { options, heads, .. } = problem;
        if options.alibi.is_none() {
            return Vec::new();
        }
        let stride = batch_stride(&options, heads);
        let rows = if stride == 0 { 1 } else { problem.sequences.len() };
        let slope = |(b, h): (usize, usize)| (b as i64 * stride + h as i64, options.slope(b, h));
        vec![("alibi_slopes", Image::of_numbers(&itertools::iproduct!(0..rows, 0..heads).map(slope).collect::<Vec<_>>()))]
    }

    fn request(&self, options: &mut CallOptions, _n: usize) {
        options.alibi = Some(Slopes::ByBatchAndHead);
    }

    fn forward(&self, borders: &Borders) -> Vec<Problem> {
        let &Borders { m, n, .. } = borders;
        vec![
            Problem::new(&[(m + 1, 2 * n + 3)], 8, 2).asking(sloped(Slopes::ByHead)),
            borders.batch().asking(sloped(Slopes::ByBatchAndHead)),
            counted(Problem::new(&[(n + 1, 17)], 2, 2)).asking(sloped(Slopes::ByHead)),
        ]
    }

    fn splits(&self) -> Vec<Listed> {
        vec![
            (Problem::new(&[(5, 257)], 8, 2).asking(sloped(Slopes::ByHead)), SPLITS, None),
            (Problem::new(&[(3, 203); 3], 8, 1).asking(sloped(Slopes::ByBatchAndHead)), 2, None),
            (Problem::new(&[(19, 113)], 3, 3).asking(sloped(Slopes::ByHead)), 2, None),
            (unlike().asking(sloped(Slopes::ByBatchAndHead)), 4, Some(counts())),
            // A group size that does not divide 8: rows 8 apart belong to different heads.
            (Problem::new(&[(7, 113)], 6, 2).asking(sloped(Slopes::ByHead)), 2, None),
            (counted(Problem::new(&[(40, 17)], 2, 2)).asking(sloped(Slopes::ByHead)), 2, None),
        ]
    }

    fn backward(&self, borders: &Borders) -> Vec<BackwardProblem> {
        let m = borders.m;
        let problems = [
            Problem::new(&[(m + 1, 33)], 8, 2).asking(sloped(Slopes::ByHead)),
            borders.packed().asking(sloped(Slopes::ByBatchAndHead)),
            counted(Problem::new(&[(m + 1, 17)], 2, 2)).asking(sloped(Slopes::ByHead)),
        ];
        problems.into_iter().flat_map(both).collect()
    }

    fn without(&self, _kernel: Point) -> &'static [Change] {
        WITHOUT
    }

    fn draw(&self, draw: &mut Draw<'_>, options: &mut CallOptions) {
        options.alibi = Some(pick(draw.rng, &Slopes::ALL));
    }

    fn leave_out(&self, options: &mut CallOptions) {
        options.alibi = None;
    }

    fn plainer(&self) -> &'static [Simpler] {
        &[|options| options.alibi = options.alibi.map(|_| Slopes::ByHead)]
    }
}

fn sloped(slopes: Slopes) -> CallOptions {
    CallOptions { alibi: Some(slopes), ..CallOptions::default() }
}

impl CallOptions {
    /// The slope of a sequence's query head; 0 if the call has no slopes. Powers of two down to 2⁻⁸, as in the paper
    /// (Press et al. 2021, section 3), times 1, 1.5 or 2 if batch entries have separate slopes. Every third head has a
    /// negative slope, so small that its term at the furthest key is no larger than the scores; otherwise a 16-bit
    /// reference would be too inaccurate.
    pub fn slope(&self, sequence: usize, head: usize) -> f32 {
        let rises = head % 3 == 1;
        let of_head = if rises { -(0.5_f32.powi(6 + head as i32 / 3 % 3)) } else { 0.5_f32.powi(head as i32 % 8 + 1) };
        match self.alibi {
            None => 0.0,
            Some(Slopes::ByHead) => of_head,
            Some(Slopes::ByBatchAndHead) => of_head * (1.0 + (sequence % 3) as f32 / 2.0),
        }
    }
}
