//! `kgen wheel` through the binary, with a mock instead of nvcc, and once for the emulator, loaded by Python.

use crate::support::{
    bench,
    bench::{Bench, ONE, OTHER, SLICE},
    emulator::lend_emulator,
};
use assert_cmd::assert::Assert;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use predicates::str::contains;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Cursor, Read},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use zip::ZipArchive;

/// The command `kgen wheel` for one kernel, which writes into `wheels` and prints JSON.
fn wheel(bench: &Bench, args: &[&str]) -> assert_cmd::Command {
    let one = ["wheel", ONE, "--output", "wheels", "--format", "json"];
    bench.kgen(&[&one, args].concat())
}

fn report(assert: &Assert) -> serde_json::Value {
    serde_json::from_slice(&assert.get_output().stdout).expect("a JSON document")
}

/// The wheel's path and bytes.
fn made(bench: &Bench, report: &serde_json::Value) -> (PathBuf, Vec<u8>) {
    let path = bench.path(report["wheel"].as_str().expect("a path"));
    let bytes = fs::read(&path).expect("the wheel");
    (path, bytes)
}

/// The files of an archive in their order: path, permissions, content.
fn contents(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).expect("a zip archive");
    let mut files = Vec::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).expect("a file");
        let mut content = Vec::new();
        file.read_to_end(&mut content).expect("it can be read");
        files.push((file.name().expect("a name").into_owned(), file.unix_mode().unwrap_or_default() & 0o777, content));
    }
    files
}

fn text(files: &[(String, u32, Vec<u8>)], name: &str) -> String {
    let (_, _, content) = files.iter().find(|(path, _, _)| path == name).unwrap_or_else(|| panic!("no `{name}`"));
    String::from_utf8(content.clone()).expect("text")
}

#[test]
fn a_wheel_holds_the_package_the_library_and_a_record_of_both() {
    let bench = Bench::new();
    let report = report(&wheel(&bench, &[]).assert().success());
    assert_eq!(report["kernels"], serde_json::json!([ONE]));
    let (path, bytes) = made(&bench, &report);
    let version = report["version"].as_str().expect("a version");
    let local = version.strip_prefix(concat!(env!("CARGO_PKG_VERSION"), "+k")).expect("a local segment");
    assert!(local.len() == 8 && local.bytes().all(|byte| byte.is_ascii_hexdigit()), "{version}");
    let platform = format!("manylinux_2_17_{}", std::env::consts::ARCH);
    assert_eq!(path, bench.path("wheels").join(format!("kgen_attn-{version}-py3-none-{platform}.whl")));

    let files = contents(&bytes);
    let of_package = |name: &str| files.iter().find(|(path, _, _)| *path == format!("kgen_attn/{name}"));
    for name in ["__init__.py", "__main__.py", "abi.py", "interface.py", "py.typed"] {
        assert!(of_package(name).is_some_and(|(_, mode, _)| *mode == 0o644), "`{name}`");
    }
    let (_, mode, library) = of_package("lib/libkgen.so").expect("the library");
    assert_eq!(*library, fs::read(bench.path("build/wheel/lib/libkgen.so")).expect("built"));
    assert_eq!((*mode, report["library_bytes"].as_u64()), (0o755, Some(library.len() as u64)));

    let information = format!("kgen_attn-{version}.dist-info");
    let metadata = text(&files, &format!("{information}/METADATA"));
    let headers: Vec<&str> = metadata.lines().take_while(|line| !line.is_empty()).collect();
    assert!(headers.contains(&"Name: kgen_attn") && headers.contains(&format!("Version: {version}").as_str()), "{metadata}");
    assert!(!metadata.lines().any(|line| line.starts_with("Requires-Dist: torch") && !line.contains("extra")), "{metadata}");
    let tag = format!("Tag: py3-none-{platform}");
    let wheel = text(&files, &format!("{information}/WHEEL"));
    assert!(wheel.lines().any(|line| line == tag) && wheel.contains("Root-Is-Purelib: false"), "{wheel}");

    let points = text(&files, &format!("{information}/entry_points.txt"));
    assert_eq!(points, "[vllm.general_plugins]\nkgen = kgen_attn.vllm:register\n");

    let record_path = format!("{information}/RECORD");
    assert_eq!(files.last().map(|(path, _, _)| path.as_str()), Some(record_path.as_str()), "the record comes last");
    let record = text(&files, &record_path);
    let recorded: BTreeMap<&str, &str> = record.lines().filter_map(|line| line.split_once(',')).collect();
    assert_eq!(recorded.len(), files.len(), "every file once");
    for (path, _, content) in &files {
        let expected = if *path == record_path {
            ",".to_owned()
        } else {
            format!("sha256={},{}", BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(content)), content.len())
        };
        assert_eq!(recorded.get(path.as_str()), Some(&expected.as_str()), "`{path}`");
    }
}

