//! Cases of a declared score: each of its sets of real numbers, and integers at the borders of the kernel's tiles, one
//! before and after them, and far outside, where rows see every key or none.

use crate::{
    expression::{KeptScore, List},
    family::attention::{
        CallOptions, DeclaredCall,
        oracle::problem::{Inputs, Layout, Lengths, Problem, Scale},
    },
};
/// Integers for a tile of `m` queries and `n` keys.
fn integers(m: usize, n: usize) -> Vec<i32> {
    let [m, n] = [m, n].map(|rows| rows as i32);
    vec![n - 1, n, n + 1, m, m + 1, 1, 0, -3, 17, 2 * n + 1, 1_000_000]
}

/// The calls of a kernel with `score`, for tiles of `m` queries and `n` keys.
pub(super) fn calls(score: KeptScore, m: usize, n: usize) -> Vec<DeclaredCall> {
    let usual = DeclaredCall::usual(score);
    let sets = DeclaredCall::sets(score).into_iter().map(|set| DeclaredCall { set, ..usual });
    let has_integers = !score.names.names(List::Integers).is_empty();
    let integers = if has_integers { integers(m, n) } else { Vec::new() };
    sets.chain(integers.into_iter().map(|integer| DeclaredCall { integer, ..usual })).collect()
}

/// The problems of a forward kernel with `score`.
pub(super) fn forward(score: KeptScore, m: usize, n: usize) -> Vec<Problem> {
    let asking = |problem: Problem, call: DeclaredCall| {
        let options = CallOptions { declared: Some(call), ..problem.options };
        problem.asking(options)
    };
    let mut problems = Vec::new();
    for call in calls(score, m, n) {
        problems.push(asking(Problem::new(&[(2 * m + 3, 3 * n + 5)], 2, 1), call));
    }
    for set in DeclaredCall::sets(score) {
        let call = DeclaredCall { set, integer: n as i32 + 3, score };
        // Unlike lengths and heads; rows before the first key; logits far apart.
        let batch = Problem::new(&[(17, 64), (65, 2 * n + 9), (0, 3), (1, 3 * n + 2), (9, 0)], 6, 3).lengths(Lengths::Packed);
        problems.push(asking(batch, call));
        problems.push(asking(Problem::new(&[(2 * m + 5, 17)], 4, 2).layout(Layout::Bhsd), call));
        problems.push(asking(Problem::new(&[(65, n + 9)], 2, 1).inputs(Inputs::Large, Scale::Quarter), call));
        problems.push(asking(Problem::new(&[(33, n + 1)], 2, 2).inputs(Inputs::Normal, Scale::Zero), call));
    }
    problems
}
