//! The dispatcher's choice of kernels for calls with features, and the equality of the rules in Rust and C++.

use super::{LIBRARY, ROOT, RUNTIME, compile_cpp, names_in_place_of_kernels, run};
use kgen::{
    family::attention::{Append, Cache, CallOptions, Kind, KvFormat, PageDescales, Pages, Point, SinkType, Slopes},
    kernel::{Dtype, Feature, HeadDim, Target},
    toolchain::host_compiler_in_process,
};
use rand::{RngExt as _, SeedableRng as _, seq::IndexedRandom as _};
use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use Feature::{Alibi, Chunk, KvE4m3, KvE5m2, Paged, Sinks, Softcap, Window};

const CAUSAL: u32 = 1;
const WINDOW: u32 = 4;

fn point(kind: Kind, head_dim: u32, causal: bool, features: &[Feature]) -> Point {
    let features = features.iter().copied().collect();
    Point { kind, head_dim: HeadDim::equal(head_dim), dtype: Dtype::Fp16, causal, features, target: Target::Sm80 }
}

/// Runs `program` with `input` on standard input and returns the lines of its output.
fn lines_of(program: &Path, input: String) -> Vec<String> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("written");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("ASCII").lines().map(str::to_owned).collect()
}

/// A call: its features, the version of its structure, and its splits.
#[derive(Clone, Copy)]
struct Ask {
    version: u32,
    head_dim: u32,
    causal: bool,
    asked: CallOptions,
    splits: u32,
}

fn ask(head_dim: u32, causal: bool, asked: CallOptions) -> Ask {
    Ask { version: 8, head_dim, causal, asked, splits: 0 }
}

/// The form that both programs read: flags, window, chunk, softcap, slopes, sinks, pages, queries of two parts, cache,
/// new rows, bias, dropout, the type of K and V.
fn words_of(causal: bool, asked: CallOptions) -> String {
    let [left, right] = asked.window.unwrap_or_default();
    let flags = if causal { CAUSAL } else { 0 } | if asked.window.is_some() { WINDOW } else { 0 };
    let [slopes, sinks, qv, cache] =
        [asked.alibi.is_some(), asked.sinks.is_some(), asked.qv, asked.cache.is_some()].map(u8::from);
    let pages = asked.pages.map_or(0, |pages| match pages.descales {
        None => 1,
        Some(descales) if descales.has(1) => 2,
        Some(_) => 3,
    });
    let kv = asked.kv.map_or(0, |format| format.number().code());
    let [append, bias, dropout] = [asked.append.is_some(), asked.bias.is_some(), asked.dropout.is_some()].map(u8::from);
    format!(
        "{flags:x} {left} {right} {} {} {slopes} {sinks} {pages} {qv} {cache} {append} {bias} {dropout} {kv}",
        asked.chunk,
        asked.softcap()
    )
}

const NOTHING: CallOptions = CallOptions {
    window: None,
    chunk: 0,
    softcap_hundredths: 0,
    alibi: None,
    bias: None,
    sinks: None,
    dropout: None,
    pages: None,
    qv: false,
    cache: None,
    kv: None,
    query_limits: [0; 2],
    append: None,
    declared: None,
};

const IN_PAGES: Pages = Pages { rows: 16, shared: 0, counter: false, descales: None };

/// A call with a bias.
fn biased() -> CallOptions {
    CallOptions::read(&mut vec!["bias"]).expect("a word of a bias")
}

/// A call with dropout.
fn dropped() -> CallOptions {
    CallOptions::read(&mut vec!["dropout0.25@1"]).expect("a word of dropout")
}

fn window(left: i32, right: i32) -> CallOptions {
    CallOptions { window: Some([left, right]), ..NOTHING }
}

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let kernels = [
        point(Kind::Fwd, 64, false, &[]),
        point(Kind::Fwd, 64, true, &[]),
        point(Kind::Fwd, 64, false, &[Window]),
        point(Kind::Fwd, 64, false, &[Window, Chunk, Softcap, Alibi, Sinks]),
        point(Kind::Fwd, 64, false, &[Paged]),
        point(Kind::Fwd, 80, false, &[Paged, Window]),
        point(Kind::Fwd, 112, false, &[Feature::Cache]),
        point(Kind::Fwd, 64, false, &[KvE4m3]),
        point(Kind::Fwd, 64, false, &[Paged, KvE5m2, Window]),
        point(Kind::Fwd, 96, false, &[Window]),
        point(Kind::Fwd, 128, false, &[]),
        point(Kind::Fwd, 128, true, &[]),
        point(Kind::Fwd, 128, true, &[Feature::Dropout]),
        point(Kind::FwdSplit, 128, false, &[]),
        point(Kind::FwdSplit, 128, false, &[Window]),
        point(Kind::FwdSplit, 96, false, &[Feature::Append]),
        point(Kind::Fwd, 256, false, &[Softcap]),
        point(Kind::Fwd, 256, false, &[Softcap, Alibi]),
        point(Kind::FwdCombine, 0, false, &[]),
    ];
    let library = names_in_place_of_kernels("features", &kernels);
    library.program(&Path::new(ROOT).join("tests/library/features.c"), "features", &library.dispatcher)
});

