//! `kgen bench` without a GPU: its error message, and its results with a mock driver (`support/mock_gpu.c`) and kernels
//! that run on the host (`support/mock_attention.cpp`).

use assert_cmd::Command;
use kgen::device::GpuInfo;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process,
};
use tempfile::TempDir;

fn bench(flags: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.arg("bench").args(flags).current_dir(std::env::temp_dir()).env_remove("KGEN_DB");
    command
}

/// A folder with the mock driver and NVML, first in the loader's search path, and mock kernels.
struct Mock(TempDir);

impl Mock {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (compiler, source, library) in [
            ("cc", "mock_gpu.c", "libcuda.so"),
            ("cc", "mock_gpu.c", "libnvidia-ml.so.1"),
            ("c++", "mock_attention.cpp", "libkgen.so"),
        ] {
            let mut command = process::Command::new(compiler);
            command.args(["-O2", "-shared", "-fPIC", "-w", "-I"]).arg(root.join("templates/include"));
            command.arg("-o").arg(folder.path().join(library)).arg(root.join("tests/support").join(source));
            assert!(command.status().expect("a compiler").success(), "{source}");
        }
        Self(folder)
    }

    /// Times the mock's kernels at a size that the host can compute.
    fn bench(&self, flags: &[&str]) -> Command {
        let mut command = bench(&["--kind", "fwd", "--dtype", "bf16", "--target", "sm80", "--full"]);
        command.args(["--batch", "2", "--heads", "2", "--seqlen", "17"]).args(["--warm-up-ms", "1", "--measure-ms", "6"]);
        command.args(["--rounds", "3"]).args(flags);
        command.env("LD_LIBRARY_PATH", self.0.path()).arg("--library").arg(self.0.path().join("libkgen.so"));
        command.env("KGEN_DB", self.db());
        command
    }

    /// Path of the store with the mock's measurements.
    fn db(&self) -> PathBuf {
        self.0.path().join("measurements.db")
    }

    /// The rows of the store.
    fn rows(&self) -> Vec<Value> {
        let mut query = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        let found = json(query.args(["db", "query", "--db"]).arg(self.db()), 0);
        found["rows"].as_array().expect("a list").clone()
    }
}

