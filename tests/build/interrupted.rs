//! Builds that run in parallel, are interrupted or killed.

use super::*;

#[test]
fn two_builds_of_one_folder_take_turns() {
    let bench = Bench::new();
    let spawn = || {
        let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.envs(bench.environment()).env("MOCK_NVCC_SLEEP", "0.3").env_remove("CUDA_HOME");
        command
            .current_dir(bench.dir.path())
            .arg("build")
            .args(SLICE)
            .stderr(process::Stdio::piped())
            .stdout(process::Stdio::null());
        command.spawn().expect("started")
    };
    let first = spawn();
    wait_until(|| bench.path("mock.log").is_file());
    let second = spawn().wait_with_output().expect("ended");
    assert!(first.wait_with_output().expect("ended").status.success());
    assert!(second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("is building in `build`; waiting for it"), "{said}");
    assert_eq!(starts(&bench.take_log()), 5, "the second build compiled again");
}

#[test]
fn a_second_ctrl_c_kills_the_compilers_and_leaves_nothing_unfinished() {
    let bench = Bench::new();
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.envs(bench.environment()).env("MOCK_NVCC_HANG", ONE).env_remove("CUDA_HOME").current_dir(bench.dir.path());
    command.arg("build").args(SLICE).stderr(process::Stdio::piped()).stdout(process::Stdio::null());
    let kgen = command.spawn().expect("started");
    let child =
        || fs::read_to_string(bench.path("mock.log")).ok()?.lines().find_map(|l| Some(l.strip_prefix("child ")?.to_owned()));
    wait_until(|| child().is_some());
    let signal =
        |name: &str| process::Command::new("kill").args([name, kgen.id().to_string().as_str()]).status().expect("signalled");
    signal("-INT");
    let child = child().expect("a child");
    // Long enough for the others to finish: kgen still waits for the one that hangs.
    thread::sleep(Duration::from_millis(500));
    assert!(alive(&child), "the first Ctrl-C lets a compiler finish");
    signal("-INT");
    let done = kgen.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{said}");
    assert!(said.contains("Ctrl-C again ends them, and their work is lost"), "{said}");
    wait_until(|| !alive(&child));
    assert!(bench.leftovers("").is_empty(), "{:?}", bench.leftovers(""));
    assert!(!bench.path("build/obj").join(format!("{ONE}.o")).exists());
    bench.build(&[]).assert().success();
}

#[test]
fn what_compilers_finish_after_the_first_ctrl_c_is_kept_as_the_message_says() {
    let bench = Bench::new();
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.envs(bench.environment()).env("MOCK_NVCC_SLEEP", "1.5").env_remove("CUDA_HOME").current_dir(bench.dir.path());
    command.arg("build").args(SLICE).args(["-j", "1"]).stderr(process::Stdio::piped()).stdout(process::Stdio::null());
    let kgen = command.spawn().expect("started");
    wait_until(|| bench.path("mock.log").is_file());
    process::Command::new("kill").args(["-INT", &kgen.id().to_string()]).status().expect("signalled");
    let done = kgen.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{said}");
    assert!(said.contains("finishing 1 running compiler; Ctrl-C again"), "{said}");
    assert!(said.contains("interrupted; 1 of 4 kernels are compiled and cached; run the same command to resume"), "{said}");
    assert_eq!(starts(&bench.take_log()), 1, "nothing was begun after the interruption");
    bench.build(&[]).assert().success().stdout(contains("3 compiled, 1 cached"));
}

#[test]
fn sigterm_ends_running_compilers_at_once() {
    let bench = Bench::new();
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.envs(bench.environment()).env("MOCK_NVCC_HANG", ONE).env_remove("CUDA_HOME").current_dir(bench.dir.path());
    let kgen = command.arg("build").args(SLICE).stderr(process::Stdio::null()).stdout(process::Stdio::null()).spawn();
    let mut kgen = kgen.expect("started");
    wait_until(|| fs::read_to_string(bench.path("mock.log")).is_ok_and(|log| log.contains("child ")));
    process::Command::new("kill").args(["-TERM", &kgen.id().to_string()]).status().expect("signalled");
    let start = Instant::now();
    assert_eq!(kgen.wait().expect("ended").code(), Some(143));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn more_compilers_than_cores_are_not_started_and_that_is_said() {
    let bench = Bench::new();
    let cores = thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let build = bench.build(&["-j", "99999"]).env("MOCK_NVCC_SLEEP", "0.1").assert().success();
    build.stderr(contains(format!("{cores} compilers at once, not 99999")));
    let mut running = 0_usize;
    for line in bench.take_log() {
        running = if line.starts_with("start ") { running + 1 } else { running - usize::from(line.starts_with("end ")) };
        assert!(running <= cores, "{running} compilers at once on {cores} cores");
    }
}

#[test]
fn what_a_killed_build_left_is_swept_by_the_next() {
    let bench = Bench::new();
    bench.build(&["--dtype", "bf16", "--full"]).assert().success();
    for folder in ["", "obj", "log", "lib", "gen"] {
        fs::write(bench.path("build").join(folder).join(".kgen-unfinished-x1"), "half").expect("written");
    }
    assert_eq!(bench.leftovers("build").len(), 5);
    bench.build(&["--dtype", "bf16", "--full"]).assert().success();
    assert!(bench.leftovers("build").is_empty(), "{:?}", bench.leftovers("build"));
}
