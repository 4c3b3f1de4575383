//! `kgen vendor`, stopped or failed at every system call that changes the disk: from any state left behind, the next
//! `--remove`, the same command and another selection each succeed, with the same result as without the interruption.
//!
//! Every call is tried with SIGKILL before it. The two errors, a lack of permission and of room, are tried at every
//! seventh call; `KGEN_EVERY_FAULT=1` tries them at every one.

use crate::support::copy_folder;
use std::{
    collections::BTreeMap,
    env, fs,
    num::NonZero,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

const KILL: &str = "kill";
const ERRORS: [&str; 2] = ["EACCES", "ENOSPC"];

/// Exit code that a shell reports for a process killed by SIGKILL.
const KILLED: i32 = 128 + 9;

/// Two selections of one small kernel each, with different headers.
const ONE: &str = "--kind fwd_combine --target sm80 --no-helpers";
const OTHER: &str = "--kind append_kv --target sm80 --dtype bf16 --no-helpers";

/// The contents of all entries of a folder; `None` for subfolders.
type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("readable") {
            let path = entry.expect("readable").path();
            let text = if path.is_dir() { None } else { Some(fs::read(&path).expect("readable")) };
            let is_folder = text.is_none();
            tree.insert(path.strip_prefix(root).expect("below it").to_owned(), text);
            if is_folder {
                folders.push(path);
            }
        }
    }
    tree
}

/// The names that only one tree has, or whose text differs.
fn differences(found: &Tree, expected: &Tree) -> Vec<PathBuf> {
    let paths = found.keys().chain(expected.keys()).filter(|path| found.get(*path) != expected.get(*path));
    paths.cloned().collect()
}

/// A folder with the tracer and a test's files.
struct Bench {
    folder: tempfile::TempDir,
    /// The arguments of kgen that precede those of a line.
    command: &'static str,
}

/// The command that follows a fault: it must succeed and leave one of these trees.
struct Next<'a> {
    line: String,
    leaves: Vec<&'a Tree>,
}

impl Bench {
    fn new(command: &'static str) -> Self {
        let bench = Self { folder: tempfile::tempdir().expect("temporary folder"), command };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/disk_faults.c");
        let compiled = Command::new("cc").arg("-O1").arg(source).arg("-o").arg(bench.path("tracer")).output();
        let compiled = compiled.expect("there is a compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        bench
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    fn words<'a>(&self, line: &'a str) -> impl Iterator<Item = &'a str> {
        self.command.split_whitespace().chain(line.split_whitespace())
    }

    fn prepare(&self, command: &mut Command, place: &Path) {
        command.current_dir(place).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES");
        if self.path("templates").exists() {
            command.env("KGEN_TEMPLATES", self.path("templates"));
        }
    }

    fn run(&self, place: &Path, line: &str) -> Output {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        self.prepare(&mut command, place);
        command.args(self.words(line)).output().expect("it starts")
    }

    /// Runs the line in `place` with a fault at its call `number`; without one if 0. Also returns the calls.
    fn faulted(&self, place: &Path, line: &str, number: usize, fault: &str) -> (Output, Vec<String>) {
        let mut command = Command::new(self.path("tracer"));
        let report = place.with_extension("report");
        let place = place.canonicalize().expect("it is there");
        command.arg(&place).arg(&report).arg(number.to_string()).arg(fault).arg(assert_cmd::cargo::cargo_bin!("kgen"));
        self.prepare(&mut command, &place);
        let output = command.args(self.words(line)).output().expect("it starts");
        let calls = fs::read_to_string(&report).expect("the tracer wrote it");
        (output, calls.lines().map(str::to_owned).collect())
    }

    /// Copies `start` to the folder `name`.
    fn copy(&self, start: &Path, name: &str) -> PathBuf {
        let place = self.path(name);
        fs::remove_dir_all(&place).ok();
        copy_folder(start, &place);
        place
    }

