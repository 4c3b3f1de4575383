//! Lists of cases. The lengths are chosen relative to the tiles: 1 and 17 are less than any tile, 64 and 128 fill some
//! exactly, 113, 203 and 257 leave partial tiles, 512 and 1023 are many steps.

use crate::{
    check::{Level, Subject},
    device::DeviceKind,
    family::attention::{
        Point,
        oracle::{
            backward::BackwardProblem,
            descale::Descales,
            memory_layout::Side,
            problem::{Inputs, Layout, Lengths, Part, Problem, Scale},
        },
    },
    kernel::Dtype,
    plan::Tiling,
};
/// Problems of forward attention, in order. The variant supplies the mask.
pub fn forward(subject: &Subject<Point>, level: Level) -> Vec<Problem> {
    match level {
        Level::Smoke => smoke().into_iter().chain(by_tiles(subject)).collect(),
        Level::Thorough => thorough().into_iter().chain(by_tiles(subject)).chain(batches(subject, level)).collect(),
    }
}

/// Problems of the smoke test whose lengths depend on the kernel's tiles.
fn by_tiles(subject: &Subject<Point>) -> impl Iterator<Item = Problem> + use<> {
    [last_key(subject)].into_iter().chain((subject.variant.dtype != Dtype::Fp8).then(|| overtaken(subject)))
}

/// Rows dominated by one key that comes after others in the tiles of any warpgroup, in either direction. There are so
/// few rows that all of them see keys of the last tile.
fn overtaken(subject: &Subject<Point>) -> Problem {
    Problem::new(&[(8, 3 * subject.tiling.round())], 1, 1).inputs(Inputs::Overtaken, Scale::One)
}

/// Under a causal mask only the last row of a query tile sees the last key of its tile, and that key outweighs the
/// others, so a range that ends too early gives a wrong result.
fn last_key(subject: &Subject<Point>) -> Problem {
    let rows = subject.tiling.m * subject.tiling.cluster;
    let keys = rows.next_multiple_of(subject.tiling.n) + 1;
    Problem::new(&[(rows, keys)], 1, 1).inputs(Inputs::Rising, Scale::One)
}

/// The problems of [`forward`] in FP8, with the additional ones of [`in_fp8`].
pub fn forward_fp8(subject: &Subject<Point>, level: Level) -> Vec<Problem> {
    in_fp8(forward(subject, level))
}

/// Keys whose sum of positive P V loses more than the tolerance in tensor cores that keep 14 bits of it.
const POSITIVE_KEYS: usize = 2048;

/// The problems of [`forward_tma`] in FP8, with the additional ones of [`in_fp8`].
pub fn forward_fp8_tma(subject: &Subject<Point>, level: Level) -> Vec<Problem> {
    in_fp8(forward_tma(subject, level))
}

/// These problems in FP8, with each layout of descales in turn; two problems that test only the descales; and maximal
/// sums, which fit fp16 only if P is kept small.
pub fn in_fp8(problems: Vec<Problem>) -> Vec<Problem> {
    let turns = [Descales::ByHead, Descales::Absent, Descales::Uniform];
    let turned = problems.into_iter().zip(turns.into_iter().cycle()).map(|(problem, descales)| problem.in_fp8(descales));
    let small = [Descales::Uniform, Descales::ByHead].map(|descales| Problem::new(&[(33, 65); 2], 4, 2).in_fp8(descales));
    let widest = Problem::new(&[(17, 257)], 1, 1).inputs(Inputs::Widest, Scale::Zero).in_fp8(Descales::Absent);
    let positive = Problem::new(&[(17, POSITIVE_KEYS)], 1, 1).inputs(Inputs::Positive, Scale::Usual).in_fp8(Descales::Absent);
    // A row alone in its warp whose maximum rises slightly from tile to tile, with a scale at which the increase
    // exceeds the range of E4M3.
    let sharp = Problem::new(&[(1, 513)], 32, 32).inputs(Inputs::Normal, Scale::Thousandths(4000)).in_fp8(Descales::Absent);
    turned.chain(small).chain([widest, positive, sharp]).collect()
}

