//! Attention in float64 for single rows of large tensors, to check that a timed kernel computes attention. `check`
//! verifies kernels in full.
//!
//! All tensors are contiguous (batch, seqlen, heads, pitch), K and V in pages (pages, page size, heads, pitch); the
//! pitch is the head dim, or the next one whose rows TMA can read. LSE is (batch, heads, `seqlen_q`).

use super::{Shape, declared};
use crate::{
    bench::{elements, fp32},
    check::Number,
    family::attention::{KvFormat, Mask, Point, Score, needs_tma},
    kernel::HeadDim,
};
use std::ops::Range;

/// Inputs of a launch on the host, from which rows are read.
pub struct Sample<'a> {
    /// Mask, head dim, dtype.
    pub variant: Point,
    /// Sizes.
    pub shape: Shape,
    /// Bytes of each tensor, by its name in `kgen.h`.
    pub tensor: &'a dyn Fn(&str) -> &'a [u8],
}

/// ‖got − expected‖ / ‖expected‖: NaN if an element is NaN, infinite if the expected row is 0 and the result is not.
pub fn relative_error(got: &[f64], expected: &[f64]) -> f64 {
    let error = got.iter().zip(expected).map(|(got, expected)| (got - expected).powi(2)).sum::<f64>();
    let norm = expected.iter().map(|expected| expected.powi(2)).sum::<f64>();
    if error == 0.0 { 0.0 } else { (error / norm).sqrt() }
}

/// Forward results for one query.
pub struct ForwardRow {
    /// The row of O.
    pub o: Vec<f64>,
    /// Log-sum-exp of the row.
    pub lse: f64,
}

