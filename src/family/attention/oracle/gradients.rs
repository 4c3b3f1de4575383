//! The gradients of attention in float64 from the rounded inputs, and the same computed naively in 16 bits, whose error
//! determines the tolerance of a backward kernel.
//!
//! The rule is from `FlashAttention`'s own tests: at most three times the largest naive error. There are two naive
//! methods, and the larger error counts: delta as in the gradient of softmax, Σ P dP, or as in every fused kernel, Σ O
//! dO from a rounded O, which adds an error that the first method lacks. Since some cases are exact with naive
//! arithmetic, these terms are added:
//! * twice the error of rounding to 16 bits at the reference's largest magnitude;
//! * three times the error of rounding the largest dS to 16 bits, propagated to dQ by K and to dK by Q: if equal
//!   weights and exact numbers make the terms of a sum cancel, the naive rounding errors cancel too, and a kernel's
//!   need not;
//! * the error of fp32 sums: delta cancels dP = dO Vᵀ only to 2⁻²⁰ · (max‖dO‖ · max‖v‖ + max |dLSE|) (tensor cores
//!   truncate, relative to the largest term), and K or Q carry that to dQ or dK;
//! * for capped or declared scores, the errors of the GPU's `tanh` (PTX ISA) and of a declared score's fp32 steps
//!   (`expression::rounding`), propagated through P and dS to every element: the kernel gets the exact LSE, so errors
//!   shared by all scores of a row do not cancel as they do in the naive computation.
//!
//! The sinks' gradient is fp32: three times the largest naive error, for which one method rounds P of the sink to 16
//! bits and the other takes delta from a rounded O; twice the error of rounding it to fp32; and the error of fp32 sums:
//! 2⁻²⁰ of the sum of all terms' magnitudes, and numbers below 2⁻¹²⁶, which are flushed to zero.

#![allow(clippy::large_types_passed_by_value, reason = "rules are passed once for each head, not for each element")]

use super::{
    addition_gradient::{AddedGradient, ScoreGradient},
    dims::Dims,
    problem::Problem,
    reference::{dot, dot32, longest_row},
    rules::Rules,
    tensors::Values,
};
use crate::{
    check::Number,
    family::attention::{Score, features::addition_gradients},
};
use rayon::prelude::*;
use std::ops::Range;

/// Q, K, V and dO of one case.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Q.
    pub q: &'a Values,
    /// K.
    pub k: &'a Values,
    /// V.
    pub v: &'a Values,
    /// dO.
    pub dout: &'a Values,
    /// dLSE, one number per row; `None` if it is 0.
    pub dlse: Option<&'a Values>,
}

/// The correct results of one case, and the tolerance.
#[derive(Debug, Clone)]
pub struct Gradients {
    queries: Vec<QueryHead>,
    keys: Vec<KeyHead>,
    heads: usize,
    heads_k: usize,
    /// Allowed errors of dQ, dK and dV.
    pub tolerance: [f64; 3],
    /// The gradient of each query head's sink; 0 if there are no sinks.
    pub sinks: Vec<f64>,
    /// Allowed error of the sinks' gradients.
    pub sink_tolerance: f64,
    /// The gradients of the tensors that are added to scores, in the order of [`addition_gradients`].
    pub additions: Vec<AddedGradient>,
}

/// The results for one query head of one sequence, in rows.
#[derive(Debug, Clone)]
pub struct QueryHead {
    /// The forward pass's output.
    pub o: Vec<f64>,
    /// Log-sum-exp of each row; -∞ for a row that sees no key.
    pub lse: Vec<f64>,
    /// dQ.
    pub dq: Vec<f64>,
}

/// The results for one key head of one sequence, in rows.
#[derive(Debug, Clone)]
pub struct KeyHead {
    /// dK.
    pub dk: Vec<f64>,
    /// dV.
    pub dv: Vec<f64>,
}

/// The contribution of one query head, exact and naive.
struct Pass {
    query: QueryHead,
    key: KeyHead,
    /// dQ, dK and dV by each of the two methods.
    naive: [[Vec<f32>; 3]; 2],
    /// Errors of dQ and dK due to fp32 sums in dS and its rounding.
    sum_error: [f64; 2],
    /// Errors of dQ, dK and dV due to the GPU's `tanh`.
    tanh_error: [f64; 3],
    sink: SinkGradient,
    /// dS, if tensors are added to the scores.
    scores: Option<ScoreGradient>,
}

