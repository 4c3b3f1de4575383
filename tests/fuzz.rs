//! `kgen check --fuzz`: with a mock driver (`support/mock_gpu.c`) and a library with configurable faults
//! (`support/mock_library.cpp`), and on the emulator with unmodified kernels and with planted faults.

use crate::support::{copy_folder, emulator::lend_emulator};
use assert_cmd::Command;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::Value;
use std::{path::Path, process, sync::LazyLock, time::Duration};
use tempfile::TempDir;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A folder with the mock driver, first in the loader's search path, and the mock library.
static MOCK: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    for (compiler, source, library) in [("cc", "mock_gpu.c", "libcuda.so"), ("c++", "mock_library.cpp", "libkgen.so")] {
        let mut command = process::Command::new(compiler);
        // Sums of products in any order are right, and faster.
        command.args([
            "-O3",
            "-march=native",
            "-fassociative-math",
            "-fno-signed-zeros",
            "-fno-trapping-math",
            "-fno-math-errno",
        ]);
        command.args(["-shared", "-fPIC", "-w", "-I"]).arg(Path::new(ROOT).join("templates/include"));
        command.arg("-o").arg(folder.path().join(library)).arg(Path::new(ROOT).join("tests/support").join(source));
        assert!(command.status().expect("a compiler").success(), "{source}");
    }
    folder
});

/// `kgen check` of the mock library with this fault.
fn mock(fault: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kgen"));
    command.args(["check", "--device", "gpu", "--head-dim", "16", "--dtype", "bf16", "--kind", "fwd", "--target", "sm80"]);
    command.arg("--library").arg(MOCK.path().join("libkgen.so")).args(args).timeout(Duration::from_secs(300));
    command.env("LD_LIBRARY_PATH", MOCK.path()).env("MOCK_FAULT", fault).env_remove("KGEN_VARIANTS");
    command
}

