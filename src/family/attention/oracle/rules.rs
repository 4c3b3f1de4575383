//! Rules for one query head of one sequence: visible keys and scores.

use super::problem::Problem;
use crate::family::attention::{Mask, Score, features::Factors};

/// Mask, score, sink and factors of a head.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The mask, which determines the keys that a row sees.
    pub mask: Mask,
    /// The score of a product.
    pub score: Score,
    /// A logit that joins the denominator of each row.
    pub sink: Option<f64>,
    /// The factors of weights in the product with V; `None`: 1.
    pub factors: Option<Factors>,
}

impl Rules {
    /// The rules for a problem's head; `scale` is the factor on its products.
    pub fn of(problem: &Problem, causal: bool, scale: f64, sequence: usize, head: usize) -> Self {
        Self {
            mask: problem.mask(causal, sequence, head),
            score: problem.score(scale, sequence, head),
            sink: problem.options.sink(head),
            factors: Factors::of(problem.call_head(sequence, head)),
        }
    }

    /// The factor on the weight of a key in the product with V.
    pub fn kept(&self, row: usize, key: usize) -> f64 {
        self.factors.map_or(1.0, |factors| factors.value(row, key))
    }

    /// The rules of a call without features.
    #[cfg(test)]
    pub fn plain(causal: bool, queries: usize, keys: usize, scale: f64) -> Self {
        Self { mask: Mask::new(causal, queries, keys), score: Score::scaled(scale), sink: None, factors: None }
    }
}
