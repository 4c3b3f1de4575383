//! Cases of kernels that split the keys, each alone: its partial results are read from the workspace, merged in
//! float64, and compared with the reference of the unsplit problem.

use super::{
    append_cases::{self, AppendedCase},
    feature_cases, forward, mla_cases,
};
use crate::{
    check::{Case, Comparison, Drawn, Level, Number, Tally},
    device::{Element, Image, Outputs},
    family::{
        attention,
        attention::{
            Point, abi,
            features::splits_of_bytes,
            oracle::{
                arithmetic::Arithmetic,
                descale::Descales,
                dims::Dims,
                memory_layout::{Placement, Side},
                problem::{Inputs, Layout, Lengths, Part, Problem, Scale},
                reference::Reference,
                split::{Listed, SPLIT_KEYS},
                tensors::Tensors,
            },
        },
    },
    kernel::{Dtype, Feature},
};
use itertools::Itertools;

/// Layout of the workspace: the position of each partial result, as in `kgen/split_plan.cuh`.
#[derive(Debug, Clone)]
pub(super) struct Workspace {
    /// Splits that the workspace has space for.
    pub splits: usize,
    /// Query rows over all sequences, including unused ones.
    total_rows: usize,
    /// First row of each sequence.
    first: Vec<usize>,
    heads: usize,
    /// Elements per row of O.
    pub head_dim_v: usize,
}

impl Workspace {
    /// The layout for a problem.
    pub(super) fn new(problem: &Problem, head_dim_v: usize, splits: usize) -> Self {
        let plan = problem.rows(Side::Query);
        let entries = problem.sequences.len();
        let by_entry = entries * plan.bound;
        // Packed queries have `total_q` rows if it is passed and smaller than the padded count, as in calls with `qv`.
        let as_queries = problem.is_packed(Side::Query) && plan.rows > 0 && plan.rows < by_entry;
        let first = (0..entries).map(|b| if as_queries { plan.first[b] } else { b * plan.bound }).collect();
        Self { splits, total_rows: if as_queries { plan.rows } else { by_entry }, first, heads: problem.heads, head_dim_v }
    }

    /// Poisoned memory of this size.
    pub(super) fn image(&self) -> Image {
        Image::poisoned(Element::Bits32, self.bytes() / size_of::<f32>(), 0)
    }

    /// Size in bytes: for each row and split, O in fp32 and a log-sum-exp.
    fn bytes(&self) -> usize {
        self.splits * self.total_rows * self.heads * (self.head_dim_v + 1) * size_of::<f32>()
    }

    /// Offset of a partial row of O.
    pub(super) fn o(&self, split: usize, sequence: usize, row: usize, head: usize) -> i64 {
        (self.row(split, sequence, row, head) * self.head_dim_v) as i64
    }

    /// Offset of a partial log-sum-exp.
    pub(super) fn lse(&self, split: usize, sequence: usize, row: usize, head: usize) -> i64 {
        let rows = self.splits * self.total_rows * self.heads;
        (rows * self.head_dim_v + self.row(split, sequence, row, head)) as i64
    }

    fn row(&self, split: usize, sequence: usize, row: usize, head: usize) -> usize {
        (split * self.total_rows + self.first[sequence] + row) * self.heads + head
    }
}

/// One problem, its splits, and the variant.
#[derive(Debug)]
struct SplitCase {
    problem: Problem,
    /// `num_splits`.
    splits: usize,
    /// `split_counts`, if passed; for a repeated problem they are repeated too.
    counts: Option<Vec<usize>>,
    division: Division,
    arithmetic: Arithmetic,
    head_dim: Dims,
    causal: bool,
    /// True if the kernel loads K and V by TMA only.
    needs_tma: bool,
}

/// How a kernel divides the keys that a query tile sees.
#[derive(Debug, Clone, Copy)]
pub(super) enum Division {
    /// In units of [`SPLIT_KEYS`] from the first key, as in `kgen/split_params.cuh`.
    Units,
    /// In tiles of so many keys from the last one, as in `hopper/tiles_of_split.tera`.
    TilesFromEnd(usize),
}

