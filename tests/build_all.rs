//! `kgen build-all` through the binary, with a mock instead of nvcc.

use crate::support::{
    bench::{Bench, make_executable, support, walk},
    emulator::lend_emulator,
};
use predicates::str::contains;
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process, thread,
};

#[test]
fn build_all_checks_what_compiled_and_nothing_else() {
    let bench = Bench::new();
    lend_emulator(&bench.path("cache"));
    let slice = ["build-all", "--kind", "fwd", "--head-dim", "32", "--dtype", "bf16", "--target", "sm80", "--format", "json"];
    let failed = "flash_fwd_hdim32_bf16_causal_sm80";
    let done = bench.kgen(&slice).env("MOCK_NVCC_ERROR", failed).assert().code(1);
    let result: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    assert_eq!(result["build"]["failures"][0]["name"], failed);
    let checked: Vec<_> = result["checks"].as_array().expect("a list").iter().map(|v| &v["name"]).collect();
    assert_eq!(checked, ["flash_fwd_hdim32_bf16_sm80"]);
}

#[test]
fn the_emulator_is_compiled_while_kernels_are() {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
        return; // nothing is compiled in parallel
    }
    let bench = Bench::new();
    // No compilation ends before the emulator is there.
    let waits = "#!/bin/sh\n[ \"$1\" = --version ] || for i in $(seq 2000); do\n\
                 ls \"$XDG_CACHE_HOME\"/kgen/emulator/kit-* >/dev/null 2>&1 && break\nsleep 0.1\n[ $i -lt 2000 ] || exit 1\ndone\n";
    let nvcc = bench.path("nvcc");
    fs::write(&nvcc, format!("{waits}exec {} \"$@\"\n", support("mock_nvcc.sh").display())).expect("written");
    make_executable(&nvcc);
    let one =
        ["build-all", "--kind", "fwd", "--head-dim", "32", "--dtype", "bf16", "--full", "--target", "sm80", "--nvcc", "./nvcc"];
    bench.kgen(&one).args(["--device", "emulator"]).assert().success().stdout(contains("smoke: 1 of 1 passed"));
}

#[test]
fn ctrl_c_during_the_check_says_what_is_kept_and_names_no_kernel_that_was_not_checked() {
    let bench = Bench::new();
    lend_emulator(&bench.path("cache"));
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.envs(bench.environment()).env_remove("CUDA_HOME").current_dir(bench.dir.path());
    command.args(["build-all", "--kind", "fwd", "--head-dim", "16", "--dtype", "bf16", "--target", "sm80"]);
    command.args(["--device", "emulator", "-j", "1"]).stdout(process::Stdio::null()).stderr(process::Stdio::piped());
    let mut kgen = command.spawn().expect("started");
    let mut said = BufReader::new(kgen.stderr.take().expect("a pipe"));
    let mut heard = String::new();
    while !heard.contains(" passed, ") {
        assert!(said.read_line(&mut heard).expect("text") > 0, "it ended before a variant had passed: {heard}");
    }
    process::Command::new("kill").args(["-INT", &kgen.id().to_string()]).status().expect("signalled");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert_eq!(kgen.wait().expect("ended").code(), Some(130), "{rest}");
    let kept =
        "error: interrupted; 2 of 2 kernels compiled and 1 check passed; results are kept; run the same command to resume\n";
    assert_eq!(rest, kept);
}

#[test]
fn an_emulator_that_nothing_needs_is_given_up() {
    let bench = Bench::new();
    bench.kgen(&["build-all", "--head-dim", "7", "--device", "emulator"]).assert().code(2).stderr(contains("7"));
    let mut left = Vec::new();
    walk(&bench.path("cache"), &mut |path| left.extend(path.is_file().then(|| path.to_owned())));
    left.retain(|path| path.extension().is_some_and(|e| e == "o" || e == "cpp"));
    assert!(left.is_empty(), "{left:?}");
}

/// Its keys hold all that a kernel's build and verdict depend on, and kernels run if one is another.
#[test]
fn the_record_of_the_slice_excuses_only_what_has_not_changed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = process::Command::new("python3");
    let done = python.current_dir(root).args(["-m", "unittest", "-q", "scripts/slice_test.py"]).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
