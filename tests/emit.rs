//! `kgen emit`: the lines it writes are those that `kgen build` runs, and they build the same library.

use crate::support::bench::{Bench, ONE, OTHER, make_executable, support};
use predicates::{prelude::PredicateBooleanExt, str::contains};
use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

/// A bench whose nvcc records its arguments, a line each call, and goes on as the mock.
fn recording() -> (Bench, PathBuf) {
    let bench = Bench::new();
    let nvcc = bench.path("nvcc");
    let (log, mock) = (bench.path("words.log"), support("mock_nvcc.sh"));
    let script = format!(
        "#!/bin/sh\nwords=$(printf '<%s>' \"$@\")\necho \"$words\" >>'{}'\nexec '{}' \"$@\"\n",
        log.display(),
        mock.display()
    );
    fs::write(&nvcc, script).expect("written");
    make_executable(&nvcc);
    (bench, nvcc)
}

/// The recorded lines that compile and link, without the places of sources and results.
fn lines(bench: &Bench) -> BTreeSet<Vec<String>> {
    let log = bench.path("words.log");
    let text = fs::read_to_string(&log).unwrap_or_default();
    fs::remove_file(log).ok();
    let words = |line: &str| -> Vec<String> {
        let words: Vec<&str> = line.trim_matches(['<', '>']).split("><").collect();
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let place = |at: usize, word: &str| match at.checked_sub(1).map(|before| words[before]) {
            Some("-c") => name(word),
            Some("-o") => "RESULT".to_owned(),
            Some("-L") => "CUDART".to_owned(),
            _ => word.to_owned(),
        };
        words.iter().enumerate().map(|(at, word)| place(at, word)).collect()
    };
    text.lines().filter(|line| !line.contains("<--version>")).map(words).collect()
}

