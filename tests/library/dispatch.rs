//! The dispatcher's choice of path: its explanation, compared with known facts about paths.

use super::{
    ROOT,
    choices::{Answer, Ask, Choices, DENSE, Lengths, MIXED, PACKED, Request, SCHEDULED, SHORT, SPLIT, Told, UNLIMITED, ask},
    choices::{NAMES, PACKED_HEADS, WINDOWED},
    compile_cpp, run,
};
use kgen::toolchain::host_compiler_in_process;
use rand::{RngExt as _, SeedableRng as _, seq::IndexedRandom as _};
use rand_chacha::ChaCha8Rng;
use std::{path::Path, process::Command, sync::LazyLock};

const ONLY_DENSE: u32 = 0x100;
const ONLY_SHORT: u32 = 0x200;
const ONLY_SPLIT: u32 = 0x400;
const ONLY_SCHEDULED: u32 = 0x800;

static CHOICES: LazyLock<Choices> = LazyLock::new(|| Choices::of(&NAMES));

fn answers(asks: &[Ask]) -> Vec<Answer> {
    CHOICES.answers(asks)
}

fn answer(ask: Ask) -> Answer {
    CHOICES.answer(ask)
}

/// Shapes from a decoding step to a long prefill; a third with unequal lengths.
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
        head_dim: *[64, 64, 128, 128, 96].choose(rng).expect("not empty"),
        causal: rng.random(),
        most_seen: None,
        arrivals: [0, 0, power(rng, 1 << 12).into(), 1 << 40].choose(rng).copied().expect("not empty"),
    };
    let most_seen = (request.head_dim == WINDOWED && rng.random_range(0..3) == 0).then(|| 1 + power(rng, 16384));
    let request = Request { most_seen, ..request };
    let (capability, multiprocessors) = *[(90, 132), (90, 132), (90, 78), (80, 108)].choose(rng).expect("not empty");
    Ask { capability, multiprocessors, request, flags: 0, num_splits: 0, room: UNLIMITED, page_size: 0 }
}

/// The usable candidates of a plain request: (path, splits).
fn weighed(Ask { capability, multiprocessors, request: r, .. }: &Ask, answer: &Answer) -> Vec<(i32, u32)> {
    let windowed = r.most_seen.is_some();
    let has_split = r.head_dim != 96;
    let mut expected = vec![(DENSE, 1)];
    expected.extend((*capability == 90 && has_split && !windowed).then_some((SHORT, 1)));
    if has_split {
        let most = r.keys.longest.min(r.most_seen.unwrap_or(u32::MAX)).div_ceil(128).min(256);
        let counts: Vec<u32> = answer.of(SPLIT).map(|told| told.splits).collect();
        let others: Vec<u32> = counts.iter().copied().filter(|splits| !ROUND.contains(splits)).collect();
        assert!(others.iter().all(|splits| *splits <= most), "{r:?} {counts:?}");
        assert!(others.len() <= 1 || others[1..] == [2 * others[0]], "the device is filled once and twice: {r:?} {counts:?}");
        let round = ROUND.into_iter().filter(|splits| *splits == 1 || *splits <= most);
        let mut counts: Vec<u32> = round.chain(others).collect();
        counts.sort_unstable();
        expected.extend(counts.into_iter().map(|splits| (SPLIT, splits)));
        let scheduled = answer.of(SCHEDULED).next().expect("it is weighed");
        match scheduled.excluded.as_deref() {
            None => expected.push((SCHEDULED, scheduled.splits)),
            Some(reason) if r.keys.unequal => assert_eq!((reason, scheduled.splits), (NOT_WORTH_SPLITTING, 1), "{r:?}"),
            Some(reason) => assert_eq!(reason, "all sequences have as many keys", "{r:?}"),
        }
        assert!(scheduled.excluded.is_some() || (r.keys.unequal && (2..=255).contains(&scheduled.splits)), "{r:?} {scheduled:?}");
    }
    // Blocks of the short kernel, which has tiles of 64 queries and steps of 128 keys, share the keys of a tile.
    if *capability == 90 && has_split && !windowed {
        let tiles = f64::from(r.batch) * f64::from(r.heads) * tiles_of_64(r);
        let most = (f64::from(r.keys.longest) / 256.0).min(12.0 * f64::from(*multiprocessors) / tiles);
        let counts = [2, 3, 4, 5, 6, 8, 10, 12, 16, 24].into_iter().filter(|splits| f64::from(*splits) <= most);
        expected.extend(counts.map(|splits| (SHORT, splits)));
    }
    let has_groups = r.heads != r.heads_k;
    expected.extend((r.head_dim == PACKED_HEADS && has_groups).then_some((PACKED, 1)));
    expected
}

/// Tiles of 64 queries of a sequence; with unequal lengths the last one is half full on average.
fn tiles_of_64(r: &Request) -> f64 {
    let mean = match (r.queries.unequal && r.batch > 1, r.queries.total) {
        (false, _) => return f64::from(r.queries.longest.div_ceil(64)),
        (true, 0) => {
            let longest = f64::from(r.queries.longest);
            (longest + f64::from(r.batch - 1) * f64::from(r.queries.longest.div_ceil(2))) / f64::from(r.batch)
        }
        (true, total) => (f64::from(total) / f64::from(r.batch)).max(1.0).min(f64::from(r.queries.longest)),
    };
    (mean / 64.0 + 0.5).max(1.0)
}

const NOT_WORTH_SPLITTING: &str = "no sequence is worth a second split";

const NOTHING_TO_PACK: &str = "one query head reads each key head: the dense path has the same tiles";