/// The cases of a split-KV variant.
pub(super) fn cases(variant: Point, level: Level) -> Vec<Box<dyn Case>> {
    if variant.features.has(Feature::Append) {
        return appended(variant);
    }
    let boxed = listed(variant, level).into_iter().flat_map(|(parts, wholes)| {
        let merged = in_type_of(variant, parts.clone().into_iter().chain(merged_besides()).filter(is_merged));
        let (parts, wholes) = (in_type_of(variant, parts.into_iter()), in_type_of(variant, wholes.into_iter()));
        let merged = merged.map(move |listed| Box::new(MergedCase(parts_case(variant, listed))) as Box<dyn Case>);
        let parts = parts.map(move |listed| Box::new(case(variant, listed)) as Box<dyn Case>).chain(merged);
        let whole = move |(problem, _, counts)| Box::new(whole_case(variant, problem, counts)) as Box<dyn Case>;
        parts.chain(wholes.map(whole))
    });
    // Without splits, several entries of the lists may be equal.
    boxed.unique_by(|case| case.name()).collect()
}

/// The cases of a kernel that writes new rows.
fn appended(variant: Point) -> Vec<Box<dyn Case>> {
    let arithmetic = Arithmetic::of(variant);
    let judged = |attention: Box<dyn Case>, problem: Problem, refusal| -> Box<dyn Case> {
        let problem = problem.for_kernel(variant);
        Box::new(AppendedCase { attention, problem, head_dim: variant.head_dim.into(), number: arithmetic.number, refusal })
    };
    let ways = |(problem, splits, counts): Listed| {
        let parts: Box<dyn Case> = Box::new(case(variant, (problem.clone(), splits, counts.clone())));
        let merged = MergedCase(parts_case(variant, (problem.clone(), splits, counts.clone())));
        let merged: Option<Box<dyn Case>> = (splits > 1).then(|| Box::new(merged) as Box<dyn Case>);
        let whole: Box<dyn Case> = Box::new(whole_case(variant, problem.clone(), counts));
        [parts, whole].into_iter().chain(merged).map(|case| judged(case, problem.clone(), None)).collect::<Vec<_>>()
    };
    let served = append_cases::listed(variant).into_iter().flat_map(ways);
    let refused = append_cases::refused(variant).into_iter().map(|(problem, said)| {
        let whole = Box::new(whole_case(variant, problem.clone(), None));
        judged(whole, problem, Some(said))
    });
    served.chain(refused).unique_by(|case| case.name()).collect()
}

/// The problems. For kernels with FP8 tensors, those without descales get each layout of descales in turn.
fn in_type_of(variant: Point, list: impl Iterator<Item = Listed>) -> impl Iterator<Item = Listed> {
    let turns = [Descales::ByHead, Descales::Absent, Descales::Uniform].into_iter().cycle();
    list.zip(turns).map(move |((problem, splits, counts), descales)| {
        let is_plain = variant.dtype == Dtype::Fp8 && problem.fp8.is_none();
        (if is_plain { problem.in_fp8(descales) } else { problem }, splits, counts)
    })
}

/// The cases with partial results and those without a workspace; first those of the smoke test.
pub(super) fn listed(variant: Point, level: Level) -> Vec<(Vec<Listed>, Vec<Listed>)> {
    let features = variant.features;
    let both = |list: Vec<Listed>| (list.clone(), list);
    let thoroughly = level == Level::Thorough;
    if variant.has_latent_queries() {
        let smoke = (mla_cases::parts(features), mla_cases::wholes(features));
        return [smoke].into_iter().chain(thoroughly.then(|| both(mla_cases::thorough()))).collect();
    }
    let bytes = variant.widens_queries().then(splits_of_bytes).into_iter().flatten();
    let smoke = smoke().into_iter().chain(feature_cases::splits(variant)).chain(bytes).collect();
    let besides = || thorough().into_iter().chain(feature_cases::splits_thoroughly(variant)).collect();
    [both(smoke)].into_iter().chain(thoroughly.then(|| both(besides()))).collect()
}

/// True if counters change the result path: the last block merges, so the partial results cannot be read back.
fn is_merged((problem, splits, _): &Listed) -> bool {
    *splits > 1 && !matches!(problem.layout, Layout::UnalignedPart(0..3, _))
}

/// Cases with more splits than a warp reads at once, and with layouts of O, which the merging blocks write.
fn merged_besides() -> impl Iterator<Item = Listed> {
    let unaligned = [Part::Start, Part::Head, Part::Row, Part::Batch]
        .map(|part| (Problem::new(&[(2, 40); 2], 2, 2).layout(Layout::UnalignedPart(3, part)), 2, None));
    let many = (Problem::new(&[(1, 1150)], 4, 2), 70, None);
    [many].into_iter().chain(unaligned)
}

