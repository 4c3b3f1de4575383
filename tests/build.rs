//! `kgen build` through the binary, with a mock instead of nvcc.

#[path = "build/interrupted.rs"]
mod interrupted;
#[path = "build/machine_code.rs"]
mod machine_code;

use crate::support::{
    bench::{Bench, ONE, OTHER, SLICE, bare_path, make_executable, support, walk},
    copy_folder,
};
use assert_cmd::assert::Assert;
use predicates::{prelude::*, str::contains};
use std::{
    fs, process, thread,
    time::{Duration, Instant},
};

fn starts(log: &[String]) -> usize {
    log.iter().filter(|l| l.starts_with("start ")).count()
}

fn stderr(assert: &Assert) -> String {
    String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
}

/// True if a process is running; false for a zombie.
fn alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_build_leaves_objects_logs_a_library_and_a_report() {
    let bench = Bench::new();
    bench.build(&[]).assert().success().stdout(contains("4 variants: 4 compiled").and(contains("168")));
    for file in [format!("obj/{ONE}.o"), format!("log/{ONE}.log"), "lib/libkgen.so".into()] {
        assert!(bench.path("build").join(&file).is_file(), "`{file}` is missing");
    }
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.path("build/report.json")).expect("a report")).expect("JSON");
    assert_eq!(report["version"], 2);
    assert_eq!(report["artifacts"].as_array().expect("a list").len(), 5, "four kernels and the dispatcher");
    assert_eq!(report["library"]["path"], "lib/libkgen.so");
    assert!(bench.leftovers("").is_empty(), "{:?}", bench.leftovers(""));
}

#[test]
fn a_build_leaves_a_compilation_database_that_keeps_other_sources() {
    let bench = Bench::new();
    let path = bench.path("build/compile_commands.json");
    let entries = || -> Vec<serde_json::Value> { serde_json::from_slice(&fs::read(&path).expect("it is there")).expect("JSON") };
    let sources = || -> Vec<String> {
        let names = entries().into_iter().map(|entry| entry["file"].as_str().expect("a path").to_owned());
        names.map(|path| path.rsplit('/').next().unwrap_or_default().to_owned()).collect()
    };
    let one = ["build", ONE];
    bench.kgen(&one).assert().success();
    assert_eq!(sources(), [format!("{ONE}.cu")], "the dispatcher is no kernel");
    let entry = &entries()[0];
    let text = |key: &str| entry[key].as_str().expect("a text").to_owned();
    assert_eq!(text("file"), bench.path("generated").join(format!("{ONE}.cu")).display().to_string());
    let words: Vec<&str> = entry["arguments"].as_array().expect("a list").iter().filter_map(serde_json::Value::as_str).collect();
    assert_eq!(words[0], support("mock_nvcc.sh").display().to_string());
    for flag in ["-Iinclude", "-gencode=arch=compute_80,", "-Xptxas=-v", "-ccbin=/"] {
        assert!(words.iter().any(|word| word.starts_with(flag)), "no `{flag}` in {words:?}");
    }
    fs::remove_file(text("output")).expect("the object is where it says");
    let mut again = process::Command::new(words[0]);
    let again = again.args(&words[1..]).current_dir(text("directory")).status().expect("it starts");
    assert!(again.success() && fs::metadata(text("output")).is_ok(), "the command compiles the kernel");

    let before = fs::read(&path).expect("readable");
    bench.kgen(&one).assert().success();
    assert_eq!(fs::read(&path).expect("readable"), before);
    bench.kgen(&["build", "--only", "--launcher", "env", OTHER]).assert().success();
    assert_eq!(sources(), [format!("{ONE}.cu"), format!("{OTHER}.cu")]);
    assert!(entries().iter().all(|entry| entry["arguments"][0] == words[0]), "a launcher is no compiler");

    let others = r#"[{"directory": "/x", "file": "/x/a.cpp", "command": "c++ -c a.cpp"},
        {"directory": "/x", "file": "PLACE/generated/gone.cu", "arguments": []}]"#;
    fs::write(&path, others.replace("PLACE", &bench.dir.path().display().to_string())).expect("written");
    bench.kgen(&one).assert().success();
    let (mut now, mut wanted) = (sources(), vec!["a.cpp".to_owned(), format!("{ONE}.cu"), format!("{OTHER}.cu")]);
    now.sort();
    wanted.sort();
    assert_eq!(now, wanted, "what kgen does not know stays, and what it no longer holds does not");
    fs::write(&path, "mine").expect("written");
    let left = bench.kgen(&one).assert().success();
    left.stderr(contains("`build/compile_commands.json` is left as it is: it is no compilation database"));
    assert_eq!(fs::read(&path).expect("readable"), b"mine");
    assert!(bench.leftovers("").is_empty(), "{:?}", bench.leftovers(""));
}

