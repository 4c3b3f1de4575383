//! Draws random calls. Each depends only on the run's seed and its own number, so any call can be drawn again alone.
//! The distribution favours cases that break kernels; docs/decisions/checks.md explains it.

use super::{
    case::{ALL_INPUTS, Entry, FuzzCase, Merging, PARTS, Workspace},
    drawn::{self, DrawnCall},
    library_call::LibraryCall,
    options,
    scope::{Point, Scope, ScopeDevice},
};
use crate::{
    device::Order,
    family::{
        Kind,
        attention::{
            KvFormat,
            features::rooms,
            oracle::{
                descale::Descales,
                problem::{Inputs, Layout, Lengths, Problem, Scale},
            },
            random::{BORDERS, Rng, once_in, pick, weighted},
        },
    },
    kernel::{Dtype, HeadDim},
};
use rand::{RngExt, SeedableRng, seq::SliceRandom};

/// Draws the calls of a run.
pub struct Drawer {
    seed: u64,
    points: Vec<Point>,
    /// Calls of other families: kind, element type, compute capability.
    others: Vec<(Kind, Dtype, u32)>,
    /// Multiprocessors of the GPU; `None` on the emulator, where each call sets the number.
    multiprocessors: Option<u32>,
}

/// Limits on the cost of a call.
#[derive(Clone, Copy)]
struct Budget {
    /// Elements of all tensors together.
    elements: usize,
    /// Products of Q Kᵀ with padded tiles: the emulator's work.
    products: usize,
    /// Products of the true lengths: the work of a backward pass's reference.
    exact_products: usize,
}

/// Distribution of the lengths of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// A few sequences of 0 to 20 rows.
    Tiny,
    /// Lengths at tile ends, and one more or less.
    Border,
    /// Many short varlen sequences with as many queries as keys.
    Encoder,
    /// Unequal lengths, including empty sequences.
    Mixed,
    /// Few queries, many keys.
    Decode,
    /// A batch of an inference engine: decoding sequences (few queries, many keys) mixed with prompts and prompt
    /// chunks.
    Engine,
    /// One or two long sequences.
    Long,
    /// Equal lengths.
    Uniform,
}

impl Drawer {
    /// A drawer of calls for `scope`.
    pub fn new(scope: &Scope, seed: u64) -> Self {
        let multiprocessors = match scope.device {
            ScopeDevice::Gpu { multiprocessors, .. } => Some(multiprocessors),
            ScopeDevice::Emulator => None,
        };
        Self { seed, points: scope.points(), others: scope.drawn_points(), multiprocessors }
    }