/// The problems of [`forward`], and additional ones for persistent kernels that load whole tiles, including rows of
/// other sequences.
pub fn forward_tma(subject: &Subject<Point>, level: Level) -> Vec<Problem> {
    let mut cases = forward(subject, level);
    if level == Level::Smoke {
        cases.extend(batches(subject, level));
    }
    cases.extend([
        // Many work items per block; under a causal mask items without keys are among them.
        Problem::new(&[(203, 17)], 24, 4).layout(Layout::Bhsd),
        // NaN before and after every sequence; one tile has exactly one row of another sequence.
        Problem::new(&[(65, 113), (9, 0), (7, subject.tiling.n - 1), (33, 50), (113, 70)], 2, 1).lengths(Lengths::PackedUsed),
    ]);
    // More sequences than a warp counts at once, few of which have work; the longest is among the last.
    let mut crowd = vec![(0, 5); 36];
    (crowd[0], crowd[31], crowd[32], crowd[35]) = ((2, 3), (1, 9), (1, 1), (3, subject.tiling.round() + 1));
    cases.push(Problem::new(&crowd, 2, 1).lengths(Lengths::Packed));
    if subject.tiling.key_groups > 1 {
        // The largest logits of the falling rows are in the last group's tile, hundreds of powers of two above the
        // first group's.
        cases.push(Problem::new(&[(33, subject.tiling.round() - 1)], 1, 1).inputs(Inputs::Crossing, Scale::One));
    }
    if subject.variant.causal {
        // Several heads per group, and a smaller last group: two rounds on 16 multiprocessors are 10 heads of three
        // tiles.
        cases.push(Problem::new(&[(2 * subject.tiling.m * subject.tiling.cluster + 1, 17)], 12, 2).on(16));
        // More work items per head than blocks: a group has one head, never zero.
        cases.push(Problem::new(&[(3 * subject.tiling.m * subject.tiling.cluster, 17)], 2, 1).on(1));
    }
    cases
}

/// Realistic batches: varlen sequences of unequal lengths, so that a block gets dissimilar work items in sequence. The
/// lengths depend on the kernel's tiles, so that row groups with and without rows, one key tile and more than the
/// number of stages, and tiles with and without rows of other sequences alternate. On a GPU there is work for all
/// multiprocessors.
fn batches(subject: &Subject<Point>, level: Level) -> Vec<Problem> {
    let Tiling { m, stages, .. } = subject.tiling;
    let n = subject.tiling.round();
    let group = subject.tiling.group_rows();
    let alike: Vec<_> = [3, group + 1, 1, m + 1, n, 17, 0, group].map(|rows| (rows, rows)).into();
    // Only here a block that shares the keys of an item uses each stage a third time.
    let filled = if subject.tiling.key_groups > 1 { 2 * stages + 1 } else { stages + 1 };
    let unlike = [
        (1, filled * n + 1),
        (group + 1, n),
        (m, 5),
        (2, 0),
        (15, 5),
        (88, 15),
        (0, 9),
        (group, n + 1),
        (m + 3, 2 * n),
        (1, 1),
        (group + 2, stages * n + 3),
    ];
    let packed = |sequences: &[(usize, usize)], heads, heads_k, lengths| {
        let problem = Problem::new(sequences, heads, heads_k).lengths(lengths);
        let pieces = subject.tiling.pieces(problem.rows(Side::Query).bound, heads, sequences.len());
        let times = if subject.device == DeviceKind::Gpu { PIECES_ON_A_GPU.div_ceil(pieces) } else { 1 };
        problem.repeated(times)
    };
    let mut cases = vec![packed(&alike, 3, 3, Lengths::Packed), packed(&unlike, 2, 1, Lengths::Packed)];
    if subject.device == DeviceKind::Gpu {
        cases.extend([Problem::encoder(64, 4, 128, 12, 12), Problem::encoder(32, 4, 400, 8, 2)]);
    } else {
        cases.push(Problem::encoder(12, 4, 128, 2, 2));
    }
    if level == Level::Thorough {
        let backwards: Vec<_> = unlike.iter().rev().copied().collect();
        cases.extend([
            packed(&backwards, 4, 2, Lengths::PackedUsed),
            packed(&unlike, 2, 2, Lengths::Used).layout(Layout::Padded),
            packed(&backwards, 2, 1, Lengths::PackedQuery).layout(Layout::Bhsd),
            // Heads with few tiles on many multiprocessors are distributed in groups.
            Problem::new(&[(m, 2 * n); 4], 16, 4).on(16),
            Problem::encoder(24, 1, m + 1, 4, 1).on(16),
            Problem::encoder(30, 4, 200, 2, 1).on(2),
        ]);
        if subject.device == DeviceKind::Gpu {
            cases.extend([
                Problem::encoder(512, 4, 128, 2, 1),
                Problem::encoder(256, 4, 128, 4, 4),
                Problem::encoder(100, 4, 100, 16, 16),
                Problem::encoder(40, 4, 300, 10, 2),
                Problem::encoder(48, 4, 250, 16, 4),
                Problem::encoder(64, 4, 200, 16, 16),
            ]);
        }
    }
    cases
}

