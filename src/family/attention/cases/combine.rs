//! Cases of the combine kernel alone: synthetic partial results, merged in float64.

use super::split::{Workspace, merge_with_sink};
use crate::{
    check::{Case, Comparison, Drawn, Level, Number, Tally},
    device::{Image, Outputs},
    family::attention::{
        SinkType, abi, features,
        oracle::{
            dims::Dims,
            memory_layout::Side,
            problem::{Layout, Lengths, Part, Problem},
            tensors::Tensors,
        },
    },
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Distribution of the log-sum-exps of a row's splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spread {
    /// Values that differ by a few units; one in four is -∞.
    Near,
    /// Positive and negative values that differ by hundreds.
    Far,
    /// Near -200: a maximum that starts at any value but -∞ would make all weights zero.
    Low,
    /// Each greater by a hundred than the previous one: a maximum that misses the last ones makes their weights
    /// infinite.
    Rising,
    /// All -∞: the row saw no key.
    Nothing,
}

#[derive(Debug)]
struct CombineCase {
    problem: Problem,
    splits: usize,
    counts: Option<Vec<usize>>,
    spread: Spread,
    number: Number,
    head_dim: Dims,
}

/// A small case.
pub(super) fn plain() -> impl Case + use<> {
    let problem = Problem::new(&[(1, 7)], 4, 1);
    CombineCase { problem, splits: 2, counts: None, spread: Spread::Near, number: Number::Bf16, head_dim: Dims::from(64) }
}

/// The cases, including head dims and dtypes that the kernel is not specialised for.
pub(super) fn cases(level: Level) -> Vec<Box<dyn Case>> {
    use Number::{Bf16, Fp16};
    use Spread::{Far, Low, Near, Nothing, Rising};
    let one = Problem::new(&[(1, 7)], 4, 1);
    let unequal = Problem::new(&[(2, 9), (0, 4), (3, 0), (1, 5)], 2, 1);
    let mut list = vec![
        (one.clone(), 33, None, Near, Bf16, 128),
        (one.clone(), 5, None, Far, Fp16, 64),
        (one.clone(), 3, None, Nothing, Bf16, 32),
        (one.clone(), 6, None, Low, Bf16, 24),
        (one.clone(), 1, None, Near, Fp16, 256),
        // The largest log-sum-exp is among those that lanes read in their second round.
        (one.clone(), 60, None, Rising, Bf16, 48),
        (Problem::new(&[(3, 7); 2], 2, 2).layout(Layout::Padded), 200, None, Near, Bf16, 16),
        (Problem::new(&[(5, 7)], 2, 1).layout(Layout::Unaligned), 4, None, Far, Bf16, 72),
        (Problem::new(&[(5, 7)], 2, 1).layout(Layout::Reversed), 4, None, Near, Fp16, 96),
        (Problem::new(&[(2, 7)], 3, 1).layout(Layout::Bhsd).without_lse(), 4, None, Near, Fp16, 224),
        (unequal.clone().lengths(Lengths::Used).layout(Layout::Padded), 6, Some(vec![6, 0, 1, 4]), Near, Bf16, 160),
        (unequal.clone().lengths(Lengths::Packed), 3, Some(vec![1, 2, 0, 9]), Near, Fp16, 192),
        (unequal.lengths(Lengths::PackedQuery).layout(Layout::Bhsd), 7, None, Near, Bf16, 40),
        // No query, and no output pointer.
        (Problem::new(&[(0, 7); 2], 2, 1), 3, None, Near, Bf16, 64),
    ];
    // Sinks far below the log-sum-exps, between them and far above; only the sink if a row has seen no key.
    let sunk = |problem: Problem, sinks| problem.asking(features::sunk(sinks));
    let heads = Problem::new(&[(2, 7)], 10, 5);
    list.extend([
        (sunk(heads.clone(), SinkType::Fp32), 5, None, Near, Bf16, 64),
        (sunk(heads.clone(), SinkType::Bf16), 40, None, Far, Fp16, 128),
        (sunk(heads.clone(), SinkType::Bf16), 1, None, Near, Bf16, 96),
        (sunk(heads.clone(), SinkType::Fp32), 3, None, Low, Bf16, 32),
        (sunk(heads, SinkType::Bf16), 4, None, Nothing, Fp16, 256),
        (
            sunk(Problem::new(&[(2, 9), (3, 0), (1, 5)], 6, 2).lengths(Lengths::Packed), SinkType::Fp32),
            3,
            Some(vec![3, 0, 2]),
            Near,
            Bf16,
            80,
        ),
    ]);
    // More rows than blocks that run at once on one multiprocessor: a warp merges several. The last one has that many
    // on a GPU too.
    let several = Problem::new(&[(9, 9), (0, 4), (30, 0), (14, 5)], 3, 1).on(1);
    list.extend([
        (several.clone().lengths(Lengths::Used).layout(Layout::Padded), 6, Some(vec![6, 0, 1, 4]), Near, Bf16, 160),
        (several.clone().lengths(Lengths::Packed), 3, Some(vec![1, 2, 0, 9]), Far, Fp16, 64),
        (several.clone().lengths(Lengths::PackedQuery).layout(Layout::Bhsd), 9, None, Rising, Bf16, 256),
        (Problem::new(&[(31, 7)], 2, 1).layout(Layout::Unaligned).on(1), 5, None, Near, Bf16, 72),
        (Problem::new(&[(25, 7); 2], 2, 1).layout(Layout::Reversed).on(1), 33, None, Low, Fp16, 16),
        (Problem::new(&[(40, 7)], 2, 1).without_lse().on(1), 2, None, Nothing, Bf16, 128),
        (sunk(Problem::new(&[(20, 9), (33, 7)], 4, 2).lengths(Lengths::Packed).on(1), SinkType::Fp32), 4, None, Near, Bf16, 96),
        (Problem::new(&[(400, 7)], 8, 2), 3, None, Near, Fp16, 64),
    ]);
    for part in [Part::Start, Part::Head, Part::Row, Part::Batch] {
        list.push((Problem::new(&[(17, 3); 2], 2, 2).layout(Layout::UnalignedPart(3, part)).on(1), 2, None, Near, Fp16, 64));
        list.push((Problem::new(&[(2, 3); 2], 2, 2).layout(Layout::UnalignedPart(3, part)), 2, None, Near, Fp16, 64));
    }
    if level == Level::Thorough {
        for (index, head_dim) in (16..=256).step_by(8).enumerate() {
            for (splits, spread) in [(1, Near), (2, Far), (31, Near), (32, Near), (256, Far), (6, Nothing)] {
                let number = [Bf16, Fp16][(index + splits) % 2];
                list.push((Problem::new(&[(2, 7); 2], 4, 2), splits, None, spread, number, head_dim));
            }
        }
    }
    let equal = list.into_iter().map(|(problem, splits, counts, spread, number, head_dim)| CombineCase {
        problem,
        splits,
        counts,
        spread,
        number,
        head_dim: Dims::from(head_dim),
    });
    // The kernel depends only on the head dim of O, whether that is the wider one or not.
    let unequal = [(64, 96), (192, 128), (64, 256), (96, 64)].map(|(qk, v)| {
        let problem = Problem::new(&[(5, 7), (2, 3)], 2, 1).lengths(Lengths::Packed);
        CombineCase { problem, splits: 3, counts: None, spread: Near, number: Fp16, head_dim: Dims { qk, v } }
    });
    equal.chain(unequal).map(|case| Box::new(case) as Box<dyn Case>).collect()
}

