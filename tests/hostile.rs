//! Unlucky and hostile environments: pipes instead of files, names that are not UTF-8, control characters, signals.

use assert_cmd::Command;
use kgen::grid::Grid;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A grid with terminal escapes: the reason for excluding everything would rename the window, and the name of a set
/// would clear the screen.
const HOSTILE_GRID: &str = r#"version = 1
[targets.sm80]
description = "Ampere"
[[family]]
kind = ["fwd"]
head_dim = [64, 128]
dtype = ["bf16"]
mask = ["full"]
target = ["sm80"]
[[exclude]]
when = "hdim == 64"
reason = "\u001b]0;owned\u0007 and \u009b2J"
[sets."\u001b[2J"]
description = "clears the screen"
filter = "full"
"#;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// kgen in a folder, with a separate cache and isolated from this machine.
fn kgen(place: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    for name in ["CUDA_HOME", "CXX", "HOST_CXX", "NVCC_CCBIN", "KGEN_NVCC", "KGEN_VARIANTS", "KGEN_TEMPLATES"] {
        command.env_remove(name);
    }
    command.env("XDG_CACHE_HOME", place.join("cache")).env("CUDA_VISIBLE_DEVICES", "").current_dir(place);
    command.timeout(Duration::from_secs(120));
    command
}

fn script(place: &Path, name: &str, text: &str) -> PathBuf {
    let path = place.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
    path
}

