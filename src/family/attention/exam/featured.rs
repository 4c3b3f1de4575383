//! Cases of masks and scores: each feature of a kernel alone, all pairs, and all together. Windows and chunks end at
//! the borders of the kernel's tiles, and one before and after them.

use super::{
    declared,
    descale::Descales,
    problem::{Inputs, Layout, Lengths, Problem, Scale},
    split::{Listed, SPLIT_KEYS},
};
use crate::{
    check::{Level, Subject},
    family::attention::{Asked, Cache, KvFormat, PageDescales, Pages, Point, SinkType, Slopes},
    kernel::{Feature, Features},
};
use itertools::Itertools;

/// The cases of a kernel's features; none of a plain one.
pub fn cases(subject: &Subject<Point>, level: Level) -> Vec<Problem> {
    let features = subject.variant.features;
    let (m, n) = (subject.tiling.m * subject.tiling.cluster, subject.tiling.n);
    let mut cases = Vec::new();
    if features.has(Feature::Window) {
        cases.extend(windows(m, n, level).into_iter().map(|window| long(m, n).asking(window_of(window))));
        // Rows that see nothing: before the first key, and after the last one.
        cases.push(Problem::new(&[(2 * m + 5, 17)], 2, 1).layout(Layout::Bhsd).asking(window_of([3, 2])));
        cases.push(
            Problem::new(&[(40, 17), (9, 0), (3, 200)], 2, 2).lengths(Lengths::Packed).asking(window_of([5, 0])).without_lse(),
        );
    }
    if features.has(Feature::Chunk) {
        let chunks = [1, n - 1, n, n + 1, 2 * m + 1, 100_000];
        cases.extend(chunks.into_iter().map(|chunk| long(m, n).asking(chunk_of(chunk))));
        cases.push(Problem::new(&[(2 * m + 5, 33)], 2, 1).asking(chunk_of(16)));
        // More tiles than the rings have stages are hidden from all but the last five rows of the first tile of
        // queries, which see all. (V of FP8 goes through two rings.)
        let keys = ((2 * subject.tiling.stages + 3) * n).next_multiple_of(m) + 5;
        cases.push(Problem::new(&[(keys + m - 10, keys)], 1, 1).asking(chunk_of(100_000)));
    }
    if features.has(Feature::Softcap) {
        cases.push(Problem::new(&[(65, n + 9)], 2, 1).inputs(Inputs::Large, Scale::Quarter).asking(capped(3000)));
        cases.push(Problem::new(&[(33, 2 * n + 1)], 2, 2).inputs(Inputs::Normal, Scale::One).asking(capped(50)));
        cases.push(Problem::new(&[(17, n)], 1, 1).inputs(Inputs::Normal, Scale::Zero).asking(capped(200)));
    }
    if features.has(Feature::Alibi) {
        cases.push(Problem::new(&[(m + 1, 2 * n + 3)], 8, 2).asking(sloped(Slopes::ByHead)));
        cases.push(batch(n).asking(sloped(Slopes::ByBatchAndHead)));
        cases.push(Problem::new(&[(n + 1, 17)], 2, 2).inputs(Inputs::Constant, Scale::Zero).asking(sloped(Slopes::ByHead)));
    }
    if features.has(Feature::Sinks) {
        cases.push(Problem::new(&[(m + 1, n + 17)], 10, 5).asking(sunk(SinkType::Bf16)));
        // Rows without keys have the sink alone.
        cases.push(Problem::new(&[(2 * m, 17), (3, 0), (5, n)], 5, 5).lengths(Lengths::Packed).asking(sunk(SinkType::Fp32)));
        cases.push(Problem::new(&[(33, 70)], 5, 1).inputs(Inputs::Low, Scale::Usual).asking(sunk(SinkType::Fp32)));
    }
    if features.has(Feature::Paged) {
        cases.extend(paged(m, n, subject.tiling.whole_tiles));
    }
    if features.has(Feature::PackGqa) {
        cases.extend(packed_heads(m, n, subject.tiling.whole_tiles));
    }
    if features.has(Feature::PackGqa) && features.has(Feature::Paged) {
        cases.extend(decoding(m, n));
    }
    if features.has(Feature::Cache) {
        cases.extend(cached(m, n));
    }
    if KvFormat::of(features).is_some() {
        let counted = Problem::new(&[(m + 1, 2 * n + 3); 2], 4, 2).inputs(Inputs::Constant, Scale::Zero);
        cases.extend(in_bytes(&[(m + 1, 2 * n + 9), (17, n), (0, 3), (1, 3 * n + 2), (9, 0)]));
        cases.push(counted.in_fp8(Descales::ByHead));
    }
    if features.has(Feature::PageDescale) {
        cases.extend(descaled_by_page(&[(m + 1, 2 * n + 9), (17, n), (0, 3), (1, 3 * n + 2), (9, 0)], n));
    }
    let all: Vec<Feature> = features.iter().collect();
    cases.extend(all.iter().array_combinations().map(|pair: [&Feature; 2]| batch(n).asking(together(&pair.map(|one| *one), n))));
    if all.len() > 2 {
        cases.push(batch(n).asking(together(&all, n)));
        cases.push(long(m, n).layout(Layout::Padded).asking(together(&all, n)));
        cases.push(Problem::new(&[(70, 113)], 5, 1).layout(Layout::Unaligned).asking(together(&all, n)));
        cases.push(Problem::new(&[(1, 3 * n + 7); 3], 8, 2).asking(together(&all, n)));
    }
    cases.extend(features.score().into_iter().flat_map(|score| declared::forward(score, m, n)));
    cases
}

