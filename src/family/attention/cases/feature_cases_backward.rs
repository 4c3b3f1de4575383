//! Cases of the features of a backward kernel: each alone, all pairs, and all together. Its blocks take a tile of keys
//! and iterate over the queries that see them; a deterministic pass has one more kernel, whose blocks take queries:
//! both ends of the keys that a query sees and of the queries that see a key.

use super::declared;
use crate::{
    check::{Level, Subject},
    family::attention::{
        CallOptions, Point,
        features::{Borders, both, by_turns, rooms, together},
        oracle::{
            backward::BackwardProblem,
            problem::{Layout, Problem},
        },
    },
    kernel::Feature,
};
use itertools::Itertools;

/// The cases of a kernel's features; empty for a plain kernel.
pub fn cases(subject: &Subject<Point>, level: Level) -> Vec<BackwardProblem> {
    let borders = Borders::backward(subject, level);
    let Borders { features, m, n, .. } = borders;
    let mut cases: Vec<BackwardProblem> = rooms(features).flat_map(|room| room.backward(&borders)).collect();
    let all: Vec<Feature> = features.iter().collect();
    let pairs = all.iter().copied().array_combinations::<2>();
    cases.extend(by_turns(pairs.map(|pair| borders.packed().asking(together(&pair, m)))));
    if all.len() > 2 {
        cases.extend(both(borders.packed().asking(together(&all, m))));
        cases.extend(both(borders.walked().layout(Layout::Padded).asking(together(&all, m))));
        cases.extend(both(Problem::new(&[(70, 113)], 5, 1).layout(Layout::Unaligned).asking(together(&all, m))));
        cases.push(BackwardProblem::plain(Problem::new(&[(1, n + 7); 3], 8, 2).asking(together(&all, m))));
    }
    for (number, call) in features.score().into_iter().flat_map(|score| declared::calls(score, m, n)).enumerate() {
        let options = CallOptions { declared: Some(call), ..CallOptions::default() };
        let problems = [borders.walked(), borders.packed()].map(|problem| problem.asking(options));
        let ways = [BackwardProblem::plain, BackwardProblem::deterministic].into_iter().cycle().skip(number % 2);
        cases.extend(problems.into_iter().zip(ways).map(|(problem, way)| way(problem)));
    }
    cases
}
