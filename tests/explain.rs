//! `kgen explain` and `kgen diff`: their reports on kernels, and on measured times in a store.

use assert_cmd::Command;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path};

/// The kernel of most tests.
const NAME: &str = "flash_fwd_hdim64_fp16_sm80";

fn kgen(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.args(arguments).current_dir(folder).env("KGEN_DB", folder.join("rows.db")).env("XDG_STATE_HOME", folder);
    command
}

fn json(command: &mut Command) -> Value {
    let output = command.args(["--format", "json"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_tile_has_reasons_and_neighbours() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = json(&mut kgen(folder.path(), &["explain", NAME]));
    let kernel = &found[0];
    let reasons = kernel["reasons"].as_array().expect("a list");
    assert!(!reasons.is_empty() && reasons.iter().all(|reason| reason["reason"].as_str().is_some_and(|why| !why.is_empty())));
    let neighbours = kernel["neighbours"].as_array().expect("a list");
    assert!(neighbours.len() > 3 && neighbours.iter().all(|neighbour| neighbour["time_ratio"].is_null()), "{kernel}");
    assert_eq!(kernel["measured"], json!([]));
    let said = contains("why this tile").and(contains("not measured")).and(contains("templates/attention/fwd_sm80.cu.tera"));
    kgen(folder.path(), &["explain", NAME]).assert().success().stdout(said);
    kgen(folder.path(), &["explain"]).assert().code(2).stderr(contains("nothing is selected"));
    kgen(folder.path(), &["explain", NAME, "--db", "none.db"]).assert().code(2).stderr(contains("`none.db` does not exist"));
}

#[test]
fn on_a_card_the_kernel_and_the_tiles_beside_it_have_predicted_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = json(&mut kgen(folder.path(), &["explain", "flash_fwd_hdim128_bf16_sm90", "--gpu", "h200"]));
    let kernel = &found[0];
    let predicted = kernel["predicted"].as_array().expect("a list");
    assert_eq!(predicted.len(), 6);
    assert!(predicted.iter().all(|call| call["of_peak"].as_f64().is_some_and(|part| part > 0.1 && part <= 1.0)), "{kernel}");
    let ratios = kernel["neighbours"].as_array().expect("a list").iter().map(|neighbour| neighbour["predicted_ratio"].as_f64());
    assert!(ratios.clone().count() > 1 && ratios.clone().all(|ratio| ratio.is_some_and(|ratio| ratio > 0.3 && ratio < 3.0)));
    assert!(ratios.flatten().any(|ratio| (ratio - 1.0).abs() > 0.01), "tiles differ in their predicted times");
    let elsewhere = ["explain", "flash_fwd_hdim128_bf16_sm90", "--gpu", "a100"];
    let found = json(&mut kgen(folder.path(), &elsewhere));
    assert_eq!(found[0]["predicted"], json!([]));
    let why = "`a100` cannot run this kernel: it is compiled for sm90, and the card has compute capability 8.0";
    let said = found[0]["unpredicted"].as_str().expect("a sentence");
    assert!(said.contains(why) && said.ends_with("it runs kernels of `sm75`, `sm80`"), "{said}");
    kgen(folder.path(), &elsewhere).arg("--quiet").assert().success().stdout(contains("`a100` cannot run this kernel"));
    assert!(json(&mut kgen(folder.path(), &["explain", NAME, "--gpu", "a100"]))[0].get("unpredicted").is_none());
    kgen(folder.path(), &["explain", NAME, "--gpu", "h1000"])
        .assert()
        .code(2)
        .stderr(contains("no card whose numbers are known"));
}

#[test]
fn a_kernel_has_the_optimisations_whose_conditions_it_meets() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = |name: &str| {
        let found = json(&mut kgen(folder.path(), &["explain", name]));
        let all = found[0]["optimisations"].as_array().expect("a list").clone();
        all.into_iter().map(|one| (one["id"].as_str().expect("an ID").to_owned(), one)).collect::<BTreeMap<String, Value>>()
    };
    let (full, causal) = (found("flash_fwd_hdim128_bf16_sm90"), found("flash_fwd_hdim128_bf16_causal_sm90"));
    // The tile, and what the source has.
    assert!(full.contains_key("K-007") && full.contains_key("K-032") && full.contains_key("K-036"), "{:?}", full.keys());
    assert!(!causal.contains_key("K-007") && causal.contains_key("K-020") && !full.contains_key("K-020"), "{:?}", causal.keys());
    assert!(!full.contains_key("K-028") && !full.contains_key("K-075"), "no cluster; and the dispatcher's is no kernel's");
    let wide = &full["K-007"];
    assert_eq!((&wide["status"], &wide["name"]), (&json!("helps"), &json!("192 queries a block on Hopper")));
    assert!(wide["measured"].as_str().is_some_and(|text| !text.is_empty()) && wide["reason"].is_string(), "{wide}");
    assert!(!found("flash_fwd_hdim128_bf16_sm80").contains_key("K-018"), "it is of another target");
    let said = contains("K-007 192 queries a block on Hopper: helps").and(contains("measured: "));
    kgen(folder.path(), &["explain", "flash_fwd_hdim128_bf16_sm90"]).assert().success().stdout(said);
}

