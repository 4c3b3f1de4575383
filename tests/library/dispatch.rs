//! Which path the dispatcher takes: what it says of itself, beside the model in Rust and beside what is known of paths.

use super::{Library, ROOT, names_in_place_of_kernels, run};
use kgen::{
    family::attention::{
        KernelCost, Kind, Point,
        cost::{Candidate, DeviceCost, Held, Kernels, Lengths, Path as Way, PathTimes, Request, chosen, weigh},
    },
    kernel::{Dtype, Feature, Features, HeadDim, Target},
    plan::{Limits, Plan},
};
use rand::{RngExt as _, SeedableRng as _, seq::IndexedRandom as _};
use rand_chacha::ChaCha8Rng;
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

const CAUSAL: u32 = 1;
const WINDOW: u32 = 4;
const ONLY_DENSE: u32 = 0x100;
const ONLY_SHORT: u32 = 0x200;
const ONLY_SPLIT: u32 = 0x400;
const ONLY_SCHEDULED: u32 = 0x800;
const DENSE: i32 = 0;
const SHORT: i32 = 1;
const SPLIT: i32 = 2;
const SCHEDULED: i32 = 3;
const MIXED: i32 = 4;
const PACKED: i32 = 5;

fn point(kind: Kind, head_dim: u32, causal: bool, target: Target) -> Point {
    let head_dim = if kind.has_shape() { head_dim } else { 0 };
    Point {
        kind,
        head_dim: HeadDim::equal(head_dim),
        dtype: Dtype::Fp16,
        causal: causal && kind.has_shape(),
        features: Features::NONE,
        target,
    }
}

/// The head dim of which the library has kernels with windows.
const WINDOWED: u32 = 64;

fn windowed(kind: Kind) -> Point {
    Point { features: Features::from_iter([Feature::Window]), ..point(kind, WINDOWED, false, Target::Sm80) }
}

/// The head dim of which it has kernels that pack the heads of a group.
const PACKED_HEADS: u32 = 128;

fn packed(causal: bool) -> Point {
    Point { features: Features::from_iter([Feature::PackGqa]), ..point(Kind::Fwd, PACKED_HEADS, causal, Target::Sm80) }
}

/// Hopper's kernels for pages of head dim 128, and the split-KV kernel beside them.
fn paged() -> impl Iterator<Item = Point> {
    let of = |kind, target, features: &[Feature]| Point {
        features: features.iter().copied().collect(),
        ..point(kind, 128, true, target)
    };
    [
        of(Kind::Fwd, Target::Sm90, &[Feature::Paged]),
        of(Kind::Fwd, Target::Sm90, &[Feature::PackGqa, Feature::Paged]),
        of(Kind::FwdSplit, Target::Sm80, &[Feature::Paged]),
    ]
    .into_iter()
}

/// What a library for data centres holds of two head dims: Ampere's kernels and Hopper's. Head dim 96 has neither
/// `fwd_short` nor `fwd_split`.
static KERNELS: LazyLock<Vec<Point>> = LazyLock::new(|| {
    let mut kernels = vec![windowed(Kind::Fwd), windowed(Kind::FwdSplit)];
    kernels.extend(paged());
    for causal in [false, true] {
        kernels.push(packed(causal));
        for head_dim in [64, 128] {
            kernels.extend([Target::Sm80, Target::Sm90].map(|target| point(Kind::Fwd, head_dim, causal, target)));
            kernels.push(point(Kind::FwdShort, head_dim, causal, Target::Sm90));
            kernels.push(point(Kind::FwdSplit, head_dim, causal, Target::Sm80));
        }
        kernels.push(point(Kind::Fwd, 96, causal, Target::Sm80));
    }
    kernels.extend([Kind::FwdCombine, Kind::PrepareScheduler].map(|kind| point(kind, 0, false, Target::Sm80)));
    kernels
});