/// Work items that give each multiprocessor of the largest Hopper GPU (132) at least four.
const PIECES_ON_A_GPU: usize = 600;

/// Lengths, of which `--thorough` runs all pairs.
const LENGTHS: [usize; 9] = [1, 17, 64, 113, 128, 203, 257, 512, 1023];

/// Query and key heads, of ratio 1, 4 and 8.
const HEADS: [(usize, usize); 3] = [(2, 2), (8, 2), (8, 1)];

fn smoke() -> Vec<Problem> {
    let mut cases = vec![
        // Partial tiles on both sides, several steps, different strides for every tensor.
        Problem::new(&[(113, 203)], 2, 2).layout(Layout::Padded),
        // More queries than keys: under a causal mask the first rows see no key, including whole query tiles.
        Problem::new(&[(257, 17)], 1, 1).layout(Layout::Bhsd),
        // Sequences without keys, and rows without keys under a causal mask; also without an LSE pointer.
        Problem::new(&[(40, 17), (9, 0)], 2, 2).lengths(Lengths::Packed).without_lse(),
        // GQA 4 with two key heads, exact tiles.
        Problem::new(&[(64, 128)], 8, 2),
        // One query with a GQA 8 group; one key.
        Problem::new(&[(1, 113)], 8, 1).layout(Layout::Bhsd),
        Problem::new(&[(3, 1)], 1, 1),
        // Unequal lengths, passed in both ways, with an empty sequence.
        Problem::new(&[(64, 17), (17, 130), (0, 5), (9, 0)], 2, 1).lengths(Lengths::Used).layout(Layout::Padded),
        Problem::new(&[(17, 64), (65, 113), (0, 3)], 2, 2).lengths(Lengths::Packed),
        // Element-wise loads and stores.
        Problem::new(&[(70, 113)], 1, 1).layout(Layout::Unaligned),
        // A new maximum in every step, so that the accumulator is rescaled each time.
        Problem::new(&[(17, 257)], 1, 1).inputs(Inputs::Falling, Scale::One),
        // One-hot contents, which reveal any misplaced element; reversed rows.
        Problem::new(&[(64, 257)], 1, 1).inputs(Inputs::OneHot, Scale::One).layout(Layout::Reversed),
        // Logits far apart, and no LSE pointer.
        Problem::new(&[(33, 128)], 1, 1).inputs(Inputs::Large, Scale::Quarter).without_lse(),
        // All weights are equal, so LSE reveals the number of visible keys.
        Problem::new(&[(65, 203)], 1, 1).inputs(Inputs::Constant, Scale::Zero),
        // A scale that overflows if the maximum is too low.
        Problem::new(&[(17, 257)], 1, 1).inputs(Inputs::Falling, Scale::Thousandths(4000)),
        // A scale that overflows if the rescale threshold is not divided by it, beyond the range of fp32 and bf16 too.
        Problem::new(&[(17, 257)], 1, 1).inputs(Inputs::Falling, Scale::Thousandths(64_000)),
        // Maxima of some rows increase while those of their neighbours stay.
        Problem::new(&[(33, 257)], 1, 1).inputs(Inputs::Crossing, Scale::One),
        // Logits so low that an invalid key would outweigh all others, and that only -infinity is a valid initial
        // maximum.
        Problem::new(&[(33, 45)], 1, 1).inputs(Inputs::Low, Scale::Usual),
        // Decoding: one query per sequence, with different keys.
        Problem::new(&[(1, 130), (1, 17), (1, 203), (1, 64)], 4, 1).lengths(Lengths::PackedQuery),
    ];
    // A single tensor that TMA does not support, although 16-byte copies would.
    for tensor in 0..4 {
        cases.push(Problem::new(&[(17, 40)], 1, 1).layout(Layout::ReversedTensor(tensor)));
    }
    // One stride or start of one tensor unaligned: the launcher must check each. Small, because only the launch
    // decision is tested.
    for (tensor, part) in itertools::iproduct!(0..4, [Part::Start, Part::Head, Part::Row, Part::Batch]) {
        cases.push(Problem::new(&[(17, 17); 2], 2, 2).layout(Layout::UnalignedPart(tensor, part)));
    }
    // Rows of O that see no key, written element by element.
    cases.push(Problem::new(&[(260, 17)], 1, 1).layout(Layout::UnalignedPart(3, Part::Row)));
    // The batch stride of the side that is not varlen matters if the other side is.
    for (lengths, tensor) in
        [(Lengths::PackedKey, 0), (Lengths::PackedQuery, 1), (Lengths::PackedQuery, 2), (Lengths::PackedKey, 3)]
    {
        cases.push(Problem::new(&[(17, 17); 2], 2, 2).lengths(lengths).layout(Layout::UnalignedPart(tensor, Part::Batch)));
    }
    cases
}