    /// True if there are no kernels to call.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && self.others.is_empty()
    }

    /// Call number `number`.
    ///
    /// # Panics
    /// If there are no kernels to call.
    pub fn draw(&self, number: u64) -> LibraryCall {
        let mut rng = Rng::seed_from_u64(self.seed);
        rng.set_stream(number);
        // Attention has by far the most kernels.
        if !self.others.is_empty() && (self.points.is_empty() || once_in(&mut rng, 10)) {
            return LibraryCall::Drawn(self.other(&mut rng));
        }
        LibraryCall::Attention(self.attention(&mut rng))
    }

    /// A call of another family: mostly small, because the special cases occur at small sizes.
    fn other(&self, rng: &mut Rng) -> DrawnCall {
        let (kind, dtype, capability) = pick(rng, &self.others);
        let on_gpu = self.multiprocessors.is_some();
        let most = weighted(rng, &[(4, 8), (4, 24), (1, if on_gpu { drawn::LARGEST } else { 32 })]);
        DrawnCall {
            kind,
            dtype,
            size: rng.random_range(1..=most),
            again: again(rng, on_gpu),
            seed: rng.random_range(0..1_000_000),
            capability: (!on_gpu).then_some(capability),
        }
    }

    fn attention(&self, rng: &mut Rng) -> FuzzCase {
        let Point { entry, head_dim, dtype, causal: made_causal, features, capability } = self.point(rng);
        // A non-causal kernel with windows also serves causal calls.
        let causal = made_causal || (features.any(|info| info.includes_causal) && once_in(rng, 3));
        let on_gpu = self.multiprocessors.is_some();
        // Mostly few, so that persistent blocks get several work items; sometimes many, so that all items run at once.
        let emulated = weighted(rng, &[(4, 1), (4, 2), (4, 3), (4, 4), (4, 5), (2, 8), (2, 12), (2, 16), (3, 132)]);
        let multiprocessors = self.multiprocessors.unwrap_or(emulated);
        let budget = self.budget(rng, entry);
        let style = style(rng);
        let mut problem = self.shape(rng, style, head_dim, causal, multiprocessors, budget);
        problem.lengths = lengths(rng, style, &problem.sequences);
        problem.layout = layout(rng, entry, on_gpu);
        problem.inputs = inputs(rng, dtype == Dtype::Fp8 || KvFormat::of(features).is_some());
        problem.scale = scale(rng);
        problem.lse = entry == Entry::Bwd || !once_in(rng, 4);
        let descales = weighted(rng, &[(1, Descales::Absent), (1, Descales::Uniform), (2, Descales::ByHead)]);
        problem.multiprocessors = (!on_gpu).then_some(multiprocessors as usize);
        problem.options = options::draw(rng, features, &problem.sequences);
        problem.fp8 = (dtype == Dtype::Fp8 || problem.options.kv.is_some()).then_some(descales);
        rooms(problem.options.wanted(causal).1).for_each(|room| room.fit_drawn(&mut problem, head_dim));
        // A window that ends at the query's position is equivalent to the causal flag.
        let causal = causal && !(problem.options.window.is_some_and(|[_, right]| right == 0) && once_in(rng, 2));
        let workspace = match entry {
            Entry::Fwd => weighted(rng, &[(5, Workspace::CallOptions), (4, Workspace::None), (1, Workspace::Short)]),
            Entry::Bwd => weighted(rng, &[(30, Workspace::CallOptions), (1, Workspace::None), (1, Workspace::Short)]),
        };
        let splits = weighted(rng, &[(6, 0), (1, 1), (1, 2), (1, 3), (1, 7), (1, 33)]);
        let merging = weighted(
            rng,
            &[(4, Merging::Free), (3, Merging::Counted), (1, Merging::OneCounter), (1, Merging::Launch), (3, Merging::LastBlock)],
        );
        problem.options = problem.options.placed(causal);
        let case = FuzzCase {
            entry,
            head_dim,
            dtype,
            causal,
            problem,
            workspace,
            splits: if entry == Entry::Fwd { splits } else { 0 },
            merging: if entry == Entry::Fwd { merging } else { Merging::Free },
            totals: rng.random(),
            deterministic: entry == Entry::Bwd && once_in(rng, 3),
            dlse: entry == Entry::Bwd && once_in(rng, 3),
            again: again(rng, on_gpu),
            seed: rng.random_range(0..1_000_000),
            capability: (!on_gpu).then_some(capability),
        };
        debug_assert_eq!(case.complaint(), None);
        case
    }

    /// Draws the device first, so that each gets equally many calls, then the function, then its parameters.
    fn point(&self, rng: &mut Rng) -> Point {
        let distinct = |values: Vec<u32>| {
            let mut values = values;
            values.sort_unstable();
            values.dedup();
            values
        };
        let capability = pick(rng, &distinct(self.points.iter().map(|point| point.capability).collect()));
        let here = || self.points.iter().filter(move |point| point.capability == capability);
        let backward = here().any(|point| point.entry == Entry::Bwd) && once_in(rng, 3);
        let entry = if backward || here().all(|point| point.entry == Entry::Bwd) { Entry::Bwd } else { Entry::Fwd };
        let points: Vec<Point> = here().filter(|point| point.entry == entry).copied().collect();
        pick(rng, &points)
    }

    /// Mostly small calls; a few percent are large.
    fn budget(&self, rng: &mut Rng, entry: Entry) -> Budget {
        let big = once_in(rng, 40);
        let (elements, products, exact_products) = match (self.multiprocessors.is_some(), big) {
            (true, true) => (12 << 20, usize::MAX, 300 << 20),
            (true, false) => (weighted(rng, &[(3, 1 << 19), (4, 1 << 20), (3, 3 << 20)]), usize::MAX, 24 << 20),
            (false, true) => (1 << 20, 80 << 20, 80 << 20),
            (false, false) => (1 << 18, weighted(rng, &[(2, 4 << 20), (3, 12 << 20), (1, 32 << 20)]), 10 << 20),
        };
        Budget { elements, products, exact_products: if entry == Entry::Bwd { exact_products } else { usize::MAX } }
    }

    /// Draws sequences and heads within the budget.
    fn shape(
        &self,
        rng: &mut Rng,
        style: Style,
        head_dim: HeadDim,
        causal: bool,
        multiprocessors: u32,
        budget: Budget,
    ) -> Problem {
        let on_gpu = self.multiprocessors.is_some();
        let heads_k = weighted(rng, &[(4, 1), (4, 2), (2, 3), (2, 4), (1, 6), (1, 8), (1, 12)]);
        let ratio = weighted(rng, &[(6, 1), (2, 2), (1, 3), (3, 4), (1, 5), (1, 6), (1, 7), (3, 8), (1, 12), (1, 16)]);
        let mut sequences = sequences(rng, style, causal, on_gpu);
        let (mut heads, mut heads_k) = (heads_k * ratio, heads_k);
        // Often enough work that persistent blocks get several items each.
        let filled = !matches!(style, Style::Tiny | Style::Decode | Style::Engine) && !once_in(rng, 3);
        if filled {
            let pieces = |sequences: &[(usize, usize)], heads| heads * sequences.iter().map(|s| s.0.div_ceil(128)).sum::<usize>();
            let wanted = rng.random_range(3..8) * multiprocessors as usize;
            let drawn = sequences.clone();
            while pieces(&sequences, heads) < wanted && sequences.len() < 600 && !sequences.is_empty() {
                if style == Style::Uniform || style == Style::Long || sequences.len() >= 4 * drawn.len() {
                    heads *= 2;
                    heads_k *= 2;
                    if heads >= 64 {
                        break;
                    }
                } else {
                    sequences.push(pick(rng, &drawn));
                }
            }
        }
        while costs(&sequences, heads, heads_k, head_dim).exceed(budget) {
            let longest = sequences.iter().map(|s| s.0.max(s.1)).max().unwrap_or(0);
            if filled && longest > SHORT {
                // The number of items matters, not their length.
                shorten(&mut sequences);
            } else if sequences.len() > 2 && once_in(rng, 2) {
                let kept = sequences.len() - sequences.len().div_ceil(4);
                sequences.truncate(kept);
            } else if heads > 3 && once_in(rng, 3) {
                (heads, heads_k) = fewer_heads(heads, heads_k);
            } else if longest > 1 {
                shorten(&mut sequences);
            } else if heads > 1 {
                (heads, heads_k) = fewer_heads(heads, heads_k);
            } else if sequences.len() > 1 {
                sequences.pop();
            } else {
                break;
            }
        }
        Problem::new(&sequences, heads, heads_k)
    }
}

