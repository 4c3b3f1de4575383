//! Fills the tensors of a problem from a seed, and lays them out for a call.

use super::{
    append::{self, Appended},
    descale::Descales,
    dims::Dims,
    memory_layout::{Placement, Side},
    page_descales::PageFactors,
    problem::{Inputs, Problem},
};
use crate::{
    check::{Number, fill_normal},
    device::{Call, Element, Image, Params},
    family::attention::abi::{FwdParams, PagedKeys, SCORE_TABLES},
    family::attention::{Cache, features::FEATURES},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::borrow::Cow;

/// The values of one tensor, already rounded: rows of `head_dim` elements, by sequence, head, row.
#[derive(Debug, Clone)]
pub struct Values {
    data: Vec<f32>,
    head_dim: usize,
    heads: usize,
    /// Rows before each sequence, over all heads; has one more entry than there are sequences.
    first: Vec<usize>,
}

impl Values {
    fn zeros(problem: &Problem, side: Side, heads: usize, head_dim: usize) -> Self {
        let mut first = vec![0];
        for rows in problem.used_rows(side) {
            first.push(first[first.len() - 1] + rows * heads);
        }
        Self { data: vec![0.0; first[first.len() - 1] * head_dim], head_dim, heads, first }
    }

    /// Copies the first sequence's values to rows that share its pages.
    fn share_rows(&mut self, problem: &Problem) {
        for sequence in 1..problem.sequences.len() {
            for (head, row) in itertools::iproduct!(0..self.heads, 0..self.rows(sequence)) {
                if problem.source_of_row(sequence, row) != sequence {
                    let first = (head * self.rows(0) + row) * self.head_dim;
                    let to = (self.first[sequence] + head * self.rows(sequence) + row) * self.head_dim;
                    self.data.copy_within(first..first + self.head_dim, to);
                }
            }
        }
    }

    /// All rows of one head of a sequence, contiguous.
    pub fn head(&self, sequence: usize, head: usize) -> &[f32] {
        let (first, rows) = (self.first[sequence], self.rows(sequence));
        &self.data[(first + head * rows) * self.head_dim..(first + (head + 1) * rows) * self.head_dim]
    }

    /// One row of a head of a sequence.
    pub fn row(&self, sequence: usize, head: usize, row: usize) -> &[f32] {
        &self.head(sequence, head)[row * self.head_dim..][..self.head_dim]
    }

    /// One mutable row of a head of a sequence.
    pub fn row_mut(&mut self, sequence: usize, head: usize, row: usize) -> &mut [f32] {
        let first = (self.first[sequence] + head * self.rows(sequence) + row) * self.head_dim;
        &mut self.data[first..first + self.head_dim]
    }

    /// Number of rows of a sequence.
    pub fn rows(&self, sequence: usize) -> usize {
        (self.first[sequence + 1] - self.first[sequence]) / self.heads
    }
}

/// Q, K and V of one case.
#[derive(Debug, Clone)]
pub struct Tensors {
    /// Q.
    pub q: Values,
    /// K.
    pub k: Values,
    /// V.
    pub v: Values,
    /// The second part of the queries, which is multiplied with V, if the problem has it.
    pub qv: Option<Values>,
    /// New rows, if the call has some: K and V here are the cache's contents including them, and Q is rotated.
    pub appended: Option<Appended>,
}

/// Rows of queries and of keys whose products are the scores.
pub struct ScoreFactors<'a> {
    /// Queries.
    pub q: Cow<'a, [f32]>,
    /// Keys.
    pub k: Cow<'a, [f32]>,
    /// Elements of a row of each.
    pub head_dim: usize,
}

/// Source of the tensors' values.
pub struct Source<'a> {
    rng: ChaCha8Rng,
    /// Pool of normally distributed numbers, longer than any row, from which rows are copied if drawing each number
    /// would take too long.
    pool: Option<&'a [f32]>,
}

impl Source<'static> {
    /// A source that draws every number from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), pool: None }
    }
}

impl<'a> Source<'a> {
    /// A source that copies rows of normal numbers from positions of `pool` that `seed` draws.
    pub fn from_pool(seed: u64, pool: &'a [f32]) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), pool: Some(pool) }
    }

    pub fn fill_normal(&mut self, into: &mut [f32]) {
        match self.pool {
            None => fill_normal(into, &mut self.rng),
            Some(pool) => {
                let from = self.rng.random_range(0..pool.len() - into.len());
                into.copy_from_slice(&pool[from..from + into.len()]);
            }
        }
    }
}

