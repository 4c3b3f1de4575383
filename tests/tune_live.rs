//! `kgen tune` without a GPU and without nvcc: a mock driver, a compiler that makes a kernel of the host of every tile,
//! and proofs on the emulator.

use crate::support::{emulator::lend_emulator, mock_machine};
use assert_cmd::Command;
use kgen::lab::{Condition, Row, Status, Store};
use serde_json::Value;
use std::{collections::BTreeSet, fs};
use tempfile::TempDir;

const NAME: &str = "flash_fwd_hdim16_bf16_sm80";

/// Spills for the first source whose key tile is not the default's.
const SPILLS: &str = r#"echo compiled >>FOLDER/compiled
spill=0
if ! grep -q 'BLOCK_N = 64;' "$source" && mkdir FOLDER/spilled 2>/dev/null; then spill=48; fi"#;

const FACTS: &str = "    $spill bytes stack frame, $spill bytes spill stores, $spill bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, $spill bytes cumulative stack size, 576 bytes cmem[0]";

struct Mock(TempDir);

impl Mock {
    fn new() -> Self {
        let machine = mock_machine::machine(SPILLS, FACTS);
        lend_emulator(&machine.path().join("cache"));
        Self(machine)
    }

    /// The first search, or the first ladder.
    fn tune(&self, flags: &[&str]) -> Value {
        self.tune_for("searches", &[&["--budget", "6", "--held-out", "32"], flags].concat())
    }

    fn tune_for(&self, what: &str, flags: &[&str]) -> Value {
        let folder = self.0.path();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.args(["tune", NAME, "--gpu", "h100", "--prove-on-emulator", "--offline"]);
        command.args(["--batch", "1", "--heads", "1", "--seqlen", "16,64"]);
        command.args(["--rounds", "3", "--warm-up-ms", "1", "--measure-ms", "2", "--format", "json"]).args(flags);
        command.env("LD_LIBRARY_PATH", folder).env("XDG_CACHE_HOME", folder.join("cache")).env_remove("KGEN_VARIANTS");
        command.arg("--nvcc").arg(folder.join("nvcc")).arg("--db").arg(folder.join("rows.db")).current_dir(folder);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")[what][0].take()
    }

    fn rows(&self) -> Vec<Row> {
        Store::open_existing(&self.0.path().join("rows.db")).expect("a store").rows(&Condition::default()).expect("read")
    }

    fn compiled(&self) -> usize {
        fs::read_to_string(self.0.path().join("compiled")).expect("it was called").lines().count()
    }
}

#[test]
fn candidates_are_compiled_proved_and_timed_and_a_second_call_reads_the_rows() {
    let mock = Mock::new();
    let found = mock.tune(&[]);
    let measured = found["measured"].as_array().expect("a list").len();
    let failed = found["failed"].as_array().expect("a list").len();
    assert_eq!(measured + failed, 6, "{found}");
    assert!(measured > 1 && failed > 0 && found["winner"]["tile"]["m"].is_u64(), "{found}");
    let rows = mock.rows();
    assert!(rows.iter().all(|row| row.bench == "kgen tune" && row.gpu() == "Mock GPU 0"), "{rows:?}");
    let of = |status: Status| rows.iter().filter(|row| row.status == status).collect::<Vec<_>>();
    assert_eq!(of(Status::Spilled).len(), failed);
    assert_eq!(of(Status::Truncated).len() as u64, found["cut"].as_u64().expect("a number"));
    let timed: BTreeSet<&str> = of(Status::Ok).iter().map(|row| row.kernel_fact("source")).collect();
    assert_eq!(timed.len(), measured, "a text for each tile");
    for row in of(Status::Ok) {
        assert!(row.details["seconds"].is_f64() && row.details["compile_s"].is_f64() && row.details["prove_s"].is_f64());
        assert_eq!(row.kernel.as_ref().expect("a kernel")["registers"], 168);
    }

    let compiled = mock.compiled();
    let again = mock.tune(&[]);
    assert_eq!(mock.compiled(), compiled, "objects are in the cache");
    assert_eq!(again["measured"], found["measured"], "the same numbers");
    assert_eq!(mock.rows().len(), rows.len(), "nothing was measured again");

    let mut replay = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    replay.args(["tune", NAME, "--gpu", "h100", "--seqlen", "16,64", "--replay"]).arg(mock.0.path().join("rows.db"));
    replay.assert().code(2).stderr(predicates::str::contains("only of `Mock GPU 0`"));
}