/// A problem whose partial results the last block of each row tile merges, so that the kernel writes O and LSE.
#[derive(Debug)]
struct MergedCase(SplitCase);

impl Case for MergedCase {
    fn refusal(&self) -> Option<String> {
        self.0.refusal()
    }

    fn expected_workspace(&self) -> Option<usize> {
        self.0.expected_workspace()
    }

    fn name(&self) -> String {
        format!("{} merged", self.0.name())
    }

    fn draw(&self, seed: u64) -> Drawn {
        let SplitCase { ref problem, splits, ref counts, arithmetic, head_dim, causal, .. } = self.0;
        let tensors = Tensors::draw(problem, head_dim, arithmetic.number, seed);
        let mut call = tensors.call(problem, head_dim, arithmetic.number, causal);
        let words = counters_for(problem);
        let params: &mut abi::FwdParams = call.params.get_mut().expect("a forward call");
        (params.num_splits, params.arrivals) = (splits as i32, words as i64);
        if let Some(counts) = counts {
            let counts: Vec<i32> = counts.iter().map(|&count| count as i32).collect();
            call.inputs.push(("split_counts", Image::of_integers(&counts)));
        }
        let bytes = Workspace::new(problem, head_dim.v, splits).bytes();
        call.outputs.push(("workspace", Image::scratch(bytes)));
        call.outputs.push(("arrivals", Image::of_integers(&vec![0; words])));
        let problem = problem.clone();
        let judge = move |outputs: &Outputs| {
            let reference = Reference::compute(&problem, &tensors, head_dim, arithmetic, causal);
            let mut comparison = forward::compare(&problem, head_dim.v, arithmetic.number, &reference, outputs);
            let beyond = outputs.get("workspace").and_then(Image::first_damage);
            let beyond = beyond.map(|word| format!("memory outside of the workspace was written, first at its word {word}"));
            comparison.complaint = comparison.complaint.or(beyond).or_else(|| what_counters_say(outputs));
            comparison
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }
}

/// Counter words sufficient for any tile: one byte per row and head.
pub(super) fn counters_for(problem: &Problem) -> usize {
    (problem.sequences.len() * problem.rows(Side::Query).bound * problem.heads).div_ceil(4).max(1)
}

/// An error message if a counter is not zero after a call, as the next call requires.
pub(super) fn what_counters_say(outputs: &Outputs) -> Option<String> {
    let counters = outputs.get("arrivals")?;
    let left = (0..counters.span_bytes() as i64 / 4).find(|&word| counters.bits(word) != 0);
    let left =
        left.map(|word| format!("counters left: word {word} is {}, and the next call would count wrongly", counters.bits(word)));
    left.or_else(|| counters.first_damage().map(|word| format!("word {word} beside the counters was written")))
}

/// A problem without a workspace, so that the kernel writes O and LSE.
#[derive(Debug)]
struct WholeCase {
    problem: Problem,
    /// `split_counts`, which must not be read.
    counts: Option<Vec<usize>>,
    arithmetic: Arithmetic,
    head_dim: Dims,
    causal: bool,
    /// True if the kernel loads K and V by TMA only.
    needs_tma: bool,
}

fn whole_case(variant: Point, problem: Problem, counts: Option<Vec<usize>>) -> WholeCase {
    let Point { head_dim, causal, .. } = variant;
    let problem = problem.for_kernel(variant);
    let needs_tma = attention::needs_tma(variant);
    WholeCase { problem, counts, arithmetic: Arithmetic::of(variant), head_dim: head_dim.into(), causal, needs_tma }
}

impl Case for WholeCase {
    fn refusal(&self) -> Option<String> {
        if self.needs_tma { self.problem.what_tma_refuses(self.head_dim, self.arithmetic.number) } else { None }
    }