static NAMES: LazyLock<Library> = LazyLock::new(|| names_in_place_of_kernels("choices", &KERNELS));

static PROGRAM: LazyLock<PathBuf> =
    LazyLock::new(|| NAMES.program(&Path::new(ROOT).join("tests/library/choices.c"), "choices", &NAMES.dispatcher));

/// A request of the program.
#[derive(Clone, Copy, Debug)]
struct Ask {
    capability: u32,
    multiprocessors: u32,
    request: Request,
    flags: u32,
    num_splits: u32,
    room: u64,
    /// Rows of a page; 0: K and V are not paged.
    page_size: u32,
}

const UNLIMITED: u64 = u64::MAX;

/// Attention of fp16 on an H100 with all the workspace there is.
fn ask(batch: u32, [heads, heads_k]: [u32; 2], [queries, keys]: [u32; 2], head_dim: u32) -> Ask {
    let request = Request {
        batch,
        heads,
        heads_k,
        queries: Lengths::equal(queries),
        keys: Lengths::equal(keys),
        head_dim: HeadDim::equal(head_dim),
        element_bytes: 2,
        kv_element_bytes: 2,
        causal: false,
        most_seen: None,
        arrivals: 0,
    };
    Ask { capability: 90, multiprocessors: 132, request, flags: 0, num_splits: 0, room: UNLIMITED, page_size: 0 }
}

/// A line of the program about a candidate.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    path: i32,
    splits: u32,
    variant: String,
    excluded: Option<String>,
    bytes: u64,
    /// Predicted, launch, tile, chain, step, memory, combine, scheduler.
    times: Vec<f64>,
    by_last_block: bool,
}

/// What the program says of a request.
#[derive(Clone, Debug)]
struct Answer {
    candidates: Vec<Told>,
    code: i32,
    chosen: Option<usize>,
    error: String,
    workspace: u64,
    launched: (i32, String),
}

impl Answer {
    fn chosen(&self) -> &Told {
        &self.candidates[self.chosen.expect("a path is chosen")]
    }

    fn of(&self, path: i32) -> impl Iterator<Item = &Told> {
        self.candidates.iter().filter(move |told| told.path == path)
    }
}