/// The dispatcher's answer to each of some calls: a launcher's name, or the reason for none; and the bytes of
/// workspace.
fn answers(asks: &[Ask]) -> Vec<(String, u64)> {
    let lines = asks.iter().map(|Ask { version, head_dim, causal, asked, splits }| {
        format!("{version} {head_dim} {} {splits}\n", words_of(*causal, *asked))
    });
    let said = lines_of(&PROGRAM, lines.collect());
    assert_eq!(said.len(), asks.len());
    let parts = said.iter().map(|line| {
        let [code, message, bytes] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let message = message.strip_prefix("flash_").map_or_else(|| format!("{code} {message}"), str::to_owned);
        (message.replace("_fp16", "").replace("_sm80", ""), bytes.parse().expect("a number"))
    });
    parts.collect()
}

#[test]
fn a_call_gets_the_kernel_with_the_fewest_features_that_has_all_it_asks_for() {
    let capped = CallOptions { softcap_hundredths: 500, ..NOTHING };
    let calls = [
        (ask(64, false, NOTHING), "fwd_hdim64"),
        (ask(64, true, NOTHING), "fwd_hdim64_causal"),
        // Windows equivalent to the flag alone.
        (ask(64, false, window(-1, -1)), "fwd_hdim64"),
        (ask(64, false, window(-1, 0)), "fwd_hdim64_causal"),
        (ask(64, true, window(-1, 7)), "fwd_hdim64_causal"),
        (ask(64, false, window(5, -1)), "fwd_hdim64_window"),
        (ask(64, true, window(5, 9)), "fwd_hdim64_window"),
        (ask(64, false, window(-1, 3)), "fwd_hdim64_window"),
        (ask(64, false, capped), "fwd_hdim64_window_chunk_softcap_alibi_sinks"),
        (ask(64, true, CallOptions { chunk: 9, ..NOTHING }), "fwd_hdim64_window_chunk_softcap_alibi_sinks"),
        (
            ask(64, true, CallOptions { sinks: Some(SinkType::Bf16), ..window(5, 0) }),
            "fwd_hdim64_window_chunk_softcap_alibi_sinks",
        ),
        (ask(96, true, NOTHING), "fwd_hdim96_window"),
        (ask(96, false, NOTHING), "fwd_hdim96_window"),
        (ask(256, false, capped), "fwd_hdim256_softcap"),
        (ask(128, true, dropped()), "fwd_hdim128_causal_dropout"),
        (ask(256, false, CallOptions { alibi: Some(Slopes::ByHead), ..NOTHING }), "fwd_hdim256_softcap_alibi"),
    ];
    let said = answers(&calls.map(|(call, _)| call));
    for ((_, expected), (name, bytes)) in calls.iter().zip(said) {
        assert_eq!((name.as_str(), bytes), (*expected, 0));
    }
}

/// Split kernels of the head dim do not serve it either.
#[test]
fn dropout_is_refused_by_name_without_a_kernel_for_it() {
    let calls = [ask(128, false, dropped()), ask(64, false, dropped()), ask(96, false, dropped())];
    for (said, _) in answers(&calls) {
        assert!(said.contains("no variant with the feature `dropout`"), "{said}");
    }
}

/// Paged keys require a kernel for pages, and a kernel for pages requires paged keys.
#[test]
fn keys_in_pages_are_read_by_kernels_for_pages_and_by_no_other() {
    let paged = |asked| CallOptions { pages: Some(IN_PAGES), ..asked };
    let calls = [
        ask(64, false, paged(NOTHING)),
        ask(80, true, paged(window(5, 0))),
        ask(64, false, paged(window(5, 3))),
        ask(80, false, window(5, 3)),
    ];
    let said: Vec<String> = answers(&calls).into_iter().map(|(said, _)| said).collect();
    assert_eq!(said[..2], ["fwd_hdim64_paged", "fwd_hdim80_paged_window"]);
    assert!(said[2].contains("no variant with the feature `window`") && said[2].contains("fwd_hdim64_paged"), "{}", said[2]);
    assert!(said[3].contains("no variant for head_dim 80"), "{}", said[3]);
}