/// Minimum rows of the longest sequence in batches of many items.
const SHORT: usize = 8;

/// Reduces the lengths of the sequences to three quarters.
fn shorten(sequences: &mut [(usize, usize)]) {
    for (queries, keys) in sequences {
        (*queries, *keys) = (*queries * 3 / 4, *keys * 3 / 4);
    }
}

/// Halves the number of key heads or, if there is only one, the number of query heads per key head.
fn fewer_heads(heads: usize, heads_k: usize) -> (usize, usize) {
    let ratio = heads / heads_k;
    if heads_k > 1 { (heads_k / 2 * ratio, heads_k / 2) } else { ((ratio / 2).max(1), 1) }
}

/// Cost of a shape.
fn costs(sequences: &[(usize, usize)], heads: usize, heads_k: usize, head_dim: HeadDim) -> Budget {
    let both = (head_dim.qk + head_dim.v) as usize;
    let sum = |of: fn(&(usize, usize)) -> usize| sequences.iter().map(of).sum::<usize>();
    Budget {
        elements: both * (sum(|s| s.0) * heads + sum(|s| s.1) * heads_k),
        products: both * heads * sum(|s| s.0.next_multiple_of(64) * s.1.next_multiple_of(64)) / 2,
        exact_products: both * heads * sum(|s| s.0 * s.1) / 2,
    }
}

