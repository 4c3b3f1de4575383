//! Timing of kernels with a declared score: typical values of the score's parameters, and the pairs left by its mask.

use super::Shape;
use crate::{
    expression::{Expr, Work},
    family::attention::abi::SCORE_TABLES,
    family::attention::{DeclaredCall, DeclaredRule, Kind, Mask, Point},
};

/// Rows examined to count the pairs left by a declared mask. A mask is tested key by key; a row of 16384 keys takes
/// about a millisecond.
const COUNTED_ROWS: usize = 256;

/// Rows per head for which an approximate log-sum-exp is computed; rows between them use the nearest.
const LIKELY_ROWS: usize = 32;

/// The call used to time a kernel with a declared score; `None` for any other kernel.
pub fn call_of(variant: &Point) -> Option<DeclaredCall> {
    variant.features.score().map(DeclaredCall::usual)
}

/// The score's rule for a head of a sequence, if there is a declared score.
pub fn rule_of(variant: &Point, shape: &Shape, sequence: usize, head: usize) -> Option<DeclaredRule> {
    call_of(variant).map(|call| call.rule(sequence, head, shape.seqlen_q as usize, shape.seqlen_k as usize))
}

/// The tables of the call, by their names in `kgen.h`: one number per query head.
pub fn tables(variant: &Point, shape: &Shape) -> Vec<(&'static str, Vec<u8>)> {
    let Some(call) = call_of(variant) else { return Vec::new() };
    let table = |index| (0..shape.heads as usize).flat_map(|head| call.table(index, head).to_le_bytes()).collect();
    SCORE_TABLES.into_iter().enumerate().take(call.tables()).map(|(index, name)| (name, table(index))).collect()
}

/// Floating-point operations that a declared score adds per pair: those of the score forward, of the score and its
/// derivative backward. 0 without a declared score.
pub fn flops_per_pair(variant: &Point) -> u32 {
    let Some(score) = variant.features.score() else { return 0 };
    let derivative = score.derivative().filter(|_| variant.kind == Kind::Bwd);
    let expressions: Vec<&Expr> = score.score.iter().chain(derivative).chain(&score.mask).collect();
    Work::of(&expressions).flops
}

/// Number of (query, key) pairs of all heads and sequences that a declared mask leaves. Of many rows, evenly spaced
/// ones are sampled.
pub fn pairs(variant: &Point, shape: &Shape) -> f64 {
    let [batch, heads, queries, keys] = [shape.batch, shape.heads, shape.seqlen_q, shape.seqlen_k].map(|n| n as usize);
    let mask = Mask::new(variant.causal, queries, keys);
    let rows = batch * heads * queries;
    let counted = rows.min(COUNTED_ROWS);
    let count = |part: usize| {
        let number = (2 * part + 1) * rows / (2 * counted);
        let (row, head, sequence) = (number % queries, number / queries % heads, number / queries / heads);
        let rule = rule_of(variant, shape, sequence, head);
        let position = mask.position(row);
        mask.keys(row).filter(|key| rule.is_none_or(|rule| rule.sees(position, *key))).count() as f64
    };
    (0..counted).map(count).sum::<f64>() * rows as f64 / counted as f64
}

/// Approximate log-sum-exp of each row of a head for normal scaled products: ln Σ e^(score at 0) + 1/2. Finite even for
/// a row that sees nothing, because it is used for neighbouring rows too.
pub fn likely_lse(variant: &Point, shape: &Shape, head: usize) -> Vec<f32> {
    let (queries, keys) = (shape.seqlen_q as usize, shape.seqlen_k as usize);
    let mask = Mask::new(variant.causal, queries, keys);
    let rule = rule_of(variant, shape, 0, head);
    let likely = |row: usize| {
        let position = mask.position(row);
        let score = |key| rule.map_or(0.0, |rule| rule.of(0.0, position, key));
        let scores: Vec<f64> = mask.keys(row).map(score).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lse = max + scores.iter().map(|score| (score - max).exp()).sum::<f64>().ln();
        if lse.is_finite() { lse as f32 + 0.5 } else { 0.5 }
    };
    let step = queries.div_ceil(LIKELY_ROWS);
    (0..queries)
        .step_by(step)
        .flat_map(|first| {
            let end = queries.min(first + step);
            vec![likely(usize::midpoint(first, end)); end - first]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        expression::{Declared, KeptScore, List, UserScore},
        kernel::{Dtype, Features, HeadDim, Target},
    };

    const SHAPE: Shape = Shape { batch: 2, heads: 4, heads_k: 2, seqlen_q: 50, seqlen_k: 70, page_size: 0 };

    fn variant(kind: Kind, score: Option<&str>, mask: Option<&str>) -> Point {
        let mut names = Declared::default();
        if score.is_some() {
            names.declare(List::Tables, "slope").expect("it is a name");
        }
        let score = KeptScore::of(UserScore::of("timed", names, score, mask).expect("it reads"));
        let features = Features::NONE.with_score(Some(score));
        Point { kind, head_dim: HeadDim::equal(64), dtype: Dtype::Bf16, causal: false, features, target: Target::Sm80 }
    }

    #[test]
    fn pairs_are_those_that_the_mask_leaves_counted_where_they_are_few_and_estimated_where_they_are_many() {
        let masked = variant(Kind::Fwd, None, Some("k <= q and q - k < 10"));
        // Every query is at position 20 or later: 10 keys each.
        assert_eq!(pairs(&masked, &SHAPE), 2.0 * 4.0 * 50.0 * 10.0);
        let long = Shape { seqlen_q: 1000, seqlen_k: 1000, ..SHAPE };
        let exact = 2.0 * 4.0 * (1000.0 * 10.0 - 45.0);
        assert!((pairs(&masked, &long) / exact - 1.0).abs() < 0.02);
        let by_head = variant(Kind::Fwd, None, Some("k < 10 * h"));
        assert_eq!(pairs(&by_head, &Shape { batch: 1, seqlen_q: 2, ..SHAPE }), 2.0 * (0.0 + 10.0 + 20.0 + 30.0));
    }

    #[test]
    fn a_backward_kernel_computes_the_derivative_too_and_tables_have_a_number_per_query_head() {
        let score = Some("s * s - slope[h] * abs(q - k)");
        let [forward, backward] = [Kind::Fwd, Kind::Bwd].map(|kind| flops_per_pair(&variant(kind, score, None)));
        assert!(forward >= 3 && backward > forward, "{forward} {backward}");
        assert_eq!(flops_per_pair(&variant(Kind::Fwd, None, Some("k <= q"))), 0);
        let tables = tables(&variant(Kind::Fwd, score, None), &SHAPE);
        assert_eq!((tables.len(), tables[0].0, tables[0].1.len()), (1, "score_table0", 16));
    }

    #[test]
    fn a_likely_lse_is_that_of_the_declared_score_and_finite_where_nothing_is_seen() {
        let likely = likely_lse(&variant(Kind::Bwd, None, Some("k < 8 and q > 40")), &SHAPE, 0);
        assert_eq!(likely.len(), 50);
        assert!(likely[0] == 0.5 && (likely[49] - (8.0_f32.ln() + 0.5)).abs() < 1e-6, "{likely:?}");
    }
}
