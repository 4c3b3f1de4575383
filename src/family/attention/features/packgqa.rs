//! packgqa: the queries of all heads that share a key head are rows of one tile.

use super::{
    FeatureRoom,
    paged::{by_counter, in_pages},
    shapes::Borders,
};
use crate::{
    family::attention::{
        CallOptions,
        oracle::problem::{Inputs, Layout, Lengths, Problem, Scale},
    },
    kernel::Feature,
};

/// The feature `packgqa`. Every call can use it, so none requires it.
pub struct PackGqa;

impl FeatureRoom for PackGqa {
    fn feature(&self) -> Feature {
        Feature::PackGqa
    }

    /// Group sizes that divide a tile's rows and others, from one head to more heads than rows, so that tiles start and
    /// end within a query. Kernels that load whole tiles support at most as many heads as a warpgroup has rows.
    fn forward(&self, borders: &Borders) -> Vec<Problem> {
        let &Borders { m, n, whole_tiles, .. } = borders;
        let most = if whole_tiles { 64 } else { m + 6 };
        let unlike = [(m / 4 + 3, 2 * n + 9), (1, 3 * n + 2), (0, 5), (2, 0), (m / 2, n), (7, 3)];
        let mut cases = vec![
            Problem::new(&[(m / 4 + 3, n + 5)], 8, 2),
            Problem::new(&[(m / 2 + 1, 2 * n + 1)], 6, 2).layout(Layout::Bhsd),
            Problem::new(&[(m / 7 + 2, n + 1), (3, n)], 14, 2).lengths(Lengths::Used).layout(Layout::Padded),
            Problem::new(&[(m + 5, n + 17)], 3, 3),
            Problem::new(&[(3, n + 9)], most, 1),
            Problem::new(&[(5, n + 3), (2, 17)], 80, 2).lengths(Lengths::Used),
            Problem::new(&unlike, 8, 2).lengths(Lengths::PackedQuery).layout(Layout::Padded),
            Problem::new(&unlike, 10, 2).lengths(Lengths::Used),
            Problem::new(&unlike, 12, 4).lengths(Lengths::Packed).layout(Layout::Unaligned),
        ];
        if borders.features.has(Feature::Paged) {
            cases.extend(decoding(m, n));
        }
        cases
    }
}

/// Batches of an inference engine: sequences of a few queries, with enough keys for all warpgroups to share or fewer,
/// mixed with prompts. With few blocks, each gets several of both kinds; and there are more sequences than a warp
/// counts at once.
fn decoding(m: usize, n: usize) -> Vec<Problem> {
    let step = [
        (1, 4 * n + 9),
        (m / 2 + 3, 2 * n + 40),
        (1, 7 * n + 1),
        (3, 6 * n),
        (1, 3 * n - 1),
        (1, 20),
        (m / 4 + 1, n),
        (2, 9 * n + 17),
    ];
    let decodes = [(1, 3 * n + 5), (2, 8 * n - 1), (1, 2 * n + 1), (0, 4 * n), (1, 2 * n), (4, 5 * n + 16), (1, 6 * n + 30)];
    let of = |sequences: &[(usize, usize)], heads, heads_k| Problem::new(sequences, heads, heads_k).lengths(Lengths::PackedQuery);
    vec![
        of(&step, 8, 2).asking(in_pages(16, 0)).on(3),
        of(&step, 4, 1).repeated(6).asking(by_counter(16, 0)).on(2),
        // Group sizes that do not divide a warpgroup's rows; the maximum number of shared rows, and more.
        of(&step, 14, 2).inputs(Inputs::Falling, Scale::Usual).asking(by_counter(32, 0)).on(2),
        of(&decodes, 6, 2).inputs(Inputs::Crossing, Scale::Usual).asking(in_pages(16, 0)).on(2),
        of(&decodes, 8, 1).inputs(Inputs::Rising, Scale::Usual).layout(Layout::Padded).asking(by_counter(16, 0)).on(2),
        of(&decodes, 16, 2).repeated(2).asking(in_pages(16, 0)).on(4),
        // Two items with shared keys and one without in the same block, so that leftover state would show.
        of(&[(1, 3 * n + 5), (1, 4 * n), (9, 20)], 8, 1).asking(by_counter(16, 0)).on(1),
        // Rows after the last head's, which are idle.
        of(&[(2, 3 * n + 5), (2, 6 * n)], 12, 1).asking(in_pages(16, 0)),
        of(&step, 8, 2).asking(CallOptions { query_limits: [2, 0], ..by_counter(16, 0) }).on(2),
        Problem::new(&step, 10, 2).lengths(Lengths::Used).inputs(Inputs::Constant, Scale::Zero).asking(by_counter(64, 0)).on(2),
    ]
}
