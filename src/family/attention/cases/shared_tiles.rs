//! Cases of dense and short kernels whose blocks share the keys of a query tile.

use super::split::{self, Division};
use crate::{
    check::{Case, Level, Subject},
    family::attention::{
        Point,
        oracle::problem::{Layout, Lengths, Problem},
    },
    plan::Tiling,
};
use itertools::Itertools;

/// The cases of a kernel whose blocks may share the keys of a query tile.
pub(super) fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
    let listed = split::listed(subject.variant, level).into_iter().flat_map(|(parts, _)| parts);
    let listed = listed.map(|(problem, splits, _)| (problem, splits));
    // Long lists of sequences are for counts, which these kernels do not read; they would have a block for every split.
    let fits = |(problem, splits): &(Problem, usize)| {
        *splits > 1 && problem.options.query_limits == [0; 2] && problem.sequences.len() <= 8
    };
    let cases = several_tiles(&subject.tiling).into_iter().chain(listed).filter(fits);
    let boxed = cases.map(|(problem, splits)| Box::new(case(subject, problem, splits)) as Box<dyn Case>);
    boxed.unique_by(|case| case.name()).collect()
}

/// A problem for such a kernel.
pub(super) fn case(subject: &Subject<Point>, problem: Problem, splits: usize) -> impl Case + use<> {
    split::case_divided(subject.variant, (problem, splits, None), Division::TilesFromEnd(subject.tiling.n))
}

/// Problems with several query tiles, and one in which each stage of a block is used three times.
fn several_tiles(tiling: &Tiling) -> [(Problem, usize); 3] {
    let often = 2 * (2 * tiling.stages + 1) * tiling.round() + 3;
    let unlike = [(70, 200), (3, 0), (0, 40), (64, 130), (1, 64)];
    [
        (Problem::new(&[(1, often)], 1, 1), 2),
        (Problem::new(&[(66, 200)], 2, 1).layout(Layout::Padded), 3),
        (Problem::new(&unlike, 2, 1).lengths(Lengths::Packed), 2),
    ]
}