fn thorough() -> Vec<Problem> {
    let mut cases = smoke();
    let layouts = [Layout::Bshd, Layout::Bhsd, Layout::Padded, Layout::Unaligned, Layout::Reversed];
    let mut number = 0;
    for queries in LENGTHS {
        for keys in LENGTHS {
            let (heads, heads_k) = HEADS[number % HEADS.len()];
            let batch = if queries * keys <= 128 * 128 { 2 } else { 1 };
            cases.push(Problem::new(&vec![(queries, keys); batch], heads, heads_k).layout(layouts[number % layouts.len()]));
            number += 1;
        }
    }
    // Each kind of contents on shapes with more queries, with more keys, and with equal numbers.
    for (queries, keys) in [(113, 203), (203, 113), (257, 257), (17, 1023)] {
        for (inputs, scale) in [
            (Inputs::Normal, Scale::Zero),
            (Inputs::Normal, Scale::One),
            (Inputs::OneHot, Scale::One),
            (Inputs::Constant, Scale::Usual),
            (Inputs::Large, Scale::Quarter),
            (Inputs::Rising, Scale::One),
            (Inputs::Falling, Scale::One),
        ] {
            cases.push(Problem::new(&[(queries, keys)], 2, 1).inputs(inputs, scale));
        }
    }
    // Unequal lengths, passed in every way, in every layout.
    let unequal = [(113, 203), (1, 257), (0, 64), (64, 0), (128, 17), (257, 128)];
    for lengths in [Lengths::Used, Lengths::Packed, Lengths::PackedQuery] {
        for layout in layouts {
            cases.push(Problem::new(&unequal, 4, 1).lengths(lengths).layout(layout));
        }
    }
    // No keys, no queries, and no LSE pointer.
    cases.push(Problem::new(&[(113, 0)], 2, 1));
    cases.push(Problem::new(&[(0, 113)], 2, 1));
    cases.push(Problem::new(&[(113, 203)], 8, 2).without_lse());
    cases
}

