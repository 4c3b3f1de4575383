//! `kgen tune` in stores whose fastest tiles are known.

use assert_cmd::Command;
use kgen::{
    command::{
        CommandError, Context,
        tune::{self, Outcome, Request, Search},
    },
    family,
    kernel::Variant,
    lab::{Condition, Row, Status, Store},
};
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// The kernel of most tests, which has dozens of candidates.
const NAME: &str = "flash_fwd_hdim64_fp16_sm80";

type Tile = Map<String, Value>;

fn variant(head_dim: u32) -> Variant {
    let axes = json!({ "kind": "fwd", "head_dim": head_dim, "dtype": "fp16", "causal": false, "target": "sm80" });
    serde_json::from_value(axes).expect("a variant")
}

/// The candidates of a kernel.
fn tiles(variant: Variant) -> Vec<Tile> {
    let plans = family::candidates(variant).expect("it has a default");
    plans.map(|plan| serde_json::to_value(plan.tile()).expect("JSON").as_object().expect("an object").clone()).collect()
}

fn default_of(variant: Variant) -> Tile {
    let plan = kgen::plan::Plan::new(variant, None).expect("it has a default");
    serde_json::to_value(plan.tile()).expect("JSON").as_object().expect("an object").clone()
}

fn number(tile: &Tile, key: &str) -> f64 {
    tile[key].as_f64().expect("a number")
}

/// Numbers between -1 and 1 that look random and are the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 30) - 1.0
    }
}

/// A store of rows of tiles at lengths.
struct Synthetic {
    folder: TempDir,
    rows: Vec<Row>,
    noise: Noise,
    gpu: &'static str,
}

impl Synthetic {
    fn new(seed: u64) -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
            rows: Vec::new(),
            noise: Noise(seed),
            gpu: "NVIDIA A100-SXM4-80GB",
        }
    }

    /// Adds a row: a time, or a failure with its status.
    fn add(&mut self, variant: Variant, tile: &Tile, size: &Value, outcome: Result<f64, Status>, run: usize) {
        let mut kernel = serde_json::to_value(variant).expect("JSON");
        kernel["name"] = variant.name().into();
        kernel["tile"] = Value::Object(tile.clone());
        kernel["registers"] = 128.into();
        let numbers = outcome.ok().map(|time| {
            let rounds: Vec<f64> = (0..9).map(|_| time * (1.0 + 0.002 * self.noise.next())).collect();
            let microseconds = json!({ "median": time, "mad": 0.1, "interval": [0.999 * time, 1.001 * time], "n": 9 });
            json!({ "microseconds": microseconds, "round_microseconds": rounds, "repeated": "launch", "l2": "warm" })
        });
        let row = json!({
            "format": 1, "bench": "kgen tune", "case": "c", "contender": "kgen", "own": true, "shape": size,
            "dtype": "fp16", "layout": null, "status": outcome.map_or_else(Status::word, |_| "ok"), "message": "",
            "numbers": numbers, "card": {}, "kernel": kernel,
            "details": { "seconds": 0.5, "compile_s": 4.0, "prove_s": 1.0 },
            "run": { "id": format!("run{run}"), "date": "2026-11-27T00:00:00Z", "gpu": { "name": self.gpu } },
        });
        self.rows.push(serde_json::from_value(row).expect("a row"));
    }

    /// Adds three runs of each tile at the tuned and held-out sizes of the default suite, with a noise of `noise`.
    fn add_all(&mut self, variant: Variant, noise: f64, time: impl Fn(&Tile) -> f64) {
        let heads = 2048 / variant.head_dim().expect("it has one").qk;
        for run in 0..3 {
            for tile in tiles(variant) {
                for length in [1024, 2048, 4096, 8192, 16_384] {
                    let batch = (16_384 / length).max(1);
                    let size =
                        json!({ "batch": batch, "heads": heads, "heads_k": heads, "seqlen_q": length, "seqlen_k": length });
                    let time = time(&tile) * f64::from(length) / 1024.0 * (1.0 + noise * self.noise.next());
                    self.add(variant, &tile, &size, Ok(time), run);
                }
            }
        }
    }

    /// Turns the rows of a tile into failures.
    fn fail(&mut self, tile: &Tile, status: Status) {
        for row in &mut self.rows {
            if row.kernel.as_ref().is_some_and(|kernel| kernel["tile"].as_object() == Some(tile)) {
                (row.status, row.numbers) = (status, None);
            }
        }
    }

    fn store(&self) -> PathBuf {
        let path = self.folder.path().join("rows.db");
        Store::open(&path).expect("a store").add_all(&self.rows).expect("added");
        path
    }

    /// The outcome of a search of [`NAME`], with changes of the request.
    fn outcome(&self, mut changes: Value) -> Result<Outcome, CommandError> {
        let mut request = json!({ "selection": { "names": [NAME] }, "replay": self.store() });
        request.as_object_mut().expect("an object").append(changes.as_object_mut().expect("an object"));
        let request: Request = serde_json::from_value(request).expect("a request");
        tune::run(&request, &Context::default(), &())
    }

    fn search(&self, changes: Value) -> Search {
        self.outcome(changes).unwrap_or_else(|error| panic!("{error}")).searches.remove(0)
    }
}