impl Budget {
    fn exceed(self, budget: Self) -> bool {
        self.elements > budget.elements || self.products > budget.products || self.exact_products > budget.exact_products
    }
}

fn style(rng: &mut Rng) -> Style {
    let styles = [
        (2, Style::Tiny),
        (4, Style::Border),
        (5, Style::Encoder),
        (5, Style::Mixed),
        (3, Style::Decode),
        (3, Style::Engine),
        (1, Style::Long),
        (2, Style::Uniform),
    ];
    weighted(rng, &styles)
}

/// A length next to the end of a tile.
fn border(rng: &mut Rng) -> usize {
    pick(rng, &BORDERS) + rng.random_range(0..3) - 1
}

/// A random length up to about `longest`.
fn any_length(rng: &mut Rng, longest: usize) -> usize {
    match rng.random_range(0..8) {
        0 => rng.random_range(0..3),
        1 => rng.random_range(0..20),
        2 | 3 => border(rng).min(longest),
        _ => rng.random_range(1..=longest),
    }
}

fn sequences(rng: &mut Rng, style: Style, causal: bool, on_gpu: bool) -> Vec<(usize, usize)> {
    let count = |rng: &mut Rng, most: usize| rng.random_range(1..=most);
    match style {
        Style::Tiny => (0..count(rng, 5)).map(|_| (rng.random_range(0..=20), rng.random_range(0..=20))).collect(),
        Style::Border => {
            let square: bool = rng.random();
            let one = |rng: &mut Rng| {
                let queries = border(rng);
                (queries, if square { queries } else { border(rng) })
            };
            (0..count(rng, 4)).map(|_| one(rng)).collect()
        }
        Style::Encoder => {
            let longest = pick(rng, &[40, 60, 128, 200, 300, 400]);
            let shortest = pick(rng, &[0, 1, 4]);
            let most = if on_gpu { 512 } else { 24 };
            let sequences = pick(rng, &[most / 8, most / 4, most / 2, most]);
            (0..sequences).map(|_| [rng.random_range(shortest..=longest); 2].into()).collect()
        }
        Style::Mixed => {
            let longest = pick(rng, &[70, 150, 300, 500]);
            let most = if on_gpu { 48 } else { 10 };
            (0..count(rng, most)).map(|_| (any_length(rng, longest), any_length(rng, longest))).collect()
        }
        Style::Decode => {
            let longest = if on_gpu { 4096 } else { 1200 };
            let queries = pick(rng, &[1, 1, 1, 2, 3, 8, 17]);
            let sequences = count(rng, if on_gpu { 32 } else { 3 });
            let same = once_in(rng, 3).then(|| rng.random_range(1..=longest));
            let keys = |rng: &mut Rng| {
                same.unwrap_or_else(|| if once_in(rng, 6) { rng.random_range(0..40) } else { rng.random_range(1..=longest) })
            };
            (0..sequences).map(|_| (queries, keys(rng))).collect()
        }
        Style::Engine => {
            let (most_keys, longest_prompt) = if on_gpu { (2000, 500) } else { (700, 120) };
            let (decodes, prompts) = (count(rng, if on_gpu { 40 } else { 6 }), count(rng, 3));
            let few = [0, 1, 1, 1, 1, 1, 2, 3, 4, 8];
            let mut step: Vec<_> = (0..decodes).map(|_| (pick(rng, &few), rng.random_range(1..=most_keys))).collect();
            step.extend((0..prompts).map(|_| {
                let queries = rng.random_range(1..=longest_prompt);
                (queries, queries + pick(rng, &[0, 0, 17, 300]))
            }));
            step.shuffle(rng);
            step
        }
        Style::Long => {
            let longest = if on_gpu { 3000 } else { 600 };
            let queries = rng.random_range(longest / 4..=longest);
            let keys = if rng.random() { queries } else { rng.random_range(longest / 8..=longest) };
            vec![(queries, keys); count(rng, 2)]
        }
        Style::Uniform => {
            // Under a causal mask, rows that see no key are as interesting as others.
            let queries = any_length(rng, 400);
            let keys = if causal && once_in(rng, 3) { queries / 2 } else { any_length(rng, 400) };
            vec![(queries, keys); count(rng, 6)]
        }
    }
}