/// Splits of most cases.
const SPLITS: usize = 3;

/// The cases of a split-KV kernel's features. Windows and chunks leave the splits a whole number of units of keys, and
/// one key more and less; there are splits that no key is left for.
pub fn splits(features: Features) -> Vec<Listed> {
    let decode = |heads, heads_k| Problem::new(&[(1, 300)], heads, heads_k);
    let counted = |problem: Problem| problem.inputs(Inputs::Constant, Scale::Zero);
    let unlike = || Problem::new(&[(2, 300), (0, 40), (3, 0), (1, 17), (5, 131)], 4, 2).lengths(Lengths::Packed);
    let counts = || Some(vec![4, 1, 0, 2, 3]);
    let mut cases = Vec::new();
    if features.has(Feature::Window) {
        let unit = SPLIT_KEYS as i32;
        // One query sees `left` keys and its own: the log-sum-exp of a split counts those that it is given.
        for left in [0, unit - 2, unit - 1, unit, 3 * unit - 2, 3 * unit - 1, 3 * unit, 299, 5000] {
            cases.push((counted(decode(8, 2)).asking(window_of([left, 0])), SPLITS, None));
        }
        cases.push((decode(8, 1).layout(Layout::Bhsd).asking(window_of([100, -1])), SPLITS, None));
        // Several row tiles with keys of their own, groups of 4, 1 and 8 heads.
        cases.push((Problem::new(&[(13, 257)], 8, 2).layout(Layout::Padded).asking(window_of([20, 0])), SPLITS, None));
        cases.push((Problem::new(&[(21, 300)], 2, 2).asking(window_of([90, 5])), 4, None));
        cases.push((Problem::new(&[(9, 300)], 8, 1).asking(window_of([150, 0])), 2, None));
        cases.push((Problem::new(&[(35, 203)], 2, 1).asking(window_of([-1, 3])), SPLITS, None));
        cases.push((Problem::new(&[(35, 203)], 2, 1).asking(window_of([17, -1])), SPLITS, None));
        // Rows that see nothing.
        cases.push((Problem::new(&[(40, 17)], 2, 1).asking(window_of([5, 2])), 2, None));
        cases.push((unlike().asking(window_of([33, 4])), 4, counts()));
    }
    if features.has(Feature::Chunk) {
        // The last of 300 positions is the 300th of its chunk, or the 12th, or the 60th, ...
        for chunk in [1, SPLIT_KEYS, SPLIT_KEYS + 1, 60, 63, 251, 252, 253, 299, 100_000] {
            cases.push((counted(decode(4, 1)).asking(chunk_of(chunk)), SPLITS, None));
        }
        cases.push((Problem::new(&[(20, 130)], 2, 2).asking(chunk_of(33)), SPLITS, None));
        cases.push((Problem::new(&[(40, 17)], 2, 1).asking(chunk_of(16)), 2, None));
        cases.push((unlike().asking(chunk_of(50)), 4, counts()));
    }
    if features.has(Feature::Softcap) {
        cases.push((Problem::new(&[(5, 257)], 4, 1).inputs(Inputs::Large, Scale::Quarter).asking(capped(3000)), SPLITS, None));
        cases.push((Problem::new(&[(3, 203)], 2, 2).inputs(Inputs::Normal, Scale::One).asking(capped(50)), 2, None));
        cases.push((counted(decode(4, 2)).asking(capped(200)), SPLITS, None));
    }
    if features.has(Feature::Alibi) {
        cases.push((Problem::new(&[(5, 257)], 8, 2).asking(sloped(Slopes::ByHead)), SPLITS, None));
        cases.push((Problem::new(&[(3, 203); 3], 8, 1).asking(sloped(Slopes::ByBatchAndHead)), 2, None));
        cases.push((Problem::new(&[(19, 113)], 3, 3).asking(sloped(Slopes::ByHead)), 2, None));
        cases.push((unlike().asking(sloped(Slopes::ByBatchAndHead)), 4, counts()));
        // A group that does not divide 8: rows 8 apart have different heads.
        cases.push((Problem::new(&[(7, 113)], 6, 2).asking(sloped(Slopes::ByHead)), 2, None));
        cases.push((
            Problem::new(&[(40, 17)], 2, 2).inputs(Inputs::Constant, Scale::Zero).asking(sloped(Slopes::ByHead)),
            2,
            None,
        ));
    }
    // The kernel leaves sinks to the one that combines the splits, whatever features it has.
    cases.push((decode(10, 5).asking(sunk(SinkType::Bf16)), SPLITS, None));
    if features.has(Feature::Paged) {
        // Pages of one slice and of several, which slices straddle, of one row, and of more than there are; shared
        // ones.
        for (rows, shared) in [(16, 0), (16, 3), (64, 1), (8, 0), (17, 2), (1, 0), (48, 0), (512, 0)] {
            cases.push((decode(8, 2).asking(in_pages(rows, shared)), SPLITS, None));
            cases.push((unlike().lengths(Lengths::PackedQuery).asking(in_pages(rows, shared)), 4, counts()));
        }
        // Sequences of more queries than the most keep every bit of their results; those of just as many are served.
        for most in [1, 2, 3] {
            let asked = Asked { query_limits: [0, most], ..in_pages(16, 0) };
            cases.push((unlike().lengths(Lengths::PackedQuery).asking(asked), 4, counts()));
            cases.push((unlike().lengths(Lengths::Used).layout(Layout::Padded).asking(asked), SPLITS, None));
        }
        let shares = Problem::new(&[(1, 150), (2, 300), (1, 33)], 4, 2).lengths(Lengths::Used);
        cases.push((shares.clone().layout(Layout::Padded).asking(in_pages(16, 4)), SPLITS, None));
        cases.push((shares.layout(Layout::Unaligned).asking(in_pages(32, 2)), SPLITS, None));
    }
    if features.has(Feature::Cache) {
        for cache in Cache::ALL {
            // Splits that padding leaves one key, none, many.
            let keys = [(1, 300), (2, 1), (3, 0), (1, 16), (5, 131), (1, 17), (2, 40), (1, 33)];
            let unequal = Problem::new(&keys, 4, 2).asking(cache_of(cache));
            cases.push((unequal.clone().lengths(Lengths::Used), SPLITS, None));
            let counts = Some(vec![4, 1, 0, 2, 3, 1, 2, 4]);
            cases.push((unequal.clone().lengths(Lengths::PackedQuery).layout(Layout::Padded), 4, counts));
            cases.push((unequal.lengths(Lengths::Used).layout(Layout::Unaligned), 2, None));
            cases.push((Problem::new(&[(2, 150); 3], 8, 2).layout(Layout::Bhsd).asking(cache_of(cache)), SPLITS, None));
        }
    }
    if KvFormat::of(features).is_some() {
        cases.extend(splits_of_bytes());
    }
    if features.has(Feature::PageDescale) {
        let sequences = [(2, 300), (0, 40), (3, 0), (1, 17), (5, 131)];
        cases.extend(descaled_by_page(&sequences, SPLIT_KEYS).into_iter().map(|problem| (problem, 4, counts())));
    }
    let all: Vec<Feature> = features.iter().collect();
    let pairs = all.iter().array_combinations().map(|pair: [&Feature; 2]| pair.map(|one| *one));
    cases.extend(pairs.map(|pair| (unlike().asking(together(&pair, 40)), 4, counts())));
    if all.len() > 2 {
        cases.push((unlike().layout(Layout::Padded).asking(together(&all, 40)), 4, counts()));
        cases.push((Problem::new(&[(7, 113)], 8, 1).layout(Layout::Unaligned).asking(together(&all, 30)), SPLITS, None));
        cases.push((Problem::new(&[(1, 331); 3], 8, 2).asking(together(&all, 100)), 5, None));
    }
    if let Some(score) = features.score() {
        for call in declared::calls(score, SPLIT_KEYS, 3 * SPLIT_KEYS) {
            let asked = Asked { declared: Some(call), ..Asked::default() };
            cases.push((decode(8, 2).asking(asked), SPLITS, None));
            cases.push((unlike().asking(asked), 4, counts()));
        }
    }
    cases
}