impl Case for CombineCase {
    fn name(&self) -> String {
        let counts = self.counts.as_ref().map_or_else(String::new, |counts| {
            format!(" of {}", counts.iter().map(usize::to_string).collect::<Vec<_>>().join("+"))
        });
        let Self { problem, splits, spread, number, head_dim: Dims { qk, v }, .. } = self;
        let head_dim = if qk == v { qk.to_string() } else { format!("{qk}_{v}") };
        let (number, spread) = (format!("{number:?}").to_lowercase(), format!("{spread:?}").to_lowercase());
        format!("{} hdim{head_dim} {number} splits{splits}{counts} {spread}", problem.name(false))
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { ref problem, splits, ref counts, spread, number, head_dim } = *self;
        let mut call = Tensors::draw(problem, head_dim, number, seed).call(problem, head_dim, number, false);
        let params: &mut abi::FwdParams = call.params.get_mut().expect("a forward call");
        params.num_splits = splits as i32;
        call.inputs.retain(|(name, _)| !matches!(*name, "q" | "k" | "v"));
        if let Some(counts) = counts {
            let counts: Vec<i32> = counts.iter().map(|&count| count as i32).collect();
            call.inputs.push(("split_counts", Image::of_integers(&counts)));
        }
        let count = {
            let counts = counts.clone();
            move |sequence: usize| counts.as_ref().map_or(splits, |counts| counts[sequence].min(splits))
        };
        let workspace = Workspace::new(problem, head_dim.v, splits);
        let mut image = workspace.image();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for (sequence, rows) in problem.used_rows(Side::Query).enumerate() {
            for (split, row, head) in itertools::iproduct!(0..count(sequence), 0..rows, 0..problem.heads) {
                let lse = match spread {
                    Spread::Near if rng.random_range(0..4) == 0 => f32::NEG_INFINITY,
                    Spread::Near => rng.random_range(-2.0..2.0),
                    Spread::Low => rng.random_range(-202.0..-198.0),
                    Spread::Far => rng.random_range(-300.0..300.0),
                    Spread::Rising => 100.0 * split as f32,
                    Spread::Nothing => f32::NEG_INFINITY,
                };
                image.put(workspace.lse(split, sequence, row, head), lse.to_bits());
                // For a split that saw no key, O stays NaN and must not be weighted.
                if lse != f32::NEG_INFINITY {
                    for d in 0..head_dim.v as i64 {
                        image.put(workspace.o(split, sequence, row, head) + d, rng.random_range(-3.0_f32..3.0).to_bits());
                    }
                }
            }
        }
        if problem.rows(Side::Query).bound == 0 {
            call.outputs.clear();
        } else {
            call.inputs.push(("workspace", image.clone()));
        }
        // Rows of a sequence with a split count of one are complete already.
        let wholes: Vec<bool> = (0..problem.sequences.len()).map(|sequence| counts.is_some() && count(sequence) == 1).collect();
        if wholes.contains(&true) {
            let (plan, place_o, place_lse) =
                (problem.rows(Side::Query), problem.place(3, Side::Query, problem.heads, head_dim.v), problem.place_lse());
            for (name, output) in call.outputs.iter_mut().filter(|(name, _)| matches!(*name, "o" | "lse")) {
                let (place, width) = if *name == "o" { (&place_o, head_dim.v) } else { (&place_lse, 1) };
                *output = Image::poisoned(output.element(), place.span, place.origin);
                let rows = problem.used_rows(Side::Query).enumerate().filter(|(sequence, _)| !wholes[*sequence]);
                for (sequence, row, head) in rows.flat_map(|(s, rows)| itertools::iproduct!([s], 0..rows, 0..problem.heads)) {
                    let start = problem.offset(place, Side::Query, &plan, sequence, row, head);
                    (0..width as i64).for_each(|d| _ = output.mark(start + d));
                }
            }
        }
        let problem = problem.clone();
        let judge = move |outputs: &Outputs| judge(&problem, &workspace, (&count, &wholes), &image, number, outputs);
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }
}