fn lengths(rng: &mut Rng, style: Style, sequences: &[(usize, usize)]) -> Lengths {
    let unequal =
        [(5, Lengths::Packed), (3, Lengths::Used), (2, Lengths::PackedQuery), (1, Lengths::PackedKey), (2, Lengths::PackedUsed)];
    let equal = sequences.windows(2).all(|pair| pair[0] == pair[1]);
    match style {
        Style::Encoder if !once_in(rng, 4) => Lengths::Packed,
        Style::Engine if !once_in(rng, 4) => Lengths::PackedQuery,
        _ if equal && !once_in(rng, 4) => Lengths::Uniform,
        _ => weighted(rng, &unequal),
    }
}

/// On the emulator mostly priorities, which reach orders that random schedules do not.
fn again(rng: &mut Rng, on_gpu: bool) -> Option<Order> {
    if on_gpu {
        return once_in(rng, 2).then_some(Order::Shuffled);
    }
    let depths = [0, 1, 2, 3, 5, 10];
    let priorities = Order::Priorities { depth: pick(rng, &depths) };
    weighted(rng, &[(3, None), (1, Some(Order::Shuffled)), (8, Some(priorities))])
}

/// Draws a layout, mostly one of the fast path. On a GPU, other layouts may need kernels that the driver must compile
/// first.
fn layout(rng: &mut Rng, entry: Entry, on_gpu: bool) -> Layout {
    let usual = [(6, Layout::Bshd), (3, Layout::Bhsd), (4, Layout::Padded)];
    match rng.random_range(0..if on_gpu { 30 } else { 15 }) {
        0 => Layout::Unaligned,
        1 => Layout::Reversed,
        2 | 3 => {
            let tensors = if entry == Entry::Fwd { 4 } else { 8 };
            Layout::UnalignedPart(rng.random_range(0..tensors), pick(rng, &PARTS))
        }
        _ => weighted(rng, &usual),
    }
}

fn inputs(rng: &mut Rng, has_bytes: bool) -> Inputs {
    if !once_in(rng, 3) {
        return Inputs::Normal;
    }
    match pick(rng, &ALL_INPUTS) {
        Inputs::Widest if !has_bytes => Inputs::Constant,
        inputs => inputs,
    }
}

fn scale(rng: &mut Rng) -> Scale {
    let odd = pick(rng, &[1, 17, 83, 173, 333, 700]);
    let scales = [(14, Scale::Usual), (1, Scale::Zero), (1, Scale::Quarter), (1, Scale::One), (2, Scale::Thousandths(odd))];
    weighted(rng, &scales)
}

#[cfg(test)]
mod tests {
    use super::super::drawn::draws_calls;
    use super::*;
    use crate::{
        family::attention::{self, oracle::memory_layout::Side},
        kernel::{Feature, Features, Target, Variant},
    };
    use std::collections::HashSet;

    /// Every kind, dtype and mask of some head dims, for all targets or a Hopper GPU.
    fn scope(device: ScopeDevice) -> Scope {
        let grid = crate::grid::Grid::builtin();
        let held = grid
            .variants()
            .iter()
            .filter_map(attention::Point::of)
            .filter(|v| [0, 64, 80, 256].map(HeadDim::equal).contains(&v.head_dim));
        let held: Vec<attention::Point> = held.collect();
        Scope { wanted: held.clone(), held, others: Vec::new(), device }
    }

    const HOPPER: ScopeDevice = ScopeDevice::Gpu { capability: 90, multiprocessors: 132 };

    fn attention_call(call: LibraryCall) -> FuzzCase {
        let LibraryCall::Attention(case) = call else { panic!("no call of attention: {call}") };
        case
    }

    fn drawn(device: ScopeDevice, calls: u64) -> Vec<FuzzCase> {
        let drawer = Drawer::new(&scope(device), 3);
        (0..calls).map(|number| attention_call(drawer.draw(number))).collect()
    }