/// Contribution of one query head of one sequence to the gradient of the head's sink.
#[derive(Debug, Clone, Copy, Default)]
struct SinkGradient {
    exact: f64,
    /// Contribution by each of the two methods.
    naive: [f32; 2],
    /// Sum of the magnitudes of the terms.
    terms: f64,
    /// Error due to flushing P and its products to zero.
    flushed: f64,
}

impl SinkGradient {
    /// Adds a row: exact and naive P of the sink and delta, and the sum of |O dO|.
    fn see_row(&mut self, p: f64, delta: f64, naive_p: f32, naive_deltas: [f32; 2], terms: f64) {
        self.exact -= p * delta;
        self.naive[0] -= naive_p * naive_deltas[0];
        self.naive[1] -= p as f32 * naive_deltas[1];
        self.terms += p * terms;
        self.flushed += f64::from(f32::MIN_POSITIVE) * (1.0 + terms);
    }
}

impl Gradients {
    /// Computes the gradients, in parallel over heads.
    pub fn compute(problem: &Problem, inputs: Inputs<'_>, head_dim: impl Into<Dims>, number: Number, causal: bool) -> Self {
        let head_dim = head_dim.into();
        let scale = problem.softmax_scale(head_dim.qk);
        let (heads, heads_k) = (problem.heads, problem.heads_k);
        let group = heads / heads_k;
        let passes: Vec<Pass> = (0..problem.sequences.len() * heads)
            .into_par_iter()
            .map(|index| {
                let (sequence, head) = (index / heads, index % heads);
                let [q, dout] = [inputs.q, inputs.dout].map(|values| values.head(sequence, head));
                let [k, v] = [inputs.k, inputs.v].map(|values| values.head(sequence, head / group));
                let rules = Rules::of(problem, causal, f64::from(scale), sequence, head);
                let dlse = inputs.dlse.map(|values| values.head(sequence, head));
                differentiate(Rows { q, k, v, dout, dlse, dim: head_dim, number, rules })
            })
            .collect();

        let mut yardsticks = [Yardstick::default(); 3];
        let mut keys = Vec::with_capacity(passes.len() / group);
        for sharing in passes.chunks(group) {
            let key = KeyHead { dk: sum(sharing, |pass| &pass.key.dk), dv: sum(sharing, |pass| &pass.key.dv) };
            for way in 0..2 {
                for pass in sharing {
                    yardsticks[0].see(&pass.query.dq, &pass.naive[way][0]);
                }
                for (which, exact) in [(1, &key.dk), (2, &key.dv)] {
                    // The naive method rounds each head's gradient to 16 bits, and their sum again.
                    let naive = sum(sharing, |pass| &pass.naive[way][which]);
                    let naive: Vec<f32> = naive.into_iter().map(|value| number.through(value)).collect();
                    yardsticks[which].see(exact, &naive);
                }
            }
            keys.push(key);
        }
        let worst = |which: usize| passes.iter().map(|pass| pass.sum_error[which]).fold(0.0, f64::max);
        let sum_errors = [worst(0), worst(1) * group as f64, 0.0];
        let worst_tanh = |which: usize| passes.iter().map(|pass| pass.tanh_error[which]).fold(0.0, f64::max);
        let tanh_errors = [worst_tanh(0), worst_tanh(1) * group as f64, worst_tanh(2) * group as f64];
        let tolerance = std::array::from_fn(|i| yardsticks[i].tolerance(number) + sum_errors[i] + tanh_errors[i]);
        let (sinks, sink_tolerance) = sink_gradients(&passes, heads);
        let of_scores = || passes.iter().filter_map(|pass| pass.scores.as_ref());
        let additions = addition_gradients(problem);
        let additions = additions.iter().map(|one| AddedGradient::sum(&one.places, problem, number, of_scores())).collect();
        let queries = passes.into_iter().map(|pass| pass.query).collect();
        Self { queries, keys, heads, heads_k, tolerance, sinks, sink_tolerance, additions }
    }

    /// The results for one query head of one sequence.
    pub fn query_head(&self, sequence: usize, head: usize) -> &QueryHead {
        &self.queries[sequence * self.heads + head]
    }

    /// The results for one key head of one sequence.
    pub fn key_head(&self, sequence: usize, head: usize) -> &KeyHead {
        &self.keys[sequence * self.heads_k + head]
    }
}

