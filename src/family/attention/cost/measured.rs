//! The model beside what was measured (docs/results).

use super::{DeviceCost, KernelCost, Path, Request, Sharing, Times, chosen, weigh};
use super::{Held, Kernels, Lengths};
use crate::{
    family::attention::{Kind, Point},
    grid::{Dtype, Target},
    plan::{Limits, Plan},
};

fn held(kind: Kind, head_dim: u32, causal: bool, target: Target) -> Held {
    let shape = kind.has_shape();
    let point = Point {
        kind,
        head_dim: if shape { head_dim } else { 0 },
        dtype: Dtype::Fp16,
        causal: causal && shape,
        features: crate::grid::Features::NONE,
        target,
    };
    let plan = Plan::new(point, None).expect("fits");
    let cost = KernelCost::of(&plan);
    let tile = plan.attention().tile;
    let resident = cost.resident_on(Limits::of(Target::Sm90).shared_memory_per_block, plan.shared_memory_bytes);
    Held { cost, resident, scheduled_tiles: if kind == Kind::FwdSplit { tile.min_blocks_per_sm * tile.m / 16 } else { 0 } }
}

/// All that a library holds for an H100.
fn hopper(head_dim: u32, causal: bool) -> Kernels {
    let of = |kind, target| Some(held(kind, head_dim, causal, target));
    Kernels {
        dense: of(Kind::Fwd, Target::Sm90),
        short: of(Kind::FwdShort, Target::Sm90),
        split: of(Kind::FwdSplit, Target::Sm80),
        combine: of(Kind::FwdCombine, Target::Sm80),
        scheduler: of(Kind::PrepareScheduler, Target::Sm80),
    }
}

fn h100() -> DeviceCost {
    DeviceCost::new(90, 132, 227 << 10, None)
}

fn request(batch: u32, [heads, heads_k]: [u32; 2], [queries, keys]: [u32; 2], head_dim: u32, causal: bool) -> Request {
    let [queries, keys] = [queries, keys].map(Lengths::equal);
    Request { batch, heads, heads_k, queries, keys, head_dim, element_bytes: 2, causal }
}

fn us(kernel: Option<Held>, request: &Request) -> f64 {
    let Held { cost, resident, .. } = kernel.expect("held");
    Times::of(request, &cost, resident, &h100(), Sharing::NONE).total() / 1e3
}

/// 2026-11-21-hopper-h100.md, "Short sequences": causal fp16, graph replays, µs: head dim, then `fwd_short` and `fwd`
/// at B8 H8 S128, B4 H8 S256 and B1 H8 S512.
#[expect(clippy::approx_constant, reason = "6.28 µs were measured")]
const SHORT: [(u32, [f64; 3], [f64; 3]); 8] = [
    (64, [3.39, 4.01, 5.00], [4.42, 6.06, 8.80]),
    (80, [4.23, 4.89, 6.50], [7.08, 8.94, 11.22]),
    (96, [4.13, 4.86, 6.57], [7.21, 9.22, 11.56]),
    (128, [4.74, 5.55, 6.79], [6.08, 9.17, 12.01]),
    (160, [5.60, 6.83, 8.15], [6.22, 7.54, 10.13]),
    (192, [6.27, 7.37, 8.70], [6.28, 7.79, 10.94]),
    (224, [8.63, 9.88, 11.72], [8.10, 10.52, 13.84]),
    (256, [8.67, 9.75, 11.89], [7.18, 9.14, 13.16]),
];

#[test]
fn little_work_takes_about_what_was_measured() {
    for (head_dim, short, dense) in SHORT {
        let kernels = hopper(head_dim, true);
        for (place, (batch, seqlen)) in [(8, 128), (4, 256), (1, 512)].into_iter().enumerate() {
            let request = request(batch, [8, 8], [seqlen, seqlen], head_dim, true);
            for (kernel, measured) in [(kernels.short, short[place]), (kernels.dense, dense[place])] {
                let ratio = us(kernel, &request) / measured;
                assert!((0.7..1.4).contains(&ratio), "d{head_dim} b{batch} s{seqlen}: {ratio} of {measured} us");
            }
            // What the choice costs.
            let candidates = weigh(&request, &kernels, &h100());
            let path = candidates[chosen(&candidates).expect("there are some")].path;
            let taken = if path == Path::Short { short[place] } else { dense[place] };
            assert!(taken <= 1.15 * short[place].min(dense[place]), "d{head_dim} b{batch} s{seqlen}: {path:?}");
        }
    }
}