/// Windows of every pair of some sides, on rows of one query and of several.
pub fn every_window(features: Features) -> Vec<Listed> {
    if !features.has(Feature::Window) {
        return Vec::new();
    }
    let sides = [-1, 0, 1, 15, 16, 17, 100];
    let shapes = [((1, 300), 8, 2), ((19, 300), 2, 2), ((9, 113), 8, 1)];
    let windows = itertools::iproduct!(sides, sides, shapes).map(|(left, right, (lengths, heads, heads_k))| {
        (Problem::new(&[lengths], heads, heads_k).layout(Layout::Bhsd).asking(window_of([left, right])), SPLITS, None)
    });
    windows.collect()
}

/// Sides of windows.
pub(super) fn windows(m: usize, n: usize, level: Level) -> Vec<[i32; 2]> {
    let [m, n] = [m, n].map(|rows| rows as i32);
    let mut windows =
        vec![[0, 0], [n - 1, 0], [n, 0], [n + 1, 0], [-1, 0], [-1, 5], [17, -1], [m + 1, n - 1], [1, m], [5000, 5000]];
    if level == Level::Thorough {
        let sides = [-1, 0, 1, n - 1, n, n + 1, m, 2 * n + 1];
        windows.extend(itertools::iproduct!(sides, sides).map(|(left, right)| [left, right]));
    }
    windows
}