/// Step of the logits from one key to the next for `Rising` and `Falling`, times 1/2, 1 or 2 by row: with factor 1, 64
/// keys are e⁸ ≈ 2¹¹·⁵.
const LOGIT_STEP: f32 = 0.125;

/// Step of the logits from one key to the next for `Crossing`: over 32 keys weights change by 2¹⁸⁵.
const CROSSING_STEP: f32 = 4.0;

/// Logits, alternating by row, of the dominating key in `Overtaken`, beyond the logits of the earlier keys: they make
/// weights of 198.56 and 194.44, which bf16 and fp16 both round by nearly half a unit. In two parts, since one 16-bit
/// number is not fine enough.
const OVERTAKING: [[f32; 2]; 2] = [[5.25, 0.041_1], [5.25, 0.020_1]];

/// Minimum number of nonzero columns of V in `Overtaken`: if all columns of a wide V were nonzero, products with them,
/// as in MLA, would have a larger tolerance.
const OVERTAKEN_COLUMNS: usize = 64;

/// Number of parts of the keys of `Overtaken`, each with one key that might be overtaken.
const OVERTAKEN_PARTS: usize = 24;

/// Multipliers of the logits of `Overtaken`; -8 for keys of negligible weight.
fn overtaken_key(key: usize, keys: usize) -> f32 {
    let is_outside = !(keys / 3..keys - keys / 3).contains(&key);
    match key {
        _ if key == keys / 2 => 1.0,
        _ if is_outside && key.is_multiple_of((keys / OVERTAKEN_PARTS).max(1)) => 0.0,
        _ => -8.0,
    }
}

impl Tensors {
    /// Draws the values of `problem` from `seed` and rounds them to `number`.
    pub fn draw(problem: &Problem, head_dim: impl Into<Dims>, number: Number, seed: u64) -> Self {
        Self::draw_from(problem, head_dim, number, &mut Source::new(seed))
    }

    /// Draws the values of `problem` from a source of numbers and rounds them to `number`.
    pub fn draw_from(problem: &Problem, head_dim: impl Into<Dims>, number: Number, source: &mut Source<'_>) -> Self {
        let head_dim = head_dim.into();
        let mut fill = |tensor| fill(problem, tensor, head_dim, number, source);
        let (q, k, v) = (fill(Tensor::Q), fill(Tensor::K), fill(Tensor::V));
        let qv = problem.options.qv.then(|| fill(Tensor::QueryOfValues));
        let mut tensors = Self { q, k, v, qv, appended: None };
        append::apply(problem, &mut tensors, head_dim, number, source);
        tensors
    }