fn answers(asks: &[Ask]) -> Vec<Answer> {
    let lines: Vec<String> = asks
        .iter()
        .map(|ask| {
            let Ask { capability, multiprocessors, request: r, flags, num_splits, room, page_size } = ask;
            let flags = flags | if r.causal { CAUSAL } else { 0 } | if r.most_seen.is_some() { WINDOW } else { 0 };
            // A window of so many keys, the query's own among them.
            let others = r.most_seen.map_or(0, |seen| seen - 1);
            let left = if r.causal { others } else { others / 2 };
            let right = others - left;
            let [unequal_q, unequal_k] = [r.queries, r.keys].map(|side| u8::from(side.unequal));
            format!(
                "{capability} {multiprocessors} {} {} {} {} {} {} 0 {flags:x} {num_splits} {unequal_q} {unequal_k} {} {} {room} {left} {right} {} {page_size}\n",
                r.batch, r.heads, r.heads_k, r.queries.longest, r.keys.longest, r.head_dim, r.queries.total, r.keys.total, r.arrivals,
            )
        })
        .collect();
    let mut child = Command::new(&*PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || stdin.write_all(lines.concat().as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("written");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("ASCII");
    let mut answers = Vec::new();
    let mut candidates = Vec::new();
    let mut chosen = (0, None, String::new());
    let mut workspace = 0;
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let number = |place: usize| fields[place].parse::<i64>().expect("a number");
        match fields[0] {
            "candidate" => candidates.push(Told {
                path: number(1) as i32,
                splits: number(2) as u32,
                variant: fields[3].to_owned(),
                excluded: (fields[4] != "-").then(|| fields[4].to_owned()),
                bytes: fields[5].parse().expect("a number"),
                times: fields[6..14].iter().map(|time| time.parse().expect("a time")).collect(),
                by_last_block: number(14) == 1,
            }),
            "chosen" => chosen = (number(1) as i32, usize::try_from(number(2)).ok(), fields[3].to_owned()),
            "workspace" => workspace = fields[1].parse().expect("a number"),
            _ => answers.push(Answer {
                candidates: std::mem::take(&mut candidates),
                code: chosen.0,
                chosen: chosen.1,
                error: chosen.2.clone(),
                workspace,
                launched: (number(1) as i32, fields[2].to_owned()),
            }),
        }
    }
    assert_eq!(answers.len(), asks.len());
    answers
}

fn answer(ask: Ask) -> Answer {
    answers(&[ask]).remove(0)
}

/// What the model knows of a kernel on a GPU of so much shared memory a block.
fn held_kernel(point: Point, shared: u32) -> Held {
    let plan = Plan::new(point, None).expect("fits");
    let cost = KernelCost::of(&plan);
    let tile = plan.design_as::<kgen::family::attention::Design>().expect("an attention kernel").tile;
    let scheduled_tiles = if point.kind == Kind::FwdSplit { tile.min_blocks_per_sm * tile.m / 16 } else { 0 };
    Held { cost, resident: cost.resident_on(shared, plan.shared_memory_bytes), scheduled_tiles }
}

/// The model's kernels for a request on a device of 8.0 or 9.0.
fn held(ask: &Ask) -> Kernels {
    let target = if ask.capability == 90 { Target::Sm90 } else { Target::Sm80 };
    let shared = Limits::of(target).shared_memory_per_block;
    let with_window = ask.request.most_seen.is_some();
    let find = |kind: Kind, target: Target| {
        let without = point(kind, ask.request.head_dim.qk, ask.request.causal, target);
        let wanted = if with_window && kind.has_shape() { Point { target, ..windowed(kind) } } else { without };
        KERNELS.contains(&wanted).then(|| held_kernel(wanted, shared))
    };
    let packs = ask.request.head_dim == HeadDim::equal(PACKED_HEADS) && !with_window;
    Kernels {
        dense: find(Kind::Fwd, target).or_else(|| find(Kind::Fwd, Target::Sm80)),
        packed: packs.then(|| held_kernel(packed(ask.request.causal), shared)),
        short: find(Kind::FwdShort, target),
        split: find(Kind::FwdSplit, Target::Sm80),
        combine: find(Kind::FwdCombine, Target::Sm80),
        scheduler: find(Kind::PrepareScheduler, Target::Sm80),
    }
}

fn model(ask: &Ask) -> Vec<Candidate> {
    let shared = Limits::of(if ask.capability == 90 { Target::Sm90 } else { Target::Sm80 }).shared_memory_per_block;
    weigh(&ask.request, &held(ask), &DeviceCost::new(ask.capability, ask.multiprocessors, shared, None))
}

/// Shapes between a decoding step and a long prefill; a third with lengths that differ.
fn draw(rng: &mut ChaCha8Rng) -> Ask {
    fn power(rng: &mut ChaCha8Rng, most: u32) -> u32 {
        (f64::from(most).ln() * rng.random::<f64>()).exp().round() as u32
    }
    let heads_k = power(rng, 16);
    let heads = heads_k * [1, 1, 2, 4, 7, 8].choose(rng).expect("not empty");
    let batch = power(rng, 64);
    let queries = *[1, power(rng, 16), power(rng, 16384), power(rng, 16384)].choose(rng).expect("not empty");
    let keys = *[queries, power(rng, 16384), power(rng, 131_072)].choose(rng).expect("not empty");
    let side = |rng: &mut ChaCha8Rng, longest: u32, unequal: bool| {
        let total = rng.random_range(1..=u64::from(longest) * u64::from(batch));
        let told = unequal && rng.random();
        Lengths { longest, unequal, total: if told { u32::try_from(total).expect("small") } else { 0 } }
    };
    let unequal = rng.random_range(0..3) == 0;
    let unequal_keys = unequal || rng.random_range(0..6) == 0;
    let request = Request {
        batch,
        heads,
        heads_k,
        queries: side(rng, queries, unequal),
        keys: side(rng, keys, unequal_keys),
        head_dim: HeadDim::equal(*[64, 64, 128, 128, 96].choose(rng).expect("not empty")),
        element_bytes: 2,
        kv_element_bytes: 2,
        causal: rng.random(),
        most_seen: None,
        arrivals: [0, 0, power(rng, 1 << 12).into(), 1 << 40].choose(rng).copied().expect("not empty"),
    };
    let most_seen = (request.head_dim == HeadDim::equal(WINDOWED) && rng.random_range(0..3) == 0).then(|| 1 + power(rng, 16384));
    let request = Request { most_seen, ..request };
    let (capability, multiprocessors) = *[(90, 132), (90, 132), (90, 78), (80, 108)].choose(rng).expect("not empty");
    Ask { capability, multiprocessors, request, flags: 0, num_splits: 0, room: UNLIMITED, page_size: 0 }
}

#[test]
fn the_dispatcher_predicts_and_chooses_what_the_model_does() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let asks: Vec<Ask> = (0..3000).map(|_| draw(&mut rng)).collect();
    let (mut taken, mut by_last_block) = ([0; 6], 0);
    for (ask, answer) in asks.iter().zip(answers(&asks)) {
        let expected = model(ask);
        let able: Vec<&Told> = answer.candidates.iter().filter(|told| told.excluded.is_none()).collect();
        let told: Vec<(i32, u32)> = able.iter().map(|told| (told.path, told.splits)).collect();
        assert_eq!(told, expected.iter().map(|c| (c.path as i32, c.splits)).collect::<Vec<_>>(), "{ask:?}");
        for (told, model) in able.iter().zip(&expected) {
            let PathTimes { attention: times, combine, scheduler } = model.times;
            let parts = [model.predicted_ns, times.launch, times.tile, times.chain, times.step, times.memory, combine, scheduler];
            for (told, part) in told.times.iter().zip(parts) {
                assert!((told - part).abs() <= 1e-12 * part, "{ask:?} {model:?} {told}");
            }
            assert_eq!(told.by_last_block, model.by_last_block, "{ask:?} {model:?}");
            by_last_block += usize::from(told.by_last_block);
        }
        let best = chosen(&expected).expect("there is a path");
        assert_eq!(answer.chosen(), able[best], "{ask:?}");
        assert_eq!(answer.workspace, answer.chosen().bytes, "{ask:?}");
        taken[answer.chosen().path as usize] += 1;
    }
    let all_taken = taken[..3].iter().all(|count| *count > 100) && taken[3] > 0 && taken[PACKED as usize] > 0;
    assert!(by_last_block > 100, "{by_last_block} times the last block is faster");
    assert!(all_taken, "every path is the fastest now and then: {taken:?}");
}

