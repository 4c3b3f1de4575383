//! `kgen probe`: its kernels as machine code, where this machine has nvcc, and the command with a mock driver and
//! kernels of the host (`support/mock_probe.cpp`).

use crate::support::mock_machine;
use assert_cmd::Command;
use kgen::{
    device::GpuInfo,
    kernel::Target,
    lab::{Condition, Row, Status, Store},
    plan::nvcc_flags,
    probe::Probe,
    render::{Renderer, Templates},
    toolchain::{Cancel, Disassembler, Nvcc, NvccRequest, find_disassembler, find_nvcc},
};
use predicates::{prelude::PredicateBooleanExt, str::contains};
use rayon::prelude::*;
use serde_json::Value;
use std::{fs, path::Path, process};
use tempfile::TempDir;

/// The host's kernel that stands for each source.
const BEFORE: &str = r#"kernel=ROOT/tests/support/mock_probe.cpp
flags="-O1 -DPROBE=$(basename "$source" .cu)""#;

const FACTS: &str = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers, used 1 barriers, 576 bytes cmem[0]";

/// A machine with a GPU of compute capability 9.0 and nvcc.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(mock_machine::machine(BEFORE, FACTS))
    }

    fn kgen(&self, arguments: &[&str]) -> Command {
        let folder = self.0.path();
        let mut kgen = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        kgen.args(arguments).current_dir(folder).env("LD_LIBRARY_PATH", folder).env("XDG_CACHE_HOME", folder.join("cache"));
        kgen.env("KGEN_DB", folder.join("rows.db")).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES");
        kgen
    }

    fn probe(&self, flags: &[&str]) -> Command {
        let nvcc = self.0.path().join("nvcc").display().to_string();
        let short = ["probe", "--offline", "--nvcc", &nvcc, "--rounds", "3", "--warm-up-ms", "1", "--measure-ms", "3"];
        self.kgen(&[&short[..], flags].concat())
    }

    fn rows(&self) -> Vec<Row> {
        Store::open_existing(&self.0.path().join("rows.db")).expect("a store").rows(&Condition::default()).expect("read")
    }
}

