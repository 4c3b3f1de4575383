//! `kgen profile`: the counts of single accesses, of kernels, and of kernels with a planted conflict.

use crate::support::copy_folder;
use assert_cmd::Command;
use kgen::{
    device::EmulatorKit,
    profile::FLAG,
    render::Templates,
    toolchain::{Cancel, host_compiler_in_process},
};
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// The kernel of most tests.
const NAME: &str = "flash_fwd_hdim128_bf16_sm80";

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A place for what all tests of this file compile, which stays.
fn kept(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile");
    fs::create_dir_all(&folder).expect("writable");
    folder.join(name)
}

/// The emulator that counts, in the cache of all tests: processes that found none there would each compile it.
static KIT: LazyLock<EmulatorKit> = LazyLock::new(|| {
    let (templates, mut host) = (Templates::embedded(), host_compiler_in_process().expect("a host compiler"));
    host.flags.push(FLAG.to_owned());
    let (include, emulator) = (templates.include_files(), templates.emulator_files());
    EmulatorKit::new(&kept("cache").join("kgen"), include, emulator, &host, &Cancel::default()).expect("it compiles")
});

fn kgen(folder: &Path, arguments: &[&str]) -> Command {
    LazyLock::force(&KIT);
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.args(arguments).current_dir(folder).env("KGEN_DB", folder.join("rows.db")).env("XDG_CACHE_HOME", kept("cache"));
    command.env("CUDA_VISIBLE_DEVICES", "").env_remove("KGEN_TEMPLATES").env_remove("KGEN_VARIANTS");
    command
}

/// The profile of one kernel.
fn profile(folder: &Path, arguments: &[&str]) -> Value {
    let arguments = [&["profile", "--device", "emulator", "--format", "json"], arguments].concat();
    let output = kgen(folder, &arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found.as_array().map(Vec::len), Some(1));
    found[0].clone()
}

/// The lines of a profile by one primitive.
fn lines<'a>(profile: &'a Value, primitive: &str) -> Vec<&'a Value> {
    let lines = profile["lines"].as_array().expect("lines");
    let found: Vec<&Value> = lines.iter().filter(|line| line["primitive"] == primitive).collect();
    assert!(!found.is_empty(), "no {primitive} in {profile}");
    found
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// The host compiler for the emulator's sources.
fn compiler(flags: &[&str]) -> std::process::Command {
    let mut compiler = std::process::Command::new(host_compiler_in_process().expect("a host compiler").path);
    compiler.args(["-std=c++17", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]).current_dir(ROOT);
    compiler.args(["-I", "templates/emulator", "-I", "templates/include"]).args(flags);
    compiler
}

#[test]
fn accesses_need_the_wavefronts_and_sectors_of_the_rules() {
    let (runtime, program) = (kept("runtime.o"), kept("profile_counts"));
    let mut of_runtime = compiler(&["-DKGEN_PROFILE", "-O1", "-c", "templates/emulator/runtime.cpp", "-o"]);
    assert!(of_runtime.arg(&runtime).status().expect("it starts").success());
    let mut of_program = compiler(&["-DKGEN_PROFILE", "-O1", "tests/emulator/profile_counts.cpp"]);
    assert!(of_program.arg(&runtime).arg("-o").arg(&program).status().expect("it starts").success());
    let done = std::process::Command::new(&program).output().expect("it starts");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}");
    assert!(said.lines().filter(|line| line.starts_with("pass")).count() > 35, "{said}");
}

