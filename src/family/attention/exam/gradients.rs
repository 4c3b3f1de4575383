//! The gradients of attention in float64 from the rounded inputs, and beside them the same done naively in 16 bits: the
//! error of that is the measure of what a backward kernel may err by.
//!
//! The rule is that of `FlashAttention`'s own tests: at most three times the largest naive error. There are two ways to
//! be naive, and the larger error counts: delta as the gradient of softmax has it, Σ P dP, or as every fused kernel has
//! it, Σ O dO from a rounded O, whose error the first does not have. To it come, since some cases are exact when done
//! naively:
//! * twice the error of rounding to 16 bits at the reference's largest magnitude;
//! * three times the error of rounding the largest dS to 16 bits, carried to dQ by K and to dK by Q: where equal
//!   weights and exact numbers make the terms of a sum cancel, the naive roundings cancel with them, and a kernel's
//!   need not;
//! * what fp32 sums err by: delta cancels dP = dO Vᵀ only to 2⁻²⁰ · max‖dO‖ · max‖v‖ (tensor cores truncate,
//!   relative to the largest term), and K or Q carry that to dQ or dK.

use super::{
    problem::Problem,
    reference::{dot, dot32},
    rules::Rules,
    tensors::Values,
};
use crate::check::Number;
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
}

/// The right answer to one case, and how far from it a kernel may be.
#[derive(Debug, Clone)]
pub struct Gradients {
    queries: Vec<QueryHead>,
    keys: Vec<KeyHead>,
    heads: usize,
    heads_k: usize,
    /// Allowed errors of dQ, dK and dV.
    pub tolerance: [f64; 3],
}

/// The answer for one query head of one sequence, rows of `head_dim`.
#[derive(Debug, Clone)]
pub struct QueryHead {
    /// The forward pass's output.
    pub o: Vec<f64>,
    /// Its log-sum-exp; -∞ where a row sees no key.
    pub lse: Vec<f64>,
    /// dQ.
    pub dq: Vec<f64>,
}

/// The answer for one key head of one sequence, rows of `head_dim`.
#[derive(Debug, Clone)]
pub struct KeyHead {
    /// dK.
    pub dk: Vec<f64>,
    /// dV.
    pub dv: Vec<f64>,
}

/// What one query head gives, exactly and naively.
struct Pass {
    query: QueryHead,
    key: KeyHead,
    /// dQ, dK and dV, in each of the two ways.
    naive: [[Vec<f32>; 3]; 2],
    /// What fp32 sums in dS, and its rounding, make dQ and dK err by.
    sum_error: [f64; 2],
}

impl Gradients {
    /// Computes them, in parallel over heads.
    pub fn compute(problem: &Problem, inputs: Inputs<'_>, head_dim: usize, number: Number, causal: bool) -> Self {
        let scale = problem.softmax_scale(head_dim);
        let (heads, heads_k) = (problem.heads, problem.heads_k);
        let group = heads / heads_k;
        let passes: Vec<Pass> = (0..problem.sequences.len() * heads)
            .into_par_iter()
            .map(|index| {
                let (sequence, head) = (index / heads, index % heads);
                let [q, dout] = [inputs.q, inputs.dout].map(|values| values.head(sequence, head));
                let [k, v] = [inputs.k, inputs.v].map(|values| values.head(sequence, head / group));
                let rules = Rules::of(problem, causal, f64::from(scale), sequence, head);
                differentiate(Rows { q, k, v, dout, dim: head_dim, number, rules })
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
                    // Each head's gradient is a tensor of 16 bits, and so is their sum.
                    let naive = sum(sharing, |pass| &pass.naive[way][which]);
                    let naive: Vec<f32> = naive.into_iter().map(|value| number.through(value)).collect();
                    yardsticks[which].see(exact, &naive);
                }
            }
            keys.push(key);
        }
        let worst = |which: usize| passes.iter().map(|pass| pass.sum_error[which]).fold(0.0, f64::max);
        let sum_errors = [worst(0), worst(1) * group as f64, 0.0];
        let tolerance = std::array::from_fn(|i| yardsticks[i].tolerance(number) + sum_errors[i]);
        Self { queries: passes.into_iter().map(|pass| pass.query).collect(), keys, heads, heads_k, tolerance }
    }

    /// The answer for one query head of one sequence.
    pub fn query_head(&self, sequence: usize, head: usize) -> &QueryHead {
        &self.queries[sequence * self.heads + head]
    }

    /// The answer for one key head of one sequence.
    pub fn key_head(&self, sequence: usize, head: usize) -> &KeyHead {
        &self.keys[sequence * self.heads_k + head]
    }
}