/// Merges the same partial results in float64 and compares.
fn judge(
    problem: &Problem,
    workspace: &Workspace,
    (count, wholes): (&dyn Fn(usize) -> usize, &[bool]),
    partial: &Image,
    number: Number,
    outputs: &Outputs,
) -> Comparison {
    // One rounding to the output's type, and the weights' errors from ex2.approx and the fp32 difference of
    // log-sum-exps.
    let magnitude = 3.0;
    let mut o = Tally::new("O", magnitude * (number.unit_roundoff() + 2.0_f64.powi(-17)));
    let mut lse = Tally::new("LSE", 300.0 * 2.0_f64.powi(-21));
    let wide = |offset| f64::from(f32::from_bits(partial.bits(offset)));
    let Some(image_o) = outputs.get("o") else { return Comparison::of(&[o, lse], &[]) };
    let plan = problem.rows(Side::Query);
    let head_dim = workspace.head_dim_v;
    let (place_o, place_lse) = (problem.place(3, Side::Query, problem.heads, head_dim), problem.place_lse());
    for (sequence, rows) in problem.used_rows(Side::Query).enumerate().filter(|(sequence, _)| !wholes[*sequence]) {
        for (row, head) in itertools::iproduct!(0..rows, 0..problem.heads) {
            let parts: Vec<f64> = (0..count(sequence)).map(|split| wide(workspace.lse(split, sequence, row, head))).collect();
            let (merged, merged_lse) = merge_with_sink(&parts, problem.options.sink(head), head_dim, |split, d| {
                wide(workspace.o(split, sequence, row, head) + d as i64)
            });
            let masked = parts.iter().all(|part| *part == f64::NEG_INFINITY);
            let start = problem.offset(&place_o, Side::Query, &plan, sequence, row, head);
            for (d, expected) in merged.into_iter().enumerate() {
                let got = number.widen(image_o.bits(start + d as i64));
                o.see([sequence, head, row, d], f64::from(got), expected, masked);
            }
            if let Some(image) = outputs.get("lse") {
                let offset = problem.offset(&place_lse, Side::Query, &plan, sequence, row, head);
                lse.see([sequence, head, row, 0], f64::from(f32::from_bits(image.bits(offset))), merged_lse, masked);
            }
        }
    }
    let images = [("O", outputs.get("o")), ("LSE", outputs.get("lse"))];
    let images: Vec<_> = images.into_iter().filter_map(|(name, image)| Some((name, image?))).collect();
    Comparison::of(&[o, lse], &images)
}