fn json(command: &mut Command, code: i32) -> Value {
    let output = command.args(["--format", "json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// The failures of 100 calls to the mock with a fault, at least one of which was shrunk.
fn failures(fault: &str) -> Vec<Value> {
    let report = json(&mut mock(fault, &["--fuzz", "100", "-j", "2"]), 1);
    assert_eq!(report["ended"], "done", "{report}");
    assert_eq!(report["rows"][0]["calls"], 100, "{report}");
    report["failures"].as_array().expect("an array").clone()
}

/// The smallest call that the failures were shrunk to, and its failure. Calls with the least work are shrunk first,
/// within the time limit.
fn smallest(failures: &[Value]) -> (String, String) {
    let text = |failure: &Value, key: &str| failure[key].as_str().map(str::to_owned);
    let shrunk = failures.iter().filter_map(|failure| Some((text(failure, "shrunk")?, text(failure, "message")?)));
    shrunk.min_by_key(|(case, _)| case.len()).expect("one is shrunk")
}

#[test]
fn a_right_library_passes_and_the_same_seed_makes_the_same_calls() {
    let report = |args: &[&str]| json(&mut mock("", args), 0);
    let first = report(&["--fuzz", "100", "--seed", "5", "-j", "2"]);
    assert_eq!((&first["rows"][0]["calls"], &first["rows"][0]["passed"]), (&100.into(), &100.into()));
    assert_eq!((&first["rows"][0]["kind"], &first["rows"][0]["dtype"]), (&"fwd".into(), &"bf16".into()));
    let alone = report(&["--fuzz", "100", "--seed", "5", "-j", "1"]);
    assert_eq!(first["rows"][0]["worst"], alone["rows"][0]["worst"], "whoever makes a call");
    assert_ne!(first["rows"][0]["worst"], report(&["--fuzz", "100", "--seed", "6"])["rows"][0]["worst"]);
    let case = first["rows"][0]["worst"]["case"].as_str().expect("a name");
    let again = report(&["--fuzz-case", case]);
    assert_eq!(again["rows"][0]["worst"], first["rows"][0]["worst"], "by its name alone");
}

#[test]
fn a_worker_that_dies_does_not_stop_the_run_and_its_call_is_known_and_shrunk() {
    let failures = failures("die");
    assert!(failures.len() > 3 && failures.len() < 100);
    let (case, message) = smallest(&failures);
    assert!(case.contains(" b2 h3/") && case.contains(" bshd normal "), "{case}");
    assert!(message.contains("died of SIG"), "{message}");
    let command = format!("kgen check --device gpu --fuzz-case '{case}'");
    mock("die", &["--fuzz", "100"]).assert().code(1).stdout(contains(command).and(contains("were replaced")));
    mock("die", &["--fuzz-case", &case]).assert().code(1).stderr(contains("1 of 1 call failed"));
    mock("", &["--fuzz-case", &case]).assert().success();
}

#[test]
fn a_call_that_hangs_is_ended_at_its_limit_and_the_others_are_made() {
    let cases = ["b2 h3/3 sq4 sk4", "b1 h3/3 sq4 sk4"].map(|shape| format!("fwd hdim16 bf16 {shape} full"));
    let args = ["--time-limit", "1", "--fuzz-case", &cases[0], "--fuzz-case", &cases[1]];
    let report = json(&mut mock("hang", &args), 1);
    assert_eq!(report["rows"][0]["passed"], 1);
    assert!(report["failures"][0]["message"].as_str().expect("text").contains("no result within 1 s"));
}

#[test]
fn a_key_missed_at_a_tiles_border_is_found_and_shrunk_to_the_border() {
    let (case, message) = smallest(&failures("border"));
    assert!(case.contains(" b1 h1/1 sq1 sk65 "), "{case}");
    assert!(message.contains("elements are wrong"), "{message}");
}

#[test]
fn memory_written_beside_outputs_or_in_inputs_and_unequal_bits_are_found() {
    for (fault, said) in [
        ("beyond", "memory that is no part of it was written"),
        ("input", "wrote to its input `q`"),
        ("race", "gave other bits in `o`"),
    ] {
        let failures = failures(fault);
        let message = smallest(&failures).1;
        assert!(message.contains(said), "{fault}: {message}");
    }
}

#[test]
fn a_refusal_that_nothing_documents_is_a_failure() {
    let (case, message) = smallest(&failures("refuse"));
    assert!(case.contains("cu_seqlens_q+seqused_k") && message.contains("KGEN_ERROR_UNSUPPORTED"), "{case}: {message}");
}

#[test]
fn a_run_ends_when_its_time_is_up_and_its_results_count() {
    let report = json(&mut mock("", &["--fuzz", "100000000", "--seconds", "2", "-j", "2"]), 0);
    assert_eq!(report["ended"], "time_up");
    assert!(report["rows"][0]["calls"].as_u64().expect("a number") > 0);
}

#[test]
fn what_cannot_be_called_is_bad_usage() {
    mock("", &["--fuzz-case", "fwd hdim16"]).assert().code(2).stderr(contains("a dtype"));
    mock("", &["--fuzz-case", "fwd hdim16 fp16 b1 h1/1 sq1 sk1 full"])
        .assert()
        .code(2)
        .stderr(contains("no kernel that is selected"));
    mock("", &["--fuzz", "3", "--thorough"]).assert().code(2);
    mock("", &["--seconds", "3"]).assert().code(2);
    mock("", &["--fuzz", "0"]).assert().code(2);
}

/// `kgen check` on the emulator, which is kept between runs of the tests.
fn emulated(args: &[&str]) -> Command {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-cache");
    lend_emulator(&cache);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kgen"));
    command.env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES").env("XDG_CACHE_HOME", cache);
    command.args(["check", "--device", "emulator"]).args(args).timeout(Duration::from_secs(600));
    command
}

#[test]
fn kernels_as_they_are_pass_on_every_device_they_are_made_for() {
    let shape = ["--head-dim", "64", "--dtype", "bf16,fp8", "--causal", "--filter", "target in (sm80, sm90) or dtype == fp8"];
    let report = json(&mut emulated(&[&shape[..], &["--fuzz", "100"]].concat()), 0);
    let rows = report["rows"].as_array().expect("an array");
    let made = |kind: &str, dtype: &str| rows.iter().any(|row| row["kind"] == kind && row["dtype"] == dtype);
    for (kind, dtype) in [("fwd", "bf16"), ("fwd", "fp8"), ("fwd_split", "bf16"), ("bwd", "bf16")] {
        assert!(made(kind, dtype), "{kind} {dtype}: {report}");
    }
}

#[test]
fn other_families_are_called_too_and_a_rotation_the_wrong_way_round_is_found_and_shrunk() {
    let kind = ["--kind", "append_kv", "--target", "sm80", "--dtype", "bf16"];
    let report = json(&mut emulated(&[&kind[..], &["--fuzz", "150"]].concat()), 0);
    assert_eq!((&report["rows"][0]["kind"], &report["rows"][0]["passed"]), (&"append_kv".into(), &150.into()));
    // The grid's defaults for attention and another family.
    let both = ["--filter", "kind == append_kv or plain and kind == fwd and hdim == 64", "--dtype", "fp16", "--target", "sm80"];
    let report = json(&mut emulated(&[&both[..], &["--fuzz", "60"]].concat()), 0);
    let kinds: Vec<&str> = report["rows"].as_array().expect("rows").iter().filter_map(|row| row["kind"].as_str()).collect();
    assert!(kinds.contains(&"append_kv") && kinds.contains(&"fwd"), "{kinds:?}");

    let folder = tempfile::tempdir().expect("a folder");
    let templates = folder.path().join("templates");
    copy_folder(&Path::new(ROOT).join("templates"), &templates);
    let kernel = templates.join("include/kgen/row_shares.cuh");
    let text = std::fs::read_to_string(&kernel).expect("the template is there");
    let broken = text.replacen("cos, old * sin)", "cos, -(old * sin))", 1);
    assert_ne!(text, broken, "the template no longer holds what this test breaks");
    std::fs::write(&kernel, broken).expect("the copy is writable");
    let kernels = [&["--templates", templates.to_str().expect("a readable path")], &kind[..]].concat();
    let report = json(&mut emulated(&[&kernels[..], &["--fuzz", "60"]].concat()), 1);
    let (case, message) = smallest(report["failures"].as_array().expect("an array"));
    assert!(case.starts_with("append_kv bf16 size1 "), "{case}");
    assert!(message.contains("elements are wrong") && message.contains("it is: h"), "{message}");
    emulated(&[&kernels[..], &["--fuzz-case", &case]].concat()).assert().code(1).stdout(contains(&case));
    emulated(&["--fuzz-case", &case]).assert().success();
    for (text, said) in
        [("append_kv bf16 size0", "must lie in 1"), ("append_kv size3", "a dtype"), ("reduce_sum fp16 size3", "no calls")]
    {
        emulated(&["--fuzz-case", text]).assert().code(2).stderr(contains(said));
    }
}

#[test]
fn a_tail_that_is_not_masked_is_found_and_shrunk() {
    let folder = tempfile::tempdir().expect("a folder");
    let templates = folder.path().join("templates");
    copy_folder(&Path::new(ROOT).join("templates"), &templates);
    let kernel = templates.join("attention/parts/softmax/prepare.tera");
    let text = std::fs::read_to_string(&kernel).expect("the template is there");
    let broken = text.replace("mask(s, {keys.rows - tile * BLOCK_N})", "mask(s, {keys.rows + 1 - tile * BLOCK_N})");
    assert_ne!(text, broken, "the template no longer holds what this test breaks");
    std::fs::write(&kernel, broken).expect("the copy is writable");
    let templates = templates.to_str().expect("a readable path");
    let kernels = ["--templates", templates, "--kind", "fwd", "--target", "sm80"];
    let shape = ["--head-dim", "64", "--dtype", "bf16", "--full", "--fuzz", "120"];
    let report = json(&mut emulated(&[&kernels[..], &shape].concat()), 1);
    let (case, message) = smallest(report["failures"].as_array().expect("an array"));
    assert!(case.contains(" b1 h1/1 ") && case.len() < 120, "{case}");
    assert!(message.contains("elements are wrong"), "{message}");
    let again = ["--fuzz-case", &case];
    emulated(&[&kernels[..], &again].concat()).assert().code(1).stdout(contains(&case));
    emulated(&[&kernels[2..], &again].concat()).assert().success();
}
