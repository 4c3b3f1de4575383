//! `scripts/mutate.py`, which measures the sensitivity of `kgen check`, distinguishes a caught mutant from a known
//! equivalent one.

use crate::support::emulator::lend_emulator;
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn python(arguments: &[&str]) -> Output {
    Command::new("python3").current_dir(root()).args(arguments).output().expect("python3 starts")
}

const LISTS: &str = "tests/emulator/equivalent_mutants";

/// Runs one mutant at smoke level, with lists of equivalent ones and more arguments.
fn output(mutant: [&str; 3], listed: &Path, more: &[&str]) -> Output {
    // Kept between runs of the tests: entries are keyed by their content.
    let work = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("mutants-{}", listed.file_name().expect("a folder").to_string_lossy()));
    lend_emulator(&work.join("worker-0/cache"));
    let [work, listed] = [work.as_path(), listed].map(|path| path.to_str().expect("a path in UTF-8"));
    let mut arguments =
        vec!["scripts/mutate.py", "--kgen", env!("CARGO_BIN_EXE_kgen"), "--jobs", "1", "--level", "smoke", "--format", "json"];
    arguments.extend(["--work", work, "--equivalent", listed]);
    arguments.extend(more);
    arguments.push("--try");
    arguments.extend(mutant);
    python(&arguments)
}

/// The report of a mutant, and the other output.
fn tried(mutant: [&str; 3], listed: &Path) -> (Value, String) {
    let done = output(mutant, listed, &[]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    (serde_json::from_slice(&done.stdout).expect("a JSON document"), said)
}

#[test]
fn a_mutant_that_waits_for_one_copy_too_few_is_killed_at_smoke_level() {
    let (report, said) =
        tried(["attention/mma/prologue.tera", "cp_async_wait<1>();", "cp_async_wait<2>();"], &root().join(LISTS));
    assert_eq!(report["files"]["all"]["smoke"], 1, "{report:#}");
    assert_eq!(said, "", "every entry of the lists is about a line that is there");
}

#[test]
fn a_listed_mutant_is_left_out_and_an_entry_whose_line_is_gone_is_refused() {
    let listed = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("listed");
    let (theirs, its) = ("attention/parts/key_range/from_start.tera", "attention/fwd_sm80.cu.tera");
    std::fs::create_dir_all(listed.join("attention/parts/key_range")).expect("it can be made");
    let own = std::fs::read_to_string(root().join(LISTS).join(format!("{theirs}.toml"))).expect("the list is there");
    std::fs::write(listed.join(format!("{theirs}.toml")), own).expect("it can be written");
    let gone = "[[mutant]]\nid = \"0f9e4b763210\"\nbefore = \"no such line\"\nafter = \"*\"\nreason = \"none\"\n";
    std::fs::write(listed.join(format!("{its}.toml")), gone).expect("it can be written");
    let mutant = [theirs, "max(0, min(keys.rows, diagonal))", "min(0, min(keys.rows, diagonal))"];
    let (report, said) = tried(mutant, &listed);
    assert_eq!((&report["files"]["all"]["mutants"], &report["left_out"]["equivalent"]), (&0.into(), &1.into()), "{report:#}");
    assert!(said.contains("the line of `0f9e4b763210` is no longer in `attention/fwd_sm80.cu.tera`: refused"), "{said}");
}

#[test]
fn a_kernel_that_fails_without_a_mutant_ends_the_run_with_its_name() {
    let broken = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("broken-templates");
    let _ = std::fs::remove_dir_all(&broken);
    let copied = Command::new("cp").arg("-R").arg(root().join("templates")).arg(&broken).status().expect("cp starts");
    assert!(copied.success());
    let template = broken.join("attention/mma/prologue.tera");
    let text = std::fs::read_to_string(&template).expect("it is there");
    std::fs::write(&template, text.replace("cp_async_wait<1>();", "cp_async_wait<2>();")).expect("it can be written");
    let mutant = ["attention/mma/prologue.tera", "cp_async_wait<2>();", ";"];
    let done = output(mutant, &root().join("none"), &["--templates", broken.to_str().expect("a path in UTF-8")]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("` fails without a mutant: fail: case "), "{said}");
    let report: Value = serde_json::from_slice(&done.stdout).expect("a JSON document");
    assert_eq!((&report["files"]["all"]["mutants"], &report["left_out"]["not run yet"]), (&0.into(), &1.into()), "{report:#}");
}

#[test]
fn every_kind_of_mutation_changes_what_it_says_and_mutants_are_drawn_and_counted_as_documented() {
    let done = python(&["-m", "unittest", "-q", "scripts/mutations_test.py", "scripts/mutate_test.py"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