#[test]
fn make_runs_the_lines_of_a_build_and_makes_its_library() {
    if Command::new("make").arg("--version").output().is_err() {
        eprintln!("skipped: there is no make");
        return;
    }
    let (bench, nvcc) = recording();
    let nvcc = nvcc.to_str().expect("a path");
    bench.kgen(&["build", ONE, OTHER, "--launcher", "env", "--nvcc", nvcc]).assert().success();
    let built = lines(&bench);
    assert_eq!(built.len(), 4, "two kernels, the dispatcher and the link: {built:?}");
    let said = contains("emitted/Makefile: 2 kernels");
    bench.kgen(&["emit", "make", ONE, OTHER, "--launcher", "env", "--nvcc", nvcc]).assert().success().stdout(said);
    assert!(lines(&bench).is_empty(), "nothing is compiled");
    let make = || {
        let mut make = Command::new("make");
        make.args(["-C", "emitted", "-j2"]).current_dir(bench.dir.path()).envs(bench.environment());
        let done = make.output().expect("it starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    make();
    assert_eq!(lines(&bench), built);
    make();
    assert!(lines(&bench).is_empty(), "everything is up to date");
    assert!(bench.path("emitted/lib/libkgen.so").is_file());
    let header = bench.path("emitted/include/kgen.h");
    fs::write(&header, fs::read(&header).expect("readable")).expect("written");
    make();
    assert_eq!(lines(&bench), built, "a header is newer");
}

/// A parsed `build` statement: outputs, rule, inputs with those after `|`, variables.
struct Statement {
    output: String,
    rule: String,
    inputs: Vec<String>,
    line: String,
}

/// A reader of the part of ninja's language that kgen writes; any other text panics.
fn parse_ninja(text: &str) -> Vec<Statement> {
    let joined = text.replace("$\n", " ");
    let mut statements: Vec<Statement> = Vec::new();
    for line in joined.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(rest) = line.strip_prefix("build ") {
            let (output, rest) = rest.split_once(": ").expect("a colon");
            let mut words = rest.split_whitespace().map(str::to_owned);
            let rule = words.next().expect("a rule");
            statements.push(Statement { output: output.to_owned(), rule, inputs: words.collect(), line: String::new() });
        } else if let Some(value) = line.strip_prefix("  line = ") {
            statements.last_mut().expect("a statement").line = value.replace("$$", "\u{1}").replace('\u{1}', "$");
        } else {
            let known = [
                "ninja_required_version = ",
                "launcher = ",
                "rule compile",
                "rule link",
                "  command = ",
                "  description = ",
                "default ",
            ];
            assert!(known.iter().any(|start| line.starts_with(start)), "`{line}`");
        }
    }
    statements
}

#[test]
fn ninja_gets_the_same_lines_as_make() {
    let bench = Bench::new();
    bench.kgen(&["emit", "make", ONE, OTHER, "--output", "m"]).assert().success();
    bench.kgen(&["emit", "ninja", ONE, OTHER, "--output", "n", "--launcher", "not-here --fast"]).assert().success();
    let make = fs::read_to_string(bench.path("m/Makefile")).expect("written");
    let ninja = fs::read_to_string(bench.path("n/build.ninja")).expect("written");
    assert!(ninja.contains("\nlauncher = not-here --fast\n"), "{ninja}");
    let statements = parse_ninja(&ninja);
    let outputs: Vec<&str> = statements.iter().map(|statement| statement.output.as_str()).collect();
    let object = |name: &str| format!("obj/{name}.o");
    assert_eq!(outputs, ["headers", &object(OTHER), &object(ONE), "obj/kgen_dispatch.o", "lib/libkgen.so"].map(String::from));
    for statement in &statements[1..4] {
        assert_eq!(statement.rule, "compile");
        assert!(make.contains(&format!("\t$(LAUNCHER) {}\n", statement.line)), "{}", statement.line);
    }
    for (statement, inputs) in statements.iter().zip(0..) {
        let exists = |input: &String| bench.path("n").join(input).is_file() || outputs.contains(&input.as_str()) || input == "|";
        assert!(statement.inputs.iter().all(exists), "statement {inputs}: {:?}", statement.inputs);
    }
    let link = &statements[4];
    assert_eq!(
        (link.rule.as_str(), &link.inputs[..3]),
        ("link", [object(OTHER), object(ONE), object("kgen_dispatch")].as_slice())
    );
    assert!(ninja.contains("\nrule link\n  command = $launcher $line $in\n"), "the objects come last");
    assert!(make.contains(&format!("\t$(LAUNCHER) {} $(OBJECTS)\n", link.line)), "{}", link.line);
    assert!(bench.path("n/exports.map").is_file());
}

#[test]
fn a_compilation_database_has_the_entries_of_a_build_and_no_launcher() {
    let bench = Bench::new();
    bench.kgen(&["build", ONE]).assert().success();
    bench.kgen(&["emit", "compile-commands", ONE]).assert().success();
    let entries = |path: &str| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(bench.path(path)).expect("written");
        let text = text.replace("/emitted/obj/", "/build/obj/").replace("/emitted", "/generated");
        serde_json::from_str(&text).expect("JSON")
    };
    let emitted = entries("emitted/compile_commands.json");
    assert_eq!(emitted[..1], entries("build/compile_commands.json"));
    assert_eq!(emitted.len(), 2, "the dispatcher is compiled too");
    let refused = bench.kgen(&["emit", "compile-commands", ONE, "--launcher", "env"]).assert().code(2);
    refused.stderr(contains("names compilers").and(contains("`--launcher`")));
}

#[test]
fn the_folder_is_exactly_the_selection_and_no_file_of_a_user_is_replaced() {
    let bench = Bench::new();
    bench.kgen(&["emit", "make", ONE, OTHER]).assert().success();
    bench.kgen(&["emit", "make", ONE, OTHER]).assert().success().stdout(contains("0 files written"));
    bench.kgen(&["emit", "ninja", ONE]).assert().success();
    let exists = |file: &str| bench.path("emitted").join(file).exists();
    assert!(exists("build.ninja") && !exists("Makefile") && exists(&format!("{ONE}.cu")) && !exists(&format!("{OTHER}.cu")));
    fs::create_dir(bench.path("mine")).expect("made");
    fs::write(bench.path("mine/Makefile"), "all:\n").expect("written");
    bench.kgen(&["emit", "make", ONE, "--output", "mine"]).assert().code(2).stderr(contains("Makefile"));
    assert_eq!(fs::read_to_string(bench.path("mine/Makefile")).expect("readable"), "all:\n");
    bench.kgen(&["emit", "make", ONE, "--output", "a$b"]).assert().code(3).stderr(contains("`$`").and(contains("`--output`")));
}
