//! Cases of masks and scores of the backward pass: each feature of a kernel alone, all pairs, and all together.

use super::{
    backward::BackwardProblem,
    declared,
    featured::{capped, chunk_of, sloped, sunk, together, window_of, windows},
    problem::{Inputs, Layout, Lengths, Problem, Scale},
};
use crate::{
    check::{Level, Subject},
    family::attention::{Asked, Point, SinkType, Slopes},
    kernel::Feature,
};
use itertools::Itertools;

/// The cases of a kernel's features; none of a plain one. Its blocks take a tile of keys and iterate over the queries
/// that see them; a deterministic pass has one more kernel, whose blocks take queries: both ends of what a query sees
/// and of what sees a key.
pub fn cases(subject: &Subject<Point>, level: Level) -> Vec<BackwardProblem> {
    let features = subject.variant.features;
    let (m, n) = (subject.tiling.m, subject.tiling.n);
    let (plain, deterministic) = (BackwardProblem::plain, BackwardProblem::deterministic);
    let both = |problem: Problem| [plain(problem.clone()), deterministic(problem)];
    let mut cases = Vec::new();
    if features.has(Feature::Window) {
        // Each window in one of the passes, and where a side ends at a tile's border in both.
        for (number, window) in windows(m, m, level).into_iter().enumerate() {
            let problem = walked(m, n).asking(window_of(window));
            cases.push(if number % 2 == 0 { plain(problem) } else { deterministic(problem) });
        }
        cases.extend(both(walked(m, n).asking(window_of([n as i32, 0]))));
        // The first query that sees a tile's last key is the second of its tile of queries.
        cases.push(plain(walked(m, n).asking(window_of([-1, m as i32 - 4]))));
        // More queries than see a tile of keys: query tiles on both sides are skipped.
        cases.extend(both(Problem::new(&[(4 * m + 3, n + 9)], 2, 1).asking(window_of([7, 3]))));
        // Rows that see nothing, and keys that no row sees.
        cases.extend(both(Problem::new(&[(2 * m + 5, 17)], 2, 1).layout(Layout::Bhsd).asking(window_of([3, 2]))));
        cases.extend(both(Problem::new(&[(5, 2 * n + 3)], 2, 1).asking(window_of([3, 2]))));
        cases.push(plain(Problem::new(&[(40, 17), (9, 0), (3, 200)], 2, 2).lengths(Lengths::Packed).asking(window_of([5, 0]))));
    }
    if features.has(Feature::Chunk) {
        let chunks = [1, m - 1, m, m + 1, n - 1, n, n + 1, 100_000];
        for (number, chunk) in chunks.into_iter().enumerate() {
            let problem = walked(m, n).asking(chunk_of(chunk));
            cases.push(if number % 2 == 0 { plain(problem) } else { deterministic(problem) });
        }
        cases.extend(both(Problem::new(&[(2 * m + 5, 33)], 2, 1).asking(chunk_of(16))));
        cases.extend(both(Problem::new(&[(3 * m + 1, 2 * n + 1)], 1, 1).asking(chunk_of(n + 1))));
    }
    if features.has(Feature::Softcap) {
        cases.extend(both(Problem::new(&[(65, n + 9)], 2, 1).inputs(Inputs::Large, Scale::Quarter).asking(capped(3000))));
        cases.extend(both(Problem::new(&[(33, n + 1)], 2, 2).inputs(Inputs::Normal, Scale::One).asking(capped(50))));
        cases.push(plain(Problem::new(&[(m + 1, 70)], 2, 1).asking(capped(100))).with_lse_gradient());
        cases.extend(both(Problem::new(&[(17, n)], 1, 1).inputs(Inputs::Normal, Scale::Zero).asking(capped(200))));
    }
    if features.has(Feature::Alibi) {
        cases.extend(both(Problem::new(&[(m + 1, 33)], 8, 2).asking(sloped(Slopes::ByHead))));
        cases.extend(both(packed(m, n).asking(sloped(Slopes::ByBatchAndHead))));
        cases.extend(both(
            Problem::new(&[(m + 1, 17)], 2, 2).inputs(Inputs::Constant, Scale::Zero).asking(sloped(Slopes::ByHead)),
        ));
    }
    if features.has(Feature::Sinks) {
        cases.extend(both(Problem::new(&[(m + 1, 70)], 10, 5).asking(sunk(SinkType::Bf16))));
        // Rows without keys have the sink alone.
        let short = Problem::new(&[(2 * m, 17), (3, 0), (5, n)], 5, 5).lengths(Lengths::Packed).asking(sunk(SinkType::Fp32));
        cases.extend(both(short));
        cases.push(plain(Problem::new(&[(0, 17); 2], 5, 1).asking(sunk(SinkType::Fp32))));
        cases.push(plain(Problem::new(&[(17, 17); 3], 5, 5).lengths(Lengths::Used).asking(sunk(SinkType::Fp32))));
        // Scores of both signs beside sinks far above and below them. (Low ones leave gradients below 2^-126, which the
        // GPU's exponentials flush to zero.)
        cases.push(plain(Problem::new(&[(33, 70)], 5, 1).inputs(Inputs::Large, Scale::Quarter).asking(sunk(SinkType::Fp32))));
        // dLSE of rows that see no key is the sink's.
        let short = Problem::new(&[(2 * m, 17), (3, 0), (5, n)], 5, 5).lengths(Lengths::Packed).asking(sunk(SinkType::Fp32));
        cases.extend(both(short).map(BackwardProblem::with_lse_gradient));
        let asked = Problem::new(&[(17, 33)], 2, 1).asking(sunk(SinkType::Fp32));
        cases.push(BackwardProblem { sink_gradient: false, ..plain(asked) });
    }
    let all: Vec<Feature> = features.iter().collect();
    for (number, pair) in all.iter().array_combinations::<2>().enumerate() {
        let problem = packed(m, n).asking(together(&pair.map(|one| *one), m));
        cases.push(if number % 2 == 0 { plain(problem) } else { deterministic(problem) });
    }
    if all.len() > 2 {
        cases.extend(both(packed(m, n).asking(together(&all, m))));
        cases.extend(both(walked(m, n).layout(Layout::Padded).asking(together(&all, m))));
        cases.extend(both(Problem::new(&[(70, 113)], 5, 1).layout(Layout::Unaligned).asking(together(&all, m))));
        cases.push(plain(Problem::new(&[(1, n + 7); 3], 8, 2).asking(together(&all, m))));
    }
    for (number, call) in features.score().into_iter().flat_map(|score| declared::calls(score, m, n)).enumerate() {
        let asked = Asked { declared: Some(call), ..Asked::default() };
        let problem = walked(m, n).asking(asked);
        cases.push(if number % 2 == 0 { plain(problem) } else { deterministic(problem) });
        cases.push(if number % 2 == 1 { plain(packed(m, n).asking(asked)) } else { deterministic(packed(m, n).asking(asked)) });
    }
    cases
}

/// Several tiles of queries and of keys, of which the last ones are partial.
fn walked(m: usize, n: usize) -> Problem {
    Problem::new(&[(3 * m + 3, n + m + 5)], 1, 1)
}

/// Packed sequences of unlike lengths.
fn packed(m: usize, n: usize) -> Problem {
    Problem::new(&[(17, 40), (m + 1, n + 9), (0, 3), (1, m + 2), (9, 0)], 2, 1).lengths(Lengths::Packed)
}