/// Element by element.
fn sum<T: Copy + std::ops::AddAssign>(sharing: &[Pass], of: impl Fn(&Pass) -> &Vec<T>) -> Vec<T> {
    let mut all = of(&sharing[0]).clone();
    for pass in &sharing[1..] {
        all.iter_mut().zip(of(pass)).for_each(|(sum, &value)| *sum += value);
    }
    all
}

/// Largest naive error and largest magnitude of one gradient.
#[derive(Debug, Clone, Copy, Default)]
struct Yardstick {
    naive_error: f64,
    magnitude: f64,
}

impl Yardstick {
    fn see(&mut self, exact: &[f64], naive: &[f32]) {
        for (&exact, &naive) in exact.iter().zip(naive) {
            self.naive_error = self.naive_error.max((f64::from(naive) - exact).abs());
            self.magnitude = self.magnitude.max(exact.abs());
        }
    }

    fn tolerance(&self, number: Number) -> f64 {
        3.0 * self.naive_error + 2.0 * number.unit_roundoff() * self.magnitude
    }
}

/// One query head and the key head it reads.
#[derive(Clone, Copy)]
struct Rows<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    dout: &'a [f32],
    dim: usize,
    number: Number,
    rules: Rules,
}

/// One head, query row by query row.
fn differentiate(rows: Rows<'_>) -> Pass {
    let Rows { q, k, v, dout, dim, number, rules: Rules { mask, score, sink } } = rows;
    let (queries, keys) = (q.len() / dim, k.len() / dim);
    let wide = |tensor: &[f32]| tensor.iter().copied().map(f64::from).collect::<Vec<_>>();
    let (q64, k64, v64, dout64) = (wide(q), wide(k), wide(v), wide(dout));
    let mut products = vec![0.0_f64; keys];
    let nothing_seen = sink.unwrap_or(f64::NEG_INFINITY);
    let mut query = QueryHead { o: vec![0.0; q.len()], lse: vec![nothing_seen; queries], dq: vec![0.0; q.len()] };
    let mut key = KeyHead { dk: vec![0.0; k.len()], dv: vec![0.0; k.len()] };
    let nothing = || [vec![0.0_f32; q.len()], vec![0.0; k.len()], vec![0.0; k.len()]];
    let mut naive = [nothing(), nothing()];
    let (mut p, mut ds) = (vec![0.0_f64; keys], vec![0.0_f64; keys]);
    let (mut p16, mut ds16) = (vec![0.0_f32; keys], [vec![0.0_f32; keys], vec![0.0_f32; keys]]);
    let mut weight = vec![0.0_f64; keys];
    let mut largest_ds = 0.0_f64;
    for row in 0..queries {
        let seen = mask.keys(row);
        if seen.is_empty() {
            continue;
        }
        let elements = seen.start * dim..seen.end * dim;
        let range = row * dim..(row + 1) * dim;
        let (q_row, dout_row) = (&q64[range.clone()], &dout64[range.clone()]);
        for ((j, p), k_row) in seen.clone().zip(&mut p[seen.clone()]).zip(k64[elements.clone()].chunks_exact(dim)) {
            products[j] = dot(q_row, k_row);
            *p = score.of(products[j], row, j);
        }
        naive_probabilities(&p[seen.clone()], sink, number, &mut p16[seen.clone()]);
        query.lse[row] = super::reference::softmax_in_place(&mut p[seen.clone()], sink);
        let mut delta = 0.0;
        for ((ds, &p), v_row) in ds[seen.clone()].iter_mut().zip(&p[seen.clone()]).zip(v64[elements.clone()].chunks_exact(dim)) {
            *ds = dot(dout_row, v_row);
            delta += p * *ds;
        }
        for (&p, v_row) in p[seen.clone()].iter().zip(v64[elements].chunks_exact(dim)) {
            add(&mut query.o[range.clone()], p, v_row);
        }
        let slopes = |j: usize| score.slope(products[j], row, j) as f32;
        naive_score_gradients(rows, row, seen.clone(), &query.o[range.clone()], &p16, &slopes, &mut ds16);
        for j in seen {
            let other = j * dim..(j + 1) * dim;
            ds[j] = score.slope(products[j], row, j) * p[j] * (ds[j] - delta);
            largest_ds = largest_ds.max(ds[j].abs());
            weight[j] += p[j];
            add(&mut query.dq[range.clone()], ds[j], &k64[other.clone()]);
            add(&mut key.dk[other.clone()], ds[j], q_row);
            add(&mut key.dv[other.clone()], p[j], dout_row);
            for ([dq, dk, dv], ds16) in naive.iter_mut().zip(&ds16) {
                add(&mut dq[range.clone()], ds16[j], &k[other.clone()]);
                add(&mut dk[other.clone()], ds16[j], &q[range.clone()]);
                add(&mut dv[other.clone()], p16[j], &dout[range.clone()]);
            }
        }
    }
    for value in naive.iter_mut().flatten().flatten() {
        *value = number.through(*value);
    }
    let longest = |tensor: &[f64]| tensor.chunks_exact(dim).map(|row| dot(row, row)).fold(0.0, f64::max).sqrt();
    let largest = |tensor: &[f64]| tensor.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    let of_ds = 2.0_f64.powi(-20) * score.steepest() * longest(&dout64) * longest(&v64);
    let of_rounding = 3.0 * number.unit_roundoff() * largest_ds;
    let sum_error = [(of_ds + of_rounding) * largest(&k64), (of_ds * largest(&weight) + of_rounding) * largest(&q64)];
    Pass { query, key, naive, sum_error }
}