/// The same, bf16: TFLOP/s at 16384 tokens, heads x head dim = 2048, by seqlen.
#[test]
fn large_problems_take_about_what_was_measured() {
    for (head_dim, causal, seqlen, tflops) in [
        (64, false, 16384, 580.0),
        (64, false, 2048, 508.0),
        (64, false, 512, 399.0),
        (64, true, 16384, 525.0),
        (64, true, 2048, 405.0),
        (64, true, 512, 254.0),
        (128, false, 16384, 776.0),
        (128, false, 2048, 695.0),
        (128, false, 512, 472.0),
        (128, true, 16384, 676.0),
        (128, true, 2048, 535.0),
        (128, true, 512, 317.0),
        (256, false, 16384, 768.0),
        (256, false, 512, 521.0),
        (256, true, 16384, 770.0),
        (256, true, 512, 306.0),
        (32, false, 16384, 363.0),
        (32, true, 512, 147.0),
    ] {
        let (batch, heads) = (16384 / seqlen, 2048 / head_dim);
        let request = request(batch, [heads, heads], [seqlen, seqlen], head_dim, causal);
        let flops = 4.0 * f64::from(seqlen) * f64::from(seqlen) * 2048.0 * f64::from(batch) * if causal { 0.5 } else { 1.0 };
        let predicted = flops / us(hopper(head_dim, causal).dense, &request) / 1e6;
        assert!((0.7..1.4).contains(&(predicted / tflops)), "d{head_dim} {causal} s{seqlen}: {predicted} for {tflops} TFLOP/s");
        let candidates = weigh(&request, &hopper(head_dim, causal), &h100());
        let path = candidates[chosen(&candidates).expect("there are some")].path;
        assert!(path == Path::Dense || seqlen < 2048, "d{head_dim} {causal} s{seqlen}: {path:?}");
    }
}

/// 2026-11-21-whole-grid-h100.md, "Decoding", bf16, µs.
#[test]
fn decoding_takes_about_what_was_measured_and_is_split() {
    for (batch, heads, keys, head_dim, measured) in [
        (1, [32, 8], 32768, 128, 51.3),
        (64, [32, 8], 4096, 128, 362.6),
        (16, [64, 8], 8192, 128, 183.9),
        (1, [32, 8], 131_072, 128, 181.6),
        (64, [32, 8], 4096, 64, 197.9),
        (1, [32, 8], 32768, 64, 31.5),
        (16, [16, 2], 8192, 256, 96.6),
        (1, [16, 4], 32768, 256, 54.5),
    ] {
        let request = request(batch, heads, [1, keys], head_dim, false);
        let candidates = weigh(&request, &hopper(head_dim, false), &h100());
        let best = candidates[chosen(&candidates).expect("there are some")];
        let ratio = best.predicted_ns / 1e3 / measured;
        assert_eq!(best.path, Path::Split, "b{batch} {keys} d{head_dim}");
        assert!((0.8..1.25).contains(&ratio), "b{batch} {keys} d{head_dim}: {ratio} of {measured} us, {} splits", best.splits);
    }
}

/// The same table, B32 unequal: one sequence of 65536 keys and 31 of 512 to 3392, head dim 128, µs by splits of every
/// sequence, and scheduled each time.
#[test]
fn one_long_context_among_short_ones_takes_about_what_was_measured_and_is_scheduled() {
    let mut request = request(32, [32, 8], [1, 65536], 128, false);
    request.keys = Lengths { longest: 65536, unequal: true, total: 65536 + (0..31).map(|i| 512 + 96 * i).sum::<u32>() };
    let candidates = weigh(&request, &hopper(128, false), &h100());
    let of = |path: Path, splits: u32| {
        let mut found = candidates.iter().filter(|c| c.path == path && (path == Path::Scheduled || c.splits == splits));
        found.next().expect("it is weighed").predicted_ns / 1e3
    };
    for (splits, measured) in [(1, 565.1), (4, 237.2), (8, 201.0), (16, 202.0), (33, 207.1)] {
        let ratio = of(Path::Split, if splits == 33 { 32 } else { splits }) / measured;
        assert!((0.85..1.15).contains(&ratio), "{splits} splits: {ratio} of {measured} us");
    }
    assert!((0.9..1.1).contains(&(of(Path::Scheduled, 0) / 191.1)), "{} us", of(Path::Scheduled, 0));
    assert_eq!(candidates[chosen(&candidates).expect("there are some")].path, Path::Scheduled);
}

/// B1 H8 S512 D64 with a workspace, on an H200: 21.8 µs in one split.
#[test]
fn splitting_what_is_short_is_known_to_be_slow() {
    let request = request(1, [8, 8], [512, 512], 64, false);
    let candidates = weigh(&request, &hopper(64, false), &h100());
    let split = candidates.iter().find(|candidate| candidate.path == Path::Split).expect("it is weighed");
    assert!((15e3..26e3).contains(&split.predicted_ns), "{split:?}");
}

