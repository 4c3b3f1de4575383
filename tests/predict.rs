//! `kgen predict`: times without a GPU, errors for calls that were held out, and lessons of rows.

use assert_cmd::Command;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// The kernel of most tests.
const NAME: &str = "flash_fwd_hdim128_bf16_sm90";

fn kgen(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.arg("predict").args(arguments).current_dir(folder);
    command
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = kgen(folder, arguments).args(["--format", "json"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
fn a_call_has_a_time_within_an_interval_above_the_floor_and_a_limiting_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = json(folder.path(), &[NAME, "--gpu", "h100,h200", "--seqlen", "512,8192"]);
    let calls = found["calls"].as_array().expect("a list");
    assert_eq!(calls.len(), 4);
    for call in calls {
        let [time, floor] = [number(call, "microseconds"), number(call, "floor")];
        let interval = [0, 1].map(|end| call["interval"][end].as_f64().expect("a number"));
        assert!(floor <= time && interval[0] <= time && time <= interval[1], "{call}");
        assert!(number(call, "tflops") < 1100.0 && call["lessons"].as_u64() > Some(100), "{call}");
        assert!(call["parts"].as_array().is_some_and(|parts| parts.len() == 6), "{call}");
    }
    // The H200 has the multiprocessors of the H100 and more bandwidth.
    let time = |gpu: &str, seqlen: u64| {
        let call = calls.iter().find(|call| call["gpu"] == gpu && call["size"]["seqlen_k"] == seqlen).expect("it is there");
        number(call, "microseconds")
    };
    assert!(time("h200", 512) < time("h100", 512));
    assert_eq!(calls[1]["limit"], "tensor_cores");
    let human = contains("9 of 10 within").and(contains("tensor cores")).and(contains("b2 h16 s8192"));
    let human = human.and(contains("latency only if it has more than tensor cores and exponentials together"));
    kgen(folder.path(), &[NAME, "--gpu", "h100"]).assert().success().stdout(human);
}

#[test]
fn a_card_or_a_length_that_is_named_twice_is_predicted_once_in_its_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = json(folder.path(), &[NAME, "--gpu", "h200,h100,H200", "--seqlen", "4096,512,4096"]);
    let calls = found["calls"].as_array().expect("a list").iter();
    let calls: Vec<_> = calls.map(|call| (call["gpu"].as_str().expect("a card"), call["size"]["seqlen_k"].as_u64())).collect();
    assert_eq!(calls, [("h200", Some(4096)), ("h200", Some(512)), ("h100", Some(4096)), ("h100", Some(512))]);
}

#[test]
fn longer_and_wider_calls_take_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    for kind in ["fwd", "fwd_split", "bwd"] {
        let lengths = ["--batch", "4", "--heads", "16", "--heads-k", "4", "--seqlen", "1024,4096,16384"];
        let selection = ["--kind", kind, "--dtype", "bf16", "--target", "sm80", "--gpu", "a100", "--full"];
        let all = [&selection[..], &["--head-dim", "64,128,256"], &lengths[..]].concat();
        let found = json(folder.path(), &all);
        let times: Vec<f64> =
            found["calls"].as_array().expect("a list").iter().map(|call| number(call, "microseconds")).collect();
        assert_eq!(times.len(), 9, "{kind}");
        assert!(times.chunks(3).all(|kernel| kernel[0] < kernel[1] && kernel[1] < kernel[2]), "{kind}: {times:?}");
        assert!(
            (0..3).all(|length| times[length] < times[3 + length] && times[3 + length] < times[6 + length]),
            "{kind}: {times:?}"
        );
    }
}

#[test]
fn a_kernel_of_which_nothing_like_it_was_measured_has_a_wide_interval() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = json(folder.path(), &["--kind", "append_kv", "--dtype", "bf16", "--target", "sm80", "--gpu", "l40s"]);
    let call = &found["calls"][0];
    assert_eq!(call["lessons"], 0, "{call}");
    assert!(call["interval"][1].as_f64() > Some(1.3 * number(call, "microseconds")), "{call}");
}

