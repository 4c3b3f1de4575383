//! The gradient of a tensor that is added to scores: dS, the gradient of the scores, summed along the axes on which the
//! tensor is broadcast.
//!
//! A kernel rounds P to 16 bits and keeps the rest in fp32. The tolerance is three times the largest error of the naive
//! computations (`gradients`), plus half an ulp of P in each term of a sum, plus the error of fp32 sums in dP - delta.

use super::{gradients::Yardstick, problem::Problem};
use crate::{check::Number, family::attention::features::Broadcast};
use std::collections::BTreeMap;

/// dS of one query head of one sequence, row by row.
#[derive(Debug, Clone, Default)]
pub struct ScoreGradient {
    /// Exact, in float64.
    pub exact: Vec<f64>,
    /// Naive results by each of the two methods.
    pub naive: [Vec<f32>; 2],
    /// Error bound due to fp32 sums.
    pub sum_error: Vec<f64>,
}

impl ScoreGradient {
    /// Zeros, for a head with this many queries and keys.
    pub fn zeros(queries: usize, keys: usize) -> Self {
        let elements = queries * keys;
        Self { exact: vec![0.0; elements], naive: [vec![0.0; elements], vec![0.0; elements]], sum_error: vec![0.0; elements] }
    }

    /// Adds an element: P, dP - delta, and the two naive gradients of the product with its naive slope. The error of
    /// sums is in units of the error of dP - delta.
    pub fn see(&mut self, at: usize, [p, difference]: [f64; 2], naive: [f32; 2], slope: f32) {
        self.exact[at] = p * difference;
        for (into, of_product) in self.naive.iter_mut().zip(naive) {
            into[at] = if slope == 0.0 { self.exact[at] as f32 } else { of_product / slope };
        }
        self.sum_error[at] = p;
    }
}

/// The gradient of a tensor that is added to scores, and its allowed error.
#[derive(Debug, Clone)]
pub struct AddedGradient {
    /// Elements by batch entry, head, row and key of the tensor.
    pub elements: BTreeMap<[usize; 4], f64>,
    /// Allowed error.
    pub tolerance: f64,
}

impl AddedGradient {
    /// The sums over all heads, which are ordered by sequence, then head.
    pub fn sum<'a>(
        places: &Broadcast,
        problem: &Problem,
        number: Number,
        heads: impl Iterator<Item = &'a ScoreGradient>,
    ) -> Self {
        #[derive(Default)]
        struct Sum {
            exact: f64,
            naive: [f32; 2],
            error: f64,
        }
        let mut sums: BTreeMap<[usize; 4], Sum> = BTreeMap::new();
        for (index, of_head) in heads.enumerate() {
            let (sequence, head) = (index / problem.heads, index % problem.heads);
            let (queries, keys) = problem.sequences[sequence];
            for (row, key) in itertools::iproduct!(0..queries, 0..keys) {
                let [b, h, r] = places.index([sequence, head, row]);
                let (sum, at) = (sums.entry([b, h, r, key]).or_default(), row * keys + key);
                sum.exact += of_head.exact[at];
                (0..2).for_each(|way| sum.naive[way] += of_head.naive[way][at]);
                sum.error += number.unit_roundoff() * of_head.exact[at].abs() + of_head.sum_error[at];
            }
        }
        let mut yardstick = Yardstick::default();
        for sum in sums.values() {
            sum.naive.iter().for_each(|&naive| yardstick.see(&[sum.exact], &[naive]));
        }
        let error = sums.values().map(|sum| sum.error).fold(0.0, f64::max);
        let tolerance = yardstick.tolerance(Number::Fp32) + error;
        Self { elements: sums.into_iter().map(|(place, sum)| (place, sum.exact)).collect(), tolerance }
    }
}