fn json(command: &mut Command, code: i32) -> Value {
    let output = command.args(["--format", "json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn without_a_gpu_it_says_so_and_what_to_do() {
    if GpuInfo::probe().is_ok() {
        return;
    }
    let said = contains("no GPU").and(contains("NVIDIA GPU and its driver")).and(contains("check --device emulator"));
    bench(&["--head-dim", "64", "--dtype", "bf16"]).assert().code(3).stdout("").stderr(said);
}

#[test]
fn bad_usage_is_told_before_a_gpu_is_looked_for() {
    bench(&["--kind", "fwd_combine"]).assert().code(2).stderr(contains("no shape of their own"));
    bench(&["--heads", "8", "--heads-k", "3"]).assert().code(2).stderr(contains("`--heads-k`"));
    bench(&["--seqlen", "64", "--seqlen-k", "128"]).assert().code(2).stderr(contains("cannot be used with"));
    for flag in ["--rounds", "--measure-ms", "--batch", "--seqlen"] {
        bench(&[flag, "0"]).assert().code(2).stderr(contains(flag));
    }
}

#[test]
fn a_kernel_is_checked_timed_and_reported_with_its_circumstances() {
    let mock = Mock::new();
    let file = mock.0.path().join("times.json");
    for (flag, repeated) in [(None, "launch"), (Some("--graph"), "graph")] {
        let mut command = mock.bench(&["--head-dim", "16", "--heads-k", "1,2"]);
        let report = json(command.args(flag).arg("--out").arg(&file), 0);
        let kept: Value = serde_json::from_slice(&std::fs::read(&file).expect("it was written")).expect("JSON");
        assert_eq!(kept, report);
        assert_eq!((&report["gpu"]["info"]["name"], &report["driver"]), (&"Mock GPU 0".into(), &"999.1".into()));
        let measurements = report["measurements"].as_array().expect("a list");
        assert_eq!(measurements.len(), 2, "with one key head and with two");
        for measurement in measurements {
            assert_eq!(
                (&measurement["status"], &measurement["card"]["sm_clock_mhz"]),
                (&"ok".into(), &1234.into()),
                "{measurement}"
            );
            let numbers = &measurement["numbers"];
            assert_eq!(
                (&numbers["repeated"], &numbers["microseconds"]["n"], &numbers["l2"]),
                (&repeated.into(), &3.into(), &"warm".into())
            );
            let number = |value: &Value| value.as_f64().expect("a number");
            let (error, median) = (number(&numbers["relative_error"]), number(&numbers["microseconds"]["median"]));
            assert!(error > 1e-5 && error < 5e-3 && median > 0.0, "{measurement}");
            // 4 · 2 · 2 · 17 · 17 · 16 operations.
            assert!((number(&numbers["tflops"]) - 73_984.0 / median / 1e6).abs() < 1e-9, "{measurement}");
        }
    }
}

#[test]
fn one_that_is_wrong_crashes_refuses_or_stops_writing_fails_alone() {
    let mock = Mock::new();
    let report = json(&mut mock.bench(&["--head-dim", "16,24,32,40,48", "--heads-k", "1,2"]), 1);
    let measurements = report["measurements"].as_array().expect("a list");
    let expected = [
        ("ok", ""),
        ("wrong", "before timing: LSE is wrong"),
        ("crash", "SIGILL"),
        ("refused", "KGEN_ERROR_INVALID_VALUE): the mock's last words"),
        ("wrong", "after timing: `o` holds"),
    ];
    assert_eq!(measurements.len(), 2 * expected.len());
    for (measurement, (status, message)) in measurements.iter().step_by(2).zip(expected) {
        assert_eq!(measurement["status"], status, "{measurement}");
        assert!(measurement["message"].as_str().is_some_and(|said| said.contains(message)), "{measurement}");
        assert_eq!(measurement["numbers"].is_null(), status != "ok");
    }
    assert_eq!(measurements[5]["status"], "crash", "a new worker went on with the next shape, and died too");
}

#[test]
fn what_is_not_in_the_library_or_runs_elsewhere_is_left_out_or_refused() {
    let mock = Mock::new();
    let left_out = contains("of 2 variants selected, 0 do not run on this GPU and 1 are not in the library");
    mock.bench(&["--head-dim", "16,64"]).assert().code(0).stderr(left_out);
    mock.bench(&["--head-dim", "64"]).assert().code(2).stderr(contains("holds none of the 1 variant"));
    let mut elsewhere = bench(&["--kind", "fwd", "--target", "sm120", "--head-dim", "64", "--dtype", "bf16"]);
    let mut missing = bench(&["--head-dim", "64", "--library", "no-such.so"]);
    for command in [&mut elsewhere, &mut missing] {
        command.env("LD_LIBRARY_PATH", mock.0.path());
    }
    missing.assert().code(3).stderr(contains("`no-such.so`").and(contains("kgen build")));
    elsewhere.arg("--library").arg(mock.0.path().join("libkgen.so"));
    elsewhere.assert().code(2).stderr(contains("none runs on Mock GPU 0 (compute capability 9.0"));
}

#[test]
fn people_get_a_table() {
    let mock = Mock::new();
    let said = contains("flash_fwd_hdim16_bf16_sm80").and(contains("b2 h2 s17")).and(contains("Mock GPU 0"));
    mock.bench(&["--head-dim", "16"]).assert().code(0).stdout(said);
}

#[test]
fn the_library_of_the_benches_counts_orders_records_and_refuses_as_documented() {
    let mut python = process::Command::new("python3");
    python.current_dir(env!("CARGO_MANIFEST_DIR")).env("PYTHONDONTWRITEBYTECODE", "1");
    python.env("KGEN", assert_cmd::cargo::cargo_bin!("kgen")).env_remove("KGEN_DB");
    let done = python.args(["-m", "unittest", "-q", "benches/lab_test.py"]).output().expect("python3 starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn each_measurement_is_a_row_of_the_store_with_what_determines_it() {
    let mock = Mock::new();
    let report = json(&mut mock.bench(&["--head-dim", "16", "--heads-k", "1,2"]), 0);
    let rows = mock.rows();
    assert_eq!(rows.len(), 2);
    for (row, measurement) in rows.iter().zip(report["measurements"].as_array().expect("a list")) {
        assert_eq!(row["numbers"], measurement["numbers"]);
        assert_eq!(row["kernel"]["source"], measurement["source"]);
        assert_eq!((&row["status"], &row["contender"], &row["own"]), (&"ok".into(), &"kgen".into(), &true.into()));
        for part in ["id", "date", "command", "process", "harness", "kgen", "gpu", "driver", "plan", "seed"] {
            assert!(!row["run"][part].is_null(), "{part}: {row}");
        }
    }
    assert_ne!(rows[0]["shape"], rows[1]["shape"]);
    assert_eq!(rows[0]["run"], rows[1]["run"], "one run");

    let again = json(&mut mock.bench(&["--head-dim", "16"]), 0);
    assert_eq!(again["measurements"].as_array().map(Vec::len), Some(1));
    assert_eq!(mock.rows().len(), 3, "another run is another row");
    json(mock.bench(&["--head-dim", "16"]).arg("--no-db"), 0);
    assert_eq!(mock.rows().len(), 3, "`--no-db` adds none");

    let thrice = json(&mut mock.bench(&["--head-dim", "16", "--processes", "3"]), 0);
    assert_eq!(thrice["measurements"].as_array().map(Vec::len), Some(3));
    let mut query = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    let found = json(query.args(["db", "noise", "--db"]).arg(mock.db()), 0);
    let runs: Vec<u64> = found["noise"].as_array().expect("a list").iter().filter_map(|case| case["runs"].as_u64()).collect();
    assert_eq!(runs, [5], "heads_k 2 was measured in five processes, heads_k 1 in one");
}

#[test]
fn a_store_that_cannot_be_opened_stops_a_timing_before_it_begins() {
    let mock = Mock::new();
    let text = mock.0.path().join("notes.txt");
    std::fs::write(&text, "a text that is longer than the header of a database\n".repeat(20)).expect("written");
    let mut command = mock.bench(&["--head-dim", "16"]);
    command.arg("--db").arg(&text).assert().code(2).stdout("").stderr(contains("is no store of measurements"));
    assert!(std::fs::read_to_string(&text).expect("it is there").starts_with("a text"));
}

/// The script that stands for Python and its peers.
fn mock_peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mock_peer.py")
}

#[test]
fn peers_take_turns_with_the_kernel_and_each_has_a_row() {
    let mock = Mock::new();
    let orders = mock.0.path().join("orders");
    let mut command = mock.bench(&["--head-dim", "16", "--heads-k", "1,2", "--peer", "triton,eager"]);
    let report = json(command.arg("--python").arg(mock_peers()).env("KGEN_MOCK_ORDERS", &orders), 0);
    let measurements = report["measurements"].as_array().expect("a list");
    let peers = report["peers"].as_array().expect("a list");
    assert_eq!((measurements.len(), peers.len()), (2, 4), "{report}");
    for measurement in measurements.iter().chain(peers) {
        assert_eq!(measurement["status"], "ok", "{measurement}");
        let cards = measurement["numbers"]["round_cards"].as_array().expect("a list");
        assert!(cards.len() == 3 && cards.iter().all(|card| card["sm_clock_mhz"].is_u64()), "{measurement}");
    }
    assert_eq!((&peers[0]["peer"], &peers[0]["library"]), (&"eager".into(), &"mock eager".into()));
    let ratio = &peers[0]["ratios"][0];
    assert_eq!((&ratio["to"], &ratio["verdict"], &ratio["n"]), (&measurements[0]["name"], &"win".into(), &3.into()));
    let kernel = measurements[0]["numbers"]["round_microseconds"][1].as_f64().expect("a time");
    let times: Vec<f64> =
        peers[0]["numbers"]["round_microseconds"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
    assert_eq!(times, [1_000_001.0, 1_000_002.0, 1_000_003.0]);
    assert!(ratio["median"].as_f64().is_some_and(|ratio| ratio > 1.0 && kernel > 0.0), "{ratio}");

    // The order is reversed after each round.
    let said = std::fs::read_to_string(&orders).expect("orders");
    let rounds: Vec<&str> = said.lines().filter_map(|line| line.strip_suffix(" round")).collect();
    assert_eq!(rounds, ["eager", "triton", "triton", "eager", "eager", "triton"].repeat(2));
    let prepared: Vec<&str> = said.lines().filter(|line| line.contains("prepare")).collect();
    assert_eq!(prepared.len(), 4);
    assert!(prepared[2].ends_with("{'prepare': 1}"), "{prepared:?}");

    let rows = mock.rows();
    assert_eq!(rows.len(), 6);
    let row = rows.iter().find(|row| row["contender"] == "eager").expect("a row of the peer");
    assert_eq!((&row["own"], &row["details"]["library"]), (&false.into(), &"mock eager".into()));
    assert_eq!((&row["numbers"]["ratios"][0]["verdict"], &row["kernel"]["kind"]), (&"win".into(), &"fwd".into()));
    let own = rows.iter().find(|row| row["contender"] == "kgen").expect("a row of the kernel");
    assert_eq!((&own["numbers"]["round_cards"][2]["sm_clock_mhz"], &own["own"]), (&1234.into(), &true.into()));
    assert!(own["numbers"]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 4 * 2 * 2 * 17 * 16), "{own}");
}

#[test]
fn a_peer_that_fails_loses_its_own_rounds_only() {
    let mock = Mock::new();
    let names = "eager,sdpa-flash,sdpa-cudnn,sdpa-efficient,sdpa-math,compile,flex,fa3,fa4,flashinfer,triton";
    let mut command = mock.bench(&["--head-dim", "16", "--peer", names]);
    let report = json(command.arg("--python").arg(mock_peers()), 0);
    assert_eq!(report["measurements"][0]["numbers"]["microseconds"]["n"], 3, "the kernel had all its rounds");
    let expected = [
        ("eager", "ok", ""),
        ("sdpa-flash", "crash", "died of SIGKILL, perhaps for want of memory; it said: out of luck"),
        ("sdpa-cudnn", "refused", "it has no head dim 16"),
        ("sdpa-efficient", "error", "speaks version 2 of the protocol, and this kgen version 3"),
        ("sdpa-math", "error", "answer cannot be read"),
        ("compile", "absent", "it is not installed"),
        ("flex", "wrong", "after timing: O is wrong"),
        ("fa3", "error", "answered what was not asked"),
        ("fa4", "error", "answered what was not asked"),
        ("flashinfer", "crash", "it said: no such library"),
        ("triton", "ok", ""),
    ];
    let peers = report["peers"].as_array().expect("a list");
    assert_eq!(peers.len(), expected.len());
    for (peer, (name, status, message)) in peers.iter().zip(expected) {
        assert_eq!((&peer["peer"], &peer["status"]), (&name.into(), &status.into()), "{peer}");
        assert!(peer["message"].as_str().is_some_and(|said| said.contains(message)), "{peer}");
        assert_eq!(peer["ratios"].as_array().map(Vec::len), Some(usize::from(status == "ok")), "{peer}");
    }
    let rows = mock.rows();
    assert!(rows.len() == 12 && rows.iter().any(|row| row["status"] == "absent"), "a failure is a row too");
    let mut slow = mock.bench(&["--head-dim", "16", "--peer", "fa2", "--time-limit", "5"]);
    let report = json(slow.arg("--python").arg(mock_peers()), 0);
    assert_eq!((&report["measurements"][0]["status"], &report["peers"][0]["status"]), (&"ok".into(), &"timeout".into()));
    let mut people = mock.bench(&["--head-dim", "16,24", "--peer", "eager,sdpa-cudnn"]);
    let table = contains("peer / kernel").and(contains("win")).and(contains("refused")).and(contains("it has no head dim 24"));
    people.arg("--python").arg(mock_peers()).assert().code(1).stdout(table.and(contains("LSE is wrong")));
}

#[test]
fn what_is_asked_of_peers_and_suites_is_checked_before_anything_runs() {
    bench(&["--peer", "fa5"]).assert().code(2).stderr(contains("no peer `fa5`").and(contains("`fa3`")));
    bench(&["--peer", "fa3", "--site", "no-such-folder"]).assert().code(2).stderr(contains("`no-such-folder` is no folder"));
    bench(&["--suite", "model"]).assert().code(2).stderr(contains("did you mean `models`?"));
    bench(&["--suite", "models", "--heads", "8"]).assert().code(2).stderr(contains("the sizes are those of the suite"));
    bench(&["--runs", "10"]).assert().code(2).stderr(contains("--warm-ups"));
    bench(&["--suite", "t4", "--graph"]).assert().code(2).stderr(contains("exact counts"));
    let suites = json(&mut bench(&["--list-suites"]), 0);
    let names: Vec<&str> =
        suites["suites"].as_array().expect("a list").iter().filter_map(|suite| suite["name"].as_str()).collect();
    assert_eq!(names, ["decode", "grid", "models", "numerics", "short", "t4"]);
    let peers = json(bench(&["--list-peers", "--python"]).arg(mock_peers()), 0);
    let peers = peers["peers"].as_array().expect("a list");
    assert_eq!((&peers[0]["library"], &peers[5]["absent"]), (&"mock eager".into(), &"it is not installed".into()));
    let missing = json(&mut bench(&["--list-peers", "--python", "no-such-python"]), 0);
    assert!(missing["peers"][0]["absent"].as_str().is_some_and(|said| said.contains("cannot be started")), "{missing}");
}

#[test]
fn exact_counts_time_each_call_and_what_a_suite_misses_is_named() {
    let mock = Mock::new();
    let flags = ["--kind", "fwd", "--dtype", "bf16", "--target", "sm80", "--full", "--head-dim", "16", "--no-db"];
    let mut counts = bench(&flags);
    counts.args(["--batch", "2", "--heads", "2", "--seqlen", "17", "--rounds", "2", "--warm-ups", "2", "--runs", "7"]);
    counts.env("LD_LIBRARY_PATH", mock.0.path()).arg("--library").arg(mock.0.path().join("libkgen.so"));
    let report = json(&mut counts, 0);
    let numbers = &report["measurements"][0]["numbers"];
    assert_eq!((&numbers["microseconds"]["n"], &numbers["launches_a_round"]), (&8.into(), &1.into()), "{numbers}");
    assert_eq!(numbers["round_cards"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["plan"]["counts"], serde_json::json!({ "warm_ups": 2, "runs": 7 }));
    let mut suite = bench(&["--suite", "t4", "--dtype", "bf16"]);
    suite.env("LD_LIBRARY_PATH", mock.0.path()).arg("--library").arg(mock.0.path().join("libkgen.so")).arg("--no-db");
    suite.assert().code(2).stderr(contains("holds no kernel of the suite `t4`").and(contains("flash_fwd_hdim64_bf16_sm90")));
}

#[test]
fn the_package_of_the_peers_counts_refuses_and_answers_as_documented() {
    let mut python = process::Command::new("python3");
    python.current_dir(env!("CARGO_MANIFEST_DIR")).env("PYTHONDONTWRITEBYTECODE", "1");
    let done = python.args(["-m", "unittest", "-q", "python/peers_test.py"]).output().expect("python3 starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
