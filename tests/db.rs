//! `kgen db`: rows added to a store can be read back in every format, and bad input is refused.

use crate::support::emulator::lend_emulator;
use assert_cmd::Command;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
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
        let printed = stores.db(&["export", "--as", form]).assert().success().stdout(contains(part)).get_output().stdout.clone();
        let out = stores.path(form);
        let out = out.to_str().expect("a path");
        stores.db(&["export", "--as", form, "--out", out]).assert().success().stdout(contains("2 rows exported"));
        assert!(fs::read(out).expect("written") == printed, "{form}: standard output gets the bytes of a file");
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
    // The beginning of several ids.
    rows.push(row("b3", "2026-11-28T00:00:00Z", "same0", "x", 100.0));
    let file = stores.write("rows.jsonl", &rows);
    stores.db(&["import", file.to_str().expect("a path")]).assert().success();
    let candidates =
        contains("`b` is the beginning of the ids of 2 runs").and(contains("\n  b2  2026-11-27T00:00:00Z  kgen bench"));
    stores.db(&["regress", "a1", "b"]).assert().code(2).stderr(candidates.and(contains("\n  b3  2026-11-28")));
    stores.db(&["regress", "a1", "b2"]).assert().success();
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
    let good = || row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0);
    for (bad, field) in [
        (row("a1", "2026-13-45T00:00:00Z", "k1", "x", 10.0), "`run.date` is `2026-13-45T00:00:00Z`"),
        (row("a1", "2026-11-26T00:00:00Z", "k1", "x", 1e308), "`numbers.microseconds.interval` is 1e+308"),
        (row("a1", "2026-11-26T00:00:00Z", "k1", "x", -10.0), "`numbers` have no finite `microseconds.median` above 0"),
    ] {
        let file = stores.write("bad.jsonl", &[good(), bad]);
        let refused = contains("`bad.jsonl`, line 2: ").and(contains(field));
        stores.db(&["import", file.file_name().and_then(|name| name.to_str()).expect("a name")]).assert().code(2).stderr(refused);
    }
    let text = good().to_string().replace("10.0", "NaN");
    fs::write(stores.path("bad.jsonl"), text).expect("written");
    stores.db(&["import", "bad.jsonl"]).assert().code(2).stderr(contains("line 1: it is no JSON"));
    stores.db(&["import", "none.jsonl"]).assert().code(2).stderr(contains("cannot read `none.jsonl`"));
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/targets.jsonl");
    let refused = contains("targets.jsonl`, line 1: it is no row but a record").and(contains("`2026*.jsonl`"));
    stores.db(&["import", targets.to_str().expect("a path")]).assert().code(2).stderr(refused);
    let file = stores.write("one.jsonl", &[row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0)]);
    stores.db(&["import", file.to_str().expect("a path")]).assert().success();
    stores.db(&["query", "--since", "yesterday"]).assert().code(2).stderr(contains("`yesterday` is no date"));
    stores.db(&["query", "--since", "2026-02-31"]).assert().code(2).stderr(contains("`2026-02-31` is no date"));
    stores.db(&["query", "--status", "good"]).assert().code(2).stderr(contains("use one of ok, wrong"));
    stores.db(&["query", "--filter", "hdim >"]).assert().code(2).stderr(contains("filter"));
}

#[test]
fn the_condition_that_no_row_meets_is_named() {
    let stores = Stores::new();
    kgen::lab::Store::open(&stores.path("a.db")).expect("a store");
    stores.db(&["query"]).assert().success().stderr(contains("the store has no rows").and(contains("`kgen db import`")));
    let rows = [row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0), row("b2", "2026-11-27T00:00:00Z", "k2", "y", 20.0)];
    let file = stores.write("rows.jsonl", &rows);
    stores.db(&["import", file.to_str().expect("a path")]).assert().success();
    for action in [&["query"][..], &["export"], &["noise"], &["prune", "--dry-run"]] {
        let kernel = [action, &["--gpu", "h100", "--kernel", "k3"]].concat();
        stores.db(&kernel).assert().success().stderr("note: no row matches `--kernel k3`\n");
    }
    let both = ["query", "--kernel", "k1", "--run", "b"];
    stores.db(&both).assert().success().stderr(contains("no row matches all of `--kernel k1`, `--run b`"));
    stores.db(&["query", "--kernel", "k1"]).assert().success().stderr("");
    let mut report = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    report.args(["report", "--rows", "rows.jsonl", "--gpu", "h200"]).current_dir(stores.0.path());
    report.assert().success().stdout(contains("0 rows")).stderr(contains("no row matches `--gpu h200`"));
}

