//! The files beside a kernel of `kgen generate --output x.cu`: the test compiles by its own compile line and runs on
//! the emulator, passes, and fails if the kernel is wrong.

use assert_cmd::Command;
use predicates::str::contains;
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{self, Output},
};
use tempfile::TempDir;

const NAME: &str = "flash_fwd_hdim64_fp16_causal_sm80";

fn kgen(folder: &Path, line: &str) -> assert_cmd::assert::Assert {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.current_dir(folder).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES");
    command.args(line.split_whitespace()).assert()
}

/// A folder with a kernel in `my.cu`.
fn generated(name: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    kgen(folder.path(), &format!("generate {name} --output my.cu")).success();
    folder
}

/// Runs a line in a shell.
fn shell(folder: &Path, line: &str) -> Output {
    process::Command::new("sh").args(["-c", line]).current_dir(folder).output().expect("a shell")
}

/// Compiles the test for the emulator by the line in its head, and runs it.
fn tested(folder: &Path) -> Output {
    let text = fs::read_to_string(folder.join("my_test.cpp")).expect("a test");
    let line = text.lines().find_map(|line| line.trim_start_matches([' ', '*']).strip_prefix("g++ ")).expect("its compile line");
    let compiled = shell(folder, &format!("c++ {line}"));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    shell(folder, "./my_test")
}

/// Replaces a text of the kernel.
fn edit(folder: &Path, find: &str, replace: &str) {
    let text = fs::read_to_string(folder.join("my.cu")).expect("a kernel");
    assert!(text.contains(find), "{find}");
    fs::write(folder.join("my.cu"), text.replacen(find, replace, 1)).expect("written");
}

/// The test of the kernel passes, and fails after each edit by itself.
fn passes_and_finds(name: &str, bugs: &[(&str, &str)]) {
    let folder = generated(name);
    let passed = tested(folder.path());
    let said = String::from_utf8_lossy(&passed.stdout).into_owned();
    assert!(passed.status.success() && said.ends_with(&format!("{name}: 0 of 6 cases failed\n")), "{said}");
    assert!(said.contains("unequal lengths, packed") && said.contains("tails"), "{said}");
    let kernel = fs::read(folder.path().join("my.cu")).expect("a kernel");
    for (find, replace) in bugs {
        edit(folder.path(), find, replace);
        let failed = tested(folder.path());
        let said = String::from_utf8_lossy(&failed.stdout);
        assert!(failed.status.code() == Some(1) && said.contains("FAIL"), "`{find}`, `{replace}`: {said}");
        fs::write(folder.path().join("my.cu"), &kernel).expect("written");
    }
}

#[test]
fn forward_for_ampere() {
    let bugs = [
        ("LN_2 = 0.69314", "LN_2 = 0.69414"),
        ("diagonal + warp_row", "diagonal + 1 + warp_row"),
        ("head / (p.num_heads / p.num_heads_k)", "head % p.num_heads_k"),
        ("p.softmax_scale * LOG2_E", "0.125f * LOG2_E"),
    ];
    passes_and_finds(NAME, &bugs);
}

#[test]
fn forward_for_hopper() {
    passes_and_finds("flash_fwd_hdim64_bf16_sm90", &[("LN_2 = 0.69314", "LN_2 = 0.69414"), ("LOG2_E = 1.4", "LOG2_E = 1.3")]);
}

#[test]
fn forward_with_all_masks_and_scores() {
    passes_and_finds("flash_fwd_hdim64_bf16_window_softcap_alibi_sinks_sm80", &[("LN_2 = 0.69314", "LN_2 = 0.69914")]);
}

#[test]
fn forward_with_pages() {
    passes_and_finds("flash_fwd_hdim64_bf16_causal_paged_sm90", &[("LN_2 = 0.69314", "LN_2 = 0.69414")]);
}

#[test]
fn short_forward() {
    passes_and_finds("flash_fwd_short_hdim64_bf16_causal_sm90", &[("LN_2 = 0.69314", "LN_2 = 0.69414")]);
}

#[test]
fn split() {
    passes_and_finds("flash_fwd_split_hdim64_bf16_causal_sm80", &[("LN_2 = 0.69314", "LN_2 = 0.69414")]);
    passes_and_finds("flash_fwd_split_hdim128_bf16_causal_paged_sm80", &[]);
}

#[test]
fn backward() {
    let bugs = [
        ("LOG2_E = 1.4", "LOG2_E = 1.3"),
        ("block / n_blocks % p.num_heads_k", "0 * p.num_heads_k"),
        ("load_global(at) * p.softmax_scale", "load_global(at) * 0.125f"),
    ];
    passes_and_finds("flash_bwd_hdim64_bf16_causal_sm80", &bugs);
    passes_and_finds("flash_bwd_hdim64_bf16_window_softcap_alibi_sinks_sm80", &[]);
}

