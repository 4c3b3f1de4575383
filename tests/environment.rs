//! Hostile and unlucky environments of a build: files in the user's folders, their names, and the behaviour of
//! compilers.

use crate::support::bench::{Bench, ONE, bare_path, make_executable, support, walk};
use predicates::{prelude::*, str::contains};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// A program on this machine.
fn found(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("a PATH");
    let mut folders = std::env::split_paths(&path);
    folders.find_map(|folder| Some(folder.join(name)).filter(|p| p.is_file())).expect("the program is in `PATH`")
}

/// Names that a shell would interpret, or that break lists and lines. Commands in them create a file `executed`.
const HOSTILE: [&str; 9] =
    ["a$(touch executed)b", "a`touch executed`b", "a;touch executed;b", "a\"b", "a$HOME", "a,b", "a b", "a\nb", "a\\b"];

fn executed(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(folder, &mut |path| {
        if path.file_name().is_some_and(|name| name == "executed") {
            found.push(path.to_owned());
        }
    });
    found
}

#[test]
fn a_pip_py_in_the_current_folder_and_modules_in_pythonpath_are_not_executed() {
    let bench = Bench::new();
    // `python3` in `PATH` may be a wrapper script, so ask for the interpreter itself.
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("there is a Python");
    let python = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    let path = bare_path(&bench, &[("python3", python.clone())]);
    let plant = "import pathlib; pathlib.Path(__file__).with_name('executed').touch()\n";
    fs::create_dir(bench.path("modules")).expect("made");
    for planted in ["pip.py", "modules/pip.py", "modules/sitecustomize.py"] {
        fs::write(bench.path(planted), plant).expect("written");
    }
    let modules = bench.path("modules");
    // Without kgen, Python executes the modules planted in both folders.
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "--version"]).env("PYTHONPATH", &modules).current_dir(bench.dir.path());
    assert!(pip.status().expect("Python runs").success());
    let markers = executed(bench.dir.path());
    assert_eq!(markers.len(), 2, "in the current folder and in `PYTHONPATH`: {markers:?}");
    for marker in &markers {
        fs::remove_file(marker).expect("removed");
    }
    for command in [&["doctor"][..], &["toolchain", "install"]] {
        let mut kgen = bench.kgen(command);
        // Without an index, a working pip cannot download 110 MB.
        kgen.env("PATH", &path).env("PYTHONPATH", &modules).env("PIP_NO_INDEX", "1").env_remove("KGEN_NVCC");
        kgen.output().expect("it runs");
        assert_eq!(executed(bench.dir.path()), Vec::<PathBuf>::new(), "by `kgen {}`", command.join(" "));
    }
}

#[test]
fn a_broken_pip_configuration_is_named_and_not_answered_with_install_pip() {
    let bench = Bench::new();
    let path = bare_path(&bench, &[("python3", support("mock_python.sh"))]);
    let mut build = bench.build(&[]);
    let build = build.env_remove("KGEN_NVCC").env("PATH", &path).env("MOCK_PIP", "config").assert().code(3);
    build.stderr(contains("file: '/x/pip.conf', line: 1").and(contains("apt-get install").not()));
    let doctor = bench.kgen(&["doctor"]).env("PATH", &path).env("MOCK_PIP", "config").output().expect("it runs");
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("/x/pip.conf"));
}

#[test]
fn a_pip_that_only_the_user_has_is_used_and_still_not_the_current_folders() {
    let bench = Bench::new();
    let path = bare_path(&bench, &[("python3", support("mock_python.sh"))]);
    let doctor = bench.kgen(&["doctor"]).env("PATH", &path).env("MOCK_PIP", "user").output().expect("it runs");
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("python3 -E -m pip`"), "{said}");
}

#[test]
fn names_of_folders_run_no_commands_and_break_no_build() {
    for name in HOSTILE {
        let bench = Bench::new();
        let folder = bench.path(name);
        fs::create_dir(&folder).expect("made");
        for args in [&[][..], &["--build-dir", &format!("{name}/build"), "--generated", &format!("{name}/generated")]] {
            let mut build = bench.build(args);
            build.current_dir(&folder).assert().success();
        }
        assert_eq!(executed(bench.dir.path()), Vec::<PathBuf>::new(), "by {name:?}");
        let same = fs::read(folder.join("build/lib/libkgen.so")).expect("a library");
        assert_eq!(fs::read(folder.join(name).join("build/lib/libkgen.so")).expect("a library"), same);
    }
}