#[test]
fn measured_times_of_both_tiles_give_their_ratio() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = json(&mut kgen(folder.path(), &["list", NAME, "--plan"]));
    let default = plan[0]["plan"]["tile"].clone();
    let found = json(&mut kgen(folder.path(), &["explain", NAME]));
    let neighbour = &found[0]["neighbours"][0];
    let mut other = default.clone();
    other[neighbour["key"].as_str().expect("a key")] = neighbour["value"].clone();
    let row = |run: &str, tile: &Value, microseconds: f64| {
        json!({
            "format": 1, "bench": "kgen bench", "case": "c", "contender": "kgen", "own": true, "shape": { "batch": 2 },
            "dtype": "fp16", "layout": null, "status": "ok", "message": "", "card": {}, "details": {},
            "numbers": { "microseconds": { "median": microseconds }, "tflops": 100.0, "repeated": "launch", "l2": "warm" },
            "kernel": { "name": NAME, "tile": tile, "source": "old" },
            "run": { "id": run, "date": "2026-11-27T00:00:00Z", "gpu": { "name": "A GPU" }, "ceiling": { "tflops_16_bit": 400.0 } },
        })
    };
    let rows = [row("a", &default, 100.0), row("b", &other, 110.0)].map(|row| row.to_string()).join("\n");
    fs::write(folder.path().join("rows.jsonl"), rows).expect("written");
    kgen(folder.path(), &["db", "import", "rows.jsonl"]).assert().success();
    let found = json(&mut kgen(folder.path(), &["explain", NAME]));
    let ratio = found[0]["neighbours"][0]["time_ratio"].as_f64().expect("both were measured");
    assert!((ratio - 1.1).abs() < 1e-12, "{ratio}");
    let measured = &found[0]["measured"];
    assert_eq!(measured.as_array().map(Vec::len), Some(1), "the default's alone");
    assert_eq!((&measured[0]["of_peak"], &measured[0]["current"]), (&json!(0.25), &json!(false)));
}

#[test]
fn a_length_of_a_plan_is_answered_with_the_commands_that_take_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["explain", "flash_fwd_hdim128_bf16_sm90", "--seqlen", "5"];
    let output = kgen(folder.path(), &arguments).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("`kgen predict`") && said.contains("`--call`"), "{said}");
}

#[test]
fn two_kernels_differ_in_named_values_and_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = [NAME, "flash_fwd_hdim128_fp16_sm80"];
    let said = contains("variant.head_dim").and(contains("+constexpr int HEAD_DIM = 128;")).and(contains("does not hold both"));
    kgen(folder.path(), &["diff", names[0], names[1]]).assert().success().stdout(said);
    let summary = contains("lines only in the first").and(contains("constexpr").not());
    kgen(folder.path(), &["diff", names[0], names[1], "--summary"]).assert().success().stdout(summary);
    let found = json(&mut kgen(folder.path(), &["diff", names[0], names[1], "--summary"]));
    assert!(found["source"] == "" && found["lines"][0].as_u64() > Some(0), "{found}");
    kgen(folder.path(), &["diff", NAME, NAME]).assert().success().stdout(contains("the plans are equal"));
    kgen(folder.path(), &["diff", NAME, "flash_fwd"]).assert().code(2).stderr(contains("no variant `flash_fwd`"));
}