/// Problems of backward attention, in order.
pub fn backward(subject: &Subject<Point>, level: Level) -> Vec<BackwardProblem> {
    let (plain, deterministic) = (BackwardProblem::plain, BackwardProblem::deterministic);
    let mut cases = vec![
        // Partial tiles on both sides, several steps and key tiles, different strides for every tensor.
        plain(Problem::new(&[(113, 203)], 2, 2).layout(Layout::Padded)),
        deterministic(Problem::new(&[(113, 203)], 2, 1).layout(Layout::Padded)),
        // More queries than keys: under a causal mask the first rows see no key, including whole query tiles.
        plain(Problem::new(&[(257, 17)], 1, 1).layout(Layout::Bhsd)),
        deterministic(Problem::new(&[(130, 33)], 1, 1).layout(Layout::Bhsd)),
        // GQA 4 with two key heads, exact tiles; GQA 8 with one query.
        plain(Problem::new(&[(64, 128)], 8, 2)),
        plain(Problem::new(&[(1, 113)], 8, 1).layout(Layout::Bhsd)),
        // Unequal lengths, passed in both ways, with an empty side.
        plain(Problem::new(&[(64, 17), (17, 130), (0, 5), (9, 0)], 2, 1).lengths(Lengths::Used).layout(Layout::Padded)),
        BackwardProblem {
            total_q: true,
            ..plain(Problem::new(&[(17, 64), (65, 113), (0, 3), (4, 0)], 2, 2).lengths(Lengths::Packed))
        },
        deterministic(Problem::new(&[(17, 64), (65, 17)], 2, 1).lengths(Lengths::Packed)),
        // Element-wise loads and stores.
        plain(Problem::new(&[(70, 113)], 1, 1).layout(Layout::Unaligned)),
        deterministic(Problem::new(&[(70, 65)], 1, 1).layout(Layout::Unaligned)),
        // One-hot contents, which reveal any misplaced element; reversed rows.
        plain(Problem::new(&[(64, 157)], 1, 1).inputs(Inputs::OneHot, Scale::One).layout(Layout::Reversed)),
        // Logits far apart, and logits so low that an invalid key would outweigh the others.
        plain(Problem::new(&[(33, 128)], 1, 1).inputs(Inputs::Large, Scale::Quarter)),
        plain(Problem::new(&[(33, 45)], 1, 1).inputs(Inputs::Low, Scale::Usual)),
        deterministic(Problem::new(&[(33, 45)], 1, 1).inputs(Inputs::Low, Scale::Usual)),
        plain(Problem::new(&[(33, 70)], 1, 1).inputs(Inputs::Constant, Scale::Zero)),
    ];
    // With dLSE: varlen, padded, unaligned rows; rows that see no key, whose gradient is NaN.
    cases.extend([
        plain(Problem::new(&[(113, 203)], 2, 1).layout(Layout::Padded)).with_lse_gradient(),
        deterministic(Problem::new(&[(70, 65); 2], 2, 2).layout(Layout::Unaligned)).with_lse_gradient(),
        plain(Problem::new(&[(17, 64), (65, 30), (0, 3), (4, 0)], 2, 2).lengths(Lengths::Packed)).with_lse_gradient(),
        plain(Problem::new(&[(64, 17), (17, 130), (9, 0)], 2, 1).lengths(Lengths::Used)).with_lse_gradient(),
    ]);
    // Only the last query sees the last key of its tile.
    cases.extend([plain(last_key(subject)), deterministic(last_key(subject))]);
    // Four key tiles add to a dQ: atomic sums in another order of blocks would have different bits.
    cases.push(deterministic(Problem::new(&[(70, 3 * subject.tiling.n + 5)], 1, 1)));
    // Varlen queries that need the whole workspace: the last query is alone in its tile.
    let Tiling { m, n, .. } = subject.tiling;
    let tight = Problem::new(&[(m + 1, n + 1), (m - 1, 17), (1, n)], 2, 1).lengths(Lengths::Packed);
    for deterministic in [false, true] {
        cases.push(BackwardProblem { deterministic, total_q: true, ..plain(tight.clone()) });
    }
    // More sequences than the query tiles that their rows would fill: each still has a separate tile.
    let tiny = [(1, 2), (2, 1), (0, 3), (1, 1), (3, 2), (1, 4), (0, 0), (2, 2), (1, 3), (2, 5)];
    cases.push(BackwardProblem { total_q: true, ..plain(Problem::new(&tiny, 2, 2).lengths(Lengths::Packed)) });
    // Typical training shapes of an encoder.
    cases.push(plain(match subject.device {
        DeviceKind::Gpu => Problem::encoder(64, 4, 128, 4, 2),
        DeviceKind::Emulator => Problem::encoder(5, 4, 90, 2, 1),
    }));
    // One stride or start of one tensor unaligned: the launcher must check each. One block is enough.
    for (tensor, part) in itertools::iproduct!(0..8, [Part::Start, Part::Head, Part::Row, Part::Batch]) {
        let (batch, heads) = (if part == Part::Batch { 2 } else { 1 }, if part == Part::Head { 2 } else { 1 });
        cases.push(plain(Problem::new(&[(17, 17)].repeat(batch), heads, heads).layout(Layout::UnalignedPart(tensor, part))));
    }
    for (tensor, lengths) in
        (0..8).map(|tensor| (tensor, if [1, 2, 6, 7].contains(&tensor) { Lengths::PackedQuery } else { Lengths::PackedKey }))
    {
        let problem = Problem::new(&[(17, 17); 2], 1, 1).lengths(lengths).layout(Layout::UnalignedPart(tensor, Part::Batch));
        cases.push(BackwardProblem { total_q: lengths == Lengths::PackedQuery, ..plain(problem) });
    }
    if level == Level::Thorough {
        if subject.device == DeviceKind::Gpu {
            cases.push(plain(Problem::encoder(512, 4, 128, 2, 1)));
            cases.push(deterministic(Problem::encoder(100, 4, 200, 4, 4)));
        }
        cases.extend(
            thorough_backward().into_iter().map(|(problem, deterministic)| BackwardProblem { deterministic, ..plain(problem) }),
        );
    }
    cases
}