/// A time with its least at a tile of `m` and `n`: it grows smoothly around it, and by up to 3 % for each tile alone.
fn valley(m: f64, n: f64) -> impl Fn(&Tile) -> f64 {
    move |tile| {
        let text = serde_json::to_string(tile).expect("JSON");
        let own = text.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let apart = (number(tile, "m") / m).log2().abs() + (number(tile, "n") / n).log2().abs();
        100.0 * (1.0 + 0.15 * apart) * (1.0 + 0.03 * (own % 1000) as f64 / 1000.0)
    }
}

fn least(variant: Variant, time: impl Fn(&Tile) -> f64) -> (Tile, f64) {
    let timed = tiles(variant).into_iter().map(|tile| (tile.clone(), time(&tile)));
    timed.min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are candidates")
}

#[test]
fn the_fastest_tile_is_found_within_two_percent_after_twenty_candidates() {
    for (seed, m, n) in [(1, 64.0, 32.0), (2, 128.0, 64.0), (3, 64.0, 128.0), (4, 128.0, 128.0), (5, 192.0, 48.0)] {
        let mut store = Synthetic::new(seed);
        store.add_all(variant(64), 0.004, valley(m, n));
        let search = store.search(json!({ "budget": 20 }));
        let (_, best) = least(variant(64), valley(m, n));
        let winner = search.winner.expect("the default was timed");
        let regret = valley(m, n)(&winner.tile) / best - 1.0;
        assert!(regret <= 0.02, "{m} x {n}: {} is {:.1} % slower than the fastest", winner.changes, 100.0 * regret);
        assert!(search.measured.len() <= 20 && search.candidates > 40, "{} of {}", search.measured.len(), search.candidates);
        assert!(search.truncated.is_some_and(|why| why.contains("20 candidates")) && search.cut == search.candidates - 20);
        assert!(search.confirmation.is_none_or(|confirmation| confirmation.confirmed), "{m} x {n}");
    }
}

#[test]
fn the_default_wins_ties_and_the_winners_are_those_within_the_floor() {
    let default = default_of(variant(64));
    let time = |tile: &Tile| if *tile == default || number(tile, "n") < 96.0 { 100.0 } else { 110.0 };
    let mut store = Synthetic::new(6);
    store.add_all(variant(64), 0.004, time);
    let search = store.search(json!({ "budget": 20 }));
    let winner = search.winner.as_ref().expect("the default was timed");
    assert_eq!((winner.changes.as_str(), search.confirmation.is_none()), ("default", true), "{search:?}");
    let (slow, fast): (Vec<_>, Vec<_>) = search.measured.iter().partition(|measured| measured.standing.to_default.mean > 1.05);
    let tied = |of: &[&tune::Measured]| of.iter().filter(|measured| measured.standing.tied).count();
    // The floor covers 95 % of the pairs of passes, and candidates that were dropped early have one pass.
    assert!(tied(&slow) == 0 && !slow.is_empty() && tied(&fast) * 10 >= fast.len() * 9, "{} of {}", tied(&fast), fast.len());
    assert!(fast.iter().all(|measured| measured.standing.tied || !measured.standing.finalist));
    assert!(search.floor < 0.02 && fast.len() > 5, "{search:?}");
}