#[test]
fn what_is_chosen_is_what_is_launched() {
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let rooms = [0, 1 << 12, 1 << 20, UNLIMITED];
    let asks: Vec<Ask> = (0..1000).map(|n| Ask { room: rooms[n % 4], ..draw(&mut rng) }).collect();
    for (ask, answer) in asks.iter().zip(answers(&asks)) {
        let chosen = answer.chosen();
        // The first kernel of the path fails with its name.
        let first = if chosen.path == SCHEDULED { "flash_prepare_scheduler_sm80" } else { &chosen.variant };
        assert_eq!(answer.launched, (9, first.to_owned()), "{ask:?}");
        assert!(chosen.bytes <= ask.room);
        let fastest = answer
            .candidates
            .iter()
            .filter(|told| told.excluded.is_none())
            .map(|told| told.times[0])
            .fold(f64::INFINITY, f64::min);
        assert!(chosen.times[0] <= fastest, "{ask:?}");
        for told in &answer.candidates {
            match told.excluded.as_deref() {
                None => assert!(told.bytes <= ask.room, "{told:?}"),
                Some(reason) => assert!(reason != "the workspace has too few bytes" || told.bytes > ask.room, "{told:?}"),
            }
        }
    }
}

#[test]
fn a_remembered_choice_is_the_one_that_would_be_made() {
    let program = NAMES.program(&Path::new(ROOT).join("tests/library/remembered.c"), "remembered", &NAMES.dispatcher);
    assert_eq!(run(&mut Command::new(program)), "done|4000\n");
}