    /// The operands of a query head's scores: queries and keys; if they have two parts, both are concatenated.
    pub fn factors(&self, sequence: usize, head: usize, head_k: usize, head_dim: Dims) -> ScoreFactors<'_> {
        let (q, k) = (self.q.head(sequence, head), self.k.head(sequence, head_k));
        let Some(qv) = &self.qv else { return ScoreFactors { q: q.into(), k: k.into(), head_dim: head_dim.qk } };
        let joined = |first: &[f32], second: &[f32]| {
            let rows = first.chunks_exact(head_dim.qk).zip(second.chunks_exact(head_dim.v));
            rows.flat_map(|(first, second)| first.iter().chain(second).copied()).collect::<Vec<_>>()
        };
        let (q, k) = (joined(q, qv.head(sequence, head)), joined(k, self.v.head(sequence, head_k)));
        ScoreFactors { q: q.into(), k: k.into(), head_dim: head_dim.qk + head_dim.v }
    }

    /// Draws dO for the backward pass of the same case.
    pub fn draw_output_gradient(problem: &Problem, head_dim: impl Into<Dims>, number: Number, seed: u64) -> Values {
        Self::draw_output_gradient_from(problem, head_dim, number, &mut Source::new(!seed))
    }

    /// Draws dO from a source of numbers.
    pub fn draw_output_gradient_from(
        problem: &Problem,
        head_dim: impl Into<Dims>,
        number: Number,
        source: &mut Source<'_>,
    ) -> Values {
        fill(problem, Tensor::OutputGradient, head_dim.into(), number, source)
    }

    /// Draws dLSE for the backward pass of the same case: rows of one number.
    pub fn draw_lse_gradient_from(problem: &Problem, source: &mut Source<'_>) -> Values {
        let mut values = Values::zeros(problem, Side::Query, problem.heads, 1);
        values.data.chunks_exact_mut(1).for_each(|number| source.fill_normal(number));
        values
    }

    /// Lays the tensors out as `problem` specifies, with poisoned outputs.
    pub fn call(&self, problem: &Problem, head_dim: impl Into<Dims>, number: Number, causal: bool) -> Call {
        let head_dim = head_dim.into();
        let places: [Placement; 4] = std::array::from_fn(|tensor| place_of(problem, tensor, head_dim));
        let image = |tensor: usize, values: Option<&Values>| {
            let row = |sequence, head, row| values.map(|values| values.row(sequence, head, row));
            image(problem, tensor, head_dim, problem.number_of(tensor, number), row)
        };
        let place_lse = problem.place_lse();
        let lse = problem.lse.then(|| {
            let plan = problem.rows(Side::Query);
            let mut image = Image::poisoned(Element::Bits32, place_lse.span, place_lse.origin);
            for (sequence, rows) in problem.served_rows().enumerate() {
                for (head, row) in itertools::iproduct!(0..problem.heads, 0..rows) {
                    image.mark(problem.offset(&place_lse, Side::Query, &plan, sequence, row, head));
                }
            }
            image
        });
        let descales = problem.fp8.unwrap_or(Descales::Absent);
        let tensors = [("q", image(0, Some(&self.q))), ("k", image(1, Some(&self.k))), ("v", image(2, Some(&self.v)))];
        let total_rows =
            [Side::Query, Side::Key].map(|side| if problem.is_packed(side) { problem.rows(side).rows as i32 } else { 0 });
        let page_factors = PageFactors::of(problem);
        let indexed = problem.options.cache.is_some_and(Cache::is_indexed);
        let table = problem.page_table();
        let page_table = table.as_ref().map(|table| ("page_table", table.image()));
        let counter = problem.options.pages.filter(|pages| pages.counter).map(|_| ("work_counter", Image::of_integers(&[0, 0])));
        let mut call = Call {
            inputs: tensors
                .into_iter()
                .chain(self.qv.as_ref().map(|values| ("qv", image(QUERY_OF_VALUES, Some(values)))))
                .chain(lengths(problem))
                .chain(page_table)
                .chain(problem.cache_arrays())
                .chain(descales.images(problem))
                .chain(page_factors.iter().flat_map(PageFactors::images))
                .chain(options(problem, number))
                .collect(),
            outputs: [("o", image(3, None))].into_iter().chain(lse.map(|lse| ("lse", lse))).chain(counter).collect(),
            scratch: false,
            multiprocessors: problem.multiprocessors,
            params: Params::of(FwdParams {
                strides: places.map(|place| place.strides),
                lse_strides: [place_lse.strides.batch, place_lse.strides.head],
                descale_strides: std::array::from_fn(|tensor| descales.strides(tensor, problem.heads_k)),
                batch: problem.sequences.len() as i32,
                num_heads: problem.heads as i32,
                num_heads_k: problem.heads_k as i32,
                seqlen_q: problem.rows(Side::Query).bound as i32,
                seqlen_k: problem.rows(Side::Key).bound as i32,
                total_rows,
                num_splits: 0,
                concurrent_blocks: 0,
                head_dim: head_dim.qk as i32,
                head_dim_v: head_dim.v as i32,
                dtype: number.code(),
                kv_dtype: problem.options.kv.map_or(0, |format| format.number().code()),
                causal,
                merging: 0,
                arrivals: 0,
                softmax_scale: problem.softmax_scale(head_dim.qk),
                features: problem.feature_params(number),
                qv_strides: self.qv.as_ref().map(|_| place_of(problem, QUERY_OF_VALUES, head_dim).strides),
                pages: table.map(|table| PagedKeys {
                    table_stride: table.stride() as i64,
                    size: table.rows as i32,
                    count: table.count as i32,
                    query_limits: problem.options.query_limits.map(|limit| limit as i32),
                    descale_strides: page_factors.as_ref().map(PageFactors::strides).unwrap_or_default(),
                }),
                new_rows: None,
                cache_entries: problem.cache_table().filter(|_| indexed).map_or(0, |table| table.count as i32),
            }),
        };
        if let Some(appended) = &self.appended {
            appended.arrange(&mut call, self, problem, head_dim, number);
        }
        call
    }
}