#[test]
fn a_listed_plan_has_the_registers_of_the_last_build_of_the_same_source() {
    let bench = Bench::new();
    let registers = |args: &[&str]| {
        let list = bench.kgen(&[&["list", "--plan", "--format", "json"], args, &[ONE, OTHER]].concat()).assert().success();
        let entries: Vec<serde_json::Value> = serde_json::from_slice(&list.get_output().stdout).expect("JSON");
        entries.iter().map(|entry| entry["compiled_registers"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(registers(&[]), [None, None]);
    bench.kgen(&["build", ONE, "--build-dir", "out"]).assert().success();
    assert_eq!(registers(&["--build-dir", "out"]), [None, Some(168)], "fp16 comes first");
    assert_eq!(registers(&[]), [None, None], "`build` holds nothing");
    let table = bench.kgen(&["list", "--plan", "--build-dir", "out", ONE]).assert().success();
    table.stdout(contains("compiled").and(contains("168")));
    let templates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    copy_folder(&templates, &bench.path("templates"));
    let header = bench.path("templates/include/kgen.h");
    let other = fs::read_to_string(&header).expect("readable") + "/* changed */\n";
    assert_eq!(registers(&["--build-dir", "out", "--templates", "templates"]), [None, Some(168)]);
    fs::write(&header, other).expect("written");
    assert_eq!(registers(&["--build-dir", "out", "--templates", "templates"]), [None, None], "another header");
}

#[test]
fn json_is_one_document_on_standard_output() {
    let bench = Bench::new();
    let done = bench.build(&["--format", "json"]).assert().success();
    let report: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
    assert_eq!(report["failures"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_compiler_error_is_told_by_its_first_line_and_the_rest_is_built() {
    let bench = Bench::new();
    let build = bench.build(&[]).env("MOCK_NVCC_ERROR", ONE).assert().code(1);
    build.stdout(
        contains("(12): error: identifier \"no_such_thing\" is undefined")
            .and(contains(format!("build/log/{ONE}.log")))
            .and(contains("3 compiled"))
            .and(contains("warning #177").not()),
    );
    assert!(bench.path("build/obj").join(format!("{OTHER}.o")).is_file());
    assert!(!bench.path("build/lib/libkgen.so").exists(), "a library with holes was linked");
}

#[test]
fn a_dispatcher_that_fails_is_not_counted_as_a_variant() {
    let bench = Bench::new();
    let one = ["--dtype", "bf16", "--full"];
    let dispatcher = bench.build(&one).env("MOCK_NVCC_ERROR", "kgen_dispatch").assert().code(1);
    dispatcher.stderr(contains("error: the dispatcher did not build, so")).stdout(contains("failed in").not());
    let kernel = bench.build(&one).env("MOCK_NVCC_ERROR", ONE).arg("--no-ptx").assert().code(1);
    kernel.stderr(contains("error: 1 of 1 variant did not build, so")).stdout(contains("1 failed in"));
}

#[test]
fn more_jobs_than_a_machine_has_threads_for_do_no_harm() {
    let bench = Bench::new();
    bench.build(&["-j", "99999"]).assert().success();
    bench.build(&["-j", "0"]).assert().code(2).stderr(contains("expected a whole number from 1 on"));
}

#[test]
fn a_closed_standard_error_stops_no_build() {
    let bench = Bench::new();
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.envs(bench.environment()).env_remove("CUDA_HOME").current_dir(bench.dir.path());
    let mut kgen = command.arg("build").args(SLICE).stderr(process::Stdio::piped()).spawn().expect("started");
    drop(kgen.stderr.take());
    assert_eq!(kgen.wait().expect("ended").code(), Some(0));
    assert!(bench.path("build/lib/libkgen.so").is_file());
}

#[test]
fn garbage_in_place_of_a_version_does_not_reach_the_terminal() {
    let bench = Bench::new();
    let nvcc = bench.path("nvcc");
    fs::write(&nvcc, "#!/bin/sh\nprintf '\\033]0;title\\007'; printf '%5000d' 1\n").expect("written");
    make_executable(&nvcc);
    let said = stderr(&bench.build(&["--nvcc", "./nvcc"]).assert().code(3));
    assert!(said.len() < 400 && !said.trim_end().contains(char::is_control), "{said:?}");
    fs::write(&nvcc, "#!/bin/sh\n").expect("written");
    bench.build(&["--nvcc", "./nvcc"]).assert().code(3).stderr(contains("`--version` said nothing;"));
}

#[test]
fn ctrl_c_ends_the_wait_for_an_nvcc_that_says_no_version() {
    let bench = Bench::new();
    let nvcc = bench.path("nvcc");
    fs::write(&nvcc, "#!/bin/sh\ntouch asked\nsleep 30\n").expect("written");
    make_executable(&nvcc);
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.envs(bench.environment()).current_dir(bench.dir.path()).arg("build").args(SLICE).args(["--nvcc", "./nvcc"]);
    let mut kgen = command.stderr(process::Stdio::null()).spawn().expect("started");
    wait_until(|| bench.path("asked").is_file());
    process::Command::new("kill").args(["-INT", &kgen.id().to_string()]).status().expect("signalled");
    let start = Instant::now();
    assert_eq!(kgen.wait().expect("ended").code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn build_all_flagged_all_leaves_exactly_the_grid_as_generate_does() {
    let bench = Bench::new();
    bench.kgen(&["generate", "--head-dim", "72", "--kind", "fwd"]).assert().success();
    bench.kgen(&["build", "--all"]).assert().success();
    bench.kgen(&["generate", "--all", "--check"]).assert().success();
}

fn held(bench: &Bench) -> Vec<String> {
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.path("build/lib/manifest.json")).expect("a manifest")).expect("JSON");
    let variants = manifest["variants"].as_array().expect("a list").iter();
    variants.map(|variant| variant["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_library_keeps_its_kernels_when_one_more_is_built() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    bench.take_log();
    let more = "flash_fwd_hdim72_fp16_sm80";
    let build = bench.kgen(&["build", more]).assert().success();
    build.stderr(contains("`build/lib/libkgen.so` holds 4 more kernels, kept and brought up to date; `--only` links"));
    assert_eq!(starts(&bench.take_log()), 2, "the new kernel and the dispatcher");
    assert_eq!(held(&bench).len(), 5);
    bench.kgen(&["build", ONE]).assert().success();
    assert!(held(&bench).contains(&more.to_owned()) && held(&bench).len() == 5);
    bench.kgen(&["build", ONE, "--only"]).assert().success();
    assert_eq!(held(&bench), [ONE]);
}

#[test]
fn a_library_whose_kernels_nobody_can_name_is_not_replaced() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    let library = fs::read(bench.path("build/lib/libkgen.so")).expect("a library");
    let manifest = bench.path("build/lib/manifest.json");
    let text = fs::read_to_string(&manifest).expect("a manifest");
    for (damaged, says) in [
        (text.replace(OTHER, "flash_other"), "holds `flash_other`, which neither the grid nor `--generated` knows"),
        ("{".to_owned(), "cannot tell what the library next to"),
    ] {
        fs::write(&manifest, damaged).expect("written");
        bench.kgen(&["build", "flash_fwd_hdim72_fp16_sm80"]).assert().code(2).stderr(contains(says).and(contains("`--only`")));
        assert_eq!(fs::read(bench.path("build/lib/libkgen.so")).expect("a library"), library);
    }
    bench.kgen(&["build", ONE, "--only"]).assert().success();
    assert_eq!(held(&bench), [ONE]);
}

#[test]
fn helpers_come_along_with_the_kernels_that_need_them() {
    let bench = Bench::new();
    let split = ["--kind", "fwd_split", "--head-dim", "64", "--dtype", "bf16", "--causal", "--target", "sm80"];
    let with = bench.kgen(&[&["build"], &split[..]].concat()).assert().success();
    with.stderr(contains("`flash_fwd_combine_sm80`, `flash_prepare_scheduler_sm80` come along"));
    let split_kernel = "flash_fwd_split_hdim64_bf16_causal_sm80";
    assert_eq!(held(&bench), [split_kernel, "flash_fwd_combine_sm80", "flash_prepare_scheduler_sm80"]);
    let without = bench.kgen(&[&["build", "--no-helpers", "--only"], &split[..]].concat()).assert().success();
    without.stderr(contains("come along").not());
    assert_eq!(held(&bench), [split_kernel]);
    bench.kgen(&[&["generate", "--output", "out"], &split[..]].concat()).assert().success();
    assert!(bench.path("out/flash_fwd_combine_sm80.cu").is_file());
    bench
        .kgen(&[&["generate", "--output", "one.cu"], &split[..]].concat())
        .assert()
        .success()
        .stderr(contains("come along").not());
}

#[test]
fn a_tile_that_cannot_be_is_told_with_its_line() {
    let bench = Bench::new();
    let grid = "version = 1\n[targets.sm80]\ndescription = 'A100'\n[[family]]\nkind = ['fwd']\nhead_dim = [64]\n\
        dtype = ['fp16']\nmask = ['full']\ntarget = ['sm80']\n[[tile]]\nwhen = 'hdim == 64'\nmeasured = 'never'\nn = 24\n";
    fs::write(bench.path("my.toml"), grid).expect("written");
    for (command, code) in [("build", 2), ("generate", 2), ("check", 2), ("list", 1)] {
        let mut kgen = bench.kgen(&["--variants", "my.toml", command]);
        let flags: &[&str] = if command == "list" { &["--plan"] } else { &[] };
        kgen.args(flags).assert().code(code).stderr(contains("`n` is 24").and(contains("its `[[tile]]` is at my.toml:11")));
    }
}

#[test]
fn doctor_finds_a_cache_that_cannot_be_written() {
    let bench = Bench::new();
    fs::write(bench.path("file"), "").expect("written");
    let doctor = bench.kgen(&["doctor"]).env("XDG_CACHE_HOME", bench.path("file/cache")).assert().code(3);
    doctor.stdout(contains("cannot be written").and(contains("XDG_CACHE_HOME")));
}

#[test]
fn a_failed_build_keeps_the_library_of_the_last_good_one() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    let good = fs::read(bench.path("build/lib/libkgen.so")).expect("a library");
    bench.build(&["--no-ptx"]).env("MOCK_NVCC_ERROR", ONE).assert().code(1);
    assert_eq!(fs::read(bench.path("build/lib/libkgen.so")).expect("a library"), good);
}

#[test]
fn a_compiler_that_hangs_is_stopped_with_its_children() {
    let bench = Bench::new();
    let build = bench.build(&["--time-limit", "1"]).env("MOCK_NVCC_HANG", ONE).assert().code(1);
    build.stdout(contains("stopped after 1 s").and(contains("--time-limit")).and(contains("3 compiled")));
    let log = bench.take_log();
    let child = log.iter().find_map(|l| l.strip_prefix("child ")).expect("the mock had a child");
    wait_until(|| !alive(child));
}

#[test]
fn a_compiler_killed_for_memory_is_tried_again_alone() {
    let bench = Bench::new();
    let build = bench.build(&["-j", "4"]).envs([("MOCK_NVCC_OOM_ONCE", ONE), ("MOCK_NVCC_SLEEP", "0.1")]).assert().success();
    assert!(stderr(&build).contains(&format!("`{ONE}` ran out of memory; compiling it again, alone")), "{}", stderr(&build));
    let log = bench.take_log();
    let again = log.iter().rposition(|l| l.starts_with(&format!("start {ONE} "))).expect("a second try");
    assert_eq!(log.iter().filter(|l| l.starts_with(&format!("start {ONE} "))).count(), 2);
    assert!(
        log[again + 1..].iter().all(|l| *l == format!("end {ONE}") || l == "link" || l == "disassemble"),
        "it was not alone: {log:?}"
    );
}

#[test]
fn a_compiler_that_never_fits_into_memory_is_a_failure_of_its_own() {
    let bench = Bench::new();
    let build = bench.build(&[]).env("MOCK_NVCC_OOM", ONE).assert().code(1);
    build.stdout(contains("killed for memory, also when it ran alone").and(contains("3 compiled")));
    assert_eq!(bench.take_log().iter().filter(|l| l.starts_with(&format!("start {ONE} "))).count(), 2);
}

#[test]
fn a_memory_budget_for_one_compiler_runs_one_at_a_time() {
    let bench = Bench::new();
    bench.build(&["-j", "4", "--memory", "300M"]).env("MOCK_NVCC_SLEEP", "0.05").assert().success();
    let mut running = 0;
    for line in bench.take_log() {
        running += i32::from(line.starts_with("start ")) - i32::from(line.starts_with("end "));
        assert!(running <= 1, "two compilers ran at once");
    }
}

#[test]
fn what_is_built_to_run_elsewhere_lies_apart_and_says_what_it_is() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    let before = fs::read(bench.path("generated/manifest.json")).expect("a manifest");
    let library = fs::read(bench.path("build/lib/manifest.json")).expect("a manifest");
    bench.build(&["--run-as", "hopper"]).assert().success().stdout(contains("build/run-as-sm90/lib/libkgen.so"));
    let read = |path: &str| fs::read_to_string(bench.path("build/run-as-sm90").join(path)).expect("a file");
    assert!(read(&format!("generated/{ONE}.cu")).contains("// Built to run as sm90: "));
    assert!(read(&format!("log/{ONE}.log")).contains("arch=compute_90a,code=sm_90a"));
    assert!(read("lib/manifest.json").contains("\"compiled_for\": \"sm90\""));
    assert_eq!(fs::read(bench.path("generated/manifest.json")).expect("a manifest"), before);
    assert_eq!(fs::read(bench.path("build/lib/manifest.json")).expect("a manifest"), library);
}

#[test]
fn a_kernel_without_a_portable_form_is_refused_with_the_reason() {
    let bench = Bench::new();
    let build = bench.build(&["--run-as", "sm75"]).assert().code(2);
    build.stderr(contains("`sm75` has neither `cp.async` nor m16n8k16"));
    assert_eq!(starts(&bench.take_log()), 0);
    bench.build(&["--run-as", "sm90", "--generated", "elsewhere"]).assert().code(2).stderr(contains("--generated"));
}

#[test]
fn nvcc_and_the_keys_of_its_objects_use_one_host_compiler() {
    let bench = Bench::new();
    let compiler = bench.path("my g++");
    let version = |version: &str| {
        fs::write(&compiler, format!("#!/bin/sh\necho 'g++ {version}'\n")).expect("written");
        make_executable(&compiler);
    };
    version("1");
    bench.build(&[]).env("CXX", &compiler).env("MOCK_NVCC_CCBIN_LOG", bench.path("ccbin")).assert().success();
    let used = fs::read_to_string(bench.path("ccbin")).expect("it was told");
    assert_eq!(used.lines().collect::<Vec<_>>(), vec![compiler.to_str().expect("text"); 6], "five compiles and a link");
    bench.take_log();
    version("2");
    bench.build(&[]).env("CXX", &compiler).assert().success();
    assert_eq!(starts(&bench.take_log()), 5, "another compiler made what is in the cache");
}

#[test]
fn sizes_are_told_by_target_and_kind_and_lie_beside_the_library() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    let read =
        |path: &str| -> serde_json::Value { serde_json::from_slice(&fs::read(bench.path(path)).expect("a file")).expect("JSON") };
    let (report, manifest) = (read("build/report.json"), read("build/lib/manifest.json"));
    let bytes: u64 = ["bf16", "fp16"]
        .iter()
        .flat_map(|dtype| [format!("flash_fwd_hdim64_{dtype}_sm80.o"), format!("flash_fwd_hdim64_{dtype}_causal_sm80.o")])
        .map(|object| fs::metadata(bench.path("build/obj").join(object)).expect("an object").len())
        .sum();
    assert_eq!(report["by_target"]["sm80"]["object_bytes"], bytes);
    assert_eq!(report["by_kind"]["fwd"]["object_bytes"], bytes);
    assert_eq!(manifest["targets"]["sm80"]["object_bytes"], bytes);
    assert_eq!(manifest["targets"]["sm80"]["variants"], 4);
    assert_eq!(manifest["targets"]["sm80"]["tensor_cores"], serde_json::json!(["HMMA"]));
    assert_eq!(manifest["targets"]["host"]["variants"], 1);
    assert_eq!(manifest["library_bytes"], fs::metadata(bench.path("build/lib/libkgen.so")).expect("a library").len());
    assert_eq!(manifest["variants"].as_array().map(Vec::len), Some(4));
    assert!(manifest["targets"]["sm80"]["flags"].as_array().is_some_and(|flags| flags.contains(&"-gencode".into())));
}

#[test]
fn a_second_build_compiles_and_writes_nothing() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    assert_eq!(starts(&bench.take_log()), 5);
    let object = bench.path("build/obj").join(format!("{ONE}.o"));
    let written = fs::metadata(&object).and_then(|m| m.modified()).expect("a time");
    bench.build(&[]).assert().success().stdout(contains("0 compiled, 4 cached"));
    assert_eq!(bench.take_log(), Vec::<String>::new());
    assert_eq!(fs::metadata(&object).and_then(|m| m.modified()).expect("a time"), written);
}

#[test]
fn the_cache_serves_other_folders_and_survives_a_lost_build_folder() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    bench.take_log();
    fs::remove_dir_all(bench.path("build")).expect("removed");
    bench.build(&["--build-dir", "b2", "--generated", "g2"]).assert().success();
    assert_eq!(bench.take_log(), Vec::<String>::new());
    assert!(bench.path("b2/lib/libkgen.so").is_file());
}

#[test]
fn other_flags_and_another_nvcc_compile_again() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    bench.take_log();
    bench.build(&["--no-ptx"]).assert().success();
    assert_eq!(starts(&bench.take_log()), 5);
    bench.build(&[]).env("MOCK_NVCC_VERSION", "13.2.1").assert().success();
    assert_eq!(starts(&bench.take_log()), 5);
}

#[test]
fn a_corrupt_cache_entry_is_made_anew() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    bench.take_log();
    let object = bench.path("build/obj").join(format!("{ONE}.o"));
    let good = fs::read(&object).expect("an object");
    let mut spoiled = 0;
    walk(&bench.path("cache"), &mut |path| {
        if path.ends_with("output") && fs::read(path).is_ok_and(|bytes| bytes == good) {
            fs::write(path, "spoiled").expect("written");
            spoiled += 1;
        }
    });
    assert_eq!(spoiled, 1);
    bench.build(&[]).assert().success().stdout(contains("1 compiled, 3 cached"));
    assert_eq!(starts(&bench.take_log()), 1);
    assert_eq!(fs::read(&object).expect("an object"), good);
}