fn json(command: &mut Command, code: i32) -> Value {
    let output = command.args(["--format", "json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn names() -> Vec<&'static str> {
    Probe::of(Target::Sm90).map(|probe| probe.name).collect()
}

#[test]
fn without_a_gpu_it_says_so_and_bad_usage_is_told_before() {
    let kgen = |flags: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.arg("probe").args(flags).current_dir(std::env::temp_dir()).env_remove("KGEN_DB");
        command
    };
    kgen(&["--only", "dram_reed"]).assert().code(2).stderr(contains("`dram_reed` is no probe; did you mean `dram_read`?"));
    kgen(&["--rounds", "0"]).assert().code(2).stderr(contains("--rounds"));
    if GpuInfo::probe().is_err() {
        kgen(&[]).assert().code(3).stdout("").stderr(contains("no GPU").and(contains("NVIDIA GPU and its driver")));
    }
}

#[test]
fn constants_are_measured_compared_kept_and_written_for_predictions() {
    let machine = Machine::new();
    let found = json(&mut machine.probe(&["--out", "probe.toml"]), 0);
    assert_eq!((&found["gpu"]["info"]["name"], &found["target"]), (&"Mock GPU 0".into(), &"sm90".into()));
    let constants = found["constants"].as_array().expect("a list");
    let of = |name: &str| constants.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    let median = |name: &str| of(name)["median"].as_f64().expect("a number");
    // A step of a block takes 8192 cycles at 2 GHz.
    for (name, value) in [
        ("dram_read_bytes_a_cycle", 2.0 * 65536.0 / 8192.0),
        ("shared_read_bytes_a_cycle", 32768.0 / 8192.0),
        ("exp2_a_cycle", 65536.0 / 8192.0),
        ("fma_a_cycle", 262_144.0 / 8192.0),
        ("mma_bf16_flops_a_cycle", 2_097_152.0 / 8192.0),
        ("wgmma_bf16_flops_a_cycle", 16_777_216.0 / 8192.0),
        ("wgmma_e4m3_flops_a_cycle", 33_554_432.0 / 8192.0),
        ("wgmma_bf16_mhz", 2000.0),
        ("dram_latency_cycles", 8192.0 / 16.0),
        ("dram_latency_ns", 4096.0 / 16.0),
        ("shared_latency_cycles", 8192.0 / 64.0),
        ("barrier_cycles", 8192.0 / 16.0),
    ] {
        assert!((median(name) / value - 1.0).abs() < 1e-9, "{name}: {}, expected {value}", median(name));
        assert_eq!(of(name)["n"], 3, "{name}");
    }
    // The host takes at least that time, and the mock's card has 10 multiprocessors.
    assert!(median("wgmma_bf16_tflops") <= 2048.0 * 10.0 * 2e9 / 1e12 && median("launch_us") > 0.0);
    // By the driver: a clock of 1 GHz, 4096 bits at 1 GHz.
    assert_eq!((&of("wgmma_bf16_mhz")["rated"], &of("wgmma_bf16_mhz")["ratio"]), (&1000.0.into(), &2.0.into()));
    assert_eq!(of("dram_copy_gbs")["rated"], 1024.0);
    assert!(of("barrier_cycles")["rated"].is_null());

    let rows = machine.rows();
    assert_eq!(rows.iter().map(|row| row.case.as_str()).collect::<Vec<_>>(), names());
    for row in &rows {
        assert_eq!((row.bench.as_str(), row.status, row.gpu(), row.flaw()), ("kgen probe", Status::Ok, "Mock GPU 0", None));
    }
    let numbers = rows.iter().find(|row| row.case == "dram_latency").and_then(|row| row.numbers.as_ref()).expect("numbers");
    assert_eq!((&numbers["dram_latency_ns"]["median"], &numbers["dram_latency_ns"]["unit"]), (&256.0.into(), &"ns".into()));

    let predict =
        |gpu: &str| json(machine.kgen(&["predict", "flash_fwd_hdim128_bf16_sm90"]).args(["--seqlen", "4096", "--gpu", gpu]), 0);
    let by_probe = predict("probe.toml");
    let card = &by_probe["cards"][0];
    assert_eq!((&card["gpu"], &card["probed"]), (&"Mock GPU 0 (probed)".into(), &"Mock GPU 0".into()));
    assert_eq!(card["date"], found["date"]);
    let number = |name: &str| {
        let constants = card["constants"].as_array().expect("a list");
        constants.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {card}"))
    };
    assert_eq!((&number("clock")["value"], &number("clock")["source"]), (&2000.0.into(), &"probe".into()));
    assert_eq!((&number("wgmma, 16 bits")["value"], &number("wgmma, 16 bits")["source"]), (&2048.0.into(), &"probe".into()));
    assert_eq!(number("L2")["source"], "fitted");
    let said = contains("numbers of Mock GPU 0 (probed): probe of ").and(contains("fitted to an H100"));
    machine.kgen(&["predict", "vector_add_bf16_sm80", "--gpu", "probe.toml"]).assert().success().stdout(said);
    let said = contains("numbers of h100: data sheet");
    machine.kgen(&["predict", "vector_add_bf16_sm80", "--gpu", "h100"]).assert().success().stdout(said);

    // Half the rate of tensor cores is a longer time.
    let file = machine.0.path().join("probe.toml");
    let text = fs::read_to_string(&file).expect("it was written");
    assert!(text.contains("\nwgmma_bf16_flops_a_cycle = { median = 2048.0"), "{text}");
    let slower = text.replace(
        "flops_a_cycle = { median = 2048.0, interval = [2048.0, 2048.0]",
        "flops_a_cycle = { median = 1024.0, interval = [1024.0, 1024.0]",
    );
    fs::write(&file, slower).expect("written");
    let time = |found: &Value| found["calls"][0]["estimate"].as_f64().expect("a time");
    assert!(time(&predict("probe.toml")) > 1.2 * time(&by_probe));
}

#[test]
fn a_probe_that_crashes_hangs_refuses_stands_still_or_is_too_fast_fails_alone() {
    let machine = Machine::new();
    for (how, status, message) in [
        ("crash", "crash", "SIGSEGV"),
        ("hang", "timeout", "no result within 2 s"),
        ("refuse", "error", "the mock's last words"),
        ("stand", "error", "a clock stood still"),
        ("race", "refused", "beyond the 4096 of this card"),
    ] {
        let mut probe = machine.probe(&["--only", "fma,wgmma_bf16,wgmma_e4m3", "--time-limit", "2", "--no-db"]);
        let found = json(probe.env("MOCK_PROBE", "wgmma_bf16").env("MOCK_PROBE_AS", how), 1);
        let probes = found["probes"].as_array().expect("a list");
        let statuses: Vec<&str> = probes.iter().map(|probe| probe["status"].as_str().expect("a word")).collect();
        assert_eq!(statuses, ["ok", status, "ok"], "{how}: {found}");
        assert!(probes[1]["message"].as_str().is_some_and(|said| said.contains(message)), "{how}: {}", probes[1]);
        let constants = found["constants"].as_array().expect("a list");
        assert!(constants.iter().all(|one| !one["name"].as_str().expect("a name").starts_with("wgmma_bf16")), "{how}");
    }
    assert!(!machine.0.path().join("rows.db").exists(), "`--no-db` adds no rows");
}

#[test]
fn a_report_draws_what_was_probed_beside_the_cards_peak() {
    let machine = Machine::new();
    machine.probe(&["--only", "dram_read,wgmma_bf16"]).assert().success();
    let timed = serde_json::json!({
        "format": 1, "bench": "kgen bench", "case": "x", "contender": "kgen", "own": true, "status": "ok", "message": "",
        "shape": { "batch": 1 }, "dtype": "bf16", "layout": null, "card": {}, "details": {},
        "numbers": { "microseconds": { "median": 10.0 }, "tflops": 5.0, "bytes": 1e6 },
        "run": { "id": "a", "date": "2026-11-28T00:00:00Z", "gpu": { "name": "Mock GPU 0" },
                 "ceiling": { "tflops_16_bit": 41.0, "memory_gbs": 1024.0 } },
    });
    fs::write(machine.0.path().join("timed.jsonl"), format!("{timed}\n")).expect("written");
    machine.kgen(&["report", "--rows", "timed.jsonl", "--out", "without.html"]).assert().success();
    machine.kgen(&["report", "--rows", "timed.jsonl", "--out", "with.html", "--db", "rows.db"]).assert().success();
    let page = |name: &str| fs::read_to_string(machine.0.path().join(name)).expect("a page");
    assert!(page("without.html").contains("1024 GB/s") && !page("without.html").contains("GB/s, measured"));
    assert!(page("with.html").contains("GB/s, measured") && page("with.html").contains("TFLOP/s, measured"));
}

#[test]
fn a_file_that_is_not_understood_is_refused_with_its_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = "format = 1\nkgen = \"0.1.0\"\ndate = \"2026-11-28T12:00:00Z\"\n[card]\nname = \"NVIDIA H100 80GB HBM3\"\n\
                compute_capability = 90\nmultiprocessors = 132\nclock_mhz = 1755\nmemory_gbs = 3350\nl2_mb = 50\n\
                [constants]\ndram_read_gbs = { median = 3000.0, interval = [2990.0, 3010.0], n = 20, unit = \"GB/s\" }\n";
    let file = folder.path().join("probe.toml");
    let predict = |text: &str| {
        fs::write(&file, text).expect("written");
        let mut kgen = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        kgen.args(["predict", "vector_add_bf16_sm80", "--gpu", "probe.toml"]).current_dir(folder.path());
        kgen.assert()
    };
    predict(good).success().stdout(contains("h100 (probed)"));
    for (find, replace, said) in [
        ("format = 1", "format = 2", "form 2 is not known"),
        ("format = 1\n", "", "the key `format` is missing"),
        ("clock_mhz", "clock", "unknown key `clock`"),
        ("compute_capability = 90", "compute_capability = 91", "no GPU has these numbers"),
        ("multiprocessors = 132", "multiprocessors = 0", "no GPU has these numbers"),
        ("dram_read_gbs", "dram_reed_gbs", "did you mean `dram_read_gbs`?"),
        ("\"GB/s\"", "\"TFLOP/s\"", "`dram_read_gbs` is in GB/s, not in TFLOP/s"),
        ("median = 3000.0", "median = 4000.0", "`dram_read_gbs` is no measured number"),
        ("median = 3000.0", "median = nan", "`dram_read_gbs` is no measured number"),
        ("n = 20", "n = many", "probe.toml:12"),
    ] {
        assert!(good.contains(find), "{find}");
        predict(&good.replace(find, replace)).code(2).stderr(contains(said).and(contains("probe.toml")));
    }
    fs::remove_file(&file).expect("removed");
    let mut kgen = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    kgen.args(["predict", "vector_add_bf16_sm80", "--gpu", "probe.toml"]).current_dir(folder.path());
    kgen.assert().code(2).stderr(contains("`probe.toml` cannot be read").and(contains("kgen probe --out probe.toml")));
}

