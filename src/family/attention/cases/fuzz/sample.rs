//! Rows of a forward call that are compared with float64: all rows of a small call; some rows of many heads of a large
//! one.

use crate::family::attention::oracle::{
    arithmetic::{Arithmetic, Sums},
    dims::Dims,
    problem::Problem,
    reference::Sample,
};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Maximum number of multiplications for Q Kᵀ in the reference of one call: about 50 ms on one core.
const PRODUCTS: usize = 20 << 20;

/// [`PRODUCTS`] if every sum is truncated as in Hopper's FP8 tensor cores.
const TRUNCATED_PRODUCTS: usize = 6 << 20;

/// Minimum number of heads over which a large call's samples are distributed, if it has as many.
const HEADS: usize = 24;

/// Draws the samples, in ascending order of sequence and head.
pub fn draw(problem: &Problem, head_dim: Dims, arithmetic: Arithmetic, seed: u64) -> Vec<Sample> {
    let budget = if arithmetic.sums == Sums::Truncated { TRUNCATED_PRODUCTS } else { PRODUCTS };
    let mut rng = ChaCha8Rng::seed_from_u64(seed.rotate_left(17));
    let mut heads: Vec<(usize, usize)> = itertools::iproduct!(0..problem.sequences.len(), 0..problem.heads).collect();
    heads.shuffle(&mut rng);
    let mut left = budget;
    let mut samples = Vec::new();
    for (sequence, head) in heads {
        let (rows, keys) = problem.sequences[sequence];
        if rows == 0 {
            continue;
        }
        // Reading a head's keys costs as much as this many rows.
        let elements = keys * (head_dim.qk + head_dim.v) / 2;
        let fixed = 3 * elements;
        let row_cost = elements.max(1);
        if !samples.is_empty() && left < fixed + row_cost {
            continue;
        }
        let share = (budget / HEADS).max(left.saturating_sub(fixed) / HEADS);
        let affordable = (share / row_cost).clamp(2, rows.max(2));
        let rows = if affordable >= rows { (0..rows).collect() } else { some_rows(&mut rng, rows, affordable) };
        left = left.saturating_sub(fixed + rows.len() * row_cost);
        samples.push(Sample { sequence, head, rows });
    }
    samples.sort_unstable_by_key(|sample| (sample.sequence, sample.head));
    samples
}

/// The first and the last row, and random ones between.
fn some_rows(rng: &mut ChaCha8Rng, rows: usize, count: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (2..count).map(|_| rng.random_range(0..rows)).chain([0, rows - 1]).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}