pub(super) fn window_of(window: [i32; 2]) -> Asked {
    Asked { window: Some(window), ..Asked::default() }
}

pub(super) fn chunk_of(chunk: usize) -> Asked {
    Asked { chunk: chunk as u32, ..Asked::default() }
}

pub(super) fn capped(hundredths: u32) -> Asked {
    Asked { softcap_hundredths: hundredths, ..Asked::default() }
}

pub(super) fn sloped(slopes: Slopes) -> Asked {
    Asked { alibi: Some(slopes), ..Asked::default() }
}

pub(super) fn sunk(sinks: SinkType) -> Asked {
    Asked { sinks: Some(sinks), ..Asked::default() }
}

pub(super) fn in_pages(rows: usize, shared: usize) -> Asked {
    Asked { pages: Some(Pages { rows, shared, counter: false, descales: None }), ..Asked::default() }
}

/// The same with a counter that blocks take their work from.
pub(super) fn by_counter(rows: usize, shared: usize) -> Asked {
    Asked { pages: Some(Pages { rows, shared, counter: true, descales: None }), ..Asked::default() }
}

/// The same with factors of both tensors by page.
pub(super) fn with_descales(rows: usize, shared: usize, descales: PageDescales) -> Asked {
    Asked { pages: Some(Pages { rows, shared, counter: false, descales: Some(descales) }), ..Asked::default() }
}

