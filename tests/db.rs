//! `kgen db`: rows added to a store can be read back in every format, and bad input is refused.

use assert_cmd::Command;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command as Process, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A row of a kernel with the machine code `sass` that took `microseconds` in the run `run`.
fn row(run: &str, date: &str, kernel: &str, sass: &str, microseconds: f64) -> Value {
    json!({
        "format": 1, "bench": "kgen bench", "case": format!("{kernel} batch=1"), "contender": "kgen", "own": true,
        "shape": { "batch": 1, "seqlen_k": 1000 }, "dtype": "bf16", "layout": null, "status": "ok", "message": "",
        "numbers": {
            "microseconds": { "median": microseconds, "mad": 0.5, "interval": [microseconds, microseconds], "n": 3 },
            "round_microseconds": [microseconds, microseconds, microseconds], "tflops": 100.0, "repeated": "launch", "l2": "warm",
        },
        "card": {}, "kernel": { "name": kernel, "sass": sass, "nvcc": "13.0.88" }, "details": {},
        "run": { "id": run, "date": date, "gpu": { "name": "NVIDIA H100" }, "driver": "580.1", "kgen": "0.1.0" },
    })
}

struct Stores(TempDir);

impl Stores {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, rows: &[Value]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, rows.iter().map(|row| row.to_string() + "\n").collect::<String>()).expect("written");
        path
    }

    /// `kgen db` on the store `a.db`.
    fn db(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.arg("db").args(arguments).current_dir(self.0.path()).env("KGEN_DB", self.path("a.db"));
        command
    }

    fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.db(&["query", "--format", "json"]).args(arguments).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        found["rows"].as_array().expect("a list").clone()
    }
}

#[test]
fn rows_are_imported_once_queried_and_exported_as_they_were() {
    let stores = Stores::new();
    let rows = [row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0), row("b2", "2026-11-27T00:00:00Z", "k2", "y", 20.0)];
    let file = stores.write("rows.jsonl", &rows);
    let file = file.to_str().expect("a path");
    stores.db(&["import", file]).assert().success().stdout(contains("2 rows added (rows)"));
    stores.db(&["import", file]).assert().success().stdout(contains("0 rows added, 2 known before"));
    assert_eq!(stores.rows(&[]), rows);
    assert_eq!(stores.rows(&["--run", "b"]), rows[1..]);
    assert_eq!(stores.rows(&["--before", "2026-11-27", "--kernel", "k*", "--status", "ok", "--gpu", "h100"]), rows[..1]);
    assert!(stores.rows(&["--contender", "fa3"]).is_empty());
    stores.db(&["query"]).assert().success().stdout(contains("k1 batch=1").and(contains("2 rows")));

    let exported = String::from_utf8(stores.db(&["export"]).output().expect("it runs").stdout).expect("text");
    let lines: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines, rows);
    fs::write(stores.path("exported.jsonl"), exported).expect("written");
    stores.db(&["import", "exported.jsonl"]).assert().success().stdout(contains("0 rows added, 2 known before"));
    let document = stores.db(&["export", "--format", "json"]).output().expect("it runs").stdout;
    let document: Value = serde_json::from_slice(&document).expect("one JSON document");
    assert_eq!(document["exported"]["rows"], 2);
    for (form, part) in [("csv", "numbers.microseconds.median"), ("t4", "\"schema_version\""), ("traces", "\"latency_ms\":0.01")]
    {
        stores.db(&["export", "--as", form]).assert().success().stdout(contains(part));
        let out = stores.path(form);
        let out = out.to_str().expect("a path");
        stores.db(&["export", "--as", form, "--out", out]).assert().success().stdout(contains("2 rows exported"));
        assert!(fs::read_to_string(out).expect("written").contains(part));
    }
    // kgen's own exported traces are imported as rows of another project's program.
    stores.db(&["import", "traces"]).assert().success().stdout(contains("FlashInfer-Bench"));
    assert_eq!(stores.rows(&["--bench", "FlashInfer-Bench"]).iter().filter(|row| row["foreign"].is_string()).count(), 2);
}

#[test]
fn stores_are_merged_and_pruned() {
    let stores = Stores::new();
    let rows = [row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0), row("b2", "2026-11-27T00:00:00Z", "k2", "y", 20.0)];
    let files = [stores.write("1.jsonl", &rows[..1]), stores.write("2.jsonl", &rows)];
    stores.db(&["import", files[0].to_str().expect("a path")]).assert().success();
    stores.db(&["import", "--db", "b.db", files[1].to_str().expect("a path")]).assert().success();
    stores.db(&["merge", "b.db"]).assert().success().stdout(contains("1 row added, 1 known before"));
    assert_eq!(stores.rows(&[]), rows);
    stores.db(&["prune"]).assert().code(2).stderr(contains("at least one"));
    stores.db(&["prune", "--kernel", "k1", "--dry-run"]).assert().success().stdout(contains("1 row would be removed"));
    stores.db(&["prune", "--kernel", "k1"]).assert().success().stdout(contains("1 row removed"));
    assert_eq!(stores.rows(&[]), rows[1..]);
}

