//! Which rows of a forward call are compared with float64: all of a small one, and of a big one some of many heads.

use crate::family::attention::oracle::{
    arithmetic::{Arithmetic, Sums},
    dims::Dims,
    problem::Problem,
    reference::Sample,
};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// Products of Q Kᵀ that the reference of one call may compute: some 50 ms of one core.
const PRODUCTS: usize = 20 << 20;

/// The same where every product is rounded as Hopper's FP8 tensor cores do.
const TRUNCATED_PRODUCTS: usize = 6 << 20;

/// Heads of sequences that a big call's products are shared out over, at least where it has as many.
const HEADS: usize = 24;

/// Draws the samples, by sequence and head rising.
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
        // Reading a head's keys costs as much as some rows.
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

/// The first and the last row, and others at random.
fn some_rows(rng: &mut ChaCha8Rng, rows: usize, count: usize) -> Vec<usize> {
    let mut chosen: Vec<usize> = (2..count).map(|_| rng.random_range(0..rows)).chain([0, rows - 1]).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}