/// The sinks' gradients over all sequences, by head, and their tolerance.
fn sink_gradients(passes: &[Pass], heads: usize) -> (Vec<f64>, f64) {
    let mut yardstick = Yardstick::default();
    let mut fp32_error = 0.0_f64;
    let sums = (0..heads).map(|head| {
        let all = || passes.iter().skip(head).step_by(heads).map(|pass| pass.sink);
        let exact: f64 = all().map(|sink| sink.exact).sum();
        for way in 0..2 {
            yardstick.see(&[exact], &[all().map(|sink| sink.naive[way]).sum()]);
        }
        fp32_error = fp32_error.max(all().map(|sink| 2.0_f64.powi(-20) * sink.terms + sink.flushed).sum());
        exact
    });
    let sums = sums.collect();
    (sums, yardstick.tolerance(Number::Fp32) + fp32_error)
}

/// Elementwise sum.
fn sum<T: Copy + std::ops::AddAssign>(sharing: &[Pass], of: impl Fn(&Pass) -> &Vec<T>) -> Vec<T> {
    let mut all = of(&sharing[0]).clone();
    for pass in &sharing[1..] {
        all.iter_mut().zip(of(pass)).for_each(|(sum, &value)| *sum += value);
    }
    all
}

/// Largest naive error and largest magnitude of one gradient.
#[derive(Debug, Clone, Copy, Default)]
pub struct Yardstick {
    naive_error: f64,
    magnitude: f64,
}

impl Yardstick {
    /// Adds naive numbers to the statistics of the exact ones.
    pub fn see(&mut self, exact: &[f64], naive: &[f32]) {
        for (&exact, &naive) in exact.iter().zip(naive) {
            self.naive_error = self.naive_error.max((f64::from(naive) - exact).abs());
            self.magnitude = self.magnitude.max(exact.abs());
        }
    }

    /// Allowed error of a result of type `number`.
    pub fn tolerance(&self, number: Number) -> f64 {
        3.0 * self.naive_error + 2.0 * number.unit_roundoff() * self.magnitude
    }
}

/// The rows of one query head and of its key head.
#[derive(Clone, Copy)]
struct Rows<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    dout: &'a [f32],
    dlse: Option<&'a [f32]>,
    dim: Dims,
    number: Number,
    rules: Rules,
}

impl Rows<'_> {
    /// dLSE of a row.
    fn dlse_of(&self, row: usize) -> f32 {
        self.dlse.map_or(0.0, |dlse| dlse[row])
    }
}