#[test]
fn a_link_error_is_told_by_its_cause() {
    let bench = Bench::new();
    let build = bench.build(&[]).env("MOCK_NVCC_LINK", "error").assert().code(1);
    build.stderr(contains("undefined reference to `flash_fwd_missing'").and(contains("build/log/libkgen.log")));
}

#[test]
fn a_launcher_stands_in_front_of_nvcc() {
    let bench = Bench::new();
    let launcher = bench.path("launcher");
    fs::write(&launcher, "#!/bin/sh\necho launched >>launched.log\nexec \"$@\"\n").expect("written");
    make_executable(&launcher);
    bench.build(&["--launcher", "./launcher"]).assert().success();
    assert!(bench.path("generated/launched.log").is_file());
    let missing = bench.build(&["--launcher", "no-such-launcher"]).assert().code(3);
    missing.stderr(contains("`no-such-launcher`, which is not in `PATH`"));
}

#[test]
fn an_old_nvcc_is_refused() {
    let bench = Bench::new();
    let build = bench.build(&[]).env("MOCK_NVCC_VERSION", "12.4.131").assert().code(3);
    build.stderr(contains("12.4.131").and(contains("13.0 or newer")).and(contains("kgen toolchain install")));
    assert!(!bench.path("build").exists(), "folders were made for nothing");
}

