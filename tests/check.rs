//! Checks that go wrong: kernels that hang, crash, refuse, write wrong results or none, and the reports of `kgen
//! check`.

use crate::support::{copy_folder, emulator::lend_emulator};
use assert_cmd::Command;
use kgen::{
    check::{CheckOptions, CheckRequest, DEFAULT_SEED, Kernel, Level, Observer, Status, Verdict, run},
    device::DeviceKind,
    family::attention::{Kind, Point},
    kernel::{Dtype, Features, HeadDim, Target, Variant},
    plan::Tiling,
};
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process,
    sync::Mutex,
    time::Duration,
};
use tempfile::TempDir;

const POINT: Point = Point {
    kind: Kind::Fwd,
    head_dim: HeadDim::equal(16),
    dtype: Dtype::Bf16,
    causal: false,
    features: Features::NONE,
    target: Target::Sm80,
};

fn variant() -> Variant {
    POINT.into()
}

/// A case small enough for any machine.
const CASE: &str = "bshd falling scale1";

/// The library of `tests/support/mock_kernel.cpp` with this behaviour.
fn mock(folder: &Path, behaviour: &str) -> CheckRequest {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join(format!("{behaviour}.so"));
    let status = process::Command::new("c++")
        .args(["-shared", "-fPIC", "-w", "-o"])
        .arg(&path)
        .arg(format!("-DMOCK_BEHAVIOUR={behaviour}"))
        .arg(format!("-DMOCK_NAME={POINT}"))
        .arg("-I")
        .arg(root.join("templates/include"))
        .arg(root.join("tests/support/mock_kernel.cpp"))
        .status()
        .expect("a C++ compiler");
    assert!(status.success());
    CheckRequest {
        variant: variant(),
        tiling: Tiling {
            m: 128,
            n: 64,
            stages: 2,
            row_groups: 1,
            key_groups: 1,
            whole_tiles: false,
            cluster: 1,
            persistent: false,
        },
        compiled_for: POINT.target,
        kernel: Kernel::Library { device: DeviceKind::Emulator, path },
    }
}