    #[test]
    fn every_drawn_call_is_one_and_its_name_reads_as_the_same_call() {
        for device in [HOPPER, ScopeDevice::Emulator] {
            for case in drawn(device, 3000) {
                assert_eq!(case.complaint(), None, "{case}");
                assert_eq!(case.to_string().parse().as_ref(), Ok(&case));
            }
        }
    }

    #[test]
    fn calls_of_other_families_are_drawn_beside_those_of_attention_and_alone() {
        let grid = crate::grid::Grid::builtin();
        let others: Vec<Variant> =
            grid.variants().iter().copied().filter(|v| attention::Point::of(v).is_none() && draws_calls(*v)).collect();
        assert!(!others.is_empty());
        for device in [HOPPER, ScopeDevice::Emulator] {
            let beside = Scope { others: others.clone(), ..scope(device) };
            let alone = Scope { held: Vec::new(), wanted: Vec::new(), ..beside.clone() };
            for scope in [beside, alone] {
                let drawer = Drawer::new(&scope, 3);
                assert!(!drawer.is_empty());
                let calls: Vec<LibraryCall> = (0..600).map(|number| drawer.draw(number)).collect();
                assert!(calls.iter().all(|call| call.to_string().parse().as_ref() == Ok(call)));
                let drawn = calls.iter().filter_map(|call| if let LibraryCall::Drawn(call) = call { Some(*call) } else { None });
                let drawn: Vec<DrawnCall> = drawn.collect();
                assert!(drawn.iter().all(|call| call.complaint().is_none()));
                assert_eq!(drawn.len() == calls.len(), scope.wanted.is_empty(), "{} of {}", drawn.len(), calls.len());
                for (kind, dtype, capability) in scope.drawn_points() {
                    let emulated = (device == ScopeDevice::Emulator).then_some(capability);
                    assert!(drawn.iter().any(|call| (call.kind, call.dtype, call.capability) == (kind, dtype, emulated)));
                }
            }
        }
    }

    /// For kernels with the same features, one causal and one not.
    #[test]
    fn kernels_with_features_are_asked_for_what_they_serve_and_sometimes_for_nothing() {
        const KEYS: [Feature; 3] = [Feature::Paged, Feature::KvE4m3, Feature::PageDescale];
        let kernel = |causal| attention::Point {
            kind: attention::Kind::Fwd,
            head_dim: HeadDim::equal(64),
            dtype: Dtype::Bf16,
            causal,
            features: Features::masks_and_scores().with(KEYS.into_iter().collect()),
            target: Target::Sm80,
        };
        let mut words = HashSet::new();
        for held in [vec![kernel(false)], vec![kernel(true)], vec![kernel(false), kernel(true)]] {
            let scope = Scope { wanted: held.clone(), held, others: Vec::new(), device: ScopeDevice::Emulator };
            let drawer = Drawer::new(&scope, 3);
            for case in (0..1000).map(|number| attention_call(drawer.draw(number))) {
                assert_eq!(case.to_string().parse().as_ref(), Ok(&case));
                assert!(scope.holds(&case), "{case}");
                words.extend(case.to_string().split(' ').map(str::to_owned));
                // Kernels with pages or FP8 serve no other calls.
                let besides = case.problem.options.wanted(case.causal).1.iter().any(|feature| !KEYS.contains(&feature));
                words.extend((!besides).then(|| "nothing".to_owned()));
            }
        }
        for word in "full causal softcap30 alibi alibi-by-batch sinks sinks-bf16 chunk64 window-1,-1 page16 page16-descales page64-v-descales \
                     kv-e4m3 \
                     descale-by-head widest nothing"
            .split_whitespace()
        {
            assert!(words.contains(word), "{word}");
        }
    }