#[test]
fn every_choice_of_a_tile_is_taken_back_and_timed_beside_the_kernel_itself() {
    let mock = Mock::new();
    let found = mock.tune_for("ladders", &["--ladder"]);
    let steps = found["steps"].as_array().expect("a list");
    let of = |status: &str| steps.iter().filter(|step| step["status"] == status).collect::<Vec<_>>();
    // The first compiled tile with fewer keys spills.
    assert_eq!(of("spilled").iter().map(|step| &step["switch"]).collect::<Vec<_>>(), ["n"], "{found}");
    let timed = of("ok");
    assert!(timed.len() > 2 && timed.iter().all(|step| step["time"]["passes"] == 5), "{found}");
    assert!(of("refused").iter().all(|step| step["message"].as_str().is_some_and(|why| !why.is_empty())), "{found}");

    let rows = mock.rows();
    assert!(rows.iter().all(|row| row.bench == "kgen tune" && row.is_of_ladder()), "{rows:?}");
    for step in steps {
        let of_step: Vec<&Row> =
            rows.iter().filter(|row| row.is_rung() && row.details["ladder"]["switch"] == step["switch"]).collect();
        let ladder = &of_step[0].details["ladder"];
        assert_eq!((&ladder["from"], &ladder["to"]), (&step["from"], &step["to"]));
        let (count, status) = if step["status"] == "ok" { (10, Status::Ok) } else { (1, of_step[0].status) };
        assert_eq!((of_step.len(), of_step[0].status.word()), (count, step["status"].as_str().expect("a word")), "{step}");
        assert!(of_step.iter().all(|row| row.status == status), "two sizes in five passes: {step}");
    }
    let own: Vec<&Row> = rows.iter().filter(|row| !row.is_rung()).collect();
    assert!(own.len() == 10 && own.iter().all(|row| row.status == Status::Ok), "{own:?}");

    let again = mock.tune_for("ladders", &["--ladder"]);
    assert_eq!((&again["steps"], mock.rows().len()), (&found["steps"], rows.len()), "nothing was measured again");

    let explain = |format: &str| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.args(["explain", NAME, "--format", format, "--db"]).arg(mock.0.path().join("rows.db"));
        command.output().expect("it runs").stdout
    };
    let explained: Value = serde_json::from_slice(&explain("json")).expect("JSON");
    for step in steps {
        let choices = explained[0]["ladder"].as_array().expect("a list");
        let choice = choices.iter().find(|choice| choice["switch"] == step["switch"]).expect("the same choices");
        match step["time"]["mean"].as_f64() {
            Some(mean) => {
                let gain = &choice["gains"][0];
                let explained = gain["time"]["mean"].as_f64().expect("a number");
                assert!((explained - mean).abs() < 1e-9 && gain["gpu"] == "Mock GPU 0", "{choice}");
            }
            None => assert!(choice["refused"].as_str().is_some_and(|why| !why.is_empty()), "{choice}"),
        }
    }
    let text = String::from_utf8(explain("human")).expect("text");
    assert!(text.contains("what the choices of the tile gain") && text.contains("Mock GPU 0"), "{text}");

    let mut report = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    report.args(["report", "--as", "csv", "--out"]).arg(mock.0.path().join("report"));
    report.arg("--db").arg(mock.0.path().join("rows.db")).assert().success();
    let table = fs::read_to_string(mock.0.path().join("report/ladder-1.csv")).expect("a ladder");
    assert_eq!(table.lines().count(), 1 + 3 * timed.len() + steps.len() - timed.len(), "{table}");
}