#[test]
fn among_equal_tiles_the_one_with_less_shared_memory_wins() {
    let default = default_of(variant(64));
    let mut store = Synthetic::new(7);
    store.add_all(variant(64), 0.001, |tile| if *tile == default { 120.0 } else { 100.0 });
    let search = store.search(json!({ "budget": 1000, "budget_s": 1_000_000 }));
    let finalists = search.measured.iter().filter(|measured| measured.standing.finalist && measured.standing.tied);
    let least = finalists.map(|measured| measured.shared_memory_bytes).min().expect("there are some");
    let winner = &search.winner.as_ref().expect("the default was timed").changes;
    let of_winner = search.measured.iter().find(|measured| measured.changes == *winner).expect("it was measured");
    assert_eq!(of_winner.shared_memory_bytes, least, "registers of all rows are equal");
}

#[test]
fn a_spilled_or_wrong_candidate_never_wins() {
    for status in [Status::Spilled, Status::Wrong, Status::Error] {
        let mut store = Synthetic::new(8);
        store.add_all(variant(64), 0.002, valley(128.0, 64.0));
        let (fastest, _) = least(variant(64), valley(128.0, 64.0));
        assert_ne!(fastest, default_of(variant(64)), "the test needs another");
        store.fail(&fastest, status);
        let search = store.search(json!({ "budget": 1000, "budget_s": 1_000_000 }));
        assert_ne!(search.winner.expect("the default was timed").tile, fastest);
        assert_eq!(search.failed.iter().map(|failed| failed.status).collect::<Vec<_>>(), [status]);
    }
    let mut store = Synthetic::new(8);
    store.add_all(variant(64), 0.002, valley(128.0, 64.0));
    store.fail(&default_of(variant(64)), Status::Wrong);
    let outcome = store.outcome(json!({})).expect("an outcome");
    assert_eq!(outcome.searches[0].status, Status::Wrong);
    assert!(matches!(outcome.verdict(), Err(CommandError::Failed(_))));
}

#[test]
fn recorded_seconds_end_a_search_that_has_used_its_time() {
    let mut store = Synthetic::new(9);
    store.add_all(variant(64), 0.002, valley(128.0, 64.0));
    let whole = store.search(json!({ "budget": 20, "budget_s": 100_000 }));
    // Ten candidates of the first wave take 50 s to compile and prove.
    let short = store.search(json!({ "budget": 20, "budget_s": 80 }));
    assert!(short.truncated.as_ref().is_some_and(|why| why.contains("80 s")), "{:?}", short.truncated);
    assert!(short.measured.len() < whole.measured.len() && short.cut > whole.cut, "{short:?}");
    assert!(whole.spent_s > 100.0 && short.spent_s < 100.0, "{} {}", whole.spent_s, short.spent_s);
}