/// A row of P as a framework without a fused kernel has it: scores rounded to 16 bits, softmax in fp32 rounded to 16
/// bits. The scale is applied before the first rounding, as in the forward pass.
fn naive_probabilities(scores: &[f64], sink: Option<f64>, number: Number, p: &mut [f32]) {
    let sink = sink.map(|sink| number.through(sink as f32));
    for (p, &score) in p.iter_mut().zip(scores) {
        *p = number.through(score as f32);
    }
    let all = || p.iter().copied().chain(sink);
    let max = all().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = all().map(|score| (score - max).exp()).sum();
    for p in p.iter_mut() {
        *p = number.through((*p - max).exp() / sum);
    }
}

/// A row of dS likewise: dP rounded to 16 bits, the gradient of softmax in fp32 rounded to 16 bits. First with delta
/// from P and dP, then from the rounded row `o` of the output.
fn naive_score_gradients(
    rows: Rows<'_>,
    row: usize,
    seen: Range<usize>,
    o: &[f64],
    p: &[f32],
    slope: &dyn Fn(usize) -> f32,
    ds: &mut [Vec<f32>; 2],
) {
    let Rows { v, dout, dim, number, .. } = rows;
    let [ds, other] = ds;
    let dout = &dout[row * dim..(row + 1) * dim];
    for j in seen.clone() {
        ds[j] = number.through(dot32(dout, &v[j * dim..(j + 1) * dim]));
    }
    let delta: f32 = seen.clone().map(|j| p[j] * ds[j]).sum();
    let other_delta: f32 = o.iter().zip(dout).map(|(&o, &dout)| number.through(o as f32) * dout).sum();
    for j in seen {
        other[j] = number.through(slope(j) * p[j] * (ds[j] - other_delta));
        ds[j] = number.through(slope(j) * p[j] * (ds[j] - delta));
    }
}