/// Split counts that are considered in addition to those that fill the device, if splits have at least 128 keys.
const ROUND: [u32; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

#[test]
fn all_paths_are_weighed_in_order_and_the_first_of_the_fastest_is_chosen() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let asks: Vec<Ask> = (0..3000).map(|_| draw(&mut rng)).collect();
    let (mut taken, mut by_last_block) = ([0; 6], 0);
    for (ask, answer) in asks.iter().zip(answers(&asks)) {
        let able: Vec<&Told> = answer.able().collect();
        assert_eq!(able.iter().map(|told| (told.path, told.splits)).collect::<Vec<_>>(), weighed(ask, &answer), "{ask:?}");
        for told in &able {
            assert!(told.times.iter().all(|time| *time >= 0.0) && told.times[..5].iter().all(|time| *time > 0.0), "{told:?}");
            // In other cases the total is the mean of two estimates.
            let keys = ask.request.keys;
            if !keys.unequal || ask.request.batch == 1 || keys.total > 0 {
                assert!((told.times[0] / told.total_of_parts() - 1.0).abs() < 1e-12, "{ask:?} {told:?}");
            }
            let can_count = told.path == SCHEDULED || (told.path == SPLIT && told.splits <= 255 && ask.request.arrivals > 0);
            assert!(!told.by_last_block || can_count, "{ask:?} {told:?}");
            by_last_block += usize::from(told.by_last_block);
        }
        let fastest = able.iter().map(|told| told.times[0]).fold(f64::INFINITY, f64::min);
        let first = able.iter().find(|told| told.times[0].total_cmp(&fastest).is_eq()).expect("there is a path");
        assert_eq!(&answer.chosen(), first, "{ask:?}");
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

/// The output of a C++ program of `tests/library` that includes headers of the folder, or its dispatcher.
fn said_by(name: &str) -> String {
    let source = Path::new(ROOT).join("tests/library").join(name).with_extension("cpp");
    let include = format!("-I{}", NAMES.folder.display());
    let (object, program) = (compile_cpp(&NAMES.folder, &source, name, &[&include]), NAMES.folder.join(name));
    let mut link = Command::new(host_compiler_in_process().expect("a C++ compiler").path);
    run(link.args(&NAMES.kernels).arg(object).args(["-lm", "-o"]).arg(&program));
    run(&mut Command::new(program))
}

/// The rules of docs/dispatch.md.
#[test]
fn the_formulas_give_what_is_computed_by_hand() {
    assert_eq!(said_by("formula"), "281 compared\n");
}

/// The dispatcher's view of requests, devices and kernels, and its assumptions for unknown lengths.
#[test]
fn the_formulas_are_given_what_is_read_off_the_request_and_the_device() {
    assert_eq!(said_by("guesses"), "78 compared\n");
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

/// Measured on an H200: 5.0 µs by `fwd_short`, 21.8 µs by the split kernel.
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
    // Measured on an H100: 191 us with the scheduler, 201 with 8 splits for every sequence, 237 with 4, 565 with 1.
    mixed.request.keys.total = 0;
    let unknown = answer(mixed);
    assert!(unknown.chosen().path == SCHEDULED || unknown.chosen().splits >= 8, "{:?}", unknown.chosen());
}

/// A causal batch in pages of 16 rows, with `total` queries; 32 heads share 8 key heads.
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
    // If one prompt is among shorter ones, the second kernel has no work. Measured on an H200: mixed 921 us, packed
    // 883.
    for (batch, longest, total) in [(31, 8192, 16832), (64, 700, 32000), (12, 6000, 36000)] {
        let told = answer(in_pages(batch, [longest, total], longest));
        assert_eq!(told.chosen().path, PACKED, "{told:?}");
    }
    // 63 decodes together with a chunk of 1985: measured on an H200, 236 us mixed and 237 packed.
    let told = answer(in_pages(64, [1985, 2048], 3000));
    assert!((0.8..1.25).contains(&(microseconds(&told, MIXED) / microseconds(&told, PACKED))), "{told:?}");
}

#[test]
fn every_path_is_weighed_by_the_same_guesses_about_queries_which_one_query_more_hardly_changes() {
    // From a batch in which all sequences but the longest have one query, to one in which half of them are as long as
    // it.
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
            // With one head in a group the packed path is left out even if it is predicted to be the fastest.
            let left_out = before.candidates.iter().find(|told| told.excluded.as_deref() == Some(NOTHING_TO_PACK));
            let fastest = left_out.map_or(f64::INFINITY, |told| told.times[0]).min(before.chosen().times[0]);
            assert!(after.chosen().times[0] >= fastest * 0.999);
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
    // Four blocks of the short kernel for each tile, which write as much as those of the split-KV kernel.
    assert_eq!((split.chosen().path, split.chosen().splits), (SHORT, 4));
    let by_path = |path| split.of(path).map(|told| (told.splits, told.excluded.as_deref())).collect::<Vec<_>>();
    assert_eq!(by_path(SHORT), [(1, Some("num_splits asks for splits")), (4, None)]);
    assert!(by_path(SPLIT).contains(&(4, None)), "{:?}", by_path(SPLIT));
    let with_room = |room| answer(Ask { room, ..little }).chosen().splits;
    assert_eq!((with_room(split.workspace), with_room(split.workspace - 1)), (4, 1));
    let elsewhere = answer(Ask { capability: 80, ..little });
    assert_eq!((elsewhere.chosen().path, elsewhere.chosen().splits), (SPLIT, 4));
}