/// 2026-11-22-dispatch-h100.md: fp16, forced paths: batch, heads, lengths, head dim, mask, rows of both sides in all
/// where lengths differ, path and splits, µs.
#[test]
fn random_shapes_take_about_what_was_measured() {
    type Shape = (u32, [u32; 2], [u32; 2], u32, bool, u32);
    let shapes: [(Shape, Path, u32, f64); 18] = [
        ((1, [64, 32], [5734, 5734], 64, true, 0), Path::Dense, 1, 546.9),
        ((1, [12, 12], [7332, 7332], 192, false, 0), Path::Dense, 1, 691.1),
        ((13, [64, 8], [16, 9059], 192, false, 0), Path::Dense, 1, 716.6),
        ((57, [8, 8], [1235, 1235], 80, true, 31881), Path::Dense, 1, 147.5),
        ((2, [8, 1], [15382, 15382], 32, false, 20946), Path::Dense, 1, 814.8),
        // More blocks than run at once.
        ((3, [32, 8], [200, 200], 80, false, 0), Path::Short, 1, 15.6),
        ((1, [32, 32], [278, 278], 192, true, 0), Path::Short, 1, 13.6),
        ((20, [64, 32], [236, 236], 32, true, 0), Path::Short, 1, 72.4),
        ((24, [48, 12], [116, 116], 80, true, 1171), Path::Short, 1, 47.4),
        ((44, [4, 4], [36, 36], 224, false, 981), Path::Short, 1, 12.0),
        ((2, [16, 4], [2524, 2524], 32, false, 4827), Path::Short, 1, 104.3),
        // K and V come from L2.
        ((1, [12, 12], [7332, 7332], 192, false, 0), Path::Short, 1, 828.0),
        ((13, [64, 8], [16, 9059], 192, false, 0), Path::Short, 1, 665.6),
        ((13, [64, 8], [16, 9059], 192, false, 0), Path::Split, 4, 684.0),
        ((1, [2, 2], [252, 4265], 128, true, 0), Path::Split, 4, 16.3),
        // Most rows see no key.
        ((1, [64, 16], [12062, 606], 224, true, 0), Path::Short, 1, 273.2),
        ((1, [64, 16], [12062, 606], 224, true, 0), Path::Split, 2, 2898.6),
        ((1, [64, 16], [12062, 606], 224, true, 0), Path::Split, 4, 3738.0),
    ];
    for (shape, path, splits, measured) in shapes {
        let (batch, heads, lengths, head_dim, causal, total) = shape;
        let mut request = request(batch, heads, lengths, head_dim, causal);
        if total > 0 {
            let [queries, keys] = lengths.map(|longest| Lengths { longest, unequal: true, total });
            (request.queries, request.keys) = (queries, keys);
        }
        let candidates = weigh(&request, &hopper(head_dim, causal), &h100());
        let found = candidates.iter().find(|c| (c.path, c.splits) == (path, splits)).expect("it is weighed");
        let ratio = found.predicted_ns / 1e3 / measured;
        assert!((0.7..1.3).contains(&ratio), "{shape:?} {path:?} {splits}: {ratio} of {measured} us");
    }
}

/// The same: 625 and 232 queries, 13298 and 2072 keys. The scheduler splits nothing where the longest sequence's tiles
/// fill the GPU: then it takes what one split takes, and its own time besides.
#[test]
fn a_schedule_without_splits_gains_nothing() {
    let mut request = request(2, [2, 2], [625, 13298], 224, false);
    request.queries = Lengths { longest: 625, unequal: true, total: 857 };
    request.keys = Lengths { longest: 13298, unequal: true, total: 15370 };
    let candidates = weigh(&request, &hopper(224, false), &h100());
    let of = |path, splits| {
        candidates.iter().find(|c| (c.path, c.splits) == (path, splits)).expect("it is weighed").predicted_ns / 1e3
    };
    assert!(of(Path::Scheduled, 1) > of(Path::Split, 1));
    for (path, splits, measured) in [(Path::Scheduled, 1, 182.4), (Path::Split, 1, 178.1), (Path::Split, 3, 139.7)] {
        assert!((0.8..1.25).contains(&(of(path, splits) / measured)), "{path:?} {splits}: {} us", of(path, splits));
    }
}

/// `fwd` with rows that see no key: not measured since it writes them in whole pieces. Reading 17 MB of Q and writing
/// all of O takes about 122 µs.
#[test]
fn rows_without_keys_cost_little_more_than_their_bytes() {
    let request = request(1, [64, 16], [12062, 606], 224, true);
    let dense = us(hopper(224, true).dense, &request);
    assert!((122.0..200.0).contains(&dense), "{dense} us");
    let square = Request { keys: Lengths::equal(12062), ..request };
    assert!(us(hopper(224, true).dense, &square) > 5.0 * dense);
}