#[test]
fn two_replays_print_the_same_bytes() {
    let mut store = Synthetic::new(10);
    store.add_all(variant(64), 0.004, valley(128.0, 64.0));
    let path = store.store();
    let print = |format: &str| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.args(["tune", NAME, "--quality", "--format", format, "--replay"]).arg(&path);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let text = print("human");
    assert_eq!(text, print("human"));
    for part in ["winner", "regret", "searches over resampled rounds", "truncated: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = print("json");
    assert_eq!(json, print("json"));
    let found: Value = serde_json::from_str(&json).expect("JSON");
    let quality = &found["searches"][0]["quality"];
    assert!(quality["regret"].as_f64().is_some_and(|regret| regret <= 0.02), "{quality}");
    assert!(quality["flips"].as_f64().is_some_and(|flips| flips <= 0.6), "{quality}");
}

#[test]
fn a_size_that_is_tuned_on_does_not_confirm_the_winner() {
    let mut store = Synthetic::new(11);
    store.add_all(variant(64), 0.002, valley(128.0, 64.0));
    let error = store.outcome(json!({ "held_out": [64, 1024] })).expect_err("1024 is tuned on").to_string();
    assert!(error.contains("seqlen_k=1024") && error.contains("--held-out"), "{error}");
}

#[test]
fn rows_of_another_card_are_refused() {
    let mut store = Synthetic::new(11);
    store.add_all(variant(64), 0.002, valley(128.0, 64.0));
    let error = store.outcome(json!({ "gpu": "h100" })).expect_err("the rows are an A100's").to_string();
    assert!(error.contains("`h100`") && error.contains("A100") && error.contains("`--gpu`"), "{error}");
    let error = store.outcome(json!({ "gpu": "a card" })).expect_err("it is none").to_string();
    assert!(error.contains("`a card`") && error.contains("`a100`"), "{error}");
    store.gpu = "NVIDIA H100 80GB HBM3";
    store.add_all(variant(64), 0.002, valley(128.0, 64.0));
    let error = store.outcome(json!({})).expect_err("two cards").to_string();
    assert!(error.contains("choose one with `--gpu`"), "{error}");
    assert_eq!(store.outcome(json!({ "gpu": "h100" })).expect("its rows").gpu, "h100");
}

#[test]
fn a_confirmed_winner_is_written_as_an_entry_of_a_grid_and_a_default_is_not() {
    let mut store = Synthetic::new(12);
    store.add_all(variant(64), 0.002, valley(64.0, 128.0));
    let file = store.folder.path().join("tiles.toml");
    let outcome = store.outcome(json!({ "write": file, "budget": 30 })).expect("an outcome");
    let search = &outcome.searches[0];
    assert!(
        outcome.written == 1 && search.confirmation.as_ref().is_some_and(|confirmation| confirmation.confirmed),
        "{search:?}"
    );
    let text = fs::read_to_string(&file).expect("it was written");
    assert!(text.contains(&format!("when = \"name == {NAME}\"")) && text.contains("measured = \"kgen tune, run run2 on a100\""));
    let grid = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("variants.toml")).expect("the grid") + &text;
    let path = store.folder.path().join("variants.toml");
    fs::write(&path, grid).expect("written");
    let mut list = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    let printed = list.args(["list", NAME, "--plan", "--format", "json", "--variants"]).arg(&path).output().expect("it runs");
    let plan: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!(plan[0]["plan"]["tile"].as_object(), search.winner.as_ref().map(|winner| &winner.tile));

    fs::write(&file, "mine").expect("written");
    let error = store.outcome(json!({ "write": file })).expect_err("the file is the user's").to_string();
    assert!(error.contains("did not write it"), "{error}");
    let mut equal = Synthetic::new(13);
    equal.add_all(variant(64), 0.002, |_| 100.0);
    let none = equal.folder.path().join("none.toml");
    assert_eq!(equal.outcome(json!({ "write": none })).expect("an outcome").written, 0);
    assert!(!none.exists());
}

#[test]
fn a_winner_that_loses_at_held_out_sizes_is_not_confirmed() {
    let mut store = Synthetic::new(14);
    let default = default_of(variant(64));
    store.add_all(variant(64), 0.002, valley(64.0, 128.0));
    for row in &mut store.rows {
        let is_default = row.kernel.as_ref().is_some_and(|kernel| kernel["tile"].as_object() == Some(&default));
        if is_default && [2048, 8192].contains(&row.shape["seqlen_k"].as_u64().expect("a length")) {
            let numbers = row.numbers.as_mut().expect("a time");
            numbers["microseconds"]["median"] = json!(1.0);
        }
    }
    let confirmation = store.search(json!({ "budget": 30 })).confirmation.expect("another tile wins");
    assert!(!confirmation.confirmed && confirmation.ratio.is_some_and(|ratio| ratio.mean > 1.0), "{confirmation:?}");
}

#[test]
fn shards_share_the_variants_without_overlap() {
    let dims = [64, 96, 128];
    let mut store = Synthetic::new(15);
    for dim in dims {
        store.add_all(variant(dim), 0.002, valley(128.0, 64.0));
    }
    let names: Vec<String> = dims.iter().map(|dim| variant(*dim).name()).collect();
    let mut searched = BTreeMap::new();
    for index in 1..=2 {
        let changes = json!({ "selection": { "names": names }, "shard": { "index": index, "of": 2 }, "budget": 4 });
        let outcome = store.outcome(changes).expect("an outcome");
        outcome.searches.iter().for_each(|search| _ = searched.insert(search.name.clone(), index));
    }
    assert_eq!(searched.keys().cloned().collect::<std::collections::BTreeSet<_>>(), names.into_iter().collect());
    assert_eq!(searched.values().filter(|index| **index == 1).count(), 2);
    let error = store.outcome(json!({ "shard": { "index": 3, "of": 2 } })).expect_err("there is none").to_string();
    assert!(error.contains("3/2"), "{error}");
}