/// What one machine instruction of a probe does for a block's amount: the beginning of its name, and how much.
fn instruction(probe: &Probe) -> Option<(&'static str, u64)> {
    const PIECE: u64 = 32 * 16;
    Some(match probe.name {
        "launch" | "launch_graph" => return None,
        "dram_read" | "l2_read" => ("LDG.E.128", PIECE),
        "dram_write" => ("STG.E.128", PIECE),
        // Read once and written once.
        "dram_copy" => ("LDG.E.128", 2 * PIECE),
        "shared_read" => ("LDS.", PIECE),
        "dram_latency" | "l2_latency" => ("LDG.E.64.STRONG.GPU", 1),
        "shared_latency" => ("LDS", 1),
        "barrier" => ("BAR.SYNC", 1),
        "exp2" => ("MUFU.EX2", 32),
        "fma" => ("FFMA", 32),
        "mma_fp16" => ("HMMA.16816.F32 ", 2 * 16 * 8 * 16),
        "mma_bf16" => ("HMMA.16816.F32.BF16", 2 * 16 * 8 * 16),
        "mma_e4m3" => ("QMMA.16832.F32.E4M3.E4M3", 2 * 16 * 8 * 32),
        "wgmma_bf16" => ("HGMMA.64x256x16.F32.BF16", 2 * 64 * 256 * 16),
        "wgmma_e4m3" => ("QGMMA.64x256x32.F32.E4M3.E4M3", 2 * 64 * 256 * 32),
        other => panic!("`{other}` has no machine instruction here"),
    })
}