/// Factors by page, of each tensor alone and of both, where pages are as long as tiles, shorter and longer, and where
/// sequences share them; where nothing else tells a page's keys from another's.
fn descaled_by_page(sequences: &[(usize, usize)], n: usize) -> Vec<Problem> {
    let problem = || Problem::new(sequences, 4, 2).lengths(Lengths::PackedQuery);
    let alike = |rows, descales| problem().inputs(Inputs::Constant, Scale::One).asking(with_descales(rows, 0, descales));
    let mut cases: Vec<_> = [1, 16, 48, n, 256].map(|rows| problem().asking(with_descales(rows, 0, PageDescales::Both))).into();
    cases.extend([
        alike(16, PageDescales::OfK),
        alike(16, PageDescales::OfV),
        alike(7, PageDescales::Both),
        problem().in_fp8(Descales::ByHead).asking(with_descales(16, 2, PageDescales::Both)),
        problem().in_fp8(Descales::Absent).layout(Layout::Padded).asking(with_descales(32, 1, PageDescales::OfV)),
        problem().in_fp8(Descales::Uniform).layout(Layout::Unaligned).asking(with_descales(16, 0, PageDescales::OfK)),
        problem().inputs(Inputs::Falling, Scale::Usual).asking(with_descales(16, 0, PageDescales::Both)),
    ]);
    cases
}

/// Pages as long as a key tile, shorter, longer, and of more rows than there are keys; shared ones. Kernels that fetch
/// whole tiles take multiples of 16 rows alone.
fn paged(m: usize, n: usize, whole_tiles: bool) -> Vec<Problem> {
    let sizes = if whole_tiles { [16, 32, 48, 64, 128, 256, 1024, 20] } else { [1, 7, 16, n, n + 1, 2 * n, 64, 1000] };
    let mut cases: Vec<_> = sizes.into_iter().map(|rows| long(m, n).asking(in_pages(rows, 0))).collect();
    // Of each length the last page is full, or holds one row, or lacks one.
    let lengths = [n, n + 1, n - 1, 16, 17, 15, 1, 0, 2 * n + 1];
    let ends: Vec<_> = lengths.into_iter().map(|keys| (keys.min(20), keys)).collect();
    let prefix = [(70, 2 * n + 40), (33, n + 50), (17, 3 * n + 2), (1, 5), (2, 0)];
    cases.extend([
        Problem::new(&ends, 2, 1).lengths(Lengths::PackedQuery).asking(in_pages(16, 0)),
        Problem::new(&prefix, 4, 2).lengths(Lengths::PackedQuery).asking(in_pages(16, n / 16 + 1)),
        Problem::new(&prefix, 2, 2).lengths(Lengths::Used).layout(Layout::Padded).asking(in_pages(32, 2)),
        Problem::new(&prefix, 2, 1).lengths(Lengths::PackedQuery).layout(Layout::Bhsd).asking(in_pages(64, 1)),
    ]);
    // More sequences than a warp has lanes: it counts the work of 32 at once.
    let short = Problem::new(&[(1, 20), (0, 3), (3, 17), (2, 35), (4, 0)], 2, 1).repeated(14).on(2);
    cases.push(short.clone().lengths(Lengths::PackedQuery).asking(in_pages(16, 0)));
    cases.push(short.lengths(Lengths::PackedQuery).asking(by_counter(16, 0)));
    // One long sequence among short ones, with heads in groups that end with fewer.
    let one_long = [(5, 40), (2 * m + 9, 2 * n + 33), (0, 7), (m + 1, n), (1, 1)];
    for asked in [in_pages(16, 0), by_counter(16, 0)] {
        cases.push(Problem::new(&one_long, 6, 3).lengths(Lengths::PackedQuery).asking(asked));
    }
    cases.push(Problem::new(&[(m + 3, n + 40); 3], 4, 2).lengths(Lengths::Used).layout(Layout::Padded).asking(by_counter(32, 0)));
    // Sequences of fewer queries than the least keep every bit of O and LSE; those of just as many are served.
    for least in [17, 18] {
        let asked = Asked { query_limits: [least, 0], ..in_pages(16, 0) };
        cases.push(Problem::new(&prefix, 2, 1).lengths(Lengths::PackedQuery).asking(asked));
        cases.push(Problem::new(&prefix, 2, 2).lengths(Lengths::Used).layout(Layout::Padded).asking(asked));
    }
    cases
}