#[test]
fn every_path_is_reported_with_its_time_or_the_reason_why_not() {
    let all = answer(ask(4, [8, 8], [128, 4096], 64));
    for path in [DENSE, SHORT, SPLIT] {
        assert!(all.of(path).all(|told| told.excluded.is_none() && told.times[0] > 0.0), "{all:?}");
    }
    assert!(all.of(SPLIT).count() > 5);
    let excluded = |answer: &Answer, path| answer.of(path).next().and_then(|told| told.excluded.clone()).unwrap_or_default();
    assert_eq!(excluded(&all, SCHEDULED), "all sequences have as many keys");

    let not_held = answer(ask(4, [8, 8], [128, 4096], 96));
    for path in [SHORT, SPLIT, SCHEDULED] {
        assert_eq!(excluded(&not_held, path), "the library holds no such kernel for this device");
    }
    assert_eq!(not_held.chosen().variant, "flash_fwd_hdim96_fp16_sm80");
    let unsplit = answer(Ask { num_splits: 1, ..ask(1, [8, 8], [1, 65536], 64) });
    assert_eq!((excluded(&unsplit, SCHEDULED).as_str(), unsplit.workspace), ("num_splits is 1", 0));
    assert_eq!(excluded(&unsplit, SPLIT), "", "one split needs no other kernel");
    let empty = answer(ask(0, [8, 8], [1, 1], 64));
    assert_eq!((empty.chosen().path, excluded(&empty, SPLIT).as_str()), (DENSE, "there is no work to compare paths by"));
    let ampere = answer(Ask { capability: 80, ..ask(1, [8, 8], [512, 512], 64) });
    assert_eq!(excluded(&ampere, SHORT), "the library holds no such kernel for this device");
}

/// Measured on an H200: 5.0 µs by `fwd_short`, 21.8 split.
#[test]
fn little_work_goes_to_the_short_kernel_with_a_workspace_and_without() {
    for room in [0, UNLIMITED] {
        for causal in [false, true] {
            let mut little = Ask { room, ..ask(1, [8, 8], [512, 512], 64) };
            little.request.causal = causal;
            let answer = answer(little);
            assert_eq!((answer.chosen().path, answer.workspace), (SHORT, 0), "{answer:?}");
        }
    }
    assert_eq!(answer(ask(8, [8, 8], [128, 128], 64)).chosen().path, SHORT);
}

#[test]
fn one_query_over_a_long_context_is_split_and_large_problems_are_not() {
    let decoding = answer(ask(1, [32, 8], [1, 32768], 128));
    assert_eq!(decoding.chosen().path, SPLIT);
    assert!(decoding.chosen().splits >= 12, "{:?}", decoding.chosen());
    assert_eq!(answer(ask(64, [32, 8], [1, 4096], 128)).chosen().path, SPLIT, "K and V are read once for a group of heads");
    for capability in [80, 90] {
        for causal in [false, true] {
            let mut large = Ask { capability, ..ask(2, [16, 16], [8192, 8192], 128) };
            large.request.causal = causal;
            assert_eq!(answer(large).chosen().path, DENSE);
        }
    }
}