/// The bodies of the loops of a listing: from a label to the branch back to it.
fn loops(listing: &str) -> Vec<String> {
    let lines: Vec<&str> = listing.lines().collect();
    let ends = lines.iter().enumerate().filter_map(|(end, line)| {
        let label = line.split_once(" BRA").and_then(|(_, rest)| rest.split_once("`("))?.1.split(')').next()?;
        let begin = lines[..end].iter().position(|line| line.trim() == format!("{label}:"))?;
        Some(lines[begin..end].join("\n"))
    });
    ends.collect()
}

/// Compiles a probe alone: the log of ptxas, and the listing of the machine code.
fn compiled(probe: &Probe, target: Target, text: &str, nvcc: &Nvcc, tools: &Disassembler, folder: &Path) -> [String; 2] {
    let name = format!("{}_{target}", probe.name);
    let (source, cubin) = (folder.join(format!("{name}.cu")), folder.join(format!("{name}.cubin")));
    fs::write(&source, text).expect("written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/include");
    let run = |command: &mut process::Command| {
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {said}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), said)
    };
    let mut compile = process::Command::new(&nvcc.path);
    compile
        .args(nvcc_flags(target, false))
        .args(["-Xptxas=-v", "-cubin"])
        .arg("-I")
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(&cubin);
    let (_, log) = run(&mut compile);
    let (listing, _) = run(process::Command::new(&tools.nvdisasm).args(["--print-code", "--no-dataflow"]).arg(&cubin));
    [log, listing]
}

#[test]
fn the_loop_of_a_probe_has_as_many_instructions_as_its_formula_counts_and_nothing_spills() {
    let request = NvccRequest { flag: None, offline: true, cancel: Cancel::default() };
    let quiet = |_: &str| ();
    let nvcc = match find_nvcc(&request, &quiet) {
        Ok(nvcc) => nvcc,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let tools = match find_disassembler(&nvcc, true, &request.cancel, &quiet) {
        Ok(tools) => tools,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let renderer = Renderer::new(&Templates::embedded()).expect("templates parse");
    let targets = [Target::Sm80, Target::Sm89, Target::Sm90, Target::Sm120];
    let all: Vec<(Target, &Probe)> =
        targets.into_iter().flat_map(|target| Probe::of(target).map(move |probe| (target, probe))).collect();
    all.par_iter().for_each(|(target, probe)| {
        let text = renderer.program(probe.template(), &probe.words()).expect(probe.name);
        let [log, listing] = compiled(probe, *target, &text, &nvcc, &tools, folder.path());
        let what = format!("{} for {target}", probe.name);
        assert!(!log.contains("(C75"), "{what}: ptxas serialises products\n{log}");
        let spills = log.lines().filter(|line| line.contains("spill"));
        assert!(spills.clone().count() > 0, "{what}: {log}");
        for line in spills {
            assert!(line.contains("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), "{what}: {line}");
        }
        let Some((name, each)) = instruction(probe) else { return };
        // A chain is followed by one warp, and a barrier is one event; all else is done by every warp or warpgroup.
        let is_event = ["latency", "barrier"].iter().any(|kind| probe.name.contains(kind));
        let each = if is_event { each } else { each * executors(probe) };
        let count = |body: &String| body.lines().filter(|line| line.contains(&format!(" {name}"))).count() as u64;
        let found = loops(&listing).iter().map(count).max().unwrap_or_default();
        assert_eq!(found * each, probe.amount(), "{what}: {found} instructions `{name}` in the loop\n{listing}");
    });
}

/// Warps of a block, or warpgroups if its products are those of warpgroups.
fn executors(probe: &Probe) -> u64 {
    let words = probe.words();
    let word = if probe.name.starts_with("wgmma") { "warpgroups" } else { "warps" };
    words[word].as_u64().expect("a number")
}