#[test]
fn a_kernel_without_rows_is_absent_and_the_others_are_searched() {
    let mut store = Synthetic::new(17);
    store.add_all(variant(128), 0.002, valley(128.0, 64.0));
    let names = [96, 128].map(|dim| variant(dim).name());
    let outcome = store.outcome(json!({ "selection": { "names": names }, "budget": 4 })).expect("an outcome");
    let [absent, found] = outcome.searches.as_slice() else { panic!("two searches: {outcome:?}") };
    assert_eq!((absent.name.as_str(), absent.status), (names[0].as_str(), Status::Absent));
    assert!(
        absent.failure.as_ref().is_some_and(|why| why.contains(&format!("no row of `{}` on `a100`", names[0]))),
        "{absent:?}"
    );
    assert!(found.status == Status::Ok && found.winner.is_some() && found.failure.is_none(), "{found:?}");
    outcome.verdict().expect("one of the two was searched");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.arg("tune").args(&names).arg("--replay").arg(store.store());
    let said = contains(format!("{} on a100", names[1])).and(contains("absent: the store has no row of"));
    command.assert().success().stdout(said);
}

#[test]
fn a_profile_is_no_pass_and_the_emulator_no_card() {
    let mut store = Synthetic::new(20);
    store.add_all(variant(64), 0.002, valley(128.0, 64.0));
    let without = store.search(json!({ "budget": 8 }));
    // The profiles come first, by the id of their run.
    let profile = |row: &Row, device: &str, gpu: &str| {
        let mut row = row.clone();
        (row.bench, row.status) = ("kgen profile".to_owned(), Status::Ok);
        row.numbers = json!({ "counters": [], "relative_error": 0.001 }).as_object().cloned();
        row.details = json!({ "device": device }).as_object().cloned().expect("an object");
        (row.run["id"], row.run["gpu"]) = (json!("a profile"), json!({ "name": gpu }));
        row
    };
    let of = |device: &str, gpu: &str| -> Vec<Row> { store.rows.iter().take(40).map(|row| profile(row, device, gpu)).collect() };
    let profiles = [of("gpu", store.gpu), of("emulator", "emulator")].concat();
    let mut failed = profiles[0].clone();
    (failed.status, failed.numbers, failed.message) = (Status::Error, None, "there is no `ncu`".to_owned());
    store.rows.extend(profiles.iter().cloned().chain([failed]));
    let outcome = store.outcome(json!({ "budget": 8 })).expect("one card alone has times");
    outcome.verdict().expect("it was searched");
    let with = &outcome.searches[0];
    let winner = |search: &Search| search.winner.as_ref().map(|winner| winner.changes.clone());
    assert!(with.failure.is_none() && winner(with).is_some(), "{with:?}");
    assert_eq!((winner(with), with.measured.len()), (winner(&without), without.measured.len()));
    let mut alone = Synthetic::new(21);
    alone.rows = profiles;
    for changes in [json!({}), json!({ "gpu": "a100" })] {
        let error = alone.outcome(changes).expect_err("no times").to_string();
        assert!(error.contains("has no row") && error.contains("profiles and verdicts are no times"), "{error}");
    }
    let none = Command::new(assert_cmd::cargo::cargo_bin!("kgen"))
        .args(["tune", NAME, "--replay", "no/such.db"])
        .assert()
        .code(2)
        .get_output()
        .stderr
        .clone();
    let said = String::from_utf8_lossy(&none);
    assert!(said.contains("`--replay`") && said.contains("`kgen db import`") && !said.contains("`--db`"), "{said}");
}

#[test]
fn sizes_without_rows_are_answered_with_those_that_the_store_has() {
    let mut store = Synthetic::new(18);
    store.add_all(variant(64), 0.002, valley(128.0, 64.0));
    let outcome = store.outcome(json!({ "shape": { "seqlen": [3000], "batch": [5] } })).expect("an outcome");
    let search = &outcome.searches[0];
    let why = search.failure.as_ref().expect("there are no such rows");
    let parts = ["batch=5", "`--seqlen`", "seqlen_q=1024`", "seqlen_q=16384`"];
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    assert_eq!(search.status, Status::Absent);
    assert!(matches!(outcome.verdict(), Err(CommandError::Failed(_))), "nothing was searched");
    let search = store.search(json!({ "held_out": [3000], "budget": 30 }));
    let confirmation = search.confirmation.expect("another tile wins");
    let why = &confirmation.message;
    assert!(!confirmation.confirmed && why.contains("seqlen_q=2048`") && why.contains("`--held-out`"), "{why}");
}

