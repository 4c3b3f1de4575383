//! `kgen diff --source` and `kgen bench --source`: a kernel that a person edited with the one that kgen generates. The
//! driver and nvcc are mocks: every source becomes the same kernel of the host, which claims more or less time. So no
//! verdict depends on the host's speed or load.

use crate::support::mock_machine;
use assert_cmd::Command;
use kgen::lab::{Condition, Row, Store};
use predicates::{prelude::*, str::contains};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

const NAME: &str = "flash_fwd_hdim16_bf16_sm80";

/// A source with the word `slow` takes twice the time, one with `wrong` reads other numbers, and one with `refused` is
/// no program.
const BY_WORDS: &str = r#"flags='-O2 -DMOCK_NANOSECONDS=100'
if grep -q refused "$source"; then sed -n '1s/#line 1 "\(.*\)"/\1(3): error: refused/p' "$source"; exit 1; fi
if grep -q slow "$source"; then flags='-O2 -DMOCK_NANOSECONDS=200'; fi
if grep -q wrong "$source"; then sed 's/<< 16/<< 15/' $kernel >FOLDER/wrong.cpp; kernel=FOLDER/wrong.cpp; fi"#;

/// Registers are the lines of the source.
const FACTS: &str = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used $(grep -c . \"$source\") registers, used 1 barriers, 576 bytes cmem[0]";

/// A machine with a GPU and nvcc, and the kernel that is edited in `my.cu`.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(mock_machine::machine(BY_WORDS, FACTS));
        machine.kgen("generate").args([NAME, "--output", "my.cu"]).assert().success();
        machine
    }

    fn kgen(&self, command: &str) -> Command {
        let folder = self.0.path();
        let mut kgen = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        kgen.arg(command).current_dir(folder).env("LD_LIBRARY_PATH", folder).env("XDG_CACHE_HOME", folder.join("cache"));
        kgen.env("KGEN_DB", folder.join("rows.db")).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES");
        kgen.env("MOCK_CLOCK", folder.join("clock"));
        kgen
    }

    /// `kgen bench` of the edited kernel at two small sizes.
    fn bench(&self) -> Command {
        let mut bench = self.kgen("bench");
        bench.args(["--source", "my.cu", "--offline", "--batch", "1", "--heads", "1", "--seqlen", "16,64"]);
        bench.args(["--rounds", "3", "--warm-up-ms", "1", "--measure-ms", "2"]).arg("--nvcc").arg(self.0.path().join("nvcc"));
        bench
    }

    fn diff(&self) -> Command {
        let mut diff = self.kgen("diff");
        diff.args(["--source", "my.cu"]).arg("--nvcc").arg(self.0.path().join("nvcc"));
        diff
    }

    /// Replaces a text of the edited kernel.
    fn edit(&self, find: &str, replace: &str) {
        let path = self.0.path().join("my.cu");
        let text = fs::read_to_string(&path).expect("readable");
        assert!(text.contains(find), "{find}");
        fs::write(path, text.replacen(find, replace, 1)).expect("written");
    }

    fn rows(&self) -> Vec<Row> {
        Store::open_existing(&self.0.path().join("rows.db")).expect("a store").rows(&Condition::default()).expect("read")
    }
}