#[test]
fn a_store_that_cannot_be_one_is_answered_with_the_remedy() {
    let stores = Stores::new();
    let rows: Vec<Value> = (0..200).map(|place| row("a1", "2026-11-26T00:00:00Z", &format!("k{place}"), "x", 10.0)).collect();
    let file = stores.write("rows.jsonl", &rows);
    stores.db(&["import", file.to_str().expect("a path")]).assert().success();
    let whole = fs::read(stores.path("a.db")).expect("read");
    fs::write(stores.path("a.db"), &whole[..whole.len() / 2]).expect("written");
    let damaged = || contains("`a.db` is damaged").and(contains("`kgen db import`")).and(contains("permissions").not());
    stores.db(&["query", "--db", "a.db"]).assert().code(2).stderr(damaged());
    stores.db(&["merge", "--db", "b.db", "a.db"]).assert().code(2).stderr(damaged().and(contains("`--db`").not()));
    stores.db(&["query", "--db", "."]).assert().code(2).stderr(contains("`.` is a folder").and(contains("`--db`")));
    let missing = contains("does not exist").and(contains("`kgen db import`")).and(contains("`--db`").not());
    stores.db(&["merge", "--db", "b.db", "none.db"]).assert().code(2).stderr(missing);
}

#[test]
fn what_a_row_says_is_escaped_in_tables() {
    let stores = Stores::new();
    let mut rows: Vec<Value> = (0..2).map(|run| row(&format!("a{run}"), "2026-11-26T00:00:00Z", "k1", "x", 10.0)).collect();
    for row in &mut rows {
        row["case"] = json!("\u{1b}[31mred\u{7}\nnext\tcolumn");
        row["contender"] = json!("\u{1b}]0;title\u{7}");
        row["run"]["gpu"]["name"] = json!("\u{1b}[32mH100");
    }
    let file = stores.write("rows.jsonl", &rows);
    stores.db(&["import", file.to_str().expect("a path")]).assert().success();
    for action in [&["query"][..], &["noise"], &["regress", "a0", "a1"]] {
        let output = stores.db(action).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && text.contains("\\u{1b}[31mred\\u{7}\\u{a}next\\u{9}column"), "{action:?}: {text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{action:?}: {text:?}");
    }
}

#[test]
fn times_of_another_timing_plan_are_not_compared() {
    let stores = Stores::new();
    let mut rows: Vec<Value> = ["a1", "b2"].map(|run| row(run, "2026-11-26T00:00:00Z", "k1", "x", 10.0)).to_vec();
    for (row, rounds) in rows.iter_mut().zip([20, 60]) {
        row["run"]["plan"] = json!({ "warm_up_ms": 25.0, "measure_ms": 100.0, "rounds": rounds, "graph": false });
    }
    let file = stores.write("rows.jsonl", &rows);
    stores.db(&["import", file.to_str().expect("a path")]).assert().success();
    stores.db(&["noise"]).assert().success().stdout(contains("no case was measured by two runs"));
    let said = contains("0 cases: ").and(contains("not compared: 1 case that both have, but with other warm-ups or rounds"));
    stores.db(&["regress", "a1", "b2"]).assert().success().stdout(said);
}