/// Tensor number of QV, the second part of the queries.
const QUERY_OF_VALUES: usize = 8;

/// Tensor number `tensor` in memory: every row that `row` returns (by sequence, head and row), and poison elsewhere;
/// rows of sequences that the kernel skips are not part of the tensor.
pub fn image<'a>(
    problem: &Problem,
    tensor: usize,
    head_dim: impl Into<Dims>,
    number: Number,
    row: impl Fn(usize, usize, usize) -> Option<&'a [f32]>,
) -> Image {
    let (side, heads) = side_and_heads(problem, tensor);
    let head_dim = head_dim.into().of(tensor);
    let place = problem.place(tensor, side, heads, head_dim);
    let plan = problem.rows(side);
    let is_served = |sequence: usize| problem.options.serves_queries(problem.sequences[sequence].0);
    let mut image = Image::poisoned(number.element(), place.span, place.origin);
    for (sequence, rows) in problem.used_rows(side).enumerate() {
        for (head, index) in itertools::iproduct!(0..heads, 0..rows) {
            let offset = problem.offset(&place, side, &plan, sequence, index, head);
            let values = row(sequence, head, index);
            for d in 0..head_dim {
                match values {
                    Some(values) => image.put(offset + d as i64, number.round(values[d])),
                    None if is_served(sequence) => _ = image.mark(offset + d as i64),
                    None => {}
                }
            }
        }
    }
    image
}

/// The arrays that describe the lengths of the problem's sequences, by their names in `kgen.h`.
pub fn lengths(problem: &Problem) -> impl Iterator<Item = (&'static str, Image)> {
    let starts = |side| {
        let plan = problem.rows(side);
        plan.first.iter().copied().chain([plan.rows]).collect::<Vec<_>>()
    };
    let cache = problem.cache_table();
    let keys = cache.map_or_else(|| problem.used_rows(Side::Key).collect(), |table| table.lengths);
    let arrays = [
        ("cu_seqlens_q", problem.is_packed(Side::Query), starts(Side::Query)),
        ("cu_seqlens_k", problem.is_packed(Side::Key), starts(Side::Key)),
        ("seqused_q", problem.is_used(Side::Query), problem.used_rows(Side::Query).collect()),
        ("seqused_k", problem.is_used(Side::Key), keys),
    ];
    let before = problem.keys_before_new_rows();
    let wanted = arrays.into_iter().filter(|(_, wanted, _)| *wanted);
    wanted.map(move |(name, _, values)| {
        let values: Vec<i32> = values.into_iter().map(|v| v as i32).collect();
        let before = before.as_ref().filter(|_| name == "seqused_k");
        (name, Image::of_integers(before.unwrap_or(&values)))
    })
}

/// The tensors of the features and of the declared score that the problem requests, by their names in `kgen.h`.
pub fn options(problem: &Problem, number: Number) -> impl Iterator<Item = (&'static str, Image)> {
    let heads = problem.heads;
    let tables = problem.options.declared.into_iter().flat_map(move |call| {
        let table = move |index| Image::of_numbers(&(0..heads).map(|h| (h as i64, call.table(index, h))).collect::<Vec<_>>());
        SCORE_TABLES.into_iter().enumerate().take(call.tables()).map(move |(index, name)| (name, table(index)))
    });
    FEATURES.iter().flat_map(move |room| room.tensors(problem, number)).chain(tables)
}

/// One tensor's values, rounded to `number`.
fn fill(problem: &Problem, tensor: Tensor, head_dim: Dims, number: Number, source: &mut Source<'_>) -> Values {
    let (side, heads, head_dim) = match tensor {
        Tensor::Q => (Side::Query, problem.heads, head_dim.qk),
        Tensor::K => (Side::Key, problem.heads_k, head_dim.qk),
        Tensor::V => (Side::Key, problem.heads_k, head_dim.v),
        Tensor::OutputGradient | Tensor::QueryOfValues => (Side::Query, problem.heads, head_dim.v),
    };
    let number = match tensor {
        Tensor::K | Tensor::V => problem.number_of(1, number),
        Tensor::Q | Tensor::QueryOfValues | Tensor::OutputGradient => number,
    };
    let mut values = Values::zeros(problem, side, heads, head_dim);
    let mut rows = values.data.chunks_exact_mut(head_dim);
    for (sequence, count) in problem.used_rows(side).enumerate() {
        for (head, row) in itertools::iproduct!(0..heads, 0..count) {
            let place = Place { tensor, sequence, head, row, keys: problem.sequences[sequence].1 };
            let into = rows.next().expect("there is room for every row");
            fill_row(problem.inputs, place, into, source);
            for value in into.iter_mut() {
                *value = number.through(*value);
            }
        }
    }
    if side == Side::Key {
        values.share_rows(problem);
    }
    values
}