#[test]
fn predictions_and_the_explanation_are_those_of_the_commands() {
    let folder = generated(NAME);
    let read = |file: &str| fs::read_to_string(folder.path().join(file)).expect("readable");
    let prediction: Value = serde_json::from_str(&read("my.prediction.json")).expect("JSON");
    let calls = prediction["calls"].as_array().expect("a list");
    assert!(calls.iter().all(|call| call["name"] == NAME) && calls.iter().any(|call| call["gpu"] == "a100"), "{calls:?}");
    assert!(!calls.iter().any(|call| call["gpu"] == "h100"), "its machine code does not run there");
    let printed = kgen(folder.path(), &format!("predict {NAME} --gpu a100 --format json")).success();
    let printed: Value = serde_json::from_slice(&printed.get_output().stdout).expect("JSON");
    let of_card: Vec<&Value> = calls.iter().filter(|call| call["gpu"] == "a100").collect();
    assert_eq!(of_card, printed["calls"].as_array().expect("a list").iter().collect::<Vec<_>>());
    let page = read("my.md");
    assert!(page.starts_with(&format!("# {NAME}\n")) && page.contains("## Why this tile"), "{page}");
    assert!(page.contains("## Optimisations") && page.contains("K-012"), "{page}");
}

#[test]
fn a_kernel_without_a_test_has_a_note_that_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, why) in [
        ("flash_fwd_combine_sm80", "kernels of the kind `fwd_combine`"),
        ("flash_fwd_hdim64_fp8_sm89", "kernels for `fp8`"),
        ("flash_bwd_hdim64_bf16_causal_dropout_sm80", "kernels with `dropout`"),
        ("rmsnorm_bf16_sm80", "kernels of the kind `rmsnorm`"),
    ] {
        let done = kgen(folder.path(), &format!("generate {name} --output {name}.cu")).success();
        done.stderr(contains(format!("no `{name}_test.cpp` of `{name}`: {why} have no test of their own")));
        assert!(!folder.path().join(format!("{name}_test.cpp")).exists());
        assert!(folder.path().join(format!("{name}.md")).exists());
    }
    assert!(!folder.path().join("flash_fwd_combine_sm80.prediction.json").exists());
    assert!(folder.path().join("rmsnorm_bf16_sm80.prediction.json").exists());
}

#[test]
fn companions_are_left_out_compared_and_never_overwritten_if_they_are_not_kgens() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = format!("generate {NAME} --output my.cu");
    kgen(folder.path(), &format!("{line} --no-companions")).success();
    for absent in ["my.md", "my_test.cpp", "my.prediction.json", "emulator"] {
        assert!(!folder.path().join(absent).exists(), "{absent}");
    }
    kgen(folder.path(), &format!("{line} --no-companions --check")).success();
    kgen(folder.path(), &format!("{line} --check")).code(1).stdout(contains("`my_test.cpp` is missing"));
    for file in ["my_test.cpp", "my.md", "my.prediction.json"] {
        fs::write(folder.path().join(file), "mine\n").expect("written");
        kgen(folder.path(), &line).code(2).stderr(contains(format!("`{file}`")));
        assert_eq!(fs::read(folder.path().join(file)).expect("readable"), b"mine\n");
        fs::remove_file(folder.path().join(file)).expect("removed");
    }
    kgen(folder.path(), &line).success();
    kgen(folder.path(), &format!("{line} --check")).success();
    kgen(folder.path(), &line).success().stdout(contains("0 files written"));
    let test = folder.path().join("my_test.cpp");
    let edited = fs::read_to_string(&test).expect("a test") + "// mine\n";
    fs::write(&test, &edited).expect("written");
    kgen(folder.path(), &line).success();
    assert_eq!(fs::read_to_string(folder.path().join("my_test.cpp.edited")).expect("a copy"), edited);
    // Another kernel in the file replaces them, and none is taken for edited.
    kgen(folder.path(), "generate flash_fwd_hdim64_fp16_sm80 --output my.cu").success();
    assert!(!folder.path().join("my.md.edited").exists() && !folder.path().join("my_test.cpp.edited-2").exists());
    // A kernel that has no test does not keep that of the kernel before.
    kgen(folder.path(), "generate rmsnorm_bf16_sm80 --output my.cu").success();
    assert!(!test.exists() && folder.path().join("my.md").exists());
}