    fn name(&self) -> String {
        let counts = if self.counts.is_some() { " of counts" } else { "" };
        format!("{} whole{counts}", self.problem.name(self.causal))
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { ref problem, ref counts, arithmetic, head_dim, causal, .. } = *self;
        let tensors = Tensors::draw(problem, head_dim, arithmetic.number, seed);
        let mut call = tensors.call(problem, head_dim, arithmetic.number, causal);
        let params: &mut abi::FwdParams = call.params.get_mut().expect("a forward call");
        params.num_splits = 1;
        params.total_rows = [0; 2]; // without a workspace, the number of rows is not needed
        if counts.is_some() {
            call.inputs.push(("split_counts", Image::of_integers(&vec![0; problem.sequences.len()])));
        }
        let problem = problem.clone();
        let judge = move |outputs: &Outputs| {
            let reference = Reference::compute(&problem, &tensors, head_dim, arithmetic, causal);
            forward::compare(&problem, head_dim.v, arithmetic.number, &reference, outputs)
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }
}

/// A problem.
pub(super) fn case(variant: Point, listed: Listed) -> impl Case + use<> {
    parts_case(variant, listed)
}

/// A problem of a kernel that divides the keys in another way than the split-KV kernels.
pub(super) fn case_divided(variant: Point, listed: Listed, division: Division) -> impl Case + use<> {
    SplitCase { division, ..parts_case(variant, listed) }
}

fn parts_case(variant: Point, (problem, splits, counts): Listed) -> SplitCase {
    let Point { head_dim, causal, .. } = variant;
    SplitCase {
        problem: problem.for_kernel(variant),
        splits,
        counts,
        division: Division::Units,
        arithmetic: Arithmetic::of(variant),
        head_dim: head_dim.into(),
        causal,
        needs_tma: attention::needs_tma(variant),
    }
}

fn smoke() -> Vec<Listed> {
    let unequal = [(2, 300), (0, 40), (3, 0), (1, 17), (5, 131)];
    let many: Vec<(usize, usize)> = (0..36).map(|i| (i % 3, i * 37 % 150)).collect();
    let numbers =
        many.iter().enumerate().map(|(i, (queries, keys))| if queries * keys == 0 { 0 } else { [1, 3, 2, 9, 1][i % 5] });
    // The last seven of more sequences than a warp counts at once.
    let of_crowd = [(1, 17), (1, 0), (1, 40), (1, 3), (1, 130), (1, 16), (1, 33)];
    let mut cases = vec![
        // Decoding: one query, every ratio of heads, splits that end within a step.
        (Problem::new(&[(1, 300)], 8, 2), 3, None),
        (Problem::new(&[(1, 203); 2], 8, 1).layout(Layout::Bhsd), 2, None),
        (Problem::new(&[(1, 128)], 2, 2).layout(Layout::Padded), 1, None),
        // Several sequences with different keys.
        (Problem::new(&[(1, 300), (1, 17), (1, 203)], 8, 2).lengths(Lengths::PackedQuery), 4, None),
        // More splits than units of keys, and than a step has slices.
        (Problem::new(&[(1, 65)], 4, 1), 9, None),
        // Several row tiles, the last one partial; under a causal mask each sees different keys.
        (Problem::new(&[(13, 257)], 8, 2).layout(Layout::Padded), 3, None),
        (Problem::new(&[(40, 17)], 2, 1), 2, None),
        // Unequal lengths, each way of passing them, and different split counts per sequence.
        (Problem::new(&unequal, 4, 2).lengths(Lengths::Used).layout(Layout::Padded), 4, Some(vec![4, 0, 1, 2, 3])),
        (Problem::new(&unequal, 4, 1).lengths(Lengths::Packed), 5, Some(vec![5, 1, 0, 1, 9])),
        (Problem::new(&unequal, 2, 2).lengths(Lengths::PackedQuery).layout(Layout::Bhsd), 3, None),
        (Problem::new(&unequal, 2, 1).lengths(Lengths::PackedUsed), 2, None),
        // More sequences than a warp has lanes, with split counts from zero to many, on few multiprocessors: a block
        // takes several items, the last of them far down the list.
        (Problem::new(&many, 4, 2).lengths(Lengths::Used).on(1), 9, Some(numbers.collect())),
        (Problem::new(&of_crowd, 2, 2).repeated(19).lengths(Lengths::Packed).on(1), 8, Some([1, 0, 2, 1, 7, 1, 3].repeat(19))),
        // One key dominates each row, and comes after other keys in its warp's slices.
        (overtaken(), 1, None),
        // One query in total.
        (Problem::new(&[(0, 9), (1, 40)], 2, 2).lengths(Lengths::Packed), 2, None),
        // No LSE pointer, which is optional without splits.
        (Problem::new(&[(3, 45)], 4, 2).without_lse(), 2, None),
        // Element-wise loads; reversed rows.
        (Problem::new(&[(3, 113)], 4, 2).layout(Layout::Unaligned), 2, None),
        (Problem::new(&[(2, 257)], 8, 2).layout(Layout::Reversed).inputs(Inputs::OneHot, Scale::One), 2, None),
        // A new maximum in nearly every step; logits far apart; the number of keys seen by each split.
        (Problem::new(&[(5, 513)], 4, 1).inputs(Inputs::Rising, Scale::One), 2, None),
        (Problem::new(&[(5, 257)], 4, 1).inputs(Inputs::Large, Scale::Quarter), 3, None),
        // A scale that overflows if the maximum is too low.
        (Problem::new(&[(5, 513)], 4, 1).inputs(Inputs::Rising, Scale::Thousandths(4000)), 2, None),
        // Maxima of some rows increase while those of others stay; logits so low that an invalid key would outweigh all
        // others.
        (Problem::new(&[(9, 257)], 2, 1).inputs(Inputs::Crossing, Scale::One), 2, None),
        (Problem::new(&[(3, 45)], 4, 1).inputs(Inputs::Low, Scale::Usual), 2, None),
        (Problem::new(&[(7, 331)], 4, 2).inputs(Inputs::Constant, Scale::Zero), 4, None),
    ];
    // One stride or start of one tensor unaligned: the launcher must check each of Q, K and V.
    for (tensor, part) in itertools::iproduct!(0..3, [Part::Start, Part::Head, Part::Row, Part::Batch]) {
        cases.push((Problem::new(&[(2, 17); 2], 2, 2).layout(Layout::UnalignedPart(tensor, part)), 1, None));
    }
    cases
}

/// Rows dominated by one key, in the middle of three of the widest tiles.
pub(super) fn overtaken() -> Problem {
    Problem::new(&[(4, 3 * 128)], 2, 1).inputs(Inputs::Overtaken, Scale::One)
}

/// Additional cases of a thorough check.
fn thorough() -> Vec<Listed> {
    let mut cases = Vec::new();
    let layouts = [Layout::Bshd, Layout::Bhsd, Layout::Padded, Layout::Unaligned, Layout::Reversed];
    let heads = [(2, 2), (8, 2), (8, 1), (3, 1), (24, 1)];
    let mut number = 0;
    for (queries, keys) in itertools::iproduct!([1, 2, 16, 17, 64], [1, 16, 64, 113, 512, 1023]) {
        for splits in [1, 2, 7] {
            let (heads, heads_k) = heads[number % heads.len()];
            let layout = layouts[number % layouts.len()];
            cases.push((Problem::new(&[(queries, keys)], heads, heads_k).layout(layout), splits, None));
            number += 1;
        }
    }
    for (inputs, scale) in [
        (Inputs::Normal, Scale::Zero),
        (Inputs::Normal, Scale::One),
        (Inputs::OneHot, Scale::One),
        (Inputs::Constant, Scale::Zero),
        (Inputs::Large, Scale::Quarter),
        (Inputs::Rising, Scale::One),
        (Inputs::Falling, Scale::One),
    ] {
        for splits in [1, 5, 33] {
            cases.push((Problem::new(&[(3, 1023)], 8, 2).inputs(inputs, scale), splits, None));
        }
    }
    let unequal = [(1, 1000), (4, 203), (0, 64), (9, 0), (1, 16), (2, 513)];
    for (lengths, layout) in itertools::iproduct!([Lengths::Used, Lengths::Packed, Lengths::PackedQuery], layouts) {
        cases.push((Problem::new(&unequal, 8, 2).lengths(lengths).layout(layout), 8, Some(vec![8, 2, 0, 1, 1, 5])));
        cases.push((Problem::new(&unequal, 4, 4).lengths(lengths).layout(layout), 70, None));
    }
    cases
}

impl Case for SplitCase {
    fn refusal(&self) -> Option<String> {
        if self.needs_tma { self.problem.what_tma_refuses(self.head_dim, self.arithmetic.number) } else { None }
    }