#[test]
fn a_batch_with_one_long_context_has_its_splits_scheduled() {
    let mut mixed = ask(32, [32, 8], [1, 65536], 128);
    mixed.request.keys = Lengths { longest: 65536, unequal: true, total: 65536 + 31 * 2000 };
    let told = answer(mixed);
    assert_eq!(told.chosen().path, SCHEDULED, "{told:?}");
    // Measured on an H100: 191 us scheduled, 201 with 8 splits for all, 237 with 4, 565 with 1.
    mixed.request.keys.total = 0;
    let unknown = answer(mixed);
    assert!(unknown.chosen().path == SCHEDULED || unknown.chosen().splits >= 8, "{:?}", unknown.chosen());
}

/// A causal batch in pages of 16 rows, with so many queries in all; 32 heads that read 8 key heads.
fn in_pages(batch: u32, [queries, total]: [u32; 2], keys: u32) -> Ask {
    let mut one = ask(batch, [32, 8], [queries, keys], 128);
    one.page_size = 16;
    one.request.causal = true;
    one.request.queries = Lengths { longest: queries, unequal: true, total };
    one.request.keys = Lengths { longest: keys, unequal: true, total: 0 };
    one
}

/// The shortest time of a path, in microseconds.
fn microseconds(told: &Answer, path: i32) -> f64 {
    told.of(path).map(|told| told.times[0] / 1000.0).fold(f64::INFINITY, f64::min)
}

#[test]
fn long_contexts_beside_a_prompt_are_split_and_prompts_alone_take_one_kernel() {
    for (batch, chunk, keys) in [(9, 2048, 131_072), (3, 2048, 131_072), (17, 512, 32_768)] {
        let told = answer(in_pages(batch, [chunk, chunk + batch - 1], keys));
        assert!(told.chosen().path == MIXED && told.chosen().splits > 1, "{told:?}");
    }
    // Where one prompt stands among shorter ones, the second kernel finds nothing. Measured on an H200: mixed 921 us,
    // packed 883.
    for (batch, longest, total) in [(31, 8192, 16832), (64, 700, 32000), (12, 6000, 36000)] {
        let told = answer(in_pages(batch, [longest, total], longest));
        assert_eq!(told.chosen().path, PACKED, "{told:?}");
    }
    // 63 decodes beside a chunk of 1985: measured on an H200, 236 us mixed and 237 packed.
    let told = answer(in_pages(64, [1985, 2048], 3000));
    assert!((0.8..1.25).contains(&(microseconds(&told, MIXED) / microseconds(&told, PACKED))), "{told:?}");
}

#[test]
fn every_path_is_weighed_by_the_same_guesses_about_queries_which_one_query_more_hardly_changes() {
    // From one query for each sequence but the longest to half of the sequences as long as that.
    let times = |total| {
        let told = answer(in_pages(64, [1024, total], 4096));
        [DENSE, SPLIT, MIXED, PACKED].map(|path| microseconds(&told, path))
    };
    for total in [1087, 1088, 2000, 9000, 17_000, 32_000] {
        for (before, after) in times(total).into_iter().zip(times(total + 1)) {
            assert!((after / before - 1.0).abs() < 0.01, "{total}: {before} {after}");
        }
    }
}

#[test]
fn more_of_anything_never_takes_less_time() {
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let asks: Vec<Ask> = (0..300)
        .map(|_| {
            let mut one = draw(&mut rng);
            one.request.queries = Lengths::equal(one.request.queries.longest);
            one.request.keys = Lengths::equal(one.request.keys.longest.max(one.request.queries.longest));
            one.request.causal = false;
            one
        })
        .collect();
    let twice = |change: fn(&mut Request)| -> Vec<Ask> {
        let mut changed = asks.clone();
        for one in &mut changed {
            change(&mut one.request);
        }
        changed
    };
    let before = answers(&asks);
    let more: [fn(&mut Request); 4] = [|r| r.batch *= 2, |r| r.heads *= 2, |r| r.keys.longest *= 2, |r| r.queries.longest *= 2];
    for change in more {
        for (before, after) in before.iter().zip(answers(&twice(change))) {
            for told in &before.candidates {
                let same = after.candidates.iter().find(|c| (c.path, c.splits) == (told.path, told.splits));
                let same = same.filter(|c| c.excluded.is_none() && told.excluded.is_none());
                assert!(same.is_none_or(|c| c.times[0] >= told.times[0]), "{told:?} {same:?}");
            }
            assert!(after.chosen().times[0] >= before.chosen().times[0] * 0.999);
        }
    }
}