#[test]
fn what_cannot_be_predicted_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |arguments: &[&str], why: &str| {
        kgen(folder.path(), arguments).assert().code(2).stderr(contains(why));
    };
    refused(&[], "nothing is selected");
    refused(&[NAME], "no card is named; known: `t4`");
    refused(&[NAME, "--gpu", "h1000"], "`h1000` is no card whose numbers are known");
    refused(&[NAME, "--gpu", "a100"], "no selected kernel runs on `a100`");
    refused(&["flash_fwd_combine_sm80", "--gpu", "a100"], "no selected kernel runs on `a100` and has a time of its own");
    refused(&[NAME, "--gpu", "h100", "--heads", "7", "--heads-k", "3"], "a multiple of the other");
    refused(&["--validate", NAME], "leave out the selection");
    refused(&["rmsnorm_bf16_sm90", "--gpu", "h100", "--rows", "8589934592", "--columns", "1048576"], "2^40 elements");
    let masked = ["--head-dim", "128", "--dtype", "bf16", "--target", "sm90", "--kind", "fwd", "--full", "--gpu", "h100"];
    refused(&[&masked[..], &["--mask", "k <= q and q - k < 128", "--score-name", "w"]].concat(), "are not predicted");
    refused(&[NAME, "--gpu", "h100", "--learn", "none.jsonl"], "`none.jsonl`");
    refused(&[NAME, "--gpu", "h100", "--seqlen", "0"], "--seqlen");
    fs::write(folder.path().join("bad.jsonl"), "{}\n").expect("written");
    refused(&[NAME, "--gpu", "h100", "--learn", "bad.jsonl"], "`bad.jsonl`: line 1");
}

/// The figures of docs/results/2026-11-27-predictions.md, rounded up, so that a change of the model that makes it worse
/// fails.
#[test]
fn held_out_calls_are_predicted_as_well_as_published() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = json(folder.path(), &["--validate"]);
    let axes = found["validation"].as_array().expect("a list");
    for (axis, calls, mean, p95) in [("length", 870, 0.045, 0.14), ("head_dim", 850, 0.055, 0.15), ("card", 740, 0.055, 0.13)] {
        let of_axis = axes.iter().find(|validation| validation["held"] == axis).expect(axis);
        let all = &of_axis["errors"][0];
        assert_eq!(all["of"], "all");
        assert!(all["calls"].as_u64() > Some(calls), "{all}");
        assert!(number(all, "mean") < mean && number(all, "p95") < p95, "{axis}: {all}");
        assert!(number(all, "mean") < 0.5 * number(of_axis, "estimate_mean"), "{axis}: the correction earns its keep");
    }
    kgen(folder.path(), &["--validate"]).assert().success().stdout(contains("head dim held out"));
}

#[test]
fn rows_of_a_file_teach_kernels_that_the_project_has_not_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = "flash_fwd_hdim64_fp16_sm75";
    let before = json(folder.path(), &[name, "--gpu", "t4", "--seqlen", "1024,2048,4096"]);
    let list = Command::new(assert_cmd::cargo::cargo_bin!("kgen"))
        .args(["list", name, "--plan", "--format", "json"])
        .output()
        .expect("it runs");
    let plan: Value = serde_json::from_slice(&list.stdout).expect("JSON");
    // Rows that take twice as long as their estimates.
    let rows = before["calls"].as_array().expect("a list").iter().map(|call| {
        json!({
            "format": 1, "bench": "kgen bench", "case": "c", "contender": "kgen", "own": true, "shape": call["size"],
            "dtype": "fp16", "layout": null, "status": "ok", "message": "", "card": {}, "details": {},
            "numbers": {
                "microseconds": { "median": 2.0 * number(call, "estimate") }, "repeated": "launch", "l2": "warm",
            },
            "kernel": {
                "name": name, "kind": "fwd", "head_dim": 64, "dtype": "fp16", "causal": false, "features": [],
                "target": "sm75", "tile": plan[0]["plan"]["tile"],
            },
            "run": { "id": "a", "date": "2026-11-27T00:00:00Z", "gpu": { "name": "Tesla T4" } },
        })
        .to_string()
    });
    fs::write(folder.path().join("rows.jsonl"), rows.collect::<Vec<_>>().join("\n")).expect("written");
    let after = json(folder.path(), &[name, "--gpu", "t4", "--seqlen", "1024,2048,4096", "--learn", "rows.jsonl"]);
    let ratio = |of: &Value| number(&of["calls"][1], "microseconds") / number(&of["calls"][1], "estimate");
    assert!(ratio(&after) > 1.2 * ratio(&before) && ratio(&after) < 2.1, "{} then {}", ratio(&before), ratio(&after));
}