#[test]
fn an_emulator_that_does_not_count_has_no_code_for_it() {
    let text = |flags: &[&str]| {
        let output = compiler(flags).args(["-E", "-P", "templates/emulator/runtime.cpp"]).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let counts = |text: String| ["line_profile", "kgen_emulator_profile"].map(|name| text.contains(name));
    assert_eq!((counts(text(&[])), counts(text(&["-DKGEN_PROFILE"]))), ([false; 2], [true; 2]));
}

#[test]
fn a_swizzled_kernel_has_no_conflicts_and_its_profile_is_a_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let found = profile(folder.path(), &[NAME, "--seqlen", "128"]);
    // Two key tiles: for each, 4 warps read K and V of 64 x 128 elements in blocks of 16 x 16.
    for primitive in ["ldmatrix_x4", "ldmatrix_x4_transposed", "cp_async", "store_shared", "load_shared"] {
        for line in lines(&found, primitive) {
            let shared = &line["shared"];
            assert!(number(&shared["accesses"]) > 0 && shared["excess"] == 0, "{line}");
            assert_eq!(shared["needed"], shared["ideal"], "{line}");
        }
    }
    let keys = lines(&found, "ldmatrix_x4_transposed");
    assert_eq!(keys[0]["shared"], json!({ "accesses": 256, "needed": 1024, "ideal": 1024, "excess": 0 }));
    assert!(keys[0]["text"].as_str().is_some_and(|text| text.contains("ldmatrix_x4_transposed(b,")), "{}", keys[0]);
    assert_eq!(keys[0]["file"], format!("{NAME}.cu"));
    let copies = &lines(&found, "cp_async")[0];
    // Q, K and V: 128 rows of 256 bytes each, 32 lanes of 16 bytes an access.
    assert_eq!(copies["global"], json!({ "accesses": 192, "needed": 3072, "ideal": 3072, "excess": 0 }));
    assert_eq!(copies["file"], "kgen/tile.cuh");
    assert!(found["relative_error"].as_f64().is_some_and(|error| error > 0.0 && error < 0.02), "{found}");
    assert_eq!((&found["facts"]["threads"], &found["facts"]["compiled"]), (&json!(128), &Value::Null));
    let shared = |line: &Value| number(&line["shared"]["needed"]);
    let all = found["lines"].as_array().expect("lines");
    assert_eq!(number(&found["totals"]["shared"]["needed"]), all.iter().map(shared).sum::<u64>());
    let output = kgen(folder.path(), &["db", "query", "--format", "json"]).output().expect("it runs");
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = &rows["rows"][0];
    assert_eq!((&row["bench"], &row["status"], &row["shape"]["seqlen_k"]), (&json!("kgen profile"), &json!("ok"), &json!(128)));
    assert_eq!((&row["numbers"]["lines"], &row["run"]["gpu"]["name"]), (&found["lines"], &json!("emulator")));
    kgen(folder.path(), &["explain", NAME]).assert().success().stdout(contains("not measured"));
}

#[test]
fn a_tile_without_its_swizzle_conflicts_in_the_lines_that_read_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let templates = folder.path().join("templates");
    copy_folder(&Path::new(ROOT).join("templates"), &templates);
    let header = templates.join("include/kgen/tile.cuh");
    let text = fs::read_to_string(&header).expect("a header");
    let plain = text.replace("((chunk ^ (row / rows_per_line % chunks)) * 16)", "(chunk * 16 + 0 * rows_per_line)");
    assert_ne!(text, plain, "the swizzle is where it was");
    fs::write(&header, plain).expect("written");
    let found = profile(folder.path(), &["--templates", "templates", NAME, "--seqlen", "128", "--no-db"]);
    for primitive in ["ldmatrix_x4", "ldmatrix_x4_transposed"] {
        for line in lines(&found, primitive) {
            let shared = &line["shared"];
            assert_eq!(
                number(&shared["needed"]),
                8 * number(&shared["ideal"]),
                "8 rows of 128 bytes are in the same banks: {line}"
            );
        }
    }
    // Whole rows are written and read without conflicts as they are.
    assert!(lines(&found, "cp_async").iter().all(|line| line["shared"]["excess"] == 0));
    assert!(found["lines"][0]["primitive"].as_str().is_some_and(|first| first.starts_with("ldmatrix")), "{found}");
    let arguments = ["profile", "--templates", "templates", "--no-db", "--seqlen", "128", NAME];
    let said = contains("8.00x").and(contains("ldmatrix_x4(b, fragment_address<key_tile>(k,")).and(contains("not counted"));
    kgen(folder.path(), &arguments).assert().success().stdout(said);
    assert!(!folder.path().join("rows.db").exists(), "`--no-db` adds nothing");
}