#[test]
fn a_named_nvcc_that_is_missing_is_an_error() {
    let bench = Bench::new();
    let build = bench.build(&["--nvcc", "/nowhere/nvcc"]).assert().code(3);
    build.stderr(contains("`--nvcc` names `/nowhere/nvcc`"));
}

#[test]
fn offline_without_nvcc_says_how_to_get_one() {
    let bench = Bench::new();
    let path = bare_path(&bench, &[]);
    let build = bench.build(&["--offline"]).env_remove("KGEN_NVCC").env("PATH", path).assert().code(3);
    build.stderr(contains("`--offline` forbids installing one").and(contains("kgen toolchain install")));
}

#[test]
fn without_python_the_message_names_the_package() {
    let bench = Bench::new();
    let path = bare_path(&bench, &[]);
    let build = bench.build(&[]).env_remove("KGEN_NVCC").env("PATH", path).assert().code(3);
    build.stderr(contains("`python3` is not in `PATH`").and(contains("apt-get install python3-pip")));
}

#[test]
fn a_download_with_another_hash_is_refused_and_removed() {
    let bench = Bench::new();
    let path = bare_path(&bench, &[("python3", support("mock_python.sh"))]);
    let build = bench.build(&[]).env_remove("KGEN_NVCC").env("PATH", &path).assert().code(3);
    build.stderr(contains("sha256").and(contains("kgen toolchain install")));
    let left: Vec<_> = fs::read_dir(bench.path("cache/kgen/toolchain"))
        .expect("the folder")
        .filter_map(Result::ok)
        .map(|e| e.file_name())
        .filter(|n| n != ".kgen.lock")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let mut failed = bench.build(&[]);
    failed.env_remove("KGEN_NVCC").env("PATH", path).env("MOCK_PIP", "error");
    failed.assert().code(3).stderr(contains("Could not find a version").and(contains("pip config list")));
}

#[test]
fn an_output_folder_that_cannot_be_made_is_named() {
    let bench = Bench::new();
    fs::write(bench.path("file"), "").expect("written");
    let build = bench.build(&["--build-dir", "file/build"]).assert().code(2);
    build.stderr(contains("cannot create `file/build/obj`").and(contains("--build-dir")));
    assert_eq!(starts(&bench.take_log()), 0);
}