/// Groups of heads that divide a tile's rows and that do not, of one head and of more than it has rows: tiles begin and
/// end within a query. Kernels that fetch whole tiles take no more heads than a warpgroup has rows.
fn packed_heads(m: usize, n: usize, whole_tiles: bool) -> Vec<Problem> {
    let most = if whole_tiles { 64 } else { m + 6 };
    let unlike = [(m / 4 + 3, 2 * n + 9), (1, 3 * n + 2), (0, 5), (2, 0), (m / 2, n), (7, 3)];
    vec![
        Problem::new(&[(m / 4 + 3, n + 5)], 8, 2),
        Problem::new(&[(m / 2 + 1, 2 * n + 1)], 6, 2).layout(Layout::Bhsd),
        Problem::new(&[(m / 7 + 2, n + 1), (3, n)], 14, 2).lengths(Lengths::Used).layout(Layout::Padded),
        Problem::new(&[(m + 5, n + 17)], 3, 3),
        Problem::new(&[(3, n + 9)], most, 1),
        Problem::new(&[(5, n + 3), (2, 17)], 80, 2).lengths(Lengths::Used),
        Problem::new(&unlike, 8, 2).lengths(Lengths::PackedQuery).layout(Layout::Padded),
        Problem::new(&unlike, 10, 2).lengths(Lengths::Used),
        Problem::new(&unlike, 12, 4).lengths(Lengths::Packed).layout(Layout::Unaligned),
    ]
}

/// Steps of an engine: sequences of a few queries, with keys for all warpgroups to share and with fewer, beside
/// prompts. Few blocks have several of both kinds each, and there are more sequences than a warp counts at once.
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
        // Groups that do not divide a warpgroup's rows, and as many rows as are shared at most, and more.
        of(&step, 14, 2).inputs(Inputs::Falling, Scale::Usual).asking(by_counter(32, 0)).on(2),
        of(&decodes, 6, 2).inputs(Inputs::Crossing, Scale::Usual).asking(in_pages(16, 0)).on(2),
        of(&decodes, 8, 1).inputs(Inputs::Rising, Scale::Usual).layout(Layout::Padded).asking(by_counter(16, 0)).on(2),
        of(&decodes, 16, 2).repeated(2).asking(in_pages(16, 0)).on(4),
        // Two items with shared keys and one without, in one block: no other takes what it might leave.
        of(&[(1, 3 * n + 5), (1, 4 * n), (9, 20)], 8, 1).asking(by_counter(16, 0)).on(1),
        // Rows that stay idle beside the last head's.
        of(&[(2, 3 * n + 5), (2, 6 * n)], 12, 1).asking(in_pages(16, 0)),
        of(&step, 8, 2).asking(Asked { query_limits: [2, 0], ..by_counter(16, 0) }).on(2),
        Problem::new(&step, 10, 2).lengths(Lengths::Used).inputs(Inputs::Constant, Scale::Zero).asking(by_counter(64, 0)).on(2),
    ]
}

pub(super) fn cache_of(cache: Cache) -> Asked {
    Asked { cache: Some(cache), ..Asked::default() }
}