    /// Only split-KV kernels have such a function: the others rarely split.
    fn expected_workspace(&self) -> Option<usize> {
        let bytes = || Workspace::new(&self.problem, self.head_dim.v, self.splits).bytes();
        matches!(self.division, Division::Units).then(bytes)
    }

    fn name(&self) -> String {
        let counts = self.counts.as_ref().map_or_else(String::new, |counts| {
            let once = &counts[..counts.len() / self.problem.times];
            format!(" of {}", once.iter().map(usize::to_string).collect::<Vec<_>>().join("+"))
        });
        format!("{} splits{}{counts}", self.problem.name(self.causal), self.splits)
    }

    fn draw(&self, seed: u64) -> Drawn {
        let Self { ref problem, splits, ref counts, division, arithmetic, head_dim, causal, .. } = *self;
        let tensors = Tensors::draw(problem, head_dim, arithmetic.number, seed);
        let mut call = tensors.call(problem, head_dim, arithmetic.number, causal);
        let params: &mut abi::FwdParams = call.params.get_mut().expect("a forward call");
        params.num_splits = splits as i32;
        let workspace = Workspace::new(problem, head_dim.v, splits);
        let count = {
            let counts = counts.clone();
            move |sequence: usize| counts.as_ref().map_or(splits, |counts| counts[sequence].min(splits))
        };
        if let Some(counts) = counts {
            let counts: Vec<i32> = counts.iter().map(|&count| count as i32).collect();
            call.inputs.push(("split_counts", Image::of_integers(&counts)));
        }
        let wholes: Vec<bool> = (0..problem.sequences.len()).map(|sequence| counts.is_some() && count(sequence) == 1).collect();
        let mut image = workspace.image();
        // O and LSE are written by the combine kernel, so their bits must be unchanged, except for sequences with a
        // split count of one.
        let places = WholePlaces::new(problem, head_dim.v);
        for (name, output) in call.outputs.iter_mut().filter(|(name, _)| matches!(*name, "o" | "lse")) {
            let place = if *name == "o" { &places.o } else { &places.lse };
            *output = Image::poisoned(output.element(), place.span, place.origin);
        }
        for (sequence, rows) in problem.served_rows().enumerate() {
            for (row, head) in itertools::iproduct!(0..rows, 0..problem.heads) {
                if wholes[sequence] {
                    for (name, output) in &mut call.outputs {
                        match *name {
                            "o" => {
                                let start = places.o(problem, sequence, row, head);
                                (0..head_dim.v as i64).for_each(|d| _ = output.mark(start + d));
                            }
                            "lse" => _ = output.mark(places.lse(problem, sequence, row, head)),
                            _ => {}
                        }
                    }
                    continue;
                }
                for split in 0..count(sequence) {
                    image.mark(workspace.lse(split, sequence, row, head));
                    for d in 0..head_dim.v as i64 {
                        image.mark(workspace.o(split, sequence, row, head) + d);
                    }
                }
            }
        }
        call.outputs.push(("workspace", image));
        let problem = problem.clone();
        let judge = move |outputs: &Outputs| {
            let reference = Reference::compute(&problem, &tensors, head_dim, arithmetic, causal);
            let number = arithmetic.number;
            let written = Written { workspace: &workspace, count: &count, division, wholes: &wholes, places: &places, number };
            judge(&problem, &written, causal, &reference, outputs)
        };
        Drawn { call, judge: Box::new(judge), may_differ: Vec::new() }
    }
}

/// Placement of O and LSE.
struct WholePlaces {
    o: Placement,
    lse: Placement,
}

impl WholePlaces {
    fn new(problem: &Problem, head_dim_v: usize) -> Self {
        Self { o: problem.place(3, Side::Query, problem.heads, head_dim_v), lse: problem.place_lse() }
    }