#[test]
fn no_prediction_is_above_the_peak_of_the_card() {
    let folder = tempfile::tempdir().expect("a folder");
    // TFLOP/s of 16-bit products with fp32 sums, from NVIDIA's data sheets and a tenth above them.
    for (gpu, target, peak) in [
        ("t4", "sm75", 65.0),
        ("a100", "sm80", 312.0),
        ("rtx-3090", "sm80", 71.0),
        ("l4", "sm80", 121.0),
        ("l40s", "sm80", 362.0),
        ("l40s", "sm89", 362.0),
        ("rtx-4090", "sm89", 165.0),
        ("rtx-5090", "sm120", 210.0),
        ("rtx-pro-6000", "sm120", 504.0),
        ("h100", "sm90", 1070.0),
        ("h100", "sm80", 1070.0),
    ] {
        let kernels = ["--kind", "fwd", "--head-dim", "64,128", "--dtype", "fp16", "--target", target, "--gpu", gpu];
        let found =
            json(folder.path(), &[&kernels[..], &["--batch", "4", "--heads", "16", "--seqlen", "512,8192,65536"]].concat());
        for call in found["calls"].as_array().expect("a list") {
            assert!(number(call, "tflops") < 1.1 * peak, "{gpu} {target}: {call}");
        }
    }
}

#[test]
fn enormous_sizes_give_enormous_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let most = ["--batch", "16777216", "--heads", "1024", "--heads-k", "256", "--seqlen", "4096", "--gpu", "h100"];
    let found = json(folder.path(), &[&["flash_fwd_split_hdim128_bf16_sm80"], &most[..]].concat());
    assert!(number(&found["calls"][0], "microseconds") > 1e9, "{found}");
}

#[test]
fn what_is_left_out_and_what_taught_nothing_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = json(folder.path(), &[NAME, "flash_fwd_hdim128_bf16_sm80", "--gpu", "a100", "--seqlen", "1024"]);
    assert_eq!((found["calls"].as_array().map(Vec::len), &found["left_out"][0]["name"]), (Some(1), &json!(NAME)));
    let both = [NAME, "flash_fwd_hdim128_bf16_sm80", "--gpu", "a100"];
    kgen(folder.path(), &both).assert().success().stdout(contains(format!("left out: {NAME} on a100")));
    // The published rows are known already.
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/results/2026-11-27-timings-h100.jsonl");
    let found = json(folder.path(), &[NAME, "--gpu", "h100", "--learn", published]);
    assert_eq!((&found["learned"][0]["rows"], &found["learned"][0]["lessons"]), (&json!(230), &json!(0)));
    fs::write(folder.path().join("empty.jsonl"), "").expect("written");
    kgen(folder.path(), &[NAME, "--gpu", "h100", "--learn", "empty.jsonl"]).assert().code(2).stderr(contains("it holds no row"));
}

#[test]
fn a_suite_is_predicted_with_the_newest_kernel_of_each_card() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = json(folder.path(), &["--suite", "models", "--kind", "fwd", "--head-dim", "64", "--gpu", "h100,a100"]);
    let calls = found["calls"].as_array().expect("a list");
    let on = |gpu: &str| calls.iter().filter(|call| call["gpu"] == gpu).collect::<Vec<_>>();
    assert_eq!((on("h100").len(), on("a100").len()), (5, 5), "{found}");
    assert!(on("h100").iter().all(|call| call["name"] == "flash_fwd_hdim64_bf16_causal_sm90"));
    assert!(on("a100").iter().all(|call| call["name"] == "flash_fwd_hdim64_bf16_causal_sm80"));
    assert_eq!(on("h100")[4]["size"]["heads_k"], 8);
    kgen(folder.path(), &["--suite", "models", "--gpu", "h100", "--batch", "2"]).assert().code(2).stderr(contains("sizes are"));
}

