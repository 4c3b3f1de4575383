//! The model beside what was measured (docs/results).

use super::{Candidate, DeviceCost, KernelCost, Path, Request, Sharing, Times, chosen, weigh};
use super::{Held, Kernels, Lengths};
use crate::{
    family::attention::{Kind, Point},
    kernel::{Dtype, HeadDim, Target},
    plan::{Limits, Plan},
};

fn held(kind: Kind, head_dim: u32, causal: bool, target: Target) -> Held {
    let shape = kind.has_shape();
    let point = Point {
        kind,
        head_dim: HeadDim::equal(if shape { head_dim } else { 0 }),
        dtype: Dtype::Fp16,
        causal: causal && shape,
        features: crate::kernel::Features::NONE,
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
        packed: None,
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
    Request {
        batch,
        heads,
        heads_k,
        queries,
        keys,
        head_dim: HeadDim::equal(head_dim),
        element_bytes: 2,
        kv_element_bytes: 2,
        causal,
        most_seen: None,
        arrivals: 0,
    }
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

/// B1 H8 S512 D64 with a workspace, on an H200: 21.8 µs in one split whose results `fwd_combine` finished, as it does
/// two.
#[test]
fn splitting_what_is_short_is_known_to_be_slow() {
    let request = request(1, [8, 8], [512, 512], 64, false);
    let candidates = weigh(&request, &hopper(64, false), &h100());
    let split =
        candidates.iter().find(|candidate| (candidate.path, candidate.splits) == (Path::Split, 2)).expect("it is weighed");
    assert!((15e3..40e3).contains(&split.predicted_ns), "{split:?}");
}

/// Batch, heads, lengths, head dim, mask, rows of Q and of K in all where lengths differ.
type Shape = (u32, [u32; 2], [u32; 2], u32, bool, Option<[u32; 2]>);

/// A path, its splits, and the µs that it took.
type Measured = (Path, u32, f64);

fn weighed((batch, heads, lengths, head_dim, causal, totals): Shape) -> Vec<Candidate> {
    let mut request = request(batch, heads, lengths, head_dim, causal);
    if let Some(totals) = totals {
        let side = |place: usize| Lengths { longest: lengths[place], unequal: true, total: totals[place] };
        (request.queries, request.keys) = (side(0), side(1));
    }
    weigh(&request, &hopper(head_dim, causal), &h100())
}

fn predicted_us(candidates: &[Candidate], path: Path, splits: u32) -> f64 {
    candidates.iter().find(|c| (c.path, c.splits) == (path, splits)).expect("it is weighed").predicted_ns / 1e3
}

/// 2026-11-22-dispatch-h100.md: fp16, forced paths, splits, µs.
#[test]
fn random_shapes_take_about_what_was_measured() {
    let shapes: [(Shape, &[Measured]); 18] = [
        ((1, [64, 32], [5734, 5734], 64, true, None), &[(Path::Dense, 1, 566.7)]),
        ((57, [8, 8], [1235, 1235], 80, true, Some([31881; 2])), &[(Path::Dense, 1, 154.6)]),
        ((2, [8, 1], [15382, 15382], 32, false, Some([20946; 2])), &[(Path::Dense, 1, 806.6)]),
        // More blocks than run at once.
        ((3, [32, 8], [200, 200], 80, false, None), &[(Path::Short, 1, 15.1)]),
        ((1, [32, 32], [278, 278], 192, true, None), &[(Path::Short, 1, 14.3)]),
        ((20, [64, 32], [236, 236], 32, true, None), &[(Path::Dense, 1, 63.3), (Path::Short, 1, 72.5)]),
        ((24, [48, 12], [116, 116], 80, true, Some([1171; 2])), &[(Path::Short, 1, 48.7)]),
        ((44, [4, 4], [36, 36], 224, false, Some([981; 2])), &[(Path::Short, 1, 11.5)]),
        ((2, [16, 4], [2524, 2524], 32, false, Some([4827; 2])), &[(Path::Short, 1, 103.7)]),
        // K and V come from L2.
        ((1, [12, 12], [7332, 7332], 192, false, None), &[(Path::Dense, 1, 732.8), (Path::Short, 1, 895.1)]),
        (
            (13, [64, 8], [16, 9059], 192, false, None),
            &[(Path::Dense, 1, 696.2), (Path::Short, 1, 661.3), (Path::Split, 4, 686.3)],
        ),
        // From device memory: half a line a row; many tiles in a block's place, which are hidden and which are not.
        ((57, [64, 16], [4, 4426], 32, true, None), &[(Path::Split, 1, 294.2)]),
        ((2, [16, 16], [1, 34075], 256, false, None), &[(Path::Split, 4, 370.2), (Path::Split, 256, 421.4)]),
        (
            (27, [8, 8], [36, 8740], 224, true, None),
            &[(Path::Dense, 1, 601.3), (Path::Short, 1, 700.1), (Path::Split, 64, 2094.1)],
        ),
        // One or two blocks on a multiprocessor.
        ((1, [2, 2], [252, 4265], 128, true, None), &[(Path::Split, 4, 16.2), (Path::Split, 8, 14.5)]),
        ((1, [8, 2], [30, 15400], 192, true, None), &[(Path::Split, 8, 27.6), (Path::Split, 16, 23.6)]),
        // The longest of both sides is one sequence: 79 and 710 queries, 1279 and 4902 keys.
        ((2, [4, 1], [710, 4902], 32, true, Some([789, 6181])), &[(Path::Short, 1, 30.3), (Path::Split, 2, 38.5)]),
        // Most rows see no key.
        (
            (1, [64, 16], [12062, 606], 224, true, None),
            &[(Path::Dense, 1, 166.3), (Path::Short, 1, 277.6), (Path::Split, 2, 2828.2), (Path::Split, 4, 3715.8)],
        ),
    ];
    for (shape, times) in shapes {
        let candidates = weighed(shape);
        for &(path, splits, measured) in times {
            let ratio = predicted_us(&candidates, path, splits) / measured;
            assert!((0.75..1.27).contains(&ratio), "{shape:?} {path:?} {splits}: {ratio} of {measured} us");
        }
    }
}

/// The same: times of the faster and of the slower one, at least a tenth apart.
#[test]
fn the_faster_of_two_paths_is_predicted_to_be_faster() {
    let pairs: [(Shape, Measured, Measured); 10] = [
        ((20, [64, 32], [236, 236], 32, true, None), (Path::Dense, 1, 63.3), (Path::Short, 1, 72.5)),
        ((2, [4, 4], [46, 46], 224, true, None), (Path::Dense, 1, 4.7), (Path::Short, 1, 5.2)),
        ((2, [16, 8], [583, 31999], 224, false, None), (Path::Dense, 1, 1116.3), (Path::Short, 1, 1268.6)),
        ((2, [4, 1], [710, 4902], 32, true, Some([789, 6181])), (Path::Short, 1, 30.3), (Path::Split, 2, 38.5)),
        ((1, [2, 2], [252, 4265], 128, true, None), (Path::Split, 8, 14.5), (Path::Split, 4, 16.2)),
        ((1, [8, 2], [30, 15400], 192, true, None), (Path::Split, 16, 23.6), (Path::Split, 8, 27.6)),
        ((1, [8, 4], [208, 8763], 96, false, None), (Path::Split, 2, 55.2), (Path::Split, 6, 61.3)),
        // Seed 12: tiles without keys, more blocks than find room beside the preceding call's, half a line a row.
        ((1, [32, 32], [863, 145], 64, true, None), (Path::Dense, 1, 5.6), (Path::Short, 1, 8.0)),
        ((12, [8, 8], [45, 45], 224, true, None), (Path::Short, 1, 6.3), (Path::Dense, 1, 8.9)),
        ((2, [48, 12], [1, 44390], 32, false, None), (Path::Split, 4, 55.0), (Path::Split, 22, 66.0)),
    ];
    for (shape, (path, splits, measured), (other, other_splits, slower)) in pairs {
        assert!(slower > 1.1 * measured);
        let candidates = weighed(shape);
        let [fast, slow] = [(path, splits), (other, other_splits)].map(|(path, splits)| predicted_us(&candidates, path, splits));
        assert!(fast < slow, "{shape:?}: {path:?} {splits} {fast} us, {other:?} {other_splits} {slow} us");
    }
}

/// The same: 625 and 232 queries, 13298 and 2072 keys. The scheduler would split nothing, for the longest sequence's
/// tiles fill the GPU: that is no path of its own.
#[test]
fn a_schedule_without_splits_is_not_weighed() {
    let candidates = weighed((2, [2, 2], [625, 13298], 224, false, Some([857, 15370])));
    let of = |path, splits| predicted_us(&candidates, path, splits);
    assert!(candidates.iter().all(|candidate| candidate.path != Path::Scheduled));
    for (path, splits, measured) in [(Path::Split, 1, 179.4), (Path::Split, 3, 141.8)] {
        assert!((0.8..1.25).contains(&(of(path, splits) / measured)), "{path:?} {splits}: {} us", of(path, splits));
    }
}

/// `fwd` with rows that see no key: 166.3 µs were measured, of which reading 17 MB of Q and writing all of O are about
/// 122.
#[test]
fn rows_without_keys_cost_little_more_than_their_bytes() {
    let request = request(1, [64, 16], [12062, 606], 224, true);
    let dense = us(hopper(224, true).dense, &request);
    assert!((122.0..200.0).contains(&dense), "{dense} us");
    let square = Request { keys: Lengths::equal(12062), ..request };
    assert!(us(hopper(224, true).dense, &square) > 5.0 * dense);
}