/// Cases that smoke omits, each with a flag that is true if it is deterministic (about a third of them).
fn thorough_backward() -> Vec<(Problem, bool)> {
    let layouts = [Layout::Bshd, Layout::Bhsd, Layout::Padded, Layout::Unaligned, Layout::Reversed];
    let mut cases = Vec::new();
    for (number, (queries, keys)) in itertools::iproduct!(LENGTHS, LENGTHS).enumerate() {
        let (heads, heads_k) = if queries * keys <= 257 * 257 { HEADS[number % HEADS.len()] } else { (2, 1) };
        let problem = Problem::new(&[(queries, keys)], heads, heads_k).layout(layouts[number % layouts.len()]);
        cases.push((problem, number % 4 == 3));
    }
    for (queries, keys) in [(113, 203), (203, 113), (17, 512)] {
        for (inputs, scale) in [
            (Inputs::Normal, Scale::Zero),
            (Inputs::Normal, Scale::One),
            (Inputs::OneHot, Scale::One),
            (Inputs::Constant, Scale::Usual),
            (Inputs::Large, Scale::Quarter),
            (Inputs::Low, Scale::Usual),
            (Inputs::Rising, Scale::One),
            (Inputs::Falling, Scale::One),
        ] {
            for deterministic in [false, true] {
                cases.push((Problem::new(&[(queries, keys)], 2, 1).inputs(inputs, scale), deterministic));
            }
        }
    }
    let unequal = [(113, 203), (1, 257), (0, 64), (64, 0), (128, 17), (257, 128)];
    for (lengths, layout) in itertools::iproduct!([Lengths::Used, Lengths::Packed, Lengths::PackedQuery], layouts) {
        for deterministic in [false, true] {
            cases.push((Problem::new(&unequal, 4, 1).lengths(lengths).layout(layout), deterministic));
        }
    }
    for deterministic in [false, true] {
        cases.push((Problem::new(&[(113, 0)], 2, 1), deterministic));
        cases.push((Problem::new(&[(0, 113)], 2, 1), deterministic));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::Kind,
        kernel::{Features, HeadDim, Target},
    };
    use std::collections::HashSet;

    fn subject(device: DeviceKind) -> Subject<Point> {
        let variant = Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(128),
            dtype: Dtype::Bf16,
            causal: true,
            features: Features::NONE,
            target: Target::Sm90,
        };
        let tiling =
            Tiling { m: 192, n: 128, stages: 2, row_groups: 3, key_groups: 1, whole_tiles: true, cluster: 1, persistent: true };
        Subject { variant, tiling, device }
    }

    #[test]
    fn every_case_of_a_level_has_its_own_name() {
        for level in [Level::Smoke, Level::Thorough] {
            for device in [DeviceKind::Emulator, DeviceKind::Gpu] {
                let mut names = HashSet::new();
                for case in forward_tma(&subject(device), level) {
                    assert!(names.insert(case.name(true)), "`{}` is there twice", case.name(true));
                }
            }
        }
    }

    #[test]
    fn every_case_in_fp8_has_its_own_name_and_every_way_of_giving_descales_is_there() {
        let cases = forward_fp8(&subject(DeviceKind::Emulator), Level::Thorough);
        let names: HashSet<String> = cases.iter().map(|case| case.name(false)).collect();
        assert_eq!(names.len(), cases.len());
        for descales in [Descales::Uniform, Descales::ByHead] {
            let several = |case: &&Problem| case.sequences.len() > 1 && case.heads_k > 1 && case.heads > case.heads_k;
            assert!(cases.iter().filter(several).any(|case| case.fp8 == Some(descales)), "{descales:?}");
        }
        assert!(cases.iter().any(|case| case.fp8 == Some(Descales::Absent)));
    }

    #[test]
    fn thorough_runs_every_pair_of_lengths_and_all_of_smoke() {
        let cases = thorough();
        for pair in itertools::iproduct!(LENGTHS, LENGTHS) {
            assert!(cases.iter().any(|c| c.lengths == Lengths::Uniform && c.sequences[0] == pair), "{pair:?}");
        }
        assert!(smoke().iter().all(|case| cases.contains(case)));
    }

    #[test]
    fn smoke_holds_every_ratio_of_heads_every_layout_and_a_row_that_sees_nothing() {
        let cases = smoke();
        let ratios: HashSet<usize> = cases.iter().map(|c| c.heads / c.heads_k).collect();
        assert!(ratios.is_superset(&HashSet::from([1, 4, 8])));
        for layout in [Layout::Bshd, Layout::Bhsd, Layout::Padded, Layout::Unaligned, Layout::Reversed] {
            assert!(cases.iter().any(|c| c.layout == layout), "{layout:?}");
        }
        assert!(cases.iter().any(|c| c.sequences.iter().any(|&(q, k)| q > k && k > 0)));
    }
}