#[test]
fn the_same_library_gives_the_same_bytes() {
    let wheels = [Bench::new(), Bench::new()].map(|bench| made(&bench, &report(&wheel(&bench, &[]).assert().success())).1);
    assert!(wheels[0] == wheels[1], "two wheels differ");
}

#[test]
fn pip_installs_the_wheel_of_a_second_selection_over_that_of_the_first() {
    let bench = Bench::new();
    let made = |kernel: &str| {
        let done = bench.kgen(&["wheel", kernel, "--output", "wheels", "--format", "json"]).assert().success();
        let library = fs::read(bench.path("build/wheel/lib/libkgen.so")).expect("built");
        (bench.path(report(&done)["wheel"].as_str().expect("a path")), library)
    };
    let wheels = [made(ONE), made(OTHER)];
    assert_ne!(wheels[0].0, wheels[1].0);
    let human = bench.kgen(&["wheel", ONE, "--output", "wheels"]).assert().success();
    human
        .stderr(contains("1 other kgen_attn wheel"))
        .stdout(contains(wheels[0].0.file_name().expect("a name").to_string_lossy()));
    let environment = bench.path("environment");
    let venv = Command::new("python3").args(["-m", "venv"]).arg(&environment).output();
    if !venv.as_ref().is_ok_and(|done| done.status.success()) {
        return eprintln!("skipped: `python3 -m venv` makes no environment ({venv:?})");
    }
    for (wheel, library) in [&wheels[0], &wheels[1], &wheels[0]] {
        let mut pip = Command::new(environment.join("bin/python"));
        pip.args(["-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check"]).arg(wheel);
        let done = pip.output().expect("pip starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut installed = Vec::new();
        bench::walk(&environment, &mut |path| {
            if path.ends_with("kgen_attn/lib/libkgen.so") {
                installed.push(fs::read(path).expect("installed"));
            }
        });
        // Found more than once if `lib64` is a link to `lib`.
        let is_it = !installed.is_empty() && installed.iter().all(|one| one == library);
        assert!(is_it, "pip kept another wheel: {}", String::from_utf8_lossy(&done.stdout));
    }
}

#[test]
fn a_wheel_holds_the_selection_alone_and_leaves_other_libraries_as_they_are() {
    let bench = Bench::new();
    bench.build(&[]).assert().success();
    let library = fs::read(bench.path("build/lib/libkgen.so")).expect("built");
    let of_one = report(&wheel(&bench, &[]).assert().success());
    assert_eq!(of_one["kernels"], serde_json::json!([ONE]));
    let of_other = bench.kgen(&["wheel", OTHER, "--output", "wheels", "--format", "json"]).assert().success();
    assert_eq!(report(&of_other)["kernels"], serde_json::json!([OTHER]), "what an earlier wheel held is dropped");
    assert_eq!(fs::read(bench.path("build/lib/libkgen.so")).expect("still there"), library);
    let whole = bench.kgen(&[&["wheel"], &SLICE[..], &["--output", "wheels"]].concat()).assert().success();
    whole.stdout(contains("4 kernels"));
}

/// `tests/support/pause.c` as a library to preload.
fn pause(bench: &Bench) -> PathBuf {
    let library = bench.path("pause.so");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(bench::support("pause.c")).arg("-ldl");
    assert!(compile.status().expect("a C compiler").success());
    library
}

#[test]
fn a_wheel_made_beside_another_one_in_the_same_folder_holds_its_own_kernels() {
    let bench = Bench::new();
    let start = |kernel: &str, preloaded: bool| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.envs(bench.environment()).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES").current_dir(bench.dir.path());
        command.args(["wheel", kernel, "--output", &format!("wheels of {kernel}")]);
        if preloaded {
            command.env("LD_PRELOAD", pause(&bench)).env("PAUSE_AT", "wheel/lib/libkgen.so").env("PAUSE_IN", bench.dir.path());
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let mut first = start(ONE, true);
    while !bench.path("paused").is_file() {
        assert!(first.try_wait().expect("a child").is_none(), "it ended without reading its library");
        thread::sleep(Duration::from_millis(5));
    }
    // The first process pauses before it reads. The second reports that it waits, or replaces the library and ends.
    let mut second = start(OTHER, false);
    let mut said = BufReader::new(second.stderr.take().expect("a pipe"));
    let mut heard = String::new();
    while !heard.contains("waiting for it") && said.read_line(&mut heard).expect("text") > 0 {}
    fs::write(bench.path("go"), "").expect("written");
    said.read_to_string(&mut heard).expect("text");
    assert!(first.wait().expect("a child").success() && second.wait().expect("a child").success(), "{heard}");
    for (kernel, other) in [(ONE, OTHER), (OTHER, ONE)] {
        let wheel = fs::read_dir(bench.path(&format!("wheels of {kernel}"))).expect("written").next().expect("a wheel");
        let files = contents(&fs::read(wheel.expect("listed").path()).expect("the wheel"));
        let (_, _, library) = files.iter().find(|(path, _, _)| path == "kgen_attn/lib/libkgen.so").expect("the library");
        let holds = |name: &str| library.windows(name.len() + 1).any(|part| part.strip_suffix(b"\0") == Some(name.as_bytes()));
        assert!(holds(kernel) && !holds(other), "the wheel of `{kernel}` holds the kernel of another run");
    }
}

#[test]
fn nothing_is_packed_where_something_failed() {
    let bench = Bench::new();
    let failed = wheel(&bench, &[]).env("MOCK_NVCC_ERROR", ONE).assert().code(1);
    failed.stderr(contains("did not build"));
    assert!(!bench.path("wheels").exists(), "a wheel without a library");

    let bench = Bench::new();
    let lacking = wheel(&bench, &[]).env("MOCK_NVCC_DISPATCHER", "kgen_abi_version kgen_fwd").assert().code(1);
    lacking.stderr(contains("does not define `kgen_append_kv`"));
    assert!(!bench.path("wheels").exists(), "a wheel of a library without functions");
}

#[test]
fn bad_input_is_refused_by_name() {
    let bench = Bench::new();
    bench.kgen(&["wheel", "--device", "tpu"]).assert().code(2).stderr(contains("tpu"));
    bench.kgen(&["wheel", "flash_fwd_hdim64_int4_sm80"]).assert().code(2).stderr(contains("int4"));
    fs::write(bench.path("wheels"), "a file in the way").expect("written");
    wheel(&bench, &[]).assert().code(2).stderr(contains("--output"));
}

#[test]
fn python_loads_a_wheel_for_the_emulator_without_torch() {
    let bench = Bench::new();
    lend_emulator(&bench.path("cache"));
    let selection = ["wheel", "flash_fwd_hdim16_fp16_sm80", "--device", "emulator", "--format", "json"];
    let done = bench.kgen(&selection).timeout(Duration::from_secs(600)).assert().success();
    let (path, bytes) = made(&bench, &report(&done));
    assert!(path.to_string_lossy().contains("+emulator.k"), "{}", path.display());
    ZipArchive::new(Cursor::new(bytes)).expect("a zip archive").extract(bench.path("site")).expect("unpacked");
    let mut python = Command::new("python3");
    python.args(["-m", "kgen_attn", "--format", "json"]).env("PYTHONPATH", bench.path("site")).env_remove("KGEN_LIBRARY");
    let output = match python.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: `python3` cannot be run ({error})"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed["emulated"], true);
    assert_eq!(printed["kernels"][0]["name"], "flash_fwd_hdim16_fp16_sm80");
    assert_eq!(printed["kernels"].as_array().map(Vec::len), Some(1));
}