#[test]
fn unchanged_machine_code_shows_the_noise_of_a_comparison() {
    let stores = Stores::new();
    let mut rows = Vec::new();
    for place in 0..10 {
        let kernel = format!("same{place}");
        rows.push(row("a1", "2026-11-26T00:00:00Z", &kernel, "x", 100.0));
        rows.push(row("b2", "2026-11-27T00:00:00Z", &kernel, "x", 100.0 + f64::from(place) / 10.0));
    }
    for (kernel, after) in [("slow", 120.0), ("fast", 80.0), ("tie", 100.5)] {
        rows.push(row("a1", "2026-11-26T00:00:00Z", kernel, "x", 100.0));
        rows.push(row("b2", "2026-11-27T00:00:00Z", kernel, "y", after));
    }
    let file = stores.write("rows.jsonl", &rows);
    stores.db(&["import", file.to_str().expect("a path")]).assert().success();
    let said = contains("noise floor 0.90 %, from 10 cases").and(contains("1 slower, 1 faster, 11 within the noise"));
    stores.db(&["regress", "a1", "b2"]).assert().success().stdout(said);
    stores.db(&["regress", "a1", "c3"]).assert().code(2).stderr(contains("no row of").and(contains("`c3`")));
    stores.db(&["regress", "colour=red", "b2"]).assert().code(2).stderr(contains("`nvcc=`"));
}

#[test]
fn bad_input_changes_nothing() {
    let stores = Stores::new();
    stores.db(&["query"]).assert().code(2).stderr(contains("does not exist").and(contains("`kgen bench`")));
    let good = row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0);
    let mut bad = good.clone();
    bad["numbers"] = Value::Null;
    let file = stores.write("rows.jsonl", &[good, bad]);
    let refused = contains("line 2").and(contains("`numbers` belong to the status `ok`"));
    stores.db(&["import", file.to_str().expect("a path")]).assert().code(2).stderr(refused);
    assert!(!stores.path("a.db").exists(), "nothing was added");
    stores.db(&["import", "none.jsonl"]).assert().code(2).stderr(contains("cannot read `none.jsonl`"));
    let file = stores.write("one.jsonl", &[row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0)]);
    stores.db(&["import", file.to_str().expect("a path")]).assert().success();
    stores.db(&["query", "--since", "yesterday"]).assert().code(2).stderr(contains("`yesterday` is no date"));
    stores.db(&["query", "--status", "good"]).assert().code(2).stderr(contains("use one of ok, wrong"));
    stores.db(&["query", "--filter", "hdim >"]).assert().code(2).stderr(contains("filter"));
}

/// Number of rows in a store's file, read without kgen.
fn count(db: &Path) -> usize {
    kgen::lab::Store::open_existing(db).and_then(|store| store.count()).unwrap_or(0)
}

#[test]
fn a_writer_that_is_killed_loses_nothing_that_it_had_added() {
    let stores = Stores::new();
    let rows: Vec<Value> = (0..400).map(|place| row("a1", "2026-11-26T00:00:00Z", &format!("k{place}"), "x", 10.0)).collect();
    let files: Vec<PathBuf> =
        rows.chunks(1).enumerate().map(|(place, rows)| stores.write(&format!("{place}.jsonl"), rows)).collect();
    // Each file is a transaction of its own.
    let mut writer = Process::new(assert_cmd::cargo::cargo_bin!("kgen"));
    writer.args(["db", "import"]).args(&files).env("KGEN_DB", stores.path("a.db")).stdout(Stdio::null());
    let mut writer = writer.spawn().expect("it runs");
    let begun = Instant::now();
    while count(&stores.path("a.db")) < 20 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let before = count(&stores.path("a.db"));
    writer.kill().ok();
    writer.wait().expect("it ended");
    let after = count(&stores.path("a.db"));
    assert!(before >= 20 && after >= before, "{before} rows before it was killed, {after} after");
    let all: Vec<&str> = files.iter().map(|file| file.to_str().expect("a path")).collect();
    stores.db(&["import"]).args(&all).assert().success();
    assert_eq!(count(&stores.path("a.db")), 400, "the import is repeated");
}

#[test]
fn a_check_adds_its_verdicts_once() {
    let stores = Stores::new();
    let cache = stores.path("cache");
    let check = || {
        let mut check = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        check.args(["check", "--device", "emulator", "vector_add_fp32_sm90"]).current_dir(stores.0.path());
        check.env("KGEN_DB", stores.path("a.db")).env("XDG_CACHE_HOME", &cache);
        check
    };
    check().assert().success();
    check().assert().success();
    let rows = stores.rows(&["--bench", "kgen check"]);
    assert_eq!(rows.len(), 1, "the second verdict is that of the first run");
    assert!(rows[0]["numbers"]["cases"].as_u64() > Some(10) && rows[0]["kernel"]["source"].is_string(), "{}", rows[0]);
    check().arg("--fresh").assert().success();
    assert_eq!(stores.rows(&[]).len(), 2);
    check().args(["--fuzz", "3", "--db", "b.db"]).assert().code(2).stderr(contains("cannot be used with"));
}

#[test]
fn the_rows_that_the_project_publishes_are_imported() {
    let stores = Stores::new();
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/2026-11-27-noise.jsonl");
    stores.db(&["import", published.to_str().expect("a path")]).assert().success().stdout(contains("36 rows added (rows)"));
    stores.db(&["noise"]).assert().success().stdout(contains("7.95").and(contains("NVIDIA H200")));
}