/// Caches: sequences of unlike lengths, among them none and one key, before which lie 0, 1 and many rows, fewer and
/// more than a tile; of equal lengths.
fn cached(m: usize, n: usize) -> Vec<Problem> {
    let lengths = [(17, 2 * n + 9), (m + 3, n), (9, 0), (1, 1), (33, 3 * n + 2), (5, n - 1), (0, 3), (40, n + 70)];
    let forms = Cache::ALL.into_iter().flat_map(|cache| {
        let unequal = Problem::new(&lengths, 4, 2).asking(cache_of(cache));
        [
            unequal.clone().lengths(Lengths::Used),
            unequal.clone().lengths(Lengths::PackedQuery).layout(Layout::Padded).inputs(Inputs::OneHot, Scale::Usual),
            unequal.lengths(Lengths::PackedQuery).layout(Layout::Unaligned),
            Problem::new(&[(m + 5, n + 7); 3], 2, 1).layout(Layout::Bhsd).asking(cache_of(cache)),
        ]
    });
    forms.collect()
}

/// What splits show of K and V in FP8.
pub(super) fn splits_of_bytes() -> impl Iterator<Item = Listed> {
    let sequences = [(2, 300), (0, 40), (3, 0), (1, 17), (5, 131)];
    let unlike = in_bytes(&sequences).into_iter().map(|problem| (problem, 4, Some(vec![4, 1, 0, 2, 3])));
    let counted = Problem::new(&[(1, 203); 3], 8, 2).inputs(Inputs::Constant, Scale::Zero).in_fp8(Descales::ByHead);
    unlike.chain([(counted, SPLITS, None)])
}

/// Every way of giving the descales of K and V in FP8, to sequences of unlike lengths; columns that no other is taken
/// for, in views with gaps and in ones that no 16 bytes are moved of; a V as large as E4M3 has it.
fn in_bytes(sequences: &[(usize, usize)]) -> Vec<Problem> {
    let problem = |heads, heads_k| Problem::new(sequences, heads, heads_k).lengths(Lengths::PackedQuery);
    vec![
        problem(4, 2).in_fp8(Descales::ByHead),
        problem(2, 2).in_fp8(Descales::Uniform).layout(Layout::Bhsd),
        problem(4, 1).in_fp8(Descales::Absent),
        problem(4, 2).in_fp8(Descales::ByHead).inputs(Inputs::OneHot, Scale::One).layout(Layout::Padded),
        problem(2, 1).in_fp8(Descales::ByHead).inputs(Inputs::OneHot, Scale::One).layout(Layout::Unaligned),
        problem(2, 1).in_fp8(Descales::ByHead).inputs(Inputs::Widest, Scale::Zero),
    ]
}

/// Some of the features, with numbers that leave most rows a part of their keys.
pub(super) fn together(features: &[Feature], n: usize) -> Asked {
    let features: Features = features.iter().copied().collect();
    let has = |feature| features.has(feature);
    Asked {
        window: has(Feature::Window).then_some([n as i32 + 3, 2]),
        chunk: if has(Feature::Chunk) { n as u32 + 11 } else { 0 },
        softcap_hundredths: if has(Feature::Softcap) { 250 } else { 0 },
        alibi: has(Feature::Alibi).then_some(Slopes::ByBatchAndHead),
        sinks: has(Feature::Sinks).then_some(SinkType::Bf16),
        pages: None,
        qv: false,
        cache: has(Feature::Cache).then_some(Cache::IndexedAndPadded),
        kv: None,
        query_limits: [0; 2],
        declared: None,
        append: None,
    }
}

/// Several tiles of queries and of keys, of which the last ones are partial.
fn long(m: usize, n: usize) -> Problem {
    Problem::new(&[(2 * m + 3, 3 * n + 5)], 2, 1)
}

/// Packed sequences of unlike lengths.
fn batch(n: usize) -> Problem {
    Problem::new(&[(17, 64), (65, 2 * n + 9), (0, 3), (1, 3 * n + 2), (9, 0)], 5, 5).lengths(Lengths::Packed)
}