fn json(command: &mut Command) -> Value {
    let output = command.args(["--format", "json"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn an_edited_kernel_differs_in_lines_constants_and_registers() {
    let machine = Machine::new();
    let same = json(&mut machine.diff());
    assert_eq!(
        (&same["source"], &same["lines"], &same["plan"], &same["compiled"]),
        (&"".into(), &[0, 0].into(), &Value::Array(vec![]), &Value::Array(vec![]))
    );

    machine.edit("constexpr int BLOCKS_PER_SM = ", "constexpr int EXTRA = 7;\n// mine\nconstexpr int BLOCKS_PER_SM = 1 + ");
    let found = json(&mut machine.diff());
    assert_eq!((&found["old"], &found["new"], &found["lines"]), (&NAME.into(), &"my.cu".into(), &[1, 3].into()));
    let plan = found["plan"].as_array().expect("a list");
    assert_eq!(plan.iter().map(|one| one["key"].as_str().expect("a name")).collect::<Vec<_>>(), ["BLOCKS_PER_SM", "EXTRA"]);
    assert_eq!((&plan[1]["old"], &plan[1]["new"]), (&Value::Null, &"7".into()));
    let diff = found["source"].as_str().expect("a text");
    assert!(diff.starts_with(&format!("--- {NAME}\n+++ my.cu\n@@")) && diff.contains("\n+// mine\n"), "{diff}");
    let compiled = found["compiled"].as_array().expect("both were compiled");
    let registers = compiled.iter().find(|one| one["key"] == "registers").expect("they differ");
    // Two lines more, and the line that names the file.
    assert_eq!(registers["new"].as_u64(), registers["old"].as_u64().map(|old| old + 3), "{registers}");

    let said = contains("BLOCKS_PER_SM").and(contains("registers")).and(contains("1 lines only in the first, 3 only"));
    machine.diff().arg(NAME).assert().success().stdout(said);
    machine.edit("// mine", "// refused");
    let said = contains("machine code is not compared").and(contains("my.cu")).and(contains("error: refused"));
    machine.diff().assert().success().stdout(said);
    machine.kgen("diff").args([NAME, NAME, "--source", "my.cu"]).assert().code(2).stderr(contains("cannot be used with"));
    machine.kgen("diff").arg(NAME).assert().code(2).stderr(contains("<VARIANT>"));
    machine.kgen("diff").args(["--source", "none.cu"]).assert().code(2).stderr(contains("`none.cu`: cannot be read"));
}

#[test]
fn a_launcher_of_another_name_is_answered_with_the_name_it_needs() {
    let machine = Machine::new();
    let path = machine.0.path().join("my.cu");
    let text = fs::read_to_string(&path).expect("readable").replace(NAME, "my_kernel");
    fs::write(&path, text).expect("written");
    for command in ["diff", "check", "bench"] {
        let expected = contains("its launcher is `my_kernel`, and kgen expects the name of the variant").and(contains("rename"));
        machine.kgen(command).args(["--source", "my.cu"]).assert().code(2).stderr(expected);
    }
    let both = contains(format!("no launcher `{NAME}`")).and(contains(format!("it has `my_kernel`: rename it to `{NAME}`")));
    machine.kgen("diff").args([NAME, "--source", "my.cu"]).assert().code(2).stderr(both);
}

#[test]
fn a_pipe_is_refused_and_the_mark_of_utf_8_is_no_difference() {
    let machine = Machine::new();
    let folder = machine.0.path();
    let made = std::process::Command::new("mkfifo").arg(folder.join("pipe.cu")).status().expect("`mkfifo`");
    assert!(made.success());
    for command in ["diff", "check", "bench", "profile"] {
        let refused = contains("`pipe.cu`: cannot be read: it is a pipe");
        machine.kgen(command).args(["--source", "pipe.cu"]).assert().code(2).stderr(refused);
    }
    let text = fs::read_to_string(folder.join("my.cu")).expect("readable");
    fs::write(folder.join("my.cu"), format!("\u{feff}{text}")).expect("written");
    let same = json(&mut machine.diff());
    assert_eq!((&same["source"], &same["lines"]), (&"".into(), &[0, 0].into()));
}

#[test]
fn without_a_compiler_the_sources_are_still_compared() {
    let machine = Machine::new();
    machine.edit("constexpr int BLOCKS_PER_SM", "// mine\nconstexpr int BLOCKS_PER_SM");
    let said = contains("machine code is not compared: ").and(contains("+// mine"));
    let mut diff = machine.kgen("diff");
    diff.args(["--source", "my.cu"]).env("PATH", "/usr/bin:/bin").env_remove("CUDA_HOME").env_remove("KGEN_NVCC");
    diff.assert().success().stdout(said);
}

#[test]
fn an_edited_kernel_is_timed_in_turns_with_the_generated_one() {
    let machine = Machine::new();
    machine.edit("constexpr int BLOCKS_PER_SM", "// slow\nconstexpr int BLOCKS_PER_SM");
    let found = json(machine.bench().args(["--processes", "3"]));
    let measured = found["measurements"].as_array().expect("a list");
    assert_eq!(measured.len(), 2 * 2 * 3);
    assert!(measured.iter().all(|one| one["status"] == "ok"), "{measured:?}");
    let turns: Vec<bool> = measured.iter().take(6).map(|one| one["edited"] == "my.cu").collect();
    assert_eq!(turns, [false, true, true, false, false, true], "the order alternates");
    let (edited, generated): (Vec<&Value>, Vec<&Value>) = measured.iter().partition(|one| one["edited"] == "my.cu");
    assert_ne!(edited[0]["source"], generated[0]["source"]);
    let comparison = &found["edited"];
    assert_eq!((&comparison["file"], &comparison["source"]), (&"my.cu".into(), &edited[0]["source"]));
    let pairs = comparison["pairs"].as_array().expect("a list");
    assert_eq!(pairs.len(), 2);
    let large = &pairs[1];
    assert_eq!((&large["verdict"], &large["ratio"]["passes"]), (&"slower".into(), &3.into()), "{large}");
    assert!(large["ratio"]["mean"].as_f64().is_some_and(|mean| (mean - 2.0).abs() < 0.01), "{large}");
    assert!(large["ratio"]["interval"][0].as_f64() <= large["ratio"]["mean"].as_f64(), "{large}");

    let rows = machine.rows();
    assert_eq!(rows.len(), measured.len());
    let (edited, own): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.is_edited());
    assert_eq!((edited.len(), own.len()), (6, 6));
    assert!(edited.iter().all(|row| !row.own && row.contender == "edited" && row.kernel_fact("edited") == "my.cu"));
    assert!(own.iter().all(|row| row.own && row.contender == "kgen"));
    let explained = json(machine.kgen("explain").arg(NAME));
    assert_eq!(explained[0]["measured"].as_array().map(Vec::len), Some(2), "times of the edited kernel are not its own");
    machine
        .bench()
        .args(["--no-db"])
        .env_remove("KGEN_DB")
        .assert()
        .success()
        .stdout(contains("my.cu (edited)").and(contains("edited/generated")).and(contains("slower")));
}

#[test]
fn the_same_text_is_a_tie_and_wrong_results_have_no_ratio() {
    let machine = Machine::new();
    let found = json(machine.bench().args(["--processes", "4", "--no-db"]).env_remove("KGEN_DB"));
    let pairs = found["edited"]["pairs"].as_array().expect("a list");
    // Passes that hardly differ have the least noise floor.
    assert!(pairs.iter().all(|pair| pair["floor"].as_f64() == Some(0.002) && pair["verdict"] == "tie"), "{pairs:?}");

    machine.edit("constexpr int BLOCKS_PER_SM", "// wrong\nconstexpr int BLOCKS_PER_SM");
    let wrong = machine.bench().arg("--no-db").env_remove("KGEN_DB").assert().code(1);
    wrong.stdout(contains("no size has times of both kernels").and(contains("wrong")));
    machine.edit("// wrong", "// refused");
    machine.bench().assert().code(1).stderr(contains("my.cu").and(contains("error: refused")));
}

#[test]
fn what_cannot_be_timed_is_refused() {
    let machine = Machine::new();
    machine.bench().args(["--library", "l.so"]).assert().code(2).stderr(contains("cannot be used with"));
    machine.bench().arg("flash_fwd_hdim64_bf16_sm80").assert().code(2).stderr(contains("it defines no launcher"));
    let without = machine.bench().env("LD_LIBRARY_PATH", "").assert().code(3);
    without.stderr(contains("no GPU: ").and(contains("times are taken on one")));
}