/// sums += factor · row.
fn add<T: Copy + std::ops::AddAssign + std::ops::Mul<Output = T>>(sums: &mut [T], factor: T, row: &[T]) {
    sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += factor * value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::exam::tensors::Tensors;

    const DIM: usize = 16;

    /// The loss Σ O dO of one head, as the forward pass gives it.
    fn loss(q: &[f32], k: &[f32], v: &[f32], dout: &[f32], causal: bool) -> f64 {
        let rows = Rows {
            q,
            k,
            v,
            dout,
            dim: DIM,
            number: Number::Bf16,
            rules: Rules::plain(causal, q.len() / DIM, k.len() / DIM, 0.5),
        };
        let o = differentiate(rows).query.o;
        o.iter().zip(dout).map(|(o, &d)| o * f64::from(d)).sum()
    }

    /// Each gradient is the change of the loss when one element changes a little.
    #[test]
    fn gradients_are_what_finite_differences_say() {
        let problem = Problem::new(&[(5, 7)], 1, 1);
        let tensors = Tensors::draw(&problem, DIM, Number::Fp16, 3);
        let dout = Tensors::draw_output_gradient(&problem, DIM, Number::Fp16, 3);
        let tensor = |values: &Values| values.head(0, 0).to_vec();
        let all = [tensor(&tensors.q), tensor(&tensors.k), tensor(&tensors.v)];
        let dout = dout.head(0, 0);
        for causal in [false, true] {
            let [q, k, v] = &all;
            let pass =
                differentiate(Rows { q, k, v, dout, dim: DIM, number: Number::Fp16, rules: Rules::plain(causal, 5, 7, 0.5) });
            for (which, gradient) in [&pass.query.dq, &pass.key.dk, &pass.key.dv].into_iter().enumerate() {
                for at in (0..gradient.len()).step_by(7) {
                    let moved = |by: f32| {
                        let mut all = all.clone();
                        all[which][at] += by;
                        (loss(&all[0], &all[1], &all[2], dout, causal), f64::from(all[which][at]))
                    };
                    let ((up, above), (down, below)) = (moved(1.0 / 1024.0), moved(-1.0 / 1024.0));
                    let slope = (up - down) / (above - below);
                    assert!((slope - gradient[at]).abs() < 1e-4, "tensor {which}, element {at}: {slope} {}", gradient[at]);
                }
            }
        }
    }

    #[test]
    fn heads_that_share_a_key_head_add_up() {
        let problem = Problem::new(&[(3, 4)], 4, 2);
        let tensors = Tensors::draw(&problem, DIM, Number::Bf16, 1);
        let dout = Tensors::draw_output_gradient(&problem, DIM, Number::Bf16, 1);
        let inputs = Inputs { q: &tensors.q, k: &tensors.k, v: &tensors.v, dout: &dout };
        let all = Gradients::compute(&problem, inputs, DIM, Number::Bf16, false);
        let scale = problem.softmax_scale(DIM);
        let one = |head: usize| {
            let (q, k, v) = (tensors.q.head(0, head), tensors.k.head(0, 1), tensors.v.head(0, 1));
            differentiate(Rows {
                q,
                k,
                v,
                dout: dout.head(0, head),
                dim: DIM,
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
        let rows = Rows { q: &tensor, k: kv, v: kv, dout, dim: DIM, number: Number::Bf16, rules: Rules::plain(true, 3, 1, 1.0) };
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
            let inputs = Inputs { q: &tensors.q, k: &tensors.k, v: &tensors.v, dout: &dout };
            Gradients::compute(&problem, inputs, 64, number, false).tolerance
        };
        for (fp16, bf16) in tolerance(Number::Fp16).into_iter().zip(tolerance(Number::Bf16)) {
            assert!(fp16 > 1e-5 && fp16 < 8e-3 && bf16 > 3.0 * fp16 && bf16 < 6e-2, "{fp16:?} {bf16:?}");
        }
    }
}