/// The arguments of a decoding call.
const CALL: [&str; 17] = [
    "explain",
    "--call",
    "--batch",
    "1",
    "--heads",
    "32",
    "--heads-k",
    "8",
    "--seqlen-q",
    "1",
    "--seqlen-k",
    "32768",
    "--head-dim",
    "128",
    "--dtype",
    "bf16",
    "--gpu",
];

/// `kgen` with a cache of its own.
fn kgen_with_cache(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = kgen(folder, arguments);
    command.env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

#[test]
fn a_call_has_the_paths_that_the_dispatcher_weighs_and_a_second_one_compiles_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let call = [&CALL[..], &["h100"]].concat();
    let without_compiler = |arguments: &[&str]| {
        let mut command = kgen_with_cache(folder.path(), arguments);
        command.env("CXX", folder.path().join("no-compiler"));
        command
    };
    without_compiler(&call).assert().code(3).stderr(contains("no-compiler"));
    let found = json(&mut kgen_with_cache(folder.path(), &call));
    let candidates = found["candidates"].as_array().expect("a list");
    let chosen = &candidates[found["chosen"].as_u64().expect("an index") as usize];
    assert_eq!((&chosen["path"], &chosen["excluded"]), (&json!("split"), &Value::Null), "{chosen}");
    let least = candidates.iter().filter(|one| one["excluded"].is_null()).map(|one| one["microseconds"]["predicted"].as_f64());
    assert_eq!(least.flatten().min_by(f64::total_cmp), chosen["microseconds"]["predicted"].as_f64());
    let dense = candidates.iter().find(|one| one["path"] == "dense").expect("it is weighed");
    assert!(dense["learned"]["microseconds"].as_f64().is_some_and(|time| time > 100.0), "{dense}");
    assert!(candidates.iter().any(|one| one["path"] == "scheduled" && one["excluded"].is_string()), "{found}");
    assert!(
        found["reason"].as_str().is_some_and(|reason| reason.contains("short") && reason.contains("is the longest")),
        "{found}"
    );

    assert_eq!(json(&mut without_compiler(&call)), found, "the program is in the cache");
    let said = contains("*  split").and(contains("excluded\n  scheduled")).and(contains("flash_fwd_split_hdim128_bf16_sm90"));
    without_compiler(&call).assert().success().stdout(said);
    let causal = [&call[..], &["--causal"]].concat();
    let said = contains("flash_fwd_split_hdim128_bf16_causal_sm90");
    without_compiler(&causal).assert().success().stdout(said);
}

#[test]
fn what_a_call_cannot_be_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |more: &[&str], said: &str| {
        let arguments = [&CALL[..], more].concat();
        kgen_with_cache(folder.path(), &arguments).assert().code(2).stderr(contains(said));
    };
    refused(&["h1000"], "`h1000` is no card whose numbers are known");
    refused(&["h100", "--total-k", "32769"], "`total_k` is 32769; give a number from 1 to 32768");
    refused(&["h100", "--num-splits", "257"], "`num_splits` is 257");
    refused(&["h100", "--window", "5"], "give two numbers, such as `1023,0`");
    refused(&["h100", "--window", "5,-2"], "a side of `window` is below -1");
    refused(&["h100", "--page-size", "16"], "--paged");
    refused(&["h100", "--features", "softcap"], "cannot be used with '--features <FEATURES>'");
    refused(&["h100", "--kind", "bwd"], "`bwd` computes no forward call");
    refused(&["t4"], "no selected kernel of head dim 128 and `bf16` runs on `t4`");
    refused(&["h100", "--kv-dtype", "e5m2"], "the dispatcher refuses this call: no variant with the feature `kv_e5m2`");
    let mut heads = CALL.to_vec();
    heads[7] = "7";
    let heads = [&heads[..], &["h100"]].concat();
    kgen_with_cache(folder.path(), &heads).assert().code(2).stderr(contains("32 query heads are no multiple of 7 key heads"));
    kgen(folder.path(), &["explain", NAME, "--batch", "1"]).assert().code(2).stderr(contains("--call"));
}