#[test]
fn forms_that_cannot_express_a_row_refuse_it_by_name() {
    let stores = Stores::new();
    let profiles = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/2026-11-27-profiles-h200.jsonl");
    stores.db(&["import", profiles.to_str().expect("a path")]).assert().success();
    let refused = || contains("`kgen profile` (run `").and(contains("no time"));
    stores.db(&["export", "--as", "traces", "--out", "traces"]).assert().code(2).stderr(refused());
    stores.db(&["export", "--as", "t4"]).assert().code(2).stderr(refused());
    assert!(!stores.path("traces").exists());
    let mut wide = row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0);
    wide["details"] = (0..1_000_000).map(|place| (format!("k{place}"), json!(1))).collect::<serde_json::Map<_, _>>().into();
    let file = stores.write("wide.jsonl", &[wide]);
    stores.db(&["import", "--db", "wide.db", file.to_str().expect("a path")]).assert().success();
    let refused = contains("16384 columns").and(contains("run `a1` of `kgen bench`")).and(contains("`--as jsonl`"));
    stores.db(&["export", "--db", "wide.db", "--as", "csv"]).assert().code(2).stderr(refused);
}

/// `kgen` as a user who is not root, to whom permissions apply. Root runs a copy of the program, in a place that this
/// user can reach.
fn unprivileged(stores: &Stores, arguments: &[&str]) -> Process {
    const NOBODY: u32 = 65534;
    let program = stores.path("kgen");
    if !program.exists() {
        // By another process: a child of a test beside this one would inherit a descriptor that writes the program, and
        // until it ends, running the program fails with "Text file busy".
        let copied = Process::new("cp").arg(assert_cmd::cargo::cargo_bin!("kgen")).arg(&program).status().expect("`cp`");
        assert!(copied.success());
    }
    let mut command = Process::new(&program);
    command.args(arguments).current_dir(stores.0.path()).env("TMPDIR", std::env::temp_dir());
    if fs::metadata("/proc/self").expect("a process").uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn a_store_that_may_only_be_read_is_read_and_not_written() {
    let stores = Stores::new();
    let rows = [row("a1", "2026-11-26T00:00:00Z", "k1", "x", 10.0), row("b2", "2026-11-27T00:00:00Z", "k2", "y", 20.0)];
    let file = stores.write("rows.jsonl", &rows);
    fs::create_dir(stores.path("shared")).expect("a folder");
    let import = |db: &str| stores.db(&["import", "--db", db, file.to_str().expect("a path")]).assert().success();
    import("shared/closed.db");
    // Rows that a crashed writer has left in the log alone, without the index that SQLite would need.
    import("crashed.db");
    let writer = kgen::lab::Store::open(&stores.path("crashed.db")).expect("a store");
    let third = row("c3", "2026-11-28T00:00:00Z", "k3", "z", 30.0);
    stores.write("third.jsonl", &[third]);
    stores.db(&["import", "--db", "crashed.db", "third.jsonl"]).assert().success();
    for suffix in ["", "-wal"] {
        fs::copy(stores.path(&format!("crashed.db{suffix}")), stores.path(&format!("shared/crashed.db{suffix}")))
            .expect("a copy");
    }
    drop(writer);
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    set(stores.0.path(), 0o755);
    for entry in fs::read_dir(stores.path("shared")).expect("a folder") {
        set(&entry.expect("an entry").path(), 0o444);
    }
    for folder in [0o555, 0o777] {
        set(&stores.path("shared"), folder);
        for (db, count) in [("shared/closed.db", 2), ("shared/crashed.db", 3)] {
            if folder == 0o777 && db == "shared/crashed.db" {
                continue; // SQLite makes the index itself.
            }
            for action in [&["query"][..], &["export"], &["noise"]] {
                let output = unprivileged(&stores, &[&["db"], action, &["--db", db]].concat()).output().expect("it runs");
                let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
                assert!(output.status.success() && err.is_empty(), "{db} {action:?} {folder:o}: {err}");
                assert!(action[0] != "export" || out.lines().count() == count, "{db}: {out}");
            }
        }
    }
    set(&stores.path("shared"), 0o555);
    let refused = unprivileged(&stores, &["db", "import", "--db", "shared/closed.db", "third.jsonl"]).output().expect("it runs");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(3) && message.contains("shared/closed.db`") && message.contains("permissions"),
        "{message}"
    );
    set(&stores.path("shared/closed.db"), 0o000);
    let refused = unprivileged(&stores, &["db", "query", "--db", "shared/closed.db"]).output().expect("it runs");
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(3) && message.contains("cannot read `shared/closed.db`"), "{message}");
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
    lend_emulator(&cache);
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