#[test]
fn an_edited_source_has_its_own_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    kgen(folder.path(), &["generate", NAME, "--output", "out"]).assert().success();
    let text = fs::read_to_string(folder.path().join("out").join(format!("{NAME}.cu"))).expect("a kernel");
    // The rows of O are written in an order that undoes the swizzle: all rows in the same chunk at a time.
    let find = "for (int j = 0; j < O_TILES; ++j) {\n                store_shared(tile";
    let replace = "for (int turn = 0; turn < O_TILES; ++turn) { const int j = turn ^ row % 8;\n                store_shared(tile";
    assert_eq!(text.matches(find).count(), 1);
    fs::write(folder.path().join("mine.cu"), text.replace(find, replace)).expect("written");
    let found = profile(folder.path(), &["--source", "mine.cu", "--seqlen", "128"]);
    let worst = &found["lines"][0];
    assert_eq!((&worst["file"], &worst["primitive"]), (&json!("mine.cu"), &json!("store_shared")));
    assert_eq!(number(&worst["shared"]["needed"]), 8 * number(&worst["shared"]["accesses"]), "{worst}");
    assert!(worst["text"].as_str().is_some_and(|text| text.starts_with("store_shared(tile + chunk_offset")), "{worst}");
    assert!(found["relative_error"].as_f64().is_some_and(|error| error < 0.02), "the results are the same");
}

#[test]
fn a_kernel_with_wrong_results_or_a_race_has_no_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    kgen(folder.path(), &["generate", NAME, "--output", "out"]).assert().success();
    let text = fs::read_to_string(folder.path().join("out").join(format!("{NAME}.cu"))).expect("a kernel");
    for (find, replace, said) in
        [("float factor = ", "float factor = 2 * ", "O is wrong"), ("    warp_sync();\n", "", "(mine.cu:")]
    {
        assert!(text.contains(find));
        fs::write(folder.path().join("mine.cu"), text.replace(find, replace)).expect("written");
        let arguments = ["profile", "--source", "mine.cu", "--seqlen", "128"];
        let wrong = contains("wrong").and(contains(said)).and(contains("wavefronts").not());
        kgen(folder.path(), &arguments).assert().code(1).stdout(wrong).stderr(contains("1 of 1 profile failed"));
    }
}

#[test]
fn the_manifest_of_a_build_gives_registers_and_instructions() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = "rmsnorm_bf16_sm80";
    let entry = json!({
        "name": name, "kind": "rmsnorm", "target": "sm80", "registers": 56, "spill_bytes": 8, "tensor_cores": { "HMMA.16816": 12 },
    });
    let manifest = json!({ "format": 2, "nvcc": "13.0.88", "targets": { "sm80": {} }, "variants": [entry] });
    fs::create_dir_all(folder.path().join("build/lib")).expect("made");
    fs::write(folder.path().join("build/lib/manifest.json"), manifest.to_string()).expect("written");
    let found = profile(folder.path(), &[name, "--rows", "2", "--columns", "256"]);
    let compiled = &found["facts"]["compiled"];
    assert_eq!((&compiled["registers"], &compiled["tensor_cores"]["HMMA.16816"]), (&json!(56), &json!(12)));
    // Two rows of 256 elements: in, residual and weight are read once a row, the two outputs written.
    assert_eq!(found["totals"]["global"]["needed"], 2 * 5 * 512 / 32);
    let said = contains("compiled: 56 registers, 8 bytes spilled, 12 HMMA.16816").and(contains("shared memory: no accesses"));
    kgen(folder.path(), &["profile", name, "--rows", "2", "--columns", "256"]).assert().success().stdout(said);
}

#[test]
fn what_cannot_be_profiled_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |arguments: &[&str], code: i32, said: &str| {
        kgen(folder.path(), &[&["profile"], arguments].concat()).assert().code(code).stderr(contains(said));
    };
    refused(&[], 2, "nothing is selected");
    refused(&[NAME, "--seqlen", "0"], 2, "`seqlen` is 0");
    refused(&[NAME, "--heads", "3", "--heads-k", "2"], 2, "`--heads` is no multiple of `--heads-k`");
    refused(&["--kind", "fwd_combine", "--target", "sm80"], 2, "has no size of its own");
    refused(&[NAME, "--device", "gpu"], 3, "use `--device emulator`");
    refused(&["--source", "mine.cu", "--device", "gpu"], 2, "`mine.cu`");
}