#[test]
fn a_path_that_is_asked_for_is_taken_or_refused() {
    let decoding = ask(1, [32, 8], [1, 32768], 128);
    for (flags, first) in [
        (ONLY_DENSE, "flash_fwd_hdim128_fp16_sm90"),
        (ONLY_SHORT, "flash_fwd_short_hdim128_fp16_sm90"),
        (ONLY_SPLIT, "flash_fwd_split_hdim128_fp16_sm80"),
        (ONLY_DENSE | ONLY_SHORT, "flash_fwd_short_hdim128_fp16_sm90"),
    ] {
        let answer = answer(Ask { flags, ..decoding });
        assert_eq!(answer.launched, (9, first.to_owned()), "{flags:x}");
        assert!(answer.candidates.iter().all(|told| told.excluded.is_none() == (flags >> 8 >> told.path & 1 == 1)), "{answer:?}");
    }
    let mut mixed = decoding;
    (mixed.request.batch, mixed.request.keys.unequal) = (8, true);
    assert_eq!(answer(Ask { flags: ONLY_SCHEDULED, ..mixed }).launched.1, "flash_prepare_scheduler_sm80");

    let refused = |ask| {
        let Answer { code, error, launched, workspace, chosen, .. } = answer(ask);
        assert_eq!((chosen, workspace, launched.0), (None, 0, code));
        assert_eq!(launched.1.replace("kgen_fwd:", "kgen_explain_choice:"), error);
        (code, error)
    };
    let scheduled = refused(Ask { flags: ONLY_SCHEDULED, ..decoding });
    assert_eq!(
        scheduled,
        (
            3,
            "kgen_explain_choice: no path that flags 0x800 name can be taken; path 3: all sequences have as many keys".to_owned()
        )
    );
    assert_eq!(refused(Ask { flags: ONLY_SHORT, capability: 80, ..decoding }).0, 3);
    assert_eq!(
        refused(Ask { num_splits: 257, ..decoding }),
        (1, "kgen_explain_choice: num_splits 257 must lie in 0 .. 256".to_owned())
    );
    let short = answer(Ask { flags: ONLY_SPLIT, room: 8, num_splits: 2, ..decoding });
    assert_eq!((short.code, short.launched.0), (1, 1));
    assert!(short.error.ends_with("path 2: the workspace has too few bytes"), "{}", short.error);
    assert!(short.workspace > 8, "what it would take can be asked for");
}

#[test]
fn who_asks_for_splits_and_brings_the_room_gets_them() {
    let little = Ask { num_splits: 4, ..ask(1, [8, 8], [512, 512], 64) };
    let split = answer(little);
    assert_eq!((split.chosen().path, split.chosen().splits), (SPLIT, 4));
    assert_eq!(split.of(SHORT).next().and_then(|told| told.excluded.as_deref()), Some("num_splits asks for splits"));
    assert_eq!(answer(Ask { room: split.workspace, ..little }).chosen().path, SPLIT);
    assert_eq!(answer(Ask { room: split.workspace - 1, ..little }).chosen().path, SHORT);
}

/// The paths of both worlds have the same numbers.
#[test]
fn paths_are_numbered_as_in_the_header() {
    assert_eq!([Way::Dense, Way::Short, Way::Split, Way::Scheduled].map(|way| way as i32), [DENSE, SHORT, SPLIT, SCHEDULED]);
}