#[test]
fn a_packed_batch_is_predicted_by_its_lengths() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |more: &[&str]| json(folder.path(), &[&[NAME, "--gpu", "h100", "--heads", "16"], more].concat())["calls"][0].take();
    let [equal, batch] = [of(&["--lengths", "2048,2048,2048"]), of(&["--batch", "3", "--seqlen", "2048"])];
    assert_eq!(equal["size"], batch["size"]);
    assert!((number(&equal, "microseconds") / number(&batch, "microseconds") - 1.0).abs() < 1e-9, "equal lengths are a batch");
    let unequal = of(&["--lengths", "1000,37,4096"]);
    let size = &unequal["size"];
    assert_eq!((&size["batch"], &size["seqlen_k"], &size["total_k"]), (&json!(3), &json!(4096), &json!(5133)), "{unequal}");
    let shuffled = of(&["--lengths", "4096,1000,37"]);
    assert!((number(&shuffled, "microseconds") / number(&unequal, "microseconds") - 1.0).abs() < 0.05, "longest first");
    let alone = of(&["--lengths", "4096"]);
    assert!(number(&unequal, "microseconds") > number(&alone, "microseconds"), "{unequal}");
    let twice = of(&["--lengths", "4096,37,4096"]);
    assert!(number(&twice, "microseconds") > 1.6 * number(&alone, "microseconds"), "{twice}");
    let flops = |lengths: &[f64]| lengths.iter().map(|length| 4.0 * length * length * 16.0 * 128.0).sum::<f64>();
    let rate = flops(&[1000.0, 37.0, 4096.0]) / number(&unequal, "microseconds") / 1e6;
    assert!((number(&unequal, "tflops") / rate - 1.0).abs() < 1e-9, "{unequal}");
    // Decoding: one query of each sequence, unless they are named.
    let split = ["flash_fwd_split_hdim128_bf16_causal_sm80", "--gpu", "h100", "--lengths", "100,9000"];
    let decoding = json(folder.path(), &split)["calls"][0]["size"].take();
    assert_eq!((&decoding["seqlen_q"], &decoding["total_q"], &decoding["total_k"]), (&json!(1), &json!(2), &json!(9100)));
    let named = json(folder.path(), &[&split[..], &["--lengths-q", "3,1"]].concat())["calls"][0]["size"].take();
    assert_eq!((&named["seqlen_q"], &named["total_q"]), (&json!(3), &json!(4)));
    let human = contains("b3 h16 s4096, 5133 in all");
    kgen(folder.path(), &[NAME, "--gpu", "h100", "--lengths", "1000,37,4096"]).assert().success().stdout(human);

    let refused = |arguments: &[&str], why: &str| {
        let all = [&[NAME, "--gpu", "h100"], arguments].concat();
        kgen(folder.path(), &all).assert().code(2).stderr(contains(why));
    };
    refused(&["--lengths", "8,8", "--batch", "2"], "cannot be used with");
    refused(&["--lengths", "8,0"], "--lengths");
    refused(&["--lengths", "8,8", "--lengths-q", "8"], "the queries of 1 sequence, and `lengths` the keys of 2 sequences");
    refused(&["--lengths-q", "8"], "--lengths");
    refused(&["--lengths", "16777216,1"], "16777217 rows in all");
}

/// Rows of `benches/dispatch.py regret`: forced paths at lengths that differ.
#[test]
fn measured_packed_batches_have_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    let lengths = ["--lengths", "700,80,4000", "--lengths-q", "700,80,4000", "--heads", "8"];
    let predicted = json(folder.path(), &[&[NAME, "--gpu", "h100"], &lengths[..]].concat());
    let microseconds = number(&predicted["calls"][0], "microseconds");
    let row = |path: &str, factor: f64| {
        json!({
            "format": 1, "bench": "dispatch regret", "case": "c", "contender": path, "own": true, "shape": { "batch": 3 },
            "dtype": "bf16", "layout": null, "status": "ok", "message": "", "card": {},
            "numbers": { "microseconds": { "median": factor * microseconds } },
            "details": {
                "path": path, "variant": NAME,
                "request": { "heads": 8, "heads_k": 8, "lengths": [[700, 80, 4000], [700, 80, 4000]] },
            },
            "run": { "id": "a", "date": "2026-11-28T00:00:00Z", "gpu": { "name": "NVIDIA H100 80GB HBM3" } },
        })
    };
    // Split paths are more than one kernel.
    let rows = [row("dense", 1.0), row("dense", 1.25), row("split", 9.0)].map(|row| row.to_string()).join("\n");
    fs::write(folder.path().join("regret.jsonl"), rows).expect("written");
    let found = json(folder.path(), &["--validate", "--learn", "regret.jsonl"]);
    let packed = &found["packed"];
    assert_eq!(packed["calls"], 2, "{packed}");
    assert!((number(packed, "worst") - 0.2).abs() < 1e-9 && (number(packed, "mean") - 0.1).abs() < 1e-9, "{packed}");
    let human = contains("batches of lengths that differ").and(contains("20.0"));
    kgen(folder.path(), &["--validate", "--learn", "regret.jsonl"]).assert().success().stdout(human);
    assert!(json(folder.path(), &["--validate"]).get("packed").is_none(), "the published rows have equal lengths");
}