    /// The folder that results from `line` in a copy of `start`, as `name`.
    fn after(&self, start: &str, line: &str, name: &str) -> PathBuf {
        let place = self.copy(&self.path(start), name);
        let output = self.run(&place, line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        place
    }

    /// Tries every fault of `line` in `start`, and then each of `nexts`.
    fn try_faults(&self, start: &str, line: &str, nexts: &[Next<'_>]) {
        let whole = self.copy(&self.path(start), "whole");
        let (output, calls) = self.faulted(&whole, line, 0, KILL);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(calls.iter().any(|call| call.starts_with("unlink ")), "the tracer sees nothing: {calls:?}");
        let step = if env::var("KGEN_EVERY_FAULT").is_ok_and(|value| value == "1") { 1 } else { 7 };
        let errors = (1..=calls.len()).step_by(step).flat_map(|number| ERRORS.map(|error| (number, error)));
        let faults: Vec<(usize, &str)> = (1..=calls.len()).map(|number| (number, KILL)).chain(errors).collect();

        let next_fault = AtomicUsize::new(0);
        let workers = thread::available_parallelism().map_or(1, NonZero::get).min(8);
        thread::scope(|scope| {
            for worker in 0..workers {
                let (faults, calls, next_fault) = (&faults, &calls, &next_fault);
                scope.spawn(move || {
                    while let Some((number, fault)) = faults.get(next_fault.fetch_add(1, Ordering::Relaxed)) {
                        let said = format!("{line}: {fault} at {number} of {}, `{}`", calls.len(), calls[number - 1]);
                        self.try_fault(&self.path(start), line, (*number, fault), nexts, &said, &format!("{start}-{worker}"));
                    }
                });
            }
        });
        println!("{start}: `{line}`: {} calls, {} faults, {} commands after each", calls.len(), faults.len(), nexts.len());
    }

    fn try_fault(&self, start: &Path, line: &str, (number, fault): (usize, &str), nexts: &[Next<'_>], said: &str, name: &str) {
        let left = self.copy(start, name);
        let (output, _) = self.faulted(&left, line, number, fault);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        match (fault, output.status.code()) {
            (KILL, code) => assert_eq!(code, Some(KILLED), "{said}: {error}"),
            // Only cleanup may fail.
            (_, Some(0)) => {}
            (_, code) => assert!(code == Some(2) && error.lines().any(|line| line.contains("error: ")), "{said}: {error}"),
        }
        if fault == "ENOSPC" {
            assert!(output.status.success() || error.contains("free some space"), "{said}: {error}");
            assert!(!error.contains("make it writable"), "{said}: {error}");
        }
        for next in nexts {
            let place = self.copy(&left, &format!("{name}-next"));
            let output = self.run(&place, &next.line);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}; then `{}`: {error}", next.line);
            let found = tree(&place);
            if !next.leaves.iter().any(|expected| found == **expected) {
                let differences: Vec<_> = next.leaves.iter().map(|expected| differences(&found, expected)).collect();
                panic!("{said}; then `{}` leaves, beside what it should: {differences:?}", next.line);
            }
        }
    }

    /// Two selections and a removal; `place` is the first argument of each line.
    fn try_selections(&self, place: &str, one: &str, other: &str) {
        let [first, second, remove] = [one, other, "--remove"].map(|what| format!("{place} {what}"));
        // A run without a selection completes an interrupted update.
        self.try_lines([&first, &second, &remove], Some(place));
    }

    /// A first run, a second one over it, and a removal; `start` exists. After a fault of the second run, `completion`
    /// leaves one of the two runs' results.
    fn try_lines(&self, [first, second, remove]: [&str; 3], completion: Option<&str>) {
        self.after("start", first, "one");
        self.after("one", second, "other");
        let [start, held, wanted] = ["start", "one", "other"].map(|name| tree(&self.path(name)));
        let next = |line: &str, leaves| Next { line: line.to_owned(), leaves };
        let nexts = || vec![next(remove, vec![&start]), next(first, vec![&held]), next(second, vec![&wanted])];
        let completed = completion.map(|line| next(line, vec![&held, &wanted]));
        self.try_faults("start", first, &nexts());
        self.try_faults("one", second, &nexts().into_iter().chain(completed).collect::<Vec<_>>());
        self.try_faults("one", remove, &nexts());
    }
}

#[test]
fn a_folder() {
    let bench = Bench::new("vendor");
    fs::create_dir(bench.path("start")).expect("made");
    fs::write(bench.path("start/main.c"), "int main(void) { return 0; }\n").expect("written");
    bench.try_selections("k", &format!("{ONE} --no-dispatcher"), &format!("{OTHER} --no-dispatcher"));
}

/// Files that kgen requires in a checkout of vLLM.
const CHECKOUT: [(&str, &str); 4] = [
    ("CMakeLists.txt", "include(cmake/external_projects/vllm_flash_attn.cmake)\n"),
    ("setup.py", "names = ['_vllm_fa2_C', '_vllm_fa3_C']\n"),
    ("vllm/vllm_flash_attn/flash_attn_interface.py", "ops._vllm_fa2_C.varlen_fwd\nops._vllm_fa3_C.fwd\n"),
    (
        "cmake/external_projects/vllm_flash_attn.cmake",
        "install(CODE \"set(${CMAKE_INSTALL_PREFIX}/vllm/)\")\nFetchContent_MakeAvailable(vllm-flash-attn)\n",
    ),
];

#[test]
fn a_checkout_of_vllm() {
    let bench = Bench::new("vendor vllm");
    for (path, text) in CHECKOUT {
        let path = bench.path("start/vllm").join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, text).expect("written");
    }
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &bench.path("templates"));
    let torch = bench.path("templates/bindings/torch");
    fs::remove_dir_all(&torch).expect("removed");
    fs::create_dir(&torch).expect("made");
    for name in ["fa2.cpp", "fa3.cpp"] {
        fs::write(torch.join(name), "").expect("written");
    }
    bench.try_selections("vllm", ONE, OTHER);
}