impl Sample<'_> {
    /// Elements of a row of the tensor `name`.
    pub fn head_dim(&self, name: &str) -> usize {
        let HeadDim { qk, v } = self.variant.head_dim;
        (if matches!(name, "v" | "o" | "dout" | "dv" | "qv") { v } else { qk }) as usize
    }

    /// Elements from one head's row of the tensor `name` to the next head's: TMA reads rows that are multiples of 16
    /// bytes apart, and callers of its kernels have rows with gaps where the head dim is no such multiple.
    pub fn pitch(&self, name: &str) -> usize {
        let columns = self.head_dim(name);
        let is_read = matches!(name, "q" | "k" | "v" | "qv");
        if is_read && needs_tma(self.variant) {
            columns.next_multiple_of(16 / self.number(name).element().bytes())
        } else {
            columns
        }
    }

    /// Type of the elements of Q, K, V and what else the kernel reads.
    fn number(&self, name: &str) -> Number {
        let kv = KvFormat::of(self.variant.features).filter(|_| matches!(name, "k" | "v"));
        kv.map_or(Number::of(self.variant.dtype), KvFormat::number)
    }

    /// The mask without a declared one.
    fn mask(&self) -> Mask {
        Mask::new(self.variant.causal, self.shape.seqlen_q as usize, self.shape.seqlen_k as usize)
    }

    fn score(&self, [sequence, head, _]: [usize; 3]) -> Score {
        let first = self.mask().position(0);
        let rule = declared::rule_of(&self.variant, &self.shape, sequence, head);
        Score::scaled(f64::from(softmax_scale(self.variant))).sloped(0.0, first).declared(rule)
    }

    /// Rows to check: in the first and the last sequence and head, starting at the first, the middle and the last row.
    pub fn picks(&self, heads: u32, rows: u32) -> Vec<[usize; 3]> {
        let ends = [[0, 0], [self.shape.batch - 1, heads - 1]];
        let mut picks: Vec<[usize; 3]> = itertools::iproduct!(ends, [0, rows / 2, rows - 1])
            .map(|([sequence, head], row)| [sequence, head, row].map(|n| n as usize))
            .collect();
        picks.dedup();
        picks
    }

    /// Index of the first element of a row of `name`, a tensor with `heads` heads and `rows` rows per sequence.
    pub fn start(&self, name: &str, heads: u32, rows: u32, [sequence, head, row]: [usize; 3]) -> usize {
        ((sequence * rows as usize + row) * heads as usize + head) * self.pitch(name)
    }

    fn query(&self, name: &str, place: [usize; 3]) -> Vec<f64> {
        let start = self.start(name, self.shape.heads, self.shape.seqlen_q, place);
        elements((self.tensor)(name), Number::of(self.variant.dtype), start, self.head_dim(name))
    }

    /// A row of K or V at a sequence, query head and key.
    fn key(&self, name: &str, [sequence, head, row]: [usize; 3]) -> Vec<f64> {
        let Shape { heads, heads_k, seqlen_k, page_size, .. } = self.shape;
        let head_k = head / (heads / heads_k) as usize;
        let start = if page_size == 0 {
            self.start(name, heads_k, seqlen_k, [sequence, head_k, row])
        } else {
            let entry = sequence * self.shape.pages_per_sequence() as usize + row / page_size as usize;
            self.start(name, heads_k, page_size, [self.page(entry), head_k, row % page_size as usize])
        };
        elements((self.tensor)(name), self.number(name), start, self.head_dim(name))
    }

    /// An entry of the page table.
    fn page(&self, entry: usize) -> usize {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&(self.tensor)("page_table")[entry * 4..entry * 4 + 4]);
        u32::from_le_bytes(bytes) as usize
    }

    /// The dot product of a query's row and a key's; with `qv` plus that of QV and V's row.
    fn product(&self, place: [usize; 3], key: usize) -> f64 {
        let [sequence, head, _] = place;
        let product = |q: &str, k: &str| dot(&self.query(q, place), &self.key(k, [sequence, head, key]));
        product("q", "k") + if self.variant.has_latent_queries() { product("qv", "v") } else { 0.0 }
    }

    /// Keys that a query sees if no declared mask hides them.
    pub fn unmasked(&self, row: usize) -> Range<usize> {
        self.mask().keys(row)
    }

    /// True if a query sees a key that is in [`unmasked`](Self::unmasked).
    fn shows(&self, [sequence, head, row]: [usize; 3]) -> impl Fn(usize) -> bool {
        let rule = declared::rule_of(&self.variant, &self.shape, sequence, head);
        let position = self.mask().position(row);
        move |key| rule.is_none_or(|rule| rule.sees(position, key))
    }

    /// Keys that a query sees.
    fn visible(&self, place: [usize; 3]) -> impl Iterator<Item = usize> {
        let shows = self.shows(place);
        self.unmasked(place[2]).filter(move |key| shows(*key))
    }

    /// True if a query sees a key.
    fn sees(&self, place: [usize; 3], key: usize) -> bool {
        self.unmasked(place[2]).contains(&key) && self.shows(place)(key)
    }

    /// True if a query sees any key.
    pub fn sees_any(&self, place: [usize; 3]) -> bool {
        self.visible(place).next().is_some()
    }

    /// Forward results for a query that sees a key.
    pub fn forward(&self, place: [usize; 3]) -> ForwardRow {
        let [sequence, head, row] = place;
        let keys: Vec<usize> = self.visible(place).collect();
        let score = self.score(place);
        let of = |key: &usize| score.of(self.product(place, *key), row, *key);
        let scores: Vec<f64> = keys.iter().map(of).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
        let mut o = vec![0.0; self.head_dim("o")];
        for (key, score) in keys.into_iter().zip(&scores) {
            add(&mut o, (score - max).exp() / sum, &self.key("v", [sequence, head, key]));
        }
        ForwardRow { o, lse: max + sum.ln() }
    }

    /// The row of dQ, from the O, LSE and dO that are passed to the kernel.
    pub fn query_gradient(&self, place: [usize; 3]) -> Vec<f64> {
        let [sequence, head, _] = place;
        let mut dq = vec![0.0; self.head_dim("dq")];
        for key in self.visible(place) {
            let (_, ds) = self.pair(place, key);
            add(&mut dq, ds, &self.key("k", [sequence, head, key]));
        }
        dq
    }

    /// The rows of dK and dV at a sequence, key head and key.
    pub fn key_gradients(&self, [sequence, head_k, key]: [usize; 3]) -> [Vec<f64>; 2] {
        let group = (self.shape.heads / self.shape.heads_k) as usize;
        let mut gradients = ["dk", "dv"].map(|name| vec![0.0; self.head_dim(name)]);
        for (head, row) in itertools::iproduct!(head_k * group..(head_k + 1) * group, 0..self.shape.seqlen_q as usize) {
            let place = [sequence, head, row];
            if self.sees(place, key) {
                let (p, ds) = self.pair(place, key);
                add(&mut gradients[0], ds, &self.query("q", place));
                add(&mut gradients[1], p, &self.query("dout", place));
            }
        }
        gradients
    }

    /// P of a query and a visible key, and the gradient of their score.
    fn pair(&self, place: [usize; 3], key: usize) -> (f64, f64) {
        let [sequence, head, row] = place;
        let at_key = [sequence, head, key];
        let (dout, lse) = (self.query("dout", place), self.lse(sequence, head, row));
        let product = self.product(place, key);
        let score = self.score(place);
        let p = (score.of(product, row, key) - lse).exp();
        (p, score.slope(product, row, key) * p * (dot(&dout, &self.key("v", at_key)) - dot(&dout, &self.query("o", place))))
    }

    fn lse(&self, sequence: usize, head: usize, row: usize) -> f64 {
        let index = (sequence * self.shape.heads as usize + head) * self.shape.seqlen_q as usize + row;
        fp32((self.tensor)("lse"), index)
    }
}

