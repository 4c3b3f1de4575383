//! Cases of kernels with `qv` (MLA). Their tile is eight times as wide as that of most kernels, so these cases replace
//! those of other split kernels, and are fewer.

use super::split::overtaken;
use crate::{
    family::attention::{
        CallOptions, SinkType,
        features::{in_pages, sunk},
        oracle::{
            problem::{Inputs, Layout, Lengths, Part, Problem, Scale},
            split::Listed,
        },
    },
    kernel::{Feature, Features},
};
use itertools::iproduct;

const PARTS: [Part; 4] = [Part::Start, Part::Head, Part::Row, Part::Batch];

/// Sequences of unequal lengths: without queries, without keys, with one key, and longer than a tile.
const UNEQUAL: [(usize, usize); 6] = [(2, 300), (0, 40), (3, 0), (1, 1), (5, 131), (1, 64)];

/// Number of splits of each sequence in [`UNEQUAL`]: 0 if it has no query or no key. Rows without keys are still
/// written.
fn counts() -> Vec<usize> {
    vec![4, 0, 0, 1, 2, 9]
}

/// Cases of the smoke test with partial results.
pub(super) fn parts(features: Features) -> Vec<Listed> {
    // Decoding: a quarter of a tile's rows; splits that end inside a tile of keys.
    let mut cases = vec![(Problem::new(&[(1, 300)], 16, 1), 3, None)];
    if !features.has(Feature::Paged) {
        // Rows between varlen sequences belong to no sequence and hold NaN.
        cases.push((Problem::new(&[(3, 70), (2, 5), (1, 100)], 4, 1).lengths(Lengths::PackedUsed), 2, None));
    }
    // Queries are not loaded by TMA, so their alignment is free. The launcher must check each stride of each tensor.
    for (tensor, part) in iproduct!([0, 8, 1, 2], PARTS) {
        cases.push((Problem::new(&[(2, 17); 2], 2, 1).layout(Layout::UnalignedPart(tensor, part)), 1, None));
    }
    cases.extend([
        // A full tile of rows.
        (Problem::new(&[(1, 203); 2], 64, 1).layout(Layout::Bhsd), 2, None),
        // Speculative decoding: the heads of a query end inside a tile of rows.
        (Problem::new(&[(3, 150)], 24, 1).layout(Layout::Padded), 2, None),
        // Many queries; two key heads; rows that see no key.
        (Problem::new(&[(21, 113)], 8, 2), 3, None),
        (Problem::new(&[(40, 17)], 2, 1), 2, None),
        // More splits than units of keys.
        (Problem::new(&[(1, 65)], 4, 1), 9, None),
        // Unequal lengths.
        (Problem::new(&UNEQUAL, 16, 1).lengths(Lengths::Used).layout(Layout::Padded), 4, Some(counts())),
        (Problem::new(&UNEQUAL, 4, 1).lengths(Lengths::Packed), 9, Some(counts())),
        // Maxima of some rows increase while those of others stay; logits so low that an invalid key would outweigh all
        // others; the number of keys seen by each split.
        (Problem::new(&[(9, 257)], 2, 1).inputs(Inputs::Crossing, Scale::One), 2, None),
        (Problem::new(&[(3, 45)], 4, 1).inputs(Inputs::Low, Scale::Usual), 1, None),
        (Problem::new(&[(1, 331)], 4, 1).inputs(Inputs::Constant, Scale::Zero), 4, None),
    ]);
    if features.has(Feature::Paged) {
        // Pages equal to a tile, shorter, longer, and with more rows than keys; pages that TMA cannot load.
        for (rows, shared) in [(64, 1), (32, 3), (48, 0), (512, 0), (20, 0)] {
            cases.push((Problem::new(&[(1, 300)], 8, 1).asking(in_pages(rows, shared)), 3, None));
        }
        let options = CallOptions { query_limits: [0, 2], ..in_pages(64, 0) };
        cases.push((Problem::new(&UNEQUAL, 4, 1).lengths(Lengths::PackedQuery).asking(options), 4, Some(counts())));
    }
    cases
}

/// Cases of the smoke test without a workspace.
pub(super) fn wholes(features: Features) -> Vec<Listed> {
    let mut cases = vec![
        (Problem::new(&[(1, 129)], 128, 1).layout(Layout::Padded), 1, None),
        (Problem::new(&[(21, 113)], 8, 2), 1, None),
        // Each way of passing unequal lengths.
        (Problem::new(&UNEQUAL, 16, 1).lengths(Lengths::Used).layout(Layout::Padded), 1, Some(counts())),
        (Problem::new(&UNEQUAL, 4, 1).lengths(Lengths::Packed), 1, Some(counts())),
        (Problem::new(&UNEQUAL, 4, 2).lengths(Lengths::PackedQuery).layout(Layout::Bhsd), 1, None),
        (Problem::new(&[(3, 45)], 4, 2).without_lse(), 1, None),
        // One-hot contents; a new maximum in every tile, with a scale that overflows if a maximum is too low.
        (Problem::new(&[(2, 257)], 8, 1).inputs(Inputs::OneHot, Scale::One), 1, None),
        (Problem::new(&[(5, 257)], 4, 1).inputs(Inputs::Falling, Scale::Thousandths(4000)), 1, None),
        // One key dominates each row, and comes after other keys.
        (overtaken(), 1, None),
        // Sinks, which split kernels apply to the rows they finish themselves.
        (Problem::new(&[(1, 70), (2, 0)], 10, 2).lengths(Lengths::PackedQuery).asking(sunk(SinkType::Bf16)), 1, None),
        (Problem::new(&[(3, 40)], 2, 1).layout(Layout::ReversedTensor(0)), 1, None),
        (Problem::new(&[(3, 40)], 2, 1).layout(Layout::ReversedTensor(8)), 1, None),
        (Problem::new(&[(3, 40)], 2, 1).layout(Layout::Reversed), 1, None),
    ];
    for part in PARTS {
        cases.push((Problem::new(&[(2, 17); 2], 2, 1).layout(Layout::UnalignedPart(3, part)), 1, None));
    }
    if features.has(Feature::Paged) {
        let shares = Problem::new(&[(1, 150), (2, 300), (1, 33)], 4, 2).lengths(Lengths::Used);
        cases.push((shares.layout(Layout::Padded).asking(in_pages(64, 2)), 1, None));
    }
    cases
}

/// Additional cases of a thorough check.
pub(super) fn thorough() -> Vec<Listed> {
    let heads = [(16, 1), (64, 1), (128, 1), (8, 2), (5, 1)];
    let mut cases = Vec::new();
    for (number, (queries, keys)) in iproduct!([1, 2, 4, 65], [1, 16, 63, 64, 65, 128, 513]).enumerate() {
        let (heads, heads_k) = heads[number % heads.len()];
        cases.push((Problem::new(&[(queries, keys)], heads, heads_k), [1, 2, 7][number % 3], None));
    }
    for (inputs, scale) in [
        (Inputs::Normal, Scale::One),
        (Inputs::Large, Scale::Quarter),
        (Inputs::Rising, Scale::One),
        (Inputs::Falling, Scale::One),
    ] {
        cases.push((Problem::new(&[(3, 513)], 8, 1).inputs(inputs, scale), 3, None));
    }
    for (lengths, layout) in
        iproduct!([Lengths::Used, Lengths::Packed, Lengths::PackedQuery], [Layout::Bshd, Layout::Bhsd, Layout::Padded])
    {
        cases.push((Problem::new(&UNEQUAL, 16, 1).lengths(lengths).layout(layout), 9, Some(counts())));
    }
    cases
}
