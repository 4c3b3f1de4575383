//! Shapes shared by the cases of several features.

use crate::{
    check::{Level, Subject},
    family::attention::{
        Point,
        oracle::backward::BackwardProblem,
        oracle::problem::{Inputs, Lengths, Problem, Scale},
    },
    kernel::Features,
};

/// Tile sizes of a kernel; cases end at their multiples and next to them.
pub struct Borders {
    /// The kernel's features.
    pub features: Features,
    /// Query rows per tile.
    pub m: usize,
    /// Keys per tile.
    pub n: usize,
    /// Number of key tiles in flight.
    pub stages: usize,
    /// True if the kernel loads whole tiles.
    pub whole_tiles: bool,
    /// Maximum number of cases.
    pub level: Level,
}

impl Borders {
    /// The borders of a forward kernel's tiles. The blocks of a cluster share keys.
    pub fn forward(subject: &Subject<Point>, level: Level) -> Self {
        let mut borders = Self::backward(subject, level);
        borders.m *= subject.tiling.cluster;
        borders
    }

    /// The borders of a backward kernel's tiles.
    pub fn backward(subject: &Subject<Point>, level: Level) -> Self {
        let tiling = &subject.tiling;
        let features = subject.variant.features;
        Self { features, m: tiling.m, n: tiling.n, stages: tiling.stages, whole_tiles: tiling.whole_tiles, level }
    }

    /// Several tiles of queries and of keys, the last ones partial.
    pub fn long(&self) -> Problem {
        Problem::new(&[(2 * self.m + 3, 3 * self.n + 5)], 2, 1)
    }

    /// Varlen sequences of unequal lengths.
    pub fn batch(&self) -> Problem {
        let n = self.n;
        Problem::new(&[(17, 64), (65, 2 * n + 9), (0, 3), (1, 3 * n + 2), (9, 0)], 5, 5).lengths(Lengths::Packed)
    }

    /// Like `long`, for a backward pass.
    pub fn walked(&self) -> Problem {
        Problem::new(&[(3 * self.m + 3, self.n + self.m + 5)], 1, 1)
    }

    /// Like `batch`, for a backward pass.
    pub fn packed(&self) -> Problem {
        let (m, n) = (self.m, self.n);
        Problem::new(&[(17, 40), (m + 1, n + 9), (0, 3), (1, m + 2), (9, 0)], 2, 1).lengths(Lengths::Packed)
    }
}

/// A problem of the backward pass, deterministic and not.
pub fn both(problem: Problem) -> [BackwardProblem; 2] {
    [BackwardProblem::plain(problem.clone()), BackwardProblem::deterministic(problem)]
}

/// Problems of the backward pass, alternating between deterministic and not.
pub fn by_turns(problems: impl IntoIterator<Item = Problem>) -> impl Iterator<Item = BackwardProblem> {
    let ways = [BackwardProblem::plain, BackwardProblem::deterministic].into_iter().cycle();
    problems.into_iter().zip(ways).map(|(problem, way)| way(problem))
}

/// Splits of most cases.
pub const SPLITS: usize = 3;

/// One query of 300 keys.
pub fn decode(heads: usize, heads_k: usize) -> Problem {
    Problem::new(&[(1, 300)], heads, heads_k)
}

/// `problem` with inputs for which the results show the number of visible keys per row.
pub fn counted(problem: Problem) -> Problem {
    problem.inputs(Inputs::Constant, Scale::Zero)
}

/// Sequences with few queries, without queries, and without keys.
pub const UNLIKE: [(usize, usize); 5] = [(2, 300), (0, 40), (3, 0), (1, 17), (5, 131)];

/// A varlen batch of sequences of unequal lengths.
pub fn unlike() -> Problem {
    Problem::new(&UNLIKE, 4, 2).lengths(Lengths::Packed)
}

/// Splits of each sequence.
pub fn counts() -> Vec<usize> {
    vec![4, 1, 0, 2, 3]
}