/// 1 / √columns that a score is summed over: the head dim, with `qv` plus that of V.
pub fn softmax_scale(variant: Point) -> f32 {
    let HeadDim { qk, v } = variant.head_dim;
    let columns = if variant.has_latent_queries() { qk + v } else { qk };
    1.0 / (columns as f32).sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(into: &mut [f64], factor: f64, row: &[f64]) {
    into.iter_mut().zip(row).for_each(|(into, value)| *into += factor * value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::Normals,
        family::attention::Kind,
        kernel::{Dtype, Features, HeadDim, Target},
    };
    use std::collections::HashMap;

    const SHAPE: Shape = Shape { batch: 2, heads: 4, heads_k: 2, seqlen_q: 5, seqlen_k: 7, page_size: 0 };
    const DIM: usize = 16;

    fn variant(causal: bool) -> Point {
        Point {
            kind: Kind::Bwd,
            head_dim: HeadDim::equal(DIM as u32),
            dtype: Dtype::Fp16,
            causal,
            features: Features::NONE,
            target: Target::Sm80,
        }
    }

    type Tensors = HashMap<&'static str, Vec<u8>>;

    /// Random Q, K, V and dO, and the matching O and LSE.
    fn tensors(causal: bool) -> Tensors {
        let normals = Normals::draw(Number::Fp16, 1);
        let queries = normals.tensor(2 * 5 * 4 * DIM, 1);
        let keys = |seed| normals.tensor(2 * 7 * 2 * DIM, seed);
        let all = [("q", queries), ("k", keys(2)), ("v", keys(3)), ("dout", normals.tensor(2 * 5 * 4 * DIM, 4))];
        let mut tensors: Tensors = all.into_iter().collect();
        let (mut o, mut lse) = (vec![0; 2 * 5 * 4 * DIM * 2], vec![0; 2 * 4 * 5 * 4]);
        for (sequence, head, row) in itertools::iproduct!(0..2, 0..4, 0..5) {
            let answer = with(&tensors, causal, |sample| sample.forward([sequence, head, row]));
            let at = ((sequence * 5 + row) * 4 + head) * DIM;
            for (d, value) in answer.o.iter().enumerate() {
                put(&mut o, at + d, *value);
            }
            let index = (sequence * 4 + head) * 5 + row;
            lse[index * 4..][..4].copy_from_slice(&(answer.lse as f32).to_le_bytes());
        }
        tensors.extend([("o", o), ("lse", lse)]);
        tensors
    }

    fn put(tensor: &mut [u8], index: usize, value: f64) {
        tensor[index * 2..][..2].copy_from_slice(&Number::Fp16.round(value as f32).to_le_bytes()[..2]);
    }

    fn with<T>(tensors: &Tensors, causal: bool, then: impl FnOnce(&Sample<'_>) -> T) -> T {
        then(&Sample { variant: variant(causal), shape: SHAPE, tensor: &|name| &tensors[name] })
    }

    /// Sum of O times dO over all elements: the loss whose gradients a backward pass computes.
    fn loss(tensors: &Tensors, causal: bool) -> f64 {
        let places = itertools::iproduct!(0..2, 0..4, 0..5).map(|(sequence, head, row)| [sequence, head, row]);
        with(tensors, causal, |s| places.map(|place| dot(&s.forward(place).o, &s.query("dout", place))).sum())
    }

    /// Numerical derivative of the loss along one element, with the exact rounded step.
    fn slope(tensors: &Tensors, causal: bool, name: &'static str, index: usize) -> f64 {
        let value = elements(&tensors[name], Number::Fp16, index, 1)[0];
        let moved = |step: f64| {
            let mut tensors = tensors.clone();
            put(tensors.get_mut(name).expect("it is there"), index, value + step);
            (elements(&tensors[name], Number::Fp16, index, 1)[0], loss(&tensors, causal))
        };
        let ((low, before), (high, after)) = (moved(-0.01), moved(0.01));
        (after - before) / (high - low)
    }

    #[test]
    fn gradients_are_the_slopes_of_the_forward_pass() {
        for causal in [false, true] {
            let tensors = tensors(causal);
            let [sequence, head, head_k, row, key] = [1, 3, 1, 4, 2];
            let dq = with(&tensors, causal, |s| s.query_gradient([sequence, head, row]));
            let [dk, dv] = with(&tensors, causal, |s| s.key_gradients([sequence, head_k, key]));
            let query = ((sequence * 5 + row) * 4 + head) * DIM;
            let at_key = ((sequence * 7 + key) * 2 + head_k) * DIM;
            for (name, gradient, start) in [("q", dq, query), ("k", dk, at_key), ("v", dv, at_key)] {
                for d in [0, 7] {
                    let slope = slope(&tensors, causal, name, start + d);
                    assert!((gradient[d] - slope).abs() < 0.01, "d{name}[{d}] causal {causal}: {} and {slope}", gradient[d]);
                }
            }
        }
    }

    #[test]
    fn one_visible_key_is_copied() {
        let mut tensors = tensors(true);
        let shape = Shape { seqlen_k: 5, ..SHAPE };
        tensors.insert("k", Normals::draw(Number::Fp16, 2).tensor(2 * 5 * 2 * DIM, 1));
        let sample = Sample { variant: variant(true), shape, tensor: &|name| &tensors[name] };
        let first = sample.forward([1, 3, 0]);
        assert!(relative_error(&first.o, &sample.key("v", [1, 2, 0])) < 1e-12);
    }

    #[test]
    fn neither_a_nan_nor_something_in_place_of_nothing_is_a_small_error() {
        assert!(relative_error(&[1.0, f64::NAN], &[1.0, 2.0]).is_nan());
        assert_eq!(relative_error(&[0.0, 1e-9], &[0.0, 0.0]), f64::INFINITY);
        assert_eq!(relative_error(&[0.0; 2], &[0.0; 2]), 0.0);
    }
}