/// A kernel for caches supports other calls too.
#[test]
fn caches_are_read_by_kernels_for_them_which_serve_plain_calls_too() {
    let cached = CallOptions { cache: Some(Cache::Indexed), ..NOTHING };
    let both = CallOptions { pages: Some(IN_PAGES), ..cached };
    let calls = [ask(112, false, cached), ask(112, false, NOTHING), ask(96, false, cached), ask(112, false, both)];
    let said: Vec<String> = answers(&calls).into_iter().map(|(said, _)| said).collect();
    assert_eq!(said[..2], ["fwd_hdim112_cache", "fwd_hdim112_cache"]);
    assert!(said[2].contains("no variant with the feature `cache`") && said[2].contains("fwd_hdim96_window"), "{}", said[2]);
    assert_eq!(said[3], "1 kgen_fwd: cache_batch_idx and leftpad_k must be NULL with cu_seqlens_k or a page_table");
}

/// Attention that writes new rows supports no call without them.
#[test]
fn new_rows_are_written_by_kernels_for_them_and_by_no_other() {
    let appended = CallOptions { append: Some(Append::new(1)), ..NOTHING };
    let windowed = CallOptions { append: appended.append, ..window(5, 5) };
    let calls = [ask(96, false, appended), ask(96, false, NOTHING), ask(96, false, windowed), ask(128, false, appended)];
    let said: Vec<String> = answers(&calls).into_iter().map(|(said, _)| said).collect();
    assert_eq!(said[..2], ["fwd_split_hdim96_append", "fwd_hdim96_window"]);
    for (said, feature) in said[2..].iter().zip(["window", "append"]) {
        assert!(said.contains(&format!("no variant with the feature `{feature}`")), "{said}");
    }
}

/// Factors by page require paged FP8, and kernels that support them.
#[test]
fn factors_by_page_without_pages_of_fp8_are_refused_and_so_are_they_by_kernels_without_them() {
    let factors = CallOptions { pages: Some(Pages { descales: Some(PageDescales::OfK), ..IN_PAGES }), ..NOTHING };
    let of_bytes = CallOptions { kv: Some(KvFormat::E5m2), ..factors };
    let said: Vec<String> =
        answers(&[ask(64, true, factors), ask(64, true, of_bytes)]).into_iter().map(|(said, _)| said).collect();
    assert_eq!(said[0], "1 kgen_fwd: k_page_descale and v_page_descale need a page_table and a kv_dtype");
    assert!(said[1].contains("no variant with the feature `page_descale`"), "{}", said[1]);
}

/// A type of K and V requires kernels that read it.
#[test]
fn keys_in_fp8_are_read_by_kernels_for_their_format_and_by_no_other() {
    let stored = |kv, asked| CallOptions { kv: Some(kv), ..asked };
    let in_pages = CallOptions { pages: Some(IN_PAGES), ..NOTHING };
    let calls = [
        ask(64, false, stored(KvFormat::E4m3, NOTHING)),
        ask(64, true, stored(KvFormat::E5m2, in_pages)),
        ask(64, false, stored(KvFormat::E5m2, NOTHING)),
        ask(64, false, stored(KvFormat::E4m3, in_pages)),
        ask(128, false, stored(KvFormat::E4m3, NOTHING)),
    ];
    let said: Vec<String> = answers(&calls).into_iter().map(|(said, _)| said).collect();
    assert_eq!(said[..2], ["fwd_hdim64_kv_e4m3", "fwd_hdim64_paged_kv_e5m2_window"]);
    for (said, feature) in said[2..].iter().zip(["kv_e5m2", "paged", "kv_e4m3"]) {
        assert!(said.contains(&format!("no variant with the feature `{feature}`")), "{said}");
    }
}

#[test]
fn splits_are_taken_where_they_have_the_features() {
    let split = |asked| Ask { splits: 4, ..ask(128, false, asked) };
    let sunk = CallOptions { sinks: Some(SinkType::Fp32), ..NOTHING };
    let said = answers(&[split(NOTHING), split(window(100, 0)), split(sunk), split(CallOptions { chunk: 50, ..NOTHING })]);
    let bytes = 4 * 129 * 4;
    assert_eq!(said[0], ("fwd_split_hdim128".to_owned(), bytes));
    assert_eq!(said[1], ("fwd_split_hdim128_window".to_owned(), bytes));
    assert_eq!(said[2], ("fwd_split_hdim128".to_owned(), bytes), "sinks join where splits are combined");
    assert_eq!(said[3].1, 0, "no kernel has chunks");
}