/// The layout of tensor number `tensor`.
pub fn place_of(problem: &Problem, tensor: usize, head_dim: Dims) -> Placement {
    let (side, heads) = side_and_heads(problem, tensor);
    problem.place(tensor, side, heads, head_dim.of(tensor))
}

/// Side and heads of Q, K, V, O, dO, dQ, dK, dV, QV by number.
pub fn side_and_heads(problem: &Problem, tensor: usize) -> (Side, usize) {
    if matches!(tensor, 1 | 2 | 6 | 7) { (Side::Key, problem.heads_k) } else { (Side::Query, problem.heads) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tensor {
    Q,
    K,
    V,
    /// dO.
    OutputGradient,
    /// QV.
    QueryOfValues,
}

/// The row being filled.
#[derive(Debug, Clone, Copy)]
struct Place {
    tensor: Tensor,
    sequence: usize,
    head: usize,
    row: usize,
    /// Keys of the sequence.
    keys: usize,
}

fn fill_row(inputs: Inputs, at: Place, into: &mut [f32], source: &mut Source<'_>) {
    let dim = into.len();
    match inputs {
        Inputs::Normal => source.fill_normal(into),
        // Random for all kinds of inputs, so that dP differs from key to key.
        _ if at.tensor == Tensor::OutputGradient && inputs != Inputs::OneHot => source.fill_normal(into),
        Inputs::OneHot => {
            into.fill(0.0);
            match at.tensor {
                Tensor::Q | Tensor::QueryOfValues => into[(5 * at.row + 3 * at.head + at.sequence) % dim] = 4.0,
                Tensor::K => into[(3 * at.row + at.row / dim + at.head) % dim] = 4.0,
                Tensor::V => into[(7 * at.row + at.head) % dim] = 1.0 + (at.row % 5) as f32 / 4.0,
                Tensor::OutputGradient => into[(11 * at.row + 2 * at.head) % dim] = 1.0 + (at.row % 3) as f32 / 2.0,
            }
        }
        Inputs::Constant | Inputs::Widest => into.fill(match at.tensor {
            Tensor::Q => 0.5,
            Tensor::K => 0.25,
            Tensor::QueryOfValues => 0.125,
            Tensor::V if inputs == Inputs::Widest => 448.0,
            Tensor::V | Tensor::OutputGradient => 1.0 + ((3 * at.sequence + at.head) % 7) as f32 / 4.0,
        }),
        Inputs::Positive => {
            source.fill_normal(into);
            if at.tensor == Tensor::V {
                for value in into.iter_mut() {
                    *value = 1.0 + value.abs() % 1.0;
                }
            }
        }
        // The logits must be exact, so they depend only on Q and K.
        Inputs::Large | Inputs::Crossing | Inputs::Rising | Inputs::Falling | Inputs::Overtaken
            if at.tensor == Tensor::QueryOfValues =>
        {
            into.fill(0.0);
        }
        Inputs::Large if at.tensor == Tensor::V => source.fill_normal(into),
        Inputs::Large => into.iter_mut().for_each(|value| *value = 4.0 * (source.rng.random_range(-1..=1) as f32)),
        Inputs::Low => {
            source.fill_normal(into);
            let mean = match at.tensor {
                Tensor::Q => 5.0,
                Tensor::K => -5.0,
                Tensor::V | Tensor::OutputGradient | Tensor::QueryOfValues => 0.0,
            };
            for value in into.iter_mut() {
                *value += mean;
            }
        }
        Inputs::Crossing => {
            source.fill_normal(into);
            match at.tensor {
                // Opposite signs for neighbouring rows, and for the two rows of a thread, which are 8 apart.
                Tensor::Q => {
                    let sign = if (at.row + at.row / 8).is_multiple_of(2) { 1.0 } else { -1.0 };
                    into.fill(0.0);
                    into[..3].fill(sign * CROSSING_STEP);
                }
                // The key's number in octal digits, which E4M3 represents.
                Tensor::K => {
                    for (power, digit) in into[..3].iter_mut().enumerate() {
                        let weight = 8_usize.pow(power as u32);
                        *digit = (at.row / weight % 8 * weight) as f32;
                    }
                }
                Tensor::V | Tensor::OutputGradient | Tensor::QueryOfValues => {}
            }
        }
        Inputs::Overtaken => {
            source.fill_normal(into);
            match at.tensor {
                Tensor::Q => {
                    into.fill(0.0);
                    into[..2].copy_from_slice(&OVERTAKING[at.row % OVERTAKING.len()]);
                }
                Tensor::K => into[..2].fill(overtaken_key(at.row, at.keys)),
                // Magnitudes just below a power of two, for which an error of a weight is the most units in the last
                // place of O.
                Tensor::V => {
                    let step = (dim / OVERTAKEN_COLUMNS).max(1);
                    for (column, value) in into.iter_mut().enumerate() {
                        let is_there = column.is_multiple_of(step);
                        *value = if is_there { value.signum() * (1.75 + value.abs() % 1.0 / 4.0) } else { 0.0 };
                    }
                }
                Tensor::OutputGradient | Tensor::QueryOfValues => {}
            }
        }
        Inputs::Rising | Inputs::Falling => {
            source.fill_normal(into);
            match at.tensor {
                // Only one element, and steps that are powers of two: the logits are exact in 16 bits up to 256 steps,
                // so that only the sums determine the tolerance.
                Tensor::Q => {
                    into.fill(0.0);
                    into[0] = [1.0, 0.5, 2.0][at.row % 3];
                }
                Tensor::K => {
                    let steps = if inputs == Inputs::Rising { at.row } else { at.keys - 1 - at.row };
                    into[0] = LOGIT_STEP * steps as f32;
                }
                Tensor::V | Tensor::OutputGradient | Tensor::QueryOfValues => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::oracle::problem::{Layout, Lengths, Scale};

    #[test]
    fn normal_values_have_mean_zero_and_variance_one() {
        let mut values = vec![0.0; 20_000];
        fill_normal(&mut values, &mut ChaCha8Rng::seed_from_u64(1));
        let mean = values.iter().sum::<f32>() / 2e4;
        let variance = values.iter().map(|v| v * v).sum::<f32>() / 2e4;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }

    #[test]
    fn the_same_seed_draws_the_same_tensors_and_another_draws_others() {
        let problem = Problem::new(&[(3, 5)], 2, 1);
        let draw = |seed| Tensors::draw(&problem, 16, Number::Bf16, seed).v.data;
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn a_call_holds_each_value_at_its_strides_and_poison_elsewhere() {
        let problem = Problem::new(&[(3, 2), (1, 4)], 2, 1).layout(Layout::Unaligned).lengths(Lengths::Used);
        let tensors = Tensors::draw(&problem, 16, Number::Fp16, 1);
        let call = tensors.call(&problem, 16, Number::Fp16, false);
        let FwdParams { strides: [q, k, ..], seqlen_q, seqlen_k, .. } = *call.params.get().expect("a forward call");
        let value = |offset| Number::Fp16.widen(call.inputs[0].1.bits(offset));
        assert_eq!(value(q.head + 2 * q.row + 7), tensors.q.head(0, 1)[2 * 16 + 7]);
        assert_eq!(value(q.batch + 15), tensors.q.head(1, 0)[15]);
        let unused = call.inputs[1].1.bits(2 * k.row);
        assert!(Number::Fp16.widen(unused).is_nan(), "rows of K behind the used ones are poison");
        assert_eq!((seqlen_q, seqlen_k), (6, 7), "bounds count the unused rows");
        assert!(call.inputs.iter().chain(&call.outputs).all(|(_, image)| image.first_damage().is_none()));
    }

    #[test]
    fn large_logits_are_exact_in_both_types() {
        let problem = Problem::new(&[(40, 40)], 1, 1).inputs(Inputs::Large, Scale::Quarter);
        let tensors = Tensors::draw(&problem, 256, Number::Bf16, 3);
        let (q, k) = (tensors.q.head(0, 0), tensors.k.head(0, 0));
        for (q, k) in itertools::iproduct!(q.chunks(256), k.chunks(256)) {
            let logit = 0.25 * q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>();
            assert_eq!((Number::Bf16.through(logit), Number::Fp16.through(logit)), (logit, logit));
        }
    }
}
