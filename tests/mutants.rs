//! `scripts/mutate.py`, which measures what `kgen check` notices, tells a mutant that is noticed from one that is known
//! to change nothing.

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

/// Runs one mutant at smoke level, with a list of equivalent ones; gives the report, and what was said besides.
fn tried(mutant: [&str; 3], listed: &Path) -> (Value, String) {
    // Kept between runs of the tests: what is in it is found by its content.
    let work =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{}", listed.file_stem().expect("a file").display()));
    let [work, listed] = [work.as_path(), listed].map(|path| path.to_str().expect("a path in UTF-8"));
    let mut arguments =
        vec!["scripts/mutate.py", "--kgen", env!("CARGO_BIN_EXE_kgen"), "--jobs", "1", "--level", "smoke", "--format", "json"];
    arguments.extend(["--work", work, "--equivalent", listed, "--try"]);
    arguments.extend(mutant);
    let done = python(&arguments);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    (serde_json::from_slice(&done.stdout).expect("a JSON document"), said)
}

#[test]
fn a_mutant_that_waits_for_one_copy_too_few_is_killed_at_smoke_level() {
    let listed = root().join("tests/emulator/equivalent_mutants.toml");
    let (report, said) = tried(["attention/fwd_sm80.cu.tera", "cp_async_wait<1>();", "cp_async_wait<2>();"], &listed);
    assert_eq!(report["files"]["all"]["smoke"], 1, "{report:#}");
    assert_eq!(said, "", "every entry of the list is about a line that is there");
}

#[test]
fn a_listed_mutant_is_left_out_and_an_entry_whose_line_is_gone_is_refused() {
    let listed = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("listed.toml");
    let own = std::fs::read_to_string(root().join("tests/emulator/equivalent_mutants.toml")).expect("the list is there");
    let gone =
        "[[mutant]]\nid = \"0f9e4b763210\"\nfile = \"attention/fwd_sm80.cu.tera\"\nbefore = \"no such line\"\nafter = \"*\"\n";
    std::fs::write(&listed, format!("{own}\n{gone}reason = \"none\"\n")).expect("it can be written");
    let mutant =
        ["attention/parts/range/from_start.tera", "max(0, min(keys.rows, diagonal))", "min(0, min(keys.rows, diagonal))"];
    let (report, said) = tried(mutant, &listed);
    assert_eq!((&report["files"]["all"]["mutants"], &report["left_out"]["equivalent"]), (&0.into(), &1.into()), "{report:#}");
    assert!(said.contains("the line of `0f9e4b763210` is no longer in `attention/fwd_sm80.cu.tera`: refused"), "{said}");
}

#[test]
fn every_kind_of_mutation_changes_what_it_says_and_nothing_else() {
    let done = python(&["-m", "unittest", "-q", "scripts/mutations_test.py"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