#[test]
fn a_place_that_cannot_be_written_is_refused_before_the_search() {
    let mut store = Synthetic::new(19);
    // Every tile is as fast as the default: nothing would be written.
    store.add_all(variant(64), 0.002, |_| 100.0);
    let folder = store.folder.path().to_owned();
    for (place, said) in [(folder.join("none/tiles.toml"), "none` does not exist"), (folder.clone(), "directory")] {
        let error = store.outcome(json!({ "write": place })).expect_err("it cannot be written").to_string();
        assert!(error.contains(said) && error.contains("`--write`"), "{error}");
    }
    assert_eq!(store.outcome(json!({ "write": folder.join("tiles.toml") })).expect("an outcome").written, 0);
    assert!(!folder.join("tiles.toml").exists(), "looking writes nothing");
}

#[test]
fn a_dry_run_ranks_the_tiles_without_a_gpu_and_shows_the_default_in_any_case() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.args(["tune", NAME, "--dry-run", "--gpu", "h200", "--budget", "3", "--format", "json"]);
    let ran = command.env("KGEN_DB", folder.path().join("none.db")).assert().success();
    let ranking: Value = serde_json::from_slice(&ran.get_output().stdout).expect("JSON");
    let kernel = &ranking["kernels"][0];
    let tiles = kernel["tiles"].as_array().expect("tiles");
    let predicted: Vec<f64> = tiles.iter().map(|tile| tile["predicted"].as_f64().expect("a ratio")).collect();
    assert!(predicted.is_sorted() && (3..=4).contains(&tiles.len()), "{kernel}");
    assert!(tiles.iter().any(|tile| tile["changes"] == "default" && tile["predicted"] == 1.0), "{kernel}");
    assert!(kernel["candidates"].as_u64().expect("a number") > 4 && ranking["gpu"] == "h200");
    assert!(!folder.path().join("none.db").exists(), "nothing is measured");
}

#[test]
fn what_cannot_be_tuned_is_refused_before_anything_is_measured() {
    let store = Synthetic::new(16);
    let error = store.outcome(json!({})).expect_err("no rows").to_string();
    assert!(error.contains("has no row") && error.contains("`kgen tune --db`"), "{error}");
    assert_eq!(Store::open_existing(&store.store()).expect("it is there").rows(&Condition::default()).expect("read"), []);
    let kgen = |arguments: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.arg("tune").args(arguments).env_remove("KGEN_DB");
        command.assert()
    };
    kgen(&[NAME, "--shard", "3/2"]).code(2).stderr(contains("I from 1 to N"));
    kgen(&[NAME, "--suite", "model"]).code(2).stderr(contains("did you mean `models`?"));
    kgen(&[NAME, "--suite", "models", "--heads", "8"]).code(2).stderr(contains("the sizes are those of the suite"));
    kgen(&[NAME, "--quality"]).code(2).stderr(contains("--replay"));
    kgen(&[NAME, "--ladder", "--write", "tiles.toml"]).code(2).stderr(contains("cannot be used with"));
    for ignored in [&["--ladder"][..], &["--write", "tiles.toml"], &["--held-out", "512"], &["--rounds", "3"], &["--jobs", "2"]] {
        kgen(&[&[NAME, "--dry-run", "--gpu", "h200"], ignored].concat()).code(2).stderr(contains("cannot be used with"));
    }
    kgen(&[NAME, "--budget", "1"]).code(2).stderr(contains("--budget"));
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.db");
    std::fs::write(&empty, "").expect("written");
    kgen(&[NAME, "--replay", empty.to_str().expect("a path")]).code(2).stderr(contains("is no store of measurements"));
    assert_eq!(std::fs::metadata(&empty).expect("it is there").len(), 0, "reading makes no database");
    kgen(&[NAME, "--replay", "none.db"]).code(2).stderr(contains("`none.db` does not exist").and(contains("kgen")));
}