#[test]
fn what_no_kernel_has_is_named() {
    let said = answers(&[
        ask(128, false, CallOptions { chunk: 50, ..NOTHING }),
        ask(96, true, CallOptions { softcap_hundredths: 500, ..window(3, 0) }),
        ask(
            256,
            false,
            CallOptions { softcap_hundredths: 500, alibi: Some(Slopes::ByHead), sinks: Some(SinkType::Fp32), ..NOTHING },
        ),
        ask(256, true, NOTHING),
    ]);
    let lacks = |feature: &str, kernel: &str| {
        format!(
            "3 kgen_fwd: no variant with the feature `{feature}` for compute capability 8.0: flash_{kernel} lacks it; `kgen generate \
             --features` makes one that has it"
        )
    };
    assert_eq!(said[0].0, lacks("chunk", "fwd_hdim128"));
    assert_eq!(said[1].0, lacks("softcap", "fwd_hdim96_window"));
    assert_eq!(said[2].0, lacks("sinks", "fwd_hdim256_softcap_alibi"));
    assert!(said[3].0.starts_with("3 kgen_fwd: no variant for head_dim 256, fp16, causal"), "{}", said[3].0);
}

/// Fields of later versions contain garbage.
#[test]
fn callers_of_earlier_versions_get_plain_kernels() {
    let calls = [1, 2, 3].map(|version| Ask { version, ..ask(64, true, NOTHING) });
    for (name, bytes) in answers(&calls) {
        assert_eq!((name.as_str(), bytes), ("fwd_hdim64_causal", 0));
    }
    let windows = [1, 2, 3].map(|version| Ask { version, ..ask(64, true, window(5, 0)) });
    for (message, bytes) in answers(&windows) {
        assert!(message.starts_with("1 kgen_fwd: KGEN_FLAG_WINDOW needs params.features, the first "), "{message}");
        assert_eq!(bytes, 0);
    }
}

#[test]
fn the_rule_in_rust_is_that_of_the_header() {
    const CALLS: usize = 20_000;
    let folder = &LIBRARY.folder;
    let object = compile_cpp(folder, &Path::new(ROOT).join("tests/library/serves.cpp"), "serves", &[]);
    let program = folder.join("serves");
    run(Command::new(host_compiler_in_process().expect("a C++ compiler").path)
        .args([&object, &*RUNTIME])
        .arg("-o")
        .arg(&program));
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
    let sides = [-1, 0, 1, 100, (1 << 30) - 2, (1 << 30) - 1, i32::MAX];
    let drawn: Vec<(CallOptions, bool, Point)> = (0..CALLS)
        .map(|_| {
            let mut side = || *sides.choose(&mut rng).expect("there are some");
            let window = [side(), side()];
            let descales =
                [PageDescales::OfK, PageDescales::OfV].choose(&mut rng).copied().filter(|_| rng.random_range(0..2) == 0);
            let mut sometimes = || rng.random_range(0..3) == 0;
            let asked = CallOptions {
                window: sometimes().then_some(window),
                chunk: u32::from(sometimes()),
                softcap_hundredths: 100 * u32::from(sometimes()),
                alibi: sometimes().then_some(Slopes::ByHead),
                bias: (sometimes() && sometimes() && sometimes()).then(|| biased().bias).flatten(),
                sinks: sometimes().then_some(SinkType::Fp32),
                dropout: (sometimes() && sometimes()).then(|| dropped().dropout).flatten(),
                pages: sometimes().then_some(Pages { descales, ..IN_PAGES }),
                qv: sometimes(),
                cache: sometimes().then_some(Cache::Indexed),
                append: sometimes().then(|| Append::new(1)),
                kv: if sometimes() { KvFormat::ALL.choose(&mut rng).copied() } else { None },
                query_limits: [0; 2],
                declared: None,
            };
            // Mostly the features required for a type of K and V and for new rows, which kernels lack otherwise.
            let mut holds = |feature| {
                let fresh = feature == Feature::Append && asked.append.is_some();
                let needed = fresh || asked.kv.is_some_and(|format| format.feature() == feature);
                let of_keys = matches!(feature, KvE4m3 | KvE5m2 | Feature::Append);
                if of_keys { needed != (rng.random_range(0..12) == 0) } else { rng.random_range(0..3) > 0 }
            };
            let held: Vec<Feature> = Feature::ALL.iter().copied().filter(|feature| holds(*feature)).collect();
            let mut sometimes = || rng.random_range(0..3) == 0;
            let kind = if sometimes() { Kind::FwdSplit } else { Kind::Fwd };
            let causal = sometimes();
            (asked, sometimes(), point(kind, 64, causal, &held))
        })
        .collect();
    let lines = drawn.iter().map(|(asked, causal, kernel)| {
        let held = kernel.served_features().iter().map(Feature::bit).sum::<u32>();
        format!("{} {:x}\n", words_of(*causal, *asked), held | u32::from(kernel.causal))
    });
    let said = lines_of(&program, lines.collect());
    let expected: Vec<&str> =
        drawn.iter().map(|(asked, causal, kernel)| if asked.is_served_by(*causal, *kernel) { "1" } else { "0" }).collect();
    assert_eq!(said, expected);
    let served = expected.iter().filter(|served| **served == "1").count();
    assert!((CALLS / 20..CALLS / 2).contains(&served), "{served} of {CALLS}");
}