fn pipe(path: &Path) {
    fs::create_dir_all(path.parent().expect("it has a folder")).expect("made");
    assert!(process::Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// Parses standard output as a single JSON document.
fn document(output: &process::Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
}

#[test]
fn a_pipe_in_place_of_a_file_is_refused_and_not_waited_for() {
    let place = folder();
    pipe(&place.path().join("grid.toml"));
    kgen(place.path()).args(["--variants", "grid.toml", "list"]).assert().code(2).stderr(contains("it is a pipe, and no file"));

    pipe(&place.path().join("templates/attention/a.tera"));
    for needed in ["include/kgen.h", "bindings/kgen_dispatch.cpp.tera"] {
        let path = place.path().join("templates").join(needed);
        fs::create_dir_all(path.parent().expect("it has a folder")).expect("made");
        fs::write(path, "").expect("written");
    }
    let generate = ["generate", "--head-dim", "64", "--dtype", "bf16", "--target", "sm80", "--kind", "fwd"];
    let refused = kgen(place.path()).args(["--templates", "templates"]).args(generate).assert().code(2);
    refused.stderr(contains("a.tera").and(contains("it is a pipe, and no file")));

    pipe(&place.path().join("out/include/kgen.h"));
    kgen(place.path()).args(generate).args(["--output", "out"]).assert().code(2).stderr(contains("kgen.h"));
    kgen(place.path()).args(generate).args(["--output", "out", "--check"]).assert().code(predicates::ord::gt(0));
}

#[test]
fn a_name_that_is_no_text_is_shown_in_json_after_the_work() {
    let place = folder();
    let output = OsStr::from_bytes(b"out-\xff");
    let args = ["generate", "--head-dim", "64", "--dtype", "bf16", "--target", "sm80", "--kind", "fwd", "--format", "json"];
    for check in [None, Some("--check")] {
        let done = kgen(place.path()).args(args).args(check).arg("--output").arg(output).assert().success();
        assert_eq!(document(done.get_output())["output"], "out-\u{fffd}");
    }
    assert!(place.path().join(output).join("manifest.json").is_file());
}

#[test]
fn of_twenty_thousand_tiles_each_knows_its_line() {
    let tile = |n| format!("[[tile]]\nwhen = 'hdim == {}'\nmeasured = 'run {n}'\nn = 64\n", 64 + n % 2 * 64);
    let tiles = (1..=20_000).map(tile).collect::<Vec<_>>().concat();
    let grid = format!("{}{tiles}", HOSTILE_GRID.split("[[exclude]]").next().expect("the beginning"));
    let grid = Grid::parse(&grid, "many.toml").unwrap_or_else(|error| panic!("{error}"));
    let places: Vec<Option<String>> = grid.variants().iter().map(|variant| grid.tile_place(variant)).collect();
    // Nine lines precede the tiles of four lines each; `when` is the second line, and the last two tiles are in effect.
    assert_eq!(places, [80_000 + 9 - 2, 80_000 + 9 - 6].map(|line| Some(format!("many.toml:{line}"))));
}

#[test]
fn control_characters_of_a_grid_do_not_reach_the_terminal() {
    let place = folder();
    fs::write(place.path().join("grid.toml"), HOSTILE_GRID).expect("written");
    for (args, expected) in
        [(&["list", "--head-dim", "64"][..], "\\u{1b}]0;owned\\u{7} and \\u{9b}2J"), (&["list", "--set", "x"], "\\u{1b}[2J")]
    {
        let refused = kgen(place.path()).args(["--variants", "grid.toml"]).args(args).assert().code(2);
        let said = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
    }
}

#[test]
fn control_characters_of_a_compiler_do_not_reach_the_terminal() {
    let place = folder();
    let mock = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/mock_nvcc.sh");
    let fails = format!(
        "[ \"$1\" != --version ] || exec {} --version\nprintf 'x.cu(1): error: \\033]0;owned\\007\\n'; exit 2",
        mock.display()
    );
    let nvcc = script(place.path(), "nvcc", &fails);
    let mut build = kgen(place.path());
    build.args(["build", "--head-dim", "64", "--dtype", "bf16", "--target", "sm80", "--kind", "fwd", "--offline"]).arg("--nvcc");
    let failed = build.arg(nvcc).assert().code(1);
    for text in [&failed.get_output().stdout, &failed.get_output().stderr] {
        let said = String::from_utf8_lossy(text).into_owned();
        assert!(said.contains("error: ") && said.contains("]0;owned") && !said.contains(['\u{1b}', '\u{7}']), "{said:?}");
    }
}

#[test]
fn whoever_asks_for_json_gets_one_document_whatever_goes_wrong() {
    let place = folder();
    fs::create_dir(place.path().join("empty")).expect("made");
    let error = |code: i32, kind: &str, words: &str, args: &[&str]| {
        let done = kgen(place.path()).env("PATH", place.path().join("empty")).args(args).assert().code(code);
        let document = document(done.get_output());
        let error = &document["error"];
        assert_eq!((error["exit_code"].as_i64(), error["kind"].as_str()), (Some(code.into()), Some(kind)), "{document}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(words)), "{document}");
    };
    error(2, "usage", "unexpected argument '--no-such'", &["list", "--no-such", "--format", "json"]);
    error(2, "usage", "unknown field", &["--format=json", "list", "--filter", "nothing == 1"]);
    error(2, "usage", "cannot read the grid", &["--format", "json", "--variants", "none.toml", "list"]);
    error(3, "environment", "no GPU", &["check", "--device", "gpu", "--format", "json"]);
    error(3, "environment", "", &["build", "--offline", "--format", "json"]);

    // A failing command that has printed its own JSON result prints no error document in addition.
    let doctor = kgen(place.path()).env("PATH", place.path().join("empty")).args(["doctor", "--format", "json"]).assert().code(3);
    assert!(document(doctor.get_output()).is_array());
    // Without the flag no document is printed.
    let human = kgen(place.path()).args(["list", "--no-such"]).assert().code(2);
    assert!(human.get_output().stdout.is_empty());
}

#[test]
fn an_interruption_ends_the_emulators_compilers_and_the_next_run_clears_what_a_kill_leaves() {
    let place = folder();
    let hangs = script(
        place.path(),
        "cxx",
        "case $1 in --version) echo 'mock 1.0'; exit 0;; -*) [ $# -gt 2 ] || exit 0;; esac\necho >>\"$XDG_CACHE_HOME/../started\"; exec sleep 600",
    );
    let fails = script(place.path(), "failing", "[ \"$1\" != --version ] || { echo 'mock 1.0'; exit 0; }\nexit 1");
    let unfinished = || {
        let left = fs::read_dir(place.path().join("cache/kgen/emulator")).into_iter().flatten().flatten();
        left.filter(|entry| entry.file_name().as_bytes().starts_with(b".new-")).count()
    };
    for (signal, code) in [("INT", Some(130)), ("KILL", None)] {
        let mut check = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        check.args(["check", "--device", "emulator", "--head-dim", "64", "--dtype", "bf16", "--target", "sm80", "--kind", "fwd"]);
        check.env("XDG_CACHE_HOME", place.path().join("cache")).env("CXX", &hangs).current_dir(place.path());
        check.env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES").stdout(process::Stdio::null());
        let mut child = check.stderr(process::Stdio::null()).spawn().expect("it starts");
        let until = Instant::now() + Duration::from_secs(100);
        let started = place.path().join("started");
        while !started.exists() {
            assert!(Instant::now() < until && child.try_wait().expect("a child").is_none(), "no compiler was started");
            thread::sleep(Duration::from_millis(5));
        }
        fs::remove_file(&started).expect("removed");
        let sent = process::Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status();
        assert!(sent.is_ok_and(|sent| sent.success()));
        // The compiler would take ten minutes.
        while child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < until, "it waits for its compiler");
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(child.wait().expect("a child").code(), code);
        assert_eq!(unfinished(), usize::from(signal == "KILL"));
    }
    let mut check = kgen(place.path());
    check.args(["check", "--device", "emulator", "--head-dim", "64", "--dtype", "bf16", "--target", "sm80", "--kind", "fwd"]);
    check.env("CXX", fails).assert().code(3);
    assert_eq!(unfinished(), 0, "what was killed is still there");
}