#[test]
fn an_installed_vllm() {
    let bench = Bench::new("vendor vllm");
    let folder = bench.path("start/vllm_flash_attn");
    fs::create_dir_all(&folder).expect("made");
    let interface = "ops._vllm_fa2_C.varlen_fwd\nops._vllm_fa3_C.fwd\n";
    fs::write(folder.join("flash_attn_interface.py"), interface).expect("written");
    // vLLM was installed with only one of the two.
    fs::write(folder.join("_vllm_fa3_C.abi3.so"), "vLLM's own").expect("written");
    for (number, build) in ["first", "second"].iter().enumerate() {
        for (name, functions) in [
            ("_vllm_fa2_C.abi3.so", &["PyInit__vllm_fa2_C"][..]),
            ("_vllm_fa3_C.abi3.so", &["PyInit__vllm_fa3_C"]),
            ("libkgen_vllm.so", &["kgen_fwd", "kgen_fwd_metadata", "kgen_last_error"]),
        ] {
            fs::create_dir_all(bench.path(build)).expect("made");
            let text: Vec<String> =
                functions.iter().map(|function| format!("int {function}(void) {{ return {number}; }}")).collect();
            fs::write(bench.path("source.c"), text.concat()).expect("written");
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-fPIC"]).arg(bench.path("source.c")).arg("-o").arg(bench.path(build).join(name));
            assert!(compiler.status().expect("there is a compiler").success());
        }
    }
    let [one, other] = ["first", "second"].map(|build| format!("--prebuilt {}", bench.path(build).display()));
    let lines = [format!("vllm_flash_attn {one}"), format!("vllm_flash_attn {other}")];
    bench.try_lines([&lines[0], &lines[1], "vllm_flash_attn --prebuilt --remove"], None);
}

/// A chain of interruptions: each starts from the state that the previous one left.
#[test]
fn a_chain_of_interruptions() {
    let bench = Bench::new("vendor");
    let place = bench.path("place");
    fs::create_dir_all(place.join("k")).expect("made");
    fs::write(place.join("k/notes.txt"), "mine\n").expect("written");
    let start = tree(&place);
    let lines = [ONE, OTHER].map(|kernel| format!("k {kernel} --no-dispatcher --beside-others"));
    let wanted = [&lines[0], &lines[1]].map(|line| {
        copy_folder(&place, &bench.path("wanted"));
        assert!(bench.run(&bench.path("wanted"), line).status.success());
        let wanted = tree(&bench.path("wanted"));
        fs::remove_dir_all(bench.path("wanted")).expect("removed");
        wanted
    });
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).expect("it is small")
    };
    for round in 0..12 {
        for _ in 0..5 {
            let line = [&lines[0], &lines[1], "k --remove --format json"][draw(3)];
            bench.faulted(&place, line, 1 + draw(90), [KILL, ERRORS[0], ERRORS[1]][draw(3)]);
        }
        let last = draw(2);
        let output = bench.run(&place, &lines[last]);
        assert!(output.status.success(), "round {round}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(differences(&tree(&place), &wanted[last]), [""; 0].map(PathBuf::from), "round {round}");
    }
    assert!(bench.run(&place, "k --remove").status.success());
    assert_eq!(differences(&tree(&place), &start), [""; 0].map(PathBuf::from));
}