#[test]
fn a_path_that_nvccs_shell_would_obey_is_refused_with_what_to_do() {
    for (name, obeyed) in
        [("a$(touch executed)b", "`$`"), ("a`b", "`` ` ``"), ("a\"b", "`\"`"), ("a\\b", "`\\`"), ("a\nb", "a control character")]
    {
        let bench = Bench::new();
        let folder = bench.path(name);
        fs::create_dir(&folder).expect("made");
        let refused = |build: &mut assert_cmd::Command, remedy: &str| {
            let said = build.assert().code(3);
            said.stderr(contains(obeyed).and(contains("the shell behind nvcc")).and(contains(remedy)));
            assert!(!bench.path("build").exists(), "folders were made for nothing");
        };
        refused(bench.build(&[]).env("XDG_CACHE_HOME", &folder), "set `XDG_CACHE_HOME`");
        symlink(support("mock_nvcc.sh"), folder.join("nvcc")).expect("linked");
        refused(bench.build(&[]).env("KGEN_NVCC", folder.join("nvcc")), "name one with `--nvcc`");
        symlink(found("c++"), folder.join("c++")).expect("linked");
        refused(bench.build(&[]).env("CXX", folder.join("c++")), "name one with `CXX`");
        let generated = folder.join("generated").to_string_lossy().into_owned();
        refused(&mut bench.build(&["--launcher", "env", "--generated", &generated]), "do without `--launcher`");
        assert_eq!(executed(bench.dir.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_lock_file_that_is_not_kgens_stops_a_build_and_keeps_its_text() {
    let bench = Bench::new();
    let foreign = bench.path("precious");
    fs::write(&foreign, "precious").expect("written");
    for folder in ["build", "generated"] {
        let lock = bench.path(folder).join(".kgen.lock");
        fs::create_dir_all(bench.path(folder)).expect("made");
        symlink(&foreign, &lock).expect("linked");
        let flag = if folder == "build" { "--build-dir" } else { "--generated" };
        bench.build(&[]).assert().code(2).stderr(contains(".kgen.lock`: it is a symbolic link").and(contains(flag)));
        fs::remove_file(&lock).expect("removed");
        fs::write(&lock, "mine").expect("written");
        bench.build(&[]).assert().code(2).stderr(contains("kgen did not write; move it away"));
        assert_eq!(fs::read_to_string(&lock).expect("still there"), "mine");
        fs::remove_file(&lock).expect("removed");
    }
    assert_eq!(fs::read_to_string(&foreign).expect("still there"), "precious");
    // A `.lock` file of another program must stay.
    fs::write(bench.path("build/.lock"), "theirs").expect("written");
    bench.build(&[]).assert().success();
    assert_eq!(fs::read_to_string(bench.path("build/.lock")).expect("still there"), "theirs");
}

#[test]
fn an_object_that_is_none_fails_its_variant_and_is_not_kept() {
    let bench = Bench::new();
    for (text, told) in [("", "its object is empty"), ("garbage", "its object is no ELF file")] {
        let mut build = bench.build(&[]);
        let build = build.envs([("MOCK_NVCC_GARBAGE", ONE), ("MOCK_NVCC_TEXT", text)]).assert().code(1);
        build.stdout(contains(format!("nvcc reported success, but {told}")));
        assert!(!bench.path("build/lib/libkgen.so").exists());
    }
    bench.build(&[]).assert().success().stdout(contains("1 compiled, 3 cached"));
}

#[test]
fn a_library_that_is_none_fails_the_link_and_is_not_kept() {
    let bench = Bench::new();
    let mut build = bench.build(&[]);
    let build = build.envs([("MOCK_NVCC_GARBAGE", "libkgen"), ("MOCK_NVCC_TEXT", "garbage")]).assert().code(1);
    build.stderr(contains("nvcc reported success, but its library is no ELF file"));
    assert!(!bench.path("build/lib/libkgen.so").exists());
    bench.build(&[]).assert().success();
}

#[test]
fn a_promise_is_judged_by_ptx_where_nothing_reads_machine_code() {
    let bench = Bench::new();
    // No disassembler is next to this copy.
    fs::copy(support("mock_nvcc.sh"), bench.path("nvcc")).expect("copied");
    make_executable(&bench.path("nvcc"));
    let build = |ptx: &str| bench.build(&["--nvcc", "./nvcc", "--offline"]).env("MOCK_NVCC_PTX", ptx).assert();
    let without = build("ld.global.u32 %r1, [%rd1];").code(1);
    without.stdout(contains("its plan promises HMMA and its PTX has no `mma.sync`"));
    build("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1};").success().stdout(contains("4 compiled"));
}

#[test]
fn edited_logs_and_entries_of_the_cache_are_not_believed() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    let registers = || -> serde_json::Value {
        let report = fs::read(bench.path("build/report.json")).expect("a report");
        serde_json::from_slice::<serde_json::Value>(&report).expect("JSON")["artifacts"][0]["resources"][0]["registers"].clone()
    };
    assert_eq!(registers(), 168);
    for (file, from, to) in [("entry.json", "\"registers\":168", "\"registers\":1"), ("log", "Used 168", "Used 1")] {
        let mut edited = 0;
        walk(&bench.path("cache"), &mut |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            if path.ends_with(file) && text.contains(from) && text.contains(ONE) {
                fs::write(path, text.replace(from, to)).expect("written");
                edited += 1;
            }
        });
        assert_eq!(edited, 1, "{file}");
        bench.build(&[]).assert().success().stdout(contains("1 compiled, 3 cached"));
        assert_eq!(registers(), 168);
        assert!(fs::read_to_string(bench.path("build/log").join(format!("{ONE}.log"))).expect("a log").contains("Used 168"));
    }
}

#[test]
fn the_manifest_of_a_library_says_the_same_of_every_clean_build() {
    let bench = Bench::new();
    let build = |folder: &str| {
        let mut build = bench.build(&["--build-dir", folder]);
        build.env("XDG_CACHE_HOME", bench.path(&format!("cache-{folder}"))).assert().success();
        fs::read_to_string(bench.path(folder).join("lib/manifest.json")).expect("a manifest")
    };
    let first = build("one");
    assert_eq!(first, build("two"));
    assert!(!first.contains("seconds"), "{first}");
}

/// Arguments of the compiler for a kernel of the emulator, recorded by a wrapper.
#[test]
fn cxx_and_cxxflags_hold_for_what_the_emulator_compiles() {
    let bench = Bench::new();
    let compiler = bench.path("compiler");
    let real = found("c++");
    let log = bench.path("arguments");
    fs::write(&compiler, format!("#!/bin/sh\necho \"$@\" >> '{}'\nexec '{}' \"$@\"\n", log.display(), real.display()))
        .expect("written");
    make_executable(&compiler);
    let mut check = bench.kgen(&["check", "--device", "emulator", "flash_fwd_hdim16_fp16_sm80", "--case", "nothing"]);
    check.env("CXX", format!("{} -DFROM_CXX", compiler.display())).env("CXXFLAGS", "-ffast-math -DFROM_CXXFLAGS");
    check.assert().code(2).stderr(contains("nothing"));
    let mut check = bench.kgen(&["check", "--device", "emulator", "flash_fwd_hdim16_fp16_sm80"]);
    check.env("CXX", format!("{} -DFROM_CXX", compiler.display())).env("CXXFLAGS", "-ffast-math -DFROM_CXXFLAGS");
    check.timeout(std::time::Duration::from_secs(300)).assert().success();
    let log = fs::read_to_string(log).expect("it was called");
    let kernel = log.lines().find(|line| line.contains("flash_fwd_hdim16_fp16_sm80.cu")).expect("it compiles the kernel");
    let place = |flag: &str| kernel.find(flag).unwrap_or_else(|| panic!("`{flag}` is missing: {kernel}"));
    assert!(place("-DFROM_CXX ") < place("-std=c++17") && place("-DFROM_CXXFLAGS") < place("-std=c++17"));
    assert!(place("-ffast-math") < place("-fno-fast-math"), "arithmetic stays exact: {kernel}");
}