    #[test]
    fn a_call_hangs_on_the_runs_seed_and_its_number_alone() {
        let scope = scope(ScopeDevice::Emulator);
        let (one, same, other) = (Drawer::new(&scope, 3), Drawer::new(&scope, 3), Drawer::new(&scope, 4));
        let backwards: Vec<LibraryCall> = (0..50).rev().map(|number| one.draw(number)).collect();
        for (number, case) in (0..50).rev().zip(&backwards) {
            assert_eq!(same.draw(number), *case);
        }
        assert_eq!(backwards.iter().map(LibraryCall::to_string).collect::<HashSet<_>>().len(), 50);
        assert_ne!(other.draw(7), one.draw(7));
    }

    #[test]
    fn everything_that_can_be_asked_of_the_library_is_asked() {
        for device in [HOPPER, ScopeDevice::Emulator] {
            let point = |case: &FuzzCase| (case.entry.word(), case.head_dim, case.dtype, case.causal, case.capability);
            let options: HashSet<_> = drawn(device, 3000).iter().map(point).collect();
            for p in scope(device).points() {
                let capability = (device == ScopeDevice::Emulator).then_some(p.capability);
                assert!(options.contains(&(p.entry.word(), p.head_dim, p.dtype, p.causal, capability)), "{p:?}");
            }
        }
        let capabilities: HashSet<_> = drawn(ScopeDevice::Emulator, 300).iter().map(|case| case.capability).collect();
        assert_eq!(capabilities.len(), Target::ALL.len());
    }

    #[test]
    fn every_layout_way_of_lengths_contents_and_ratio_comes_up() {
        for device in [HOPPER, ScopeDevice::Emulator] {
            let cases = drawn(device, 8000);
            let words: HashSet<String> =
                cases.iter().flat_map(|case| case.to_string().split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
            for word in "cu_seqlens seqused cu_seqlens_q+seqused_k cu_seqlens+seqused bshd bhsd padded unaligned reversed unaligned-q-start \
                         unaligned-dv-batch normal one-hot constant widest large rising low falling scale0 scale1/4 scale1 scale83/1000 no-lse \
                         descale descale-by-head no-workspace short-workspace splits7 totals deterministic dlse twice"
                .split_whitespace()
            {
                assert!(words.contains(word), "{device:?} {word}");
            }
            let ratios: HashSet<usize> = cases.iter().map(|case| case.problem.heads / case.problem.heads_k).collect();
            assert!(ratios.is_superset(&[1, 2, 3, 4, 5, 6, 7, 8, 12, 16].into()), "{ratios:?}");
            let lengths: HashSet<usize> = cases.iter().flat_map(|case| case.problem.used_rows(Side::Query)).collect();
            assert!(lengths.is_superset(&[0, 1, 63, 64, 65, 127, 128, 129].into()));
        }
    }

    #[test]
    fn a_good_part_of_the_calls_gives_every_multiprocessor_several_unlike_pieces() {
        let several = |case: &&FuzzCase, multiprocessors: usize| {
            let pieces = case.problem.heads * case.problem.sequences.iter().map(|s| s.0.div_ceil(128)).sum::<usize>();
            let lengths: HashSet<_> = case.problem.sequences.iter().collect();
            pieces >= 3 * multiprocessors && lengths.len() > 2
        };
        let count = drawn(HOPPER, 1000).iter().filter(|case| several(case, 132)).count();
        assert!(count > 150, "{count}");
        let emulated = drawn(ScopeDevice::Emulator, 1000);
        let count = emulated.iter().filter(|case| several(case, case.problem.multiprocessors.expect("it is drawn"))).count();
        assert!(count > 200, "{count}");
    }

    #[test]
    fn the_kinds_of_kernels_all_have_their_share() {
        let cases = drawn(HOPPER, 2000);
        // Blocks of 64 rows that all run at once.
        let is_short = |case: &&FuzzCase| {
            let blocks = case.problem.rows(Side::Query).bound.div_ceil(64) * case.problem.heads * case.problem.sequences.len();
            case.entry == Entry::Fwd && (1..=132).contains(&blocks)
        };
        let short = cases.iter().filter(is_short).count();
        let backward = cases.iter().filter(|case| case.entry == Entry::Bwd).count();
        let fp8 = cases.iter().filter(|case| case.dtype == Dtype::Fp8).count();
        assert!(short > 100 && backward > 400 && fp8 > 200, "{short} {backward} {fp8}");
    }
}