    fn o(&self, problem: &Problem, sequence: usize, row: usize, head: usize) -> i64 {
        problem.offset(&self.o, Side::Query, &problem.rows(Side::Query), sequence, row, head)
    }

    fn lse(&self, problem: &Problem, sequence: usize, row: usize, head: usize) -> i64 {
        problem.offset(&self.lse, Side::Query, &problem.rows(Side::Query), sequence, row, head)
    }
}

/// Outputs of a kernel, and their placement.
struct Written<'a> {
    workspace: &'a Workspace,
    /// Splits per sequence.
    count: &'a dyn Fn(usize) -> usize,
    division: Division,
    /// Sequences whose O and LSE the kernel writes itself.
    wholes: &'a [bool],
    places: &'a WholePlaces,
    number: Number,
}

/// Merges the partial results and compares them with the reference.
fn judge(problem: &Problem, written: &Written<'_>, causal: bool, reference: &Reference, outputs: &Outputs) -> Comparison {
    let tolerance = reference.tolerance;
    if !(tolerance.o.is_finite() && tolerance.lse.is_finite()) {
        return Comparison::impossible("O", tolerance.o);
    }
    let Written { workspace, count, division, wholes, places, number: stored } = *written;
    let Some(image) = outputs.get("workspace") else { unreachable!("every split call has a workspace") };
    let number = |offset| f64::from(f32::from_bits(image.bits(offset)));
    let head_dim_v = workspace.head_dim_v;
    let mut o = Tally::new("O", tolerance.o);
    let mut lse = Tally::new("LSE", tolerance.lse);
    // With scale 0 the log-sum-exp of a split shows its number of keys; if the mask depends on the row, that needs a
    // single query.
    let mut keys_seen = Tally::new("keys of a split", 0.01);
    let options = problem.options;
    let keeps_zero = problem.score(0.0, 0, 0).keeps_zero();
    // Tiles of paged keys end with a granule of a page, which is not known here.
    let ends_with_keys = matches!(division, Division::Units) || options.pages.is_none();
    let counts_keys = problem.scale == Scale::Zero && keeps_zero && options.declared.is_none() && ends_with_keys;
    let is_masked = causal || options.window.is_some() || options.chunk > 0;
    for (sequence, rows) in problem.served_rows().enumerate() {
        let keys = problem.sequences[sequence].1;
        let splits = count(sequence);
        for (row, head) in itertools::iproduct!(0..rows, 0..problem.heads) {
            if wholes[sequence] {
                let expected = reference.head(sequence, head);
                let Some(image_o) = outputs.get("o") else { unreachable!("every split call has O") };
                for d in 0..head_dim_v {
                    let got = stored.of_output().widen(image_o.bits(places.o(problem, sequence, row, head) + d as i64));
                    o.see([sequence, head, row, d], f64::from(got), expected.o[row * head_dim_v + d], expected.blind[row]);
                }
                if let Some(image) = outputs.get("lse") {
                    let got = f32::from_bits(image.bits(places.lse(problem, sequence, row, head)));
                    lse.see([sequence, head, row, 0], f64::from(got), expected.lse[row], expected.blind[row]);
                }
                continue;
            }
            let parts: Vec<f64> = (0..splits).map(|split| number(workspace.lse(split, sequence, row, head))).collect();
            if counts_keys && (rows == 1 || !is_masked) {
                let mask = problem.mask(causal, sequence, head);
                // Splits of paged keys start at rows 0, 16, ... of a page.
                let lead = options.pages.map_or(0, |_| mask.keys(row).start % SPLIT_KEYS);
                for (split, part) in parts.iter().enumerate() {
                    let expected = division.keys_of_a_split(mask.count(row), lead, split, splits);
                    keys_seen.see([sequence, head, row, split], part.exp(), expected as f64, expected == 0);
                }
            }
            if splits == 0 && keys > 0 {
                continue; // a split count of 0 with keys: the sequence is skipped, and there is nothing to check
            }
            // Splits do not include sinks, which the combine kernel adds.
            let (merged_o, merged_lse) = merge_with_sink(&parts, options.sink(head), head_dim_v, |split, d| {
                number(workspace.o(split, sequence, row, head) + d as i64)
            });
            let expected = reference.head(sequence, head);
            let masked = expected.blind[row];
            for (d, got) in merged_o.into_iter().enumerate() {
                o.see([sequence, head, row, d], got, expected.o[row * head_dim_v + d], masked);
            }
            lse.see([sequence, head, row, 0], merged_lse, expected.lse[row], masked);
        }
    }
    let untouched = [("O", outputs.get("o")), ("LSE", outputs.get("lse")), ("workspace", Some(image))];
    let images: Vec<_> = untouched.into_iter().filter_map(|(name, image)| Some((name, image?))).collect();
    Comparison::of(&[o, lse, keys_seen], &images)
}

/// Partial results of one row merged in float64: O and the log-sum-exp. A part with -∞ has no O and zero weight.
pub(crate) fn merge(parts: &[f64], head_dim_v: usize, o: impl Fn(usize, usize) -> f64) -> (Vec<f64>, f64) {
    let max = parts.iter().copied().fold(f64::NEG_INFINITY, |a, b| if b.is_nan() { b } else { a.max(b) });
    let mut merged = vec![0.0; head_dim_v];
    if max == f64::NEG_INFINITY {
        return (merged, max);
    }
    let sum: f64 = parts.iter().map(|part| (part - max).exp()).sum();
    for (split, part) in parts.iter().enumerate().filter(|(_, part)| **part != f64::NEG_INFINITY) {
        let weight = (part - max).exp() / sum;
        for (d, merged) in merged.iter_mut().enumerate() {
            *merged += weight * o(split, d);
        }
    }
    (merged, max + sum.ln())
}

/// The merge of these partial results and a sink, if there is one: a part without a value.
pub(super) fn merge_with_sink(
    parts: &[f64],
    sink: Option<f64>,
    head_dim_v: usize,
    o: impl Fn(usize, usize) -> f64,
) -> (Vec<f64>, f64) {
    let with_sink: Vec<f64> = parts.iter().copied().chain(sink).collect();
    merge(&with_sink, head_dim_v, |part, d| if part < parts.len() { o(part, d) } else { 0.0 })
}

impl Division {
    /// Number of keys of a split, of which the first ones may have a unit or a tile more than the others. `lead` unseen
    /// keys come first.
    fn keys_of_a_split(self, keys: usize, lead: usize, split: usize, splits: usize) -> usize {
        let first = |pieces: usize, split: usize| split * (pieces / splits) + split.min(pieces % splits);
        match self {
            Self::Units => {
                let lead = if keys == 0 { 0 } else { lead };
                let units = (lead + keys).div_ceil(SPLIT_KEYS);
                let start = |split| (first(units, split) * SPLIT_KEYS).clamp(lead, lead + keys);
                start(split + 1) - start(split)
            }
            Self::TilesFromEnd(tile) => {
                let passed = |split| (first(keys.div_ceil(tile), split) * tile).min(keys);
                passed(split + 1) - passed(split)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Features, HeadDim};
    use std::collections::HashSet;

    #[test]
    fn every_case_has_its_own_name_and_thorough_holds_smoke() {
        let variant = Point {
            kind: crate::family::attention::Kind::FwdSplit,
            head_dim: HeadDim::equal(64),
            dtype: crate::kernel::Dtype::Fp16,
            causal: true,
            features: Features::NONE,
            target: crate::kernel::Target::Sm80,
        };
        let names = |level| -> Vec<String> { cases(variant, level).iter().map(|case| case.name()).collect() };
        let (few, all) = (names(Level::Smoke), names(Level::Thorough));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert_eq!(few, all[..few.len()]);
    }

    #[test]
    fn merging_weighs_by_log_sum_exp_and_skips_what_saw_nothing() {
        let parts = [3.0_f64.ln(), f64::NEG_INFINITY, 1.0_f64.ln()];
        let (o, lse) = merge(&parts, 1, |split, _| [4.0, f64::NAN, 8.0][split]);
        assert!((o[0] - 5.0).abs() < 1e-12 && (lse - 4.0_f64.ln()).abs() < 1e-12);
        assert_eq!(merge(&[f64::NEG_INFINITY], 1, |_, _| f64::NAN), (vec![0.0], f64::NEG_INFINITY));
        assert!(merge(&[0.0, f64::NAN], 1, |_, _| 1.0).1.is_nan(), "an unwritten part shows");
    }

    #[test]
    fn the_splits_have_all_keys_between_them_and_differ_by_a_piece_at_most() {
        for (keys, splits) in itertools::iproduct!([0, 1, 16, 331, 1024], 1..40) {
            for (division, piece) in [(Division::Units, SPLIT_KEYS), (Division::TilesFromEnd(64), 64)] {
                let parts: Vec<usize> = (0..splits).map(|split| division.keys_of_a_split(keys, 0, split, splits)).collect();
                assert_eq!(parts.iter().sum::<usize>(), keys);
                let later: usize = (0..splits).map(|split| division.keys_of_a_split(keys, 7, split, splits)).sum();
                assert_eq!(later, keys);
                assert!(parts.windows(2).all(|pair| pair[0] + piece > pair[1] && pair[0] <= parts[0]), "{parts:?}");
            }
        }
    }
}