fn options(cache: &Path) -> CheckOptions {
    CheckOptions {
        cases: kgen::family::cases,
        level: Level::Smoke,
        filter: Some(CASE.to_owned()),
        seed: DEFAULT_SEED,
        schedule: None,
        jobs: 1,
        gpu_jobs: 1,
        time_limit: Duration::from_secs(30),
        fresh: false,
        cache: cache.to_owned(),
        kit: None,
        gpu: None,
        program: PathBuf::from(env!("CARGO_BIN_EXE_kgen")),
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The verdict on a mock with this behaviour.
fn verdict(behaviour: &str) -> Verdict {
    let folder = folder();
    let mut verdicts = run(&[mock(folder.path(), behaviour)], &options(folder.path()), &());
    verdicts.pop().expect("one verdict")
}

fn assert_says(verdict: &Verdict, status: Status, words: &[&str]) {
    assert_eq!(verdict.status, status, "{}", verdict.message);
    for word in words {
        assert!(verdict.message.contains(word), "no `{word}` in: {}", verdict.message);
    }
}

#[test]
fn a_hanging_kernel_is_stopped_at_its_time_limit_and_the_next_is_still_checked() {
    let folder = folder();
    let requests = ["HANG", "WRITE_NOTHING"].map(|behaviour| mock(folder.path(), behaviour));
    let options = CheckOptions { time_limit: Duration::from_secs(1), ..options(folder.path()) };
    let verdicts = run(&requests, &options, &());
    assert_says(&verdicts[0], Status::Timeout, &["no result within 1 s", CASE]);
    assert_eq!(verdicts[1].status, Status::Fail);
}

#[test]
fn a_crash_names_the_signal_the_case_and_the_kernels_last_words() {
    assert_says(&verdict("CRASH"), Status::Crash, &["SIGSEGV", CASE, "about to fall"]);
}

#[test]
fn a_worker_that_leaves_without_a_verdict_is_a_crash_too() {
    assert_says(&verdict("LEAVE"), Status::Crash, &["without a verdict", "exit status: 3"]);
}

#[test]
fn a_launchers_error_is_a_failure_with_its_code_and_words() {
    assert_says(&verdict("REFUSE"), Status::Fail, &["KGEN_ERROR_INVALID_VALUE", "the mock's last words"]);
}

#[test]
fn outputs_nobody_wrote_fail_every_element_being_nan() {
    let verdict = verdict("WRITE_NOTHING");
    assert_says(&verdict, Status::Fail, &["O: 272 of 272 elements are wrong (272 NaN", "LSE: 17 of 17"]);
    assert!(verdict.worst.expect("outputs were compared").error.is_infinite());
}

#[test]
fn wrong_numbers_fail() {
    assert_says(&verdict("WRITE_ZEROS"), Status::Fail, &["elements are wrong", "expected"]);
}

#[test]
fn a_write_to_an_input_fails() {
    assert_says(&verdict("WRITE_INPUT"), Status::Fail, &["wrote to its input `k`"]);
}

#[test]
fn a_write_beside_the_output_fails() {
    assert_says(&verdict("WRITE_OUTSIDE"), Status::Fail, &["O: memory that is no part of it was written"]);
}

#[test]
fn a_violation_the_emulator_reports_fails() {
    assert_says(&verdict("REPORT"), Status::Fail, &["race: a mock's"]);
}

#[test]
fn a_library_without_the_variant_is_an_error_and_no_failure_of_the_kernel() {
    let folder = folder();
    let mut request = mock(folder.path(), "WRITE_NOTHING");
    request.variant = Point { head_dim: HeadDim::equal(32), ..POINT }.into();
    let verdicts = run(&[request], &options(folder.path()), &());
    assert_says(&verdicts[0], Status::Error, &["holds no `flash_fwd_hdim32_bf16_sm80`"]);
}

/// The child process that the mock has started, as it printed.
fn child(verdict: &Verdict) -> String {
    let said = verdict.message.split_once("child ").and_then(|(_, rest)| rest.split_once('.'));
    said.unwrap_or_else(|| panic!("no child in: {}", verdict.message)).0.to_owned()
}

/// True if a process is running; false for a zombie.
fn runs(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn a_kernel_that_forks_and_hangs_is_stopped_with_its_children() {
    let folder = folder();
    let options = CheckOptions { time_limit: Duration::from_secs(1), ..options(folder.path()) };
    let verdict = run(&[mock(folder.path(), "FORK")], &options, &()).remove(0);
    assert_says(&verdict, Status::Timeout, &["no result within 1 s"]);
    assert_ends(&child(&verdict));
}

/// Waits for the end of a killed process. A signal takes a moment to arrive; a child that was spared would sleep for a
/// minute.
fn assert_ends(child: &str) {
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while runs(child) {
        assert!(std::time::Instant::now() < until, "the kernel's child outlived it");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_child_that_has_left_the_group_and_the_session_is_stopped_too_and_nobody_waits_for_it() {
    let begun = std::time::Instant::now();
    let verdict = verdict("FORK_AND_LEAVE_THE_GROUP");
    assert_says(&verdict, Status::Crash, &["without a verdict", "exit status: 3"]);
    assert!(begun.elapsed() < Duration::from_secs(50), "the child sleeps for a minute and holds the pipes");
    assert_ends(&child(&verdict));
}

#[test]
fn a_copy_of_the_worker_that_a_kernel_makes_by_forking_has_no_say() {
    let verdict = verdict("FORK_AND_RETURN_TWICE");
    // A verdict from the forked copy would say that the launcher returned an error.
    assert_says(&verdict, Status::Crash, &["without a verdict", "exit status: 3"]);
}

#[test]
fn a_verdict_that_the_kernel_prints_is_no_verdict_and_is_not_kept() {
    let folder = folder();
    let request = mock(folder.path(), "FORGE");
    for _ in 0..2 {
        let verdict = run(std::slice::from_ref(&request), &options(folder.path()), &()).remove(0);
        assert_says(&verdict, Status::Crash, &["without a verdict", "it said:", "\"status\":\"pass\""]);
    }
    assert!(!folder.path().join("verdicts").exists(), "it was kept");
}

#[test]
fn what_a_kernel_prints_to_standard_output_is_quoted() {
    assert_says(&verdict("CRASH"), Status::Crash, &["it said:", "a kernel may print"]);
}

#[test]
fn more_jobs_than_any_machine_has_are_as_many_as_there_are_variants() {
    struct Threads(std::sync::atomic::AtomicUsize);
    impl Observer for Threads {
        fn started(&self, _variant: &str) {
            let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
            self.0.fetch_max(threads, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let folder = folder();
    let requests = ["WRITE_NOTHING", "WRITE_ZEROS"].map(|behaviour| mock(folder.path(), behaviour));
    let threads = Threads(0.into());
    for jobs in [100_000, usize::MAX] {
        let options = CheckOptions { jobs, gpu_jobs: jobs, ..options(folder.path()) };
        let verdicts = run(&requests, &options, &threads);
        assert!(verdicts.iter().all(|verdict| verdict.status == Status::Fail), "{}", verdicts[0].message);
    }
    assert!(threads.0.into_inner() < 1000, "thousands of threads for two variants");
}

#[test]
fn an_interruption_ends_a_hanging_worker_at_once() {
    struct Interrupted(Mutex<u32>);
    impl Observer for Interrupted {
        fn interrupted(&self) -> bool {
            let mut asked = self.0.lock().expect("no test panics in here");
            *asked += 1;
            *asked > 3
        }
    }
    let folder = folder();
    // Without the interruption it would be a `Timeout`.
    let verdicts = run(&[mock(folder.path(), "HANG")], &options(folder.path()), &Interrupted(Mutex::new(0)));
    assert_says(&verdicts[0], Status::Interrupted, &["interrupted"]);
}

/// `kgen check` of one small variant, with the tests' emulator in the cache.
fn kgen(cache: &Path, args: &[&str]) -> Command {
    let mut command = Command::from_std(kgen_process(cache, args));
    command.timeout(Duration::from_secs(120));
    command
}

/// The command of [`kgen`] as a [`process::Command`], without a time limit.
fn kgen_process(cache: &Path, args: &[&str]) -> process::Command {
    lend_emulator(cache);
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_kgen"));
    command.env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES").env("XDG_CACHE_HOME", cache).current_dir(cache);
    // Hides this machine's GPUs.
    command.env("CUDA_VISIBLE_DEVICES", "");
    command.args(["check", "--head-dim", "16", "--dtype", "bf16", "--kind", "fwd", "--target", "sm80"]).args(args);
    command
}

#[test]
fn a_kernel_that_passed_is_not_run_again_until_asked() {
    let folder = folder();
    let verdicts = |args: &[&str]| -> Value {
        let all = [&["--full", "--case", CASE, "--format", "json"], args].concat();
        let output = kgen(folder.path(), &all).assert().success().get_output().stdout.clone();
        serde_json::from_slice(&output).expect("standard output is JSON")
    };
    let first = verdicts(&[]);
    assert_eq!(first[0]["name"], "flash_fwd_hdim16_bf16_sm80");
    assert_eq!(
        (&first[0]["status"], &first[0]["device"], &first[0]["level"]),
        (&"pass".into(), &"emulator".into(), &"smoke".into())
    );
    assert_eq!(first[0]["cases_run"], 1);
    let ratio = first[0]["worst"]["ratio"].as_f64().expect("a number");
    assert!(ratio > 0.0 && ratio < 1.0, "{ratio}");
    assert_eq!(first[0]["cached"], false);

    let again = verdicts(&[]);
    assert_eq!(again[0]["cached"], true);
    assert_eq!(again[0]["seconds"], first[0]["seconds"], "those of the run that made it");
    let table = kgen(folder.path(), &["--full", "--case", CASE]).assert().success();
    let table = String::from_utf8_lossy(&table.get_output().stdout).into_owned();
    let row = table.lines().find(|line| line.starts_with("flash_")).expect("a row");
    assert!(row.split_whitespace().rev().take(2).eq(["pass", "-"]), "an older run's seconds are not this one's: {table}");
    assert_eq!(verdicts(&["--fresh"])[0]["cached"], false);
    assert_eq!(verdicts(&["--seed", "2"])[0]["cached"], false, "other inputs are another check");
}

/// Every verdict of an array, with a flag for verdicts from the cache.
fn known_before(verdicts: &[u8]) -> Vec<(String, bool)> {
    let verdicts: Value = serde_json::from_slice(verdicts).expect("standard output is JSON");
    let one = |verdict: &Value| {
        assert_eq!(verdict["status"], "pass", "{verdict}");
        (verdict["name"].as_str().expect("a name").to_owned(), verdict["cached"].as_bool().expect("a flag"))
    };
    verdicts.as_array().expect("an array").iter().map(one).collect()
}

#[test]
fn after_ctrl_c_what_has_passed_is_kept_and_then_nothing_is_checked_twice() {
    let folder = folder();
    // All smoke cases, including those that change an ordinary call.
    let mut first = kgen_process(folder.path(), &["--device", "emulator", "-j", "1"]);
    let mut first = first.stdout(process::Stdio::null()).stderr(process::Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(first.stderr.take().expect("a pipe"));
    let mut heard = String::new();
    while !heard.contains(" passed, ") {
        assert!(said.read_line(&mut heard).expect("text") > 0, "it ended before a variant had passed: {heard}");
    }
    process::Command::new("kill").args(["-INT", &first.id().to_string()]).status().expect("signalled");
    said.read_to_string(&mut heard).expect("text");
    assert_eq!(first.wait().expect("a child").code(), Some(130), "{heard}");
    assert!(
        heard.ends_with("error: interrupted; 1 of 2 variants passed; results are kept; run the same command to resume\n"),
        "{heard}"
    );
    assert_eq!(heard.lines().filter(|line| line.contains("flash_")).count(), 1, "one was done: {heard}");

    let run = |args: &[&str]| {
        let mut command = kgen(folder.path(), &[&["--device", "emulator", "--format", "json"], args].concat());
        known_before(&command.timeout(Duration::from_secs(600)).assert().success().get_output().stdout)
    };
    let names = ["flash_fwd_hdim16_bf16_sm80", "flash_fwd_hdim16_bf16_causal_sm80"];
    let mut second = run(&[]);
    second.sort_by_key(|(_, known)| !known);
    assert_eq!(second.iter().map(|(_, known)| *known).collect::<Vec<_>>(), [true, false], "{second:?}");
    assert_eq!(run(&[]), names.map(|name| (name.to_owned(), true)));
    // A cached pass does not count for another thread order, nor one under `--schedule` for the default orders.
    let order = ["--case", CASE, "--schedule", "priorities:3"];
    assert!(run(&order).iter().all(|(_, known)| !known));
    assert!(run(&["--case", CASE]).iter().all(|(_, known)| !known));
}

#[test]
fn the_command_line_takes_any_number_of_jobs() {
    let folder = folder();
    let jobs = usize::MAX.to_string();
    kgen(folder.path(), &["--case", CASE, "-j", &jobs]).assert().success().stdout(contains("2 of 2 variants passed"));
}

#[test]
fn a_broken_kernel_is_named_with_its_case_and_the_exit_code_is_1() {
    let folder = folder();
    let templates = folder.path().join("templates");
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &templates);
    let kernel = templates.join("attention/parts/softmax/mma_step.tera");
    let text = std::fs::read_to_string(&kernel).expect("the template is there");
    let broken = text.replace("exp2_fast(fused_multiply_add", "2.0f * exp2_fast(fused_multiply_add");
    assert_ne!(text, broken, "the template no longer holds what this test breaks");
    // Doubled exponentials leave O unchanged and add ln 2 to the log-sum-exp.
    std::fs::write(&kernel, broken).expect("the copy is writable");
    let args = ["--templates", templates.to_str().expect("a readable path"), "--case", CASE];
    kgen(folder.path(), &args)
        .assert()
        .code(1)
        .stdout(contains("LSE: ").and(contains(CASE)).and(contains("0 of 2 variants passed")))
        .stderr(contains("2 of 2 variants did not pass the check"));
}

#[test]
fn of_kernels_that_are_one_program_one_is_run_and_each_has_failures_of_its_own() {
    let folder = folder();
    lend_emulator(folder.path());
    let verdicts = |more: &[&str]| -> Vec<serde_json::Value> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kgen"));
        command.env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES").env("XDG_CACHE_HOME", folder.path());
        command.args(["check", "--device", "emulator", "--head-dim", "16", "--dtype", "bf16", "--kind", "fwd", "--full"]);
        command.args(["--target", "sm120,sm121", "--case", CASE, "--format", "json"]).args(more);
        let output = command.timeout(Duration::from_secs(120)).assert().get_output().clone();
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let names = ["flash_fwd_hdim16_bf16_sm120", "flash_fwd_hdim16_bf16_sm121"];
    let passed = verdicts(&["--fresh"]);
    assert_eq!([&passed[0]["name"], &passed[1]["name"]], names);
    assert_eq!((&passed[0]["status"], &passed[1]["status"]), (&"pass".into(), &"pass".into()));
    assert_eq!((passed[0].get("same_as"), &passed[1]["same_as"]), (None, &names[0].into()));
    assert_eq!(passed[0]["worst"], passed[1]["worst"]);

    let templates = folder.path().join("templates");
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &templates);
    let kernel = templates.join("attention/parts/softmax/mma_step.tera");
    let text = std::fs::read_to_string(&kernel).expect("the template is there");
    let broken = text.replace("exp2_fast(fused_multiply_add", "2.0f * exp2_fast(fused_multiply_add");
    assert_ne!(text, broken, "the template no longer holds what this test breaks");
    std::fs::write(&kernel, broken).expect("the copy is writable");
    for verdict in verdicts(&["--templates", templates.to_str().expect("a readable path")]) {
        assert_eq!((&verdict["status"], verdict.get("same_as")), (&"fail".into(), None), "{verdict}");
    }
}

/// Tensors that a TMA-only kernel cannot read, and a launcher that names the wrong one.
#[test]
fn what_tma_cannot_take_must_be_refused_by_its_name_and_number() {
    let folder = folder();
    lend_emulator(folder.path());
    let check = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kgen"));
        command.env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES").env("XDG_CACHE_HOME", folder.path());
        command.args([
            "check",
            "--device",
            "emulator",
            "--head-dim",
            "16",
            "--dtype",
            "bf16",
            "--kind",
            "fwd",
            "--target",
            "sm90",
        ]);
        command.args(args).timeout(Duration::from_secs(120)).assert()
    };
    for case in ["unaligned-q-start", "unaligned-k-row", "unaligned-v-batch", "reversed"] {
        check(&["--case", case]).success().stdout(contains("2 of 2 variants passed"));
    }
    let templates = folder.path().join("templates");
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &templates);
    let kernel = templates.join("hopper/make_kv_maps.tera");
    let text = std::fs::read_to_string(&kernel).expect("the template is there");
    let templates = templates.to_str().expect("a readable path");
    let changed = |find: &str, replace: &str| {
        let broken = text.replace(find, replace);
        assert_ne!(text, broken, "the template no longer holds what this test breaks");
        std::fs::write(&kernel, broken).expect("the copy is writable");
        check(&["--templates", templates, "--case", "unaligned-k-row"]).code(1)
    };
    // The row stride is two heads of 16 elements plus one element.
    let expected = "must refuse this and say `K: the stride of dimension 1 is 72; TMA takes `, but";
    let said = "KGEN_ERROR_UNSUPPORTED";
    changed("self.name, \"K\"", "self.name, \"V\"").stdout(contains(expected).and(contains(said)).and(contains("V: the stride")));
    changed("require_tile_maps(params.k, fwd_keys(p), self.name, \"K\")", "0").stdout(contains(expected));
}

#[test]
fn kernels_of_the_templates_for_racecheck_pass_too() {
    let (root, folder) = (Path::new(env!("CARGO_MANIFEST_DIR")), folder());
    let copy = folder.path().join("templates");
    lend_emulator(folder.path());
    let script = root.join("scripts/racecheck/templates.py");
    let made = process::Command::new("python3").arg(script).arg(&copy).output().expect("python3 starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let copy = copy.to_str().expect("a path in UTF-8");
    let latent = "flash_fwd_split_hdim64_512_bf16_causal_paged_qv_sm90";
    for name in ["flash_fwd_hdim64_bf16_causal_paged_sm90", "flash_fwd_hdim64_bf16_window_sm90", latent] {
        let mut check = Command::new(env!("CARGO_BIN_EXE_kgen"));
        check.env("XDG_CACHE_HOME", folder.path()).current_dir(folder.path()).timeout(Duration::from_secs(240));
        check.args(["check", name, "--templates", copy, "--device", "emulator", "--case", "sk203"]).assert().success();
    }
}

#[test]
fn asking_for_a_gpu_where_there_is_none_is_exit_code_3_with_the_way_out() {
    kgen(folder().path(), &["--device", "gpu"]).assert().code(3).stderr(contains("no GPU").and(contains("--device emulator")));
}

#[test]
fn an_unknown_device_or_case_and_an_endless_limit_are_bad_usage() {
    let folder = folder();
    kgen(folder.path(), &["--device", "tpu"]).assert().code(2).stderr(contains("unknown device `tpu`"));
    let endless = u64::MAX.to_string();
    kgen(folder.path(), &["--time-limit", &endless]).assert().code(2).stderr(contains("not in 1..="));
    kgen(folder.path(), &["--case", "no such case"]).assert().code(2).stderr(contains("contains `no such case`"));
}

#[test]
fn a_worker_refuses_what_it_does_not_understand() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kgen"));
    command.args(["__worker", "check"]).write_stdin("{}\n").assert().code(2).stderr(contains("cannot understand the request"));
}

#[test]
fn a_kernel_edited_by_hand_is_checked_and_its_bug_is_named_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("cache");
    lend_emulator(&cache);
    let kgen = |arguments: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.args(arguments).current_dir(folder.path()).env("XDG_CACHE_HOME", &cache);
        command
    };
    let name = "flash_fwd_hdim16_fp16_causal_sm80";
    kgen(&["generate", name, "--output", "my.cu"]).assert().success();
    kgen(&["check", "--source", "my.cu"]).assert().success().stdout(contains(name));

    let path = folder.path().join("my.cu");
    let text = std::fs::read_to_string(&path).expect("it was written");
    let barrier = text.lines().position(|line| line.trim_start().starts_with("block_sync();")).expect("it has a barrier");
    let edited: Vec<&str> = text.lines().enumerate().map(|(place, line)| if place == barrier { "" } else { line }).collect();
    std::fs::write(&path, edited.join("\n") + "\n").expect("written");
    // The report names lines of the file, not of the copy that is compiled.
    let named = contains("race").and(contains("(my.cu:")).and(contains(name.to_owned() + ".cu:").not());
    kgen(&["check", "--source", "my.cu"]).assert().code(1).stdout(named);
    std::fs::write(&path, text.replace("block_sync();", "block_sink();")).expect("written");
    let refused = kgen(&["check", "--source", "my.cu"]).assert().code(1);
    refused.stdout(contains(format!("my.cu:{}:", barrier + 1)).and(contains("block_sink")));

    kgen(&["check", "--source", "my.cu", "--device", "gpu"]).assert().code(2).stderr(contains("compiled for the emulator"));
    kgen(&["check", "--source", "my.cu", "flash_fwd_hdim64_fp16_causal_sm80"])
        .assert()
        .code(2)
        .stderr(contains("defines no launcher `flash_fwd_hdim64_fp16_causal_sm80`"));
    std::fs::write(&path, "int main() {}\n").expect("written");
    kgen(&["check", "--source", "my.cu"]).assert().code(2).stderr(contains("defines 0 launchers"));
    kgen(&["check", "--source", "none.cu"]).assert().code(2).stderr(contains("`none.cu`: cannot be read"));
}