/// Causal kernels of Hopper at head dim 64 have three tiles, all of the dense path.
#[test]
fn the_tile_for_long_sequences_is_chosen_for_long_sequences_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let chosen = |batch: &str, length: &str| {
        let sizes = ["explain", "--call", "--gpu", "h200", "--heads", "32", "--head-dim", "64", "--dtype", "bf16", "--causal"];
        let lengths = ["--batch", batch, "--seqlen-q", length, "--seqlen-k", length];
        let found = json(&mut kgen_with_cache(folder.path(), &[&sizes[..], &lengths].concat()));
        let candidates = found["candidates"].as_array().expect("a list");
        assert_eq!(candidates.iter().filter(|one| one["path"] == "dense").count(), 3, "{found}");
        let kernel = candidates[found["chosen"].as_u64().expect("an index") as usize]["kernel"].clone();
        let reason = found["reason"].as_str().expect("a sentence");
        assert!(reason.starts_with(&format!("`{}` is predicted", kernel.as_str().expect("a name"))), "{reason}");
        kernel
    };
    assert_eq!(chosen("32", "512"), "flash_fwd_hdim64_bf16_causal_sm90");
    assert_eq!(chosen("2", "8192"), "flash_fwd_hdim64_bf16_causal_long_sm90");
}

/// What `explain --call` says about a bf16 call on an H200: batch, heads of Q, of K and V, queries, keys; with the
/// total of both, if lengths are unequal.
fn call_on_h200(folder: &Path, head_dim: &str, sizes: [u32; 5], total: Option<u32>) -> Value {
    let of = ["explain", "--call", "--gpu", "h200", "--head-dim", head_dim, "--dtype", "bf16"].map(str::to_owned);
    let names = ["batch", "heads", "heads-k", "seqlen-q", "seqlen-k"];
    let totals = total.into_iter().flat_map(|total| [("total-q", total), ("total-k", total)]);
    let given = names.into_iter().zip(sizes).chain(totals).flat_map(|(name, number)| [format!("--{name}"), number.to_string()]);
    let arguments: Vec<String> = of.into_iter().chain(given).collect();
    json(&mut kgen_with_cache(folder, &arguments.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Calls with few tiles, or of lengths that fill 192 rows badly: fewer or shorter rounds of tiles of 128 rows. At long
/// equal lengths 192 rows read K and V less often.
#[test]
fn the_tile_of_128_queries_is_chosen_where_tiles_of_192_leave_a_round_or_a_tile_nearly_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let chosen = |head_dim: &str, sizes: [u32; 5], total: Option<u32>| {
        let found = call_on_h200(folder.path(), head_dim, sizes, total);
        let candidates = found["candidates"].as_array().expect("a list");
        let of_tiles = candidates.iter().filter(|one| one["path"] == "dense" && one["num_splits"] == 1);
        assert_eq!(of_tiles.count(), 2, "{found}");
        candidates[found["chosen"].as_u64().expect("an index") as usize]["kernel"].clone()
    };
    assert_eq!(chosen("128", [3, 11, 11, 868, 868], None), "flash_fwd_hdim128_bf16_m128_sm90");
    assert_eq!(chosen("64", [2, 8, 8, 1755, 1755], None), "flash_fwd_hdim64_bf16_m128_sm90");
    assert_eq!(chosen("64", [5, 59, 59, 213, 368], None), "flash_fwd_hdim64_bf16_m128_sm90");
    assert_eq!(chosen("128", [17, 4, 1, 1130, 9717], None), "flash_fwd_hdim128_bf16_m128_sm90");
    assert_eq!(chosen("128", [2, 16, 16, 8192, 8192], None), "flash_fwd_hdim128_bf16_sm90");
    assert_eq!(chosen("64", [2, 32, 32, 8192, 8192], None), "flash_fwd_hdim64_bf16_sm90");
    assert_eq!(chosen("64", [8, 16, 16, 4000, 4000], Some(16000)), "flash_fwd_hdim64_bf16_sm90");
}

/// Measured beside kernels without splits and FlashAttention-3 (docs/results/2026-11-29-few-queries-h200.md).
#[test]
fn keys_of_few_query_tiles_are_shared_and_those_of_many_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let chosen = |head_dim: &str, sizes: [u32; 5]| {
        let found = call_on_h200(folder.path(), head_dim, sizes, None);
        let one = &found["candidates"][found["chosen"].as_u64().expect("an index") as usize];
        (one["kernel"].as_str().expect("a name").to_owned(), one["num_splits"].as_u64().expect("a number"))
    };
    let shared = |head_dim: u32, splits| (format!("flash_fwd_hdim{head_dim}_bf16_splitkv_sm90"), splits);
    assert_eq!(chosen("96", [5, 5, 5, 147, 29518]), shared(96, 5));
    assert_eq!(chosen("128", [12, 12, 12, 164, 15717]), shared(128, 8));
    assert_eq!(chosen("64", [27, 2, 1, 536, 42726]), shared(64, 4));
    // Two tiles of 150 queries read the keys twice: the smallest tile shares them.
    assert_eq!(chosen("192", [3, 19, 19, 150, 20230]), ("flash_fwd_short_hdim192_bf16_sm90".to_owned(), 3));
    for (head_dim, sizes) in [("128", [2, 16, 16, 8192, 8192]), ("128", [8, 16, 16, 2048, 2048]), ("64", [32, 32, 32, 512, 512])]
    {
        assert_eq!(chosen(head_dim, sizes), (format!("flash_fwd_hdim{head_dim}_bf16_sm90"), 1), "{sizes:?}");
    }
}

#[test]
fn a_call_has_the_measured_times_of_its_kernels_at_its_size_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results/2026-11-27-timings-h100.jsonl");
    let rows = fs::read_to_string(published).expect("rows");
    let name = "flash_fwd_hdim64_bf16_sm90";
    let case = format!("{name} batch=32 heads=32 heads_k=32 seqlen_q=512 seqlen_k=512");
    let row = rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut row = row.into_iter().find(|row| row["case"] == case.as_str()).expect("it was measured");
    let measured = row["numbers"]["microseconds"]["median"].as_f64().expect("a time");
    row["numbers"]["microseconds"]["median"] = json!(171.25);
    row["run"]["date"] = json!("2026-11-28T00:00:00Z");
    fs::write(folder.path().join("rows.jsonl"), row.to_string()).expect("written");
    kgen(folder.path(), &["db", "import", "rows.jsonl"]).assert().success();
    let of_dense = |batch: &str, gpu: &str| {
        let call = [
            "explain",
            "--call",
            "--batch",
            batch,
            "--heads",
            "32",
            "--seqlen-q",
            "512",
            "--seqlen-k",
            "512",
            "--head-dim",
            "64",
            "--dtype",
            "bf16",
            "--gpu",
            gpu,
        ];
        let found = json(&mut kgen_with_cache(folder.path(), &call));
        let dense = found["candidates"].as_array().expect("a list").iter().find(|one| one["kernel"] == name).cloned();
        dense.expect("it is weighed")["measured"].clone()
    };
    let expected = json!([
        { "microseconds": 171.25, "date": "2026-11-28T00:00:00Z" }, { "microseconds": measured, "date": null },
    ]);
    assert_eq!(of_dense("32", "h100"), expected);
    assert_eq!(of_dense("31", "h100"), json!([]), "another size");
    let elsewhere = of_dense("32", "gh200");
    assert_eq!(elsewhere, json!([]), "another card");
}