/// One head, query row by query row.
#[expect(clippy::too_many_lines, reason = "one pass over the keys of a row gives all sums")]
fn differentiate(rows: Rows<'_>) -> Pass {
    let Rows { q, k, v, dout, dlse, dim: Dims { qk: dim, v: dim_v }, number, rules } = rows;
    let Rules { mask, score, sink, factors } = rules;
    let (queries, keys) = (q.len() / dim, k.len() / dim);
    let wide = |tensor: &[f32]| tensor.iter().copied().map(f64::from).collect::<Vec<_>>();
    let (q64, k64, v64, dout64) = (wide(q), wide(k), wide(v), wide(dout));
    let mut products = vec![0.0_f64; keys];
    let nothing_seen = sink.unwrap_or(f64::NEG_INFINITY);
    let mut query = QueryHead { o: vec![0.0; dout.len()], lse: vec![nothing_seen; queries], dq: vec![0.0; q.len()] };
    let mut key = KeyHead { dk: vec![0.0; k.len()], dv: vec![0.0; v.len()] };
    let nothing = || [vec![0.0_f32; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
    let mut naive = [nothing(), nothing()];
    let (mut p, mut ds) = (vec![0.0_f64; keys], vec![0.0_f64; keys]);
    let (mut p16, mut ds16) = (vec![0.0_f32; keys], [vec![0.0_f32; keys], vec![0.0_f32; keys]]);
    let mut slope16 = vec![0.0_f32; keys];
    let (mut weight, mut kept) = (vec![0.0_f64; keys], vec![1.0_f64; keys]);
    let mut largest_ds = 0.0_f64;
    let mut sink_gradient = SinkGradient::default();
    let mut scores = score.has_additions().then(|| ScoreGradient::zeros(queries, keys));
    let (is_declared, is_capped) = (score.is_declared(), score.error(1.0) > 0.0 || score.is_declared());
    let mut steepest = score.steepest();
    let product = longest_row(&q64, dim) * longest_row(&k64, dim);
    let mut tanh_errors =
        if is_capped { [vec![0.0_f64; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]] } else { Default::default() };
    for row in 0..queries {
        let seen = mask.keys(row);
        let lse_gradient = rows.dlse_of(row);
        if seen.is_empty() {
            // The row's LSE is the sink.
            if sink.is_some() {
                sink_gradient.see_row(1.0, -f64::from(lse_gradient), 1.0, [-lse_gradient; 2], lse_gradient.abs().into());
            }
            continue;
        }
        let (elements, elements_v) = (seen.start * dim..seen.end * dim, seen.start * dim_v..seen.end * dim_v);
        let (range, range_v) = (row * dim..(row + 1) * dim, row * dim_v..(row + 1) * dim_v);
        let (q_row, dout_row) = (&q64[range.clone()], &dout64[range_v.clone()]);
        for ((j, p), k_row) in seen.clone().zip(&mut p[seen.clone()]).zip(k64[elements].chunks_exact(dim)) {
            products[j] = dot(q_row, k_row);
            *p = score.of(products[j], row, j);
            (p16[j], slope16[j]) = score.in_16_bits(products[j], row, j, |value| number.through(value));
        }
        let sink_p16 = naive_probabilities(sink, number, &mut p16[seen.clone()]);
        query.lse[row] = super::reference::softmax_in_place(&mut p[seen.clone()], sink);
        let mut delta = 0.0;
        for (j, v_row) in seen.clone().zip(v64[elements_v.clone()].chunks_exact(dim_v)) {
            kept[j] = rules.kept(row, j);
            ds[j] = kept[j] * dot(dout_row, v_row);
            delta += p[j] * ds[j];
        }
        delta -= f64::from(lse_gradient);
        for (j, v_row) in seen.clone().zip(v64[elements_v].chunks_exact(dim_v)) {
            add(&mut query.o[range_v.clone()], p[j] * kept[j], v_row);
        }
        let o = &query.o[range_v.clone()];
        let deltas = naive_score_gradients(rows, row, seen.clone(), o, &p16, &slope16, &mut ds16);
        if let Some(sink) = sink {
            let terms = o.iter().zip(dout_row).map(|(o, d)| (o * d).abs()).sum::<f64>() + f64::from(lse_gradient.abs());
            sink_gradient.see_row((sink - query.lse[row]).exp(), delta, sink_p16, deltas, terms);
        }
        for j in seen {
            let (other, other_v) = (j * dim..(j + 1) * dim, j * dim_v..(j + 1) * dim_v);
            if is_capped {
                let softmax_gradient = p[j] * (ds[j] - delta).abs();
                let slope = score.slope(products[j], row, j).abs();
                let (of_score, of_slope) = if is_declared {
                    steepest = steepest.max(slope);
                    let error = |of: fn(&Score, f64, f64, usize, usize) -> f64| of(&score, products[j], product, row, j);
                    (error(Score::declared_error), error(Score::declared_slope_error))
                } else {
                    (score.error(products[j].abs()), score.slope_error(products[j]))
                };
                let of_ds = softmax_gradient * (slope * of_score + of_slope);
                let [dq, dk, dv] = &mut tanh_errors;
                add_magnitudes(&mut dq[range.clone()], of_ds, &k64[other.clone()]);
                add_magnitudes(&mut dk[other.clone()], of_ds, q_row);
                add_magnitudes(&mut dv[other_v.clone()], p[j] * kept[j] * of_score, dout_row);
            }
            let slope = score.slope(products[j], row, j);
            if let Some(scores) = &mut scores {
                scores.see(row * keys + j, [p[j], ds[j] - delta], [&ds16[0], &ds16[1]].map(|ds16| ds16[j]), slope16[j]);
            }
            ds[j] = slope * p[j] * (ds[j] - delta);
            largest_ds = largest_ds.max(ds[j].abs());
            weight[j] += p[j];
            add(&mut query.dq[range.clone()], ds[j], &k64[other.clone()]);
            add(&mut key.dk[other.clone()], ds[j], q_row);
            add(&mut key.dv[other_v.clone()], p[j] * kept[j], dout_row);
            for ([dq, dk, dv], ds16) in naive.iter_mut().zip(&ds16) {
                add(&mut dq[range.clone()], ds16[j], &k[other.clone()]);
                add(&mut dk[other.clone()], ds16[j], &q[range.clone()]);
                add(&mut dv[other_v.clone()], number.through(p16[j] * kept[j] as f32), &dout[range_v.clone()]);
            }
        }
    }
    for value in naive.iter_mut().flatten().flatten() {
        *value = number.through(*value);
    }
    let largest = |tensor: &[f64]| tensor.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let largest_dlse = f64::from(dlse.unwrap_or_default().iter().fold(0.0_f32, |largest, value| largest.max(value.abs())));
    let dp_limit = longest_row(&dout64, dim_v) * longest_row(&v64, dim_v) * factors.map_or(1.0, |factors| factors.largest());
    let of_gradient = 2.0_f64.powi(-20) * (dp_limit + largest_dlse);
    let of_ds = steepest * of_gradient;
    if let Some(scores) = &mut scores {
        scores.sum_error.iter_mut().for_each(|error| *error *= of_gradient);
    }
    let of_rounding = 3.0 * number.unit_roundoff() * largest_ds;
    let sum_error = [(of_ds + of_rounding) * largest(&k64), (of_ds * largest(&weight) + of_rounding) * largest(&q64)];
    let tanh_error = tanh_errors.map(|errors| largest(&errors));
    Pass { query, key, naive, sum_error, tanh_error, sink: sink_gradient, scores }
}

/// A row of P as computed by a framework without a fused kernel: scores in 16 bits, replaced by P in place, softmax in
/// fp32 rounded to 16 bits. The scale is applied before the first rounding, as in the forward pass. Returns P of the
/// sink.
fn naive_probabilities(sink: Option<f64>, number: Number, scores: &mut [f32]) -> f32 {
    let sink = sink.map(|sink| number.through(sink as f32));
    let all = || scores.iter().copied().chain(sink);
    let max = all().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = all().map(|score| (score - max).exp()).sum();
    let p = |score: f32| number.through((score - max).exp() / sum);
    for score in scores.iter_mut() {
        *score = p(*score);
    }
    sink.map_or(0.0, p)
}

/// A row of dS computed in the same way: dP rounded to 16 bits, the gradient of softmax in fp32 rounded to 16 bits.
/// First with delta from P and dP, then from the rounded row `o` of the output. Returns both.
fn naive_score_gradients(
    rows: Rows<'_>,
    row: usize,
    seen: Range<usize>,
    o: &[f64],
    p: &[f32],
    slope: &[f32],
    ds: &mut [Vec<f32>; 2],
) -> [f32; 2] {
    let Rows { v, dout, dim: Dims { v: dim, .. }, number, .. } = rows;
    let [ds, other] = ds;
    let dout = &dout[row * dim..(row + 1) * dim];
    for j in seen.clone() {
        let kept = rows.rules.kept(row, j) as f32;
        ds[j] = number.through(number.through(dot32(dout, &v[j * dim..(j + 1) * dim])) * kept);
    }
    let dlse = rows.dlse_of(row);
    let delta = seen.clone().map(|j| p[j] * ds[j]).sum::<f32>() - dlse;
    let other_delta = o.iter().zip(dout).map(|(&o, &dout)| number.through(o as f32) * dout).sum::<f32>() - dlse;
    for j in seen {
        other[j] = number.through(slope[j] * p[j] * (ds[j] - other_delta));
        ds[j] = number.through(slope[j] * p[j] * (ds[j] - delta));
    }
    [delta, other_delta]
}

/// sums += factor · row.
fn add<T: Copy + std::ops::AddAssign + std::ops::Mul<Output = T>>(sums: &mut [T], factor: T, row: &[T]) {
    sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += factor * value);
}

/// sums += factor · |row|.
fn add_magnitudes(sums: &mut [f64], factor: f64, row: &[f64]) {
    sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += factor * value.abs());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::{
        CallOptions, Mask,
        features::{CallHead, FEATURES, Factors},
        oracle::tensors::Tensors,
    };

    const DIM: usize = 16;

    /// One head of five queries and seven keys: Q, K, V and dO.
    fn tensors() -> [Vec<f32>; 4] {
        let problem = Problem::new(&[(5, 7)], 1, 1);
        let Tensors { q, k, v, .. } = Tensors::draw(&problem, DIM, Number::Fp16, 3);
        let dout = Tensors::draw_output_gradient(&problem, DIM, Number::Fp16, 3);
        [q, k, v, dout].map(|values| values.head(0, 0).to_vec())
    }

    /// dLSE of the five queries, if requested.
    const DLSE: [f32; 5] = [1.5, -0.75, 2.0, -3.0, 0.5];

    fn pass([q, k, v, dout]: &[Vec<f32>; 4], dlse: Option<&[f32]>, rules: Rules) -> Pass {
        differentiate(Rows { q, k, v, dout, dlse, dim: DIM.into(), number: Number::Fp16, rules })
    }

    /// The loss Σ O dO + Σ LSE dLSE, computed from the forward pass.
    fn loss(tensors: &[Vec<f32>; 4], dlse: Option<&[f32]>, rules: Rules) -> f64 {
        let QueryHead { o, lse, .. } = pass(tensors, dlse, rules).query;
        let of_lse = lse.iter().zip(dlse.unwrap_or_default()).filter(|(lse, _)| lse.is_finite());
        let of_o = o.iter().zip(&tensors[3]).map(|(o, &d)| o * f64::from(d));
        of_o.sum::<f64>() + of_lse.map(|(lse, &d)| lse * f64::from(d)).sum::<f64>()
    }

    /// Full, causal, each feature alone, and all together.
    fn rules() -> Vec<Rules> {
        let plain = Rules::plain(false, 5, 7, 0.5);
        let masked = |options| Mask::new(false, 5, 7).with(options);
        let window = masked(CallOptions { window: Some([3, 1]), ..CallOptions::default() });
        let chunk = masked(CallOptions { chunk: 3, ..CallOptions::default() });
        let (capped, sloped) = (plain.score.capped(1.5), plain.score.sloped(0.25, 2));
        let mut all = vec![
            plain,
            Rules::plain(true, 5, 7, 0.5),
            Rules { mask: window, ..plain },
            Rules { mask: chunk, ..plain },
            Rules { score: capped, ..plain },
            Rules { score: sloped, ..plain },
            Rules { sink: Some(0.75), ..plain },
            Rules { mask: window, score: capped.sloped(0.25, 2), sink: Some(-0.5), factors: None },
        ];
        let factors = FEATURES.iter().filter_map(|room| {
            let mut options = CallOptions::default();
            room.request(&mut options, 3);
            Factors::of(CallHead { options, sequence: 0, head: 1, heads: 4 })
        });
        all.extend(factors.map(|factors| Rules { factors: Some(factors), sink: Some(0.75), ..plain }));
        all
    }

    /// Each gradient equals the finite difference of the loss for a small change of one element.
    #[test]
    fn gradients_are_what_finite_differences_say() {
        let all = tensors();
        for (rules, dlse) in itertools::iproduct!(rules(), [None, Some(&DLSE[..])]) {
            let pass = pass(&all, dlse, rules);
            for (which, gradient) in [&pass.query.dq, &pass.key.dk, &pass.key.dv].into_iter().enumerate() {
                for at in (0..gradient.len()).step_by(7) {
                    let moved = |by: f32| {
                        let mut all = all.clone();
                        all[which][at] += by;
                        (loss(&all, dlse, rules), f64::from(all[which][at]))
                    };
                    let ((up, above), (down, below)) = (moved(1.0 / 1024.0), moved(-1.0 / 1024.0));
                    let slope = (up - down) / (above - below);
                    let expected = gradient[at];
                    assert!((slope - expected).abs() < 1e-4, "{rules:?}, tensor {which}, element {at}: {slope} {expected}");
                }
            }
        }
    }

    #[test]
    fn the_sinks_gradient_is_what_finite_differences_say() {
        let all = tensors();
        for (rules, dlse) in itertools::iproduct!(rules(), [None, Some(&DLSE[..])]) {
            let Some(sink) = rules.sink else { continue };
            let moved = |by: f64| loss(&all, dlse, Rules { sink: Some(sink + by), ..rules });
            let slope = (moved(1e-4) - moved(-1e-4)) / 2e-4;
            let SinkGradient { exact, naive, terms, .. } = pass(&all, dlse, rules).sink;
            assert!((slope - exact).abs() < 1e-6 && exact.abs() > 1e-2, "{rules:?}: {slope} {exact}");
            assert!(naive.iter().all(|&naive| (f64::from(naive) - exact).abs() < 0.02 * terms), "{rules:?}: {naive:?} {exact}");
        }
    }

    /// The LSE of such a row is the sink, or -∞.
    #[test]
    fn the_gradient_of_lse_goes_to_the_sink_where_a_row_sees_no_key_and_else_nowhere() {
        let tensor: Vec<f32> = (0..3 * DIM as u16).map(|i| f32::from(i % 5)).collect();
        let (kv, dout, dlse) = (&tensor[..DIM], &tensor[..], [2.0, -0.5, 0.0]);
        let plain = Rules::plain(true, 3, 1, 1.0);
        let rows = |rules, dlse| {
            let rows = Rows { q: &tensor, k: kv, v: kv, dout, dlse, dim: DIM.into(), number: Number::Bf16, rules };
            differentiate(rows)
        };
        let (without, with) = (rows(plain, None), rows(plain, Some(&dlse)));
        assert_eq!((with.query.dq, with.key.dk, with.key.dv), (without.query.dq, without.key.dk, without.key.dv));
        let sunk = Rules { sink: Some(0.75), ..plain };
        let gained = rows(sunk, Some(&dlse)).sink.exact - rows(sunk, None).sink.exact;
        assert!((gained - 1.5).abs() < 1e-12, "{gained}");
    }

    #[test]
    fn heads_that_share_a_key_head_add_up() {
        let problem = Problem::new(&[(3, 4)], 4, 2);
        let tensors = Tensors::draw(&problem, DIM, Number::Bf16, 1);
        let dout = Tensors::draw_output_gradient(&problem, DIM, Number::Bf16, 1);
        let inputs = Inputs { q: &tensors.q, k: &tensors.k, v: &tensors.v, dout: &dout, dlse: None };
        let all = Gradients::compute(&problem, inputs, DIM, Number::Bf16, false);
        let scale = problem.softmax_scale(DIM);
        let one = |head: usize| {
            let (q, k, v) = (tensors.q.head(0, head), tensors.k.head(0, 1), tensors.v.head(0, 1));
            differentiate(Rows {
                q,
                k,
                v,
                dout: dout.head(0, head),
                dlse: None,
                dim: DIM.into(),
                number: Number::Bf16,
                rules: Rules::plain(false, 3, 4, scale.into()),
            })
            .key
        };
        let (third, fourth) = (one(2), one(3));
        for (i, &dk) in all.key_head(0, 1).dk.iter().enumerate() {
            assert_eq!(dk, third.dk[i] + fourth.dk[i]);
        }
    }

    #[test]
    fn a_row_that_sees_no_key_has_no_gradient_and_one_key_alone_gives_none_to_q_and_k() {
        let tensor: Vec<f32> = (0..3 * DIM as u16).map(|i| f32::from(i % 5)).collect();
        let (kv, dout) = (&tensor[..DIM], &tensor[..]);
        let rows = Rows {
            q: &tensor,
            k: kv,
            v: kv,
            dout,
            dlse: None,
            dim: DIM.into(),
            number: Number::Bf16,
            rules: Rules::plain(true, 3, 1, 1.0),
        };
        let pass = differentiate(rows);
        assert!(pass.query.dq.iter().chain(&pass.key.dk).all(|&value| value == 0.0));
        let last: Vec<f64> = dout[2 * DIM..].iter().map(|&d| f64::from(d)).collect();
        assert_eq!(pass.key.dv, last, "only the last row sees the key");
    }

    #[test]
    fn the_allowed_error_is_small_and_larger_in_bf16_than_in_fp16() {
        let problem = Problem::new(&[(64, 203)], 2, 1);
        let tolerance = |number| {
            let tensors = Tensors::draw(&problem, 64, number, 1);
            let dout = Tensors::draw_output_gradient(&problem, 64, number, 1);
            let inputs = Inputs { q: &tensors.q, k: &tensors.k, v: &tensors.v, dout: &dout, dlse: None };
            Gradients::compute(&problem, inputs, 64, number, false).tolerance
        };
        for (fp16, bf16) in tolerance(Number::Fp16).into_iter().zip(tolerance(Number::Bf16)) {
            assert!(fp16 > 1e-5 && fp16 < 8e-3 && bf16 > 3.0 * fp16 && bf16 < 6e-2, "{fp16:?} {bf16:?}");
        }
    }
}
