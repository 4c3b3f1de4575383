//! `kgen bench` where it cannot time anything, which is all that a machine without a GPU can tell.

use assert_cmd::Command;
use kgen::device::GpuInfo;
use predicates::{prelude::PredicateBooleanExt, str::contains};

fn bench(flags: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.arg("bench").args(flags).current_dir(std::env::temp_dir());
    command
}

#[test]
fn without_a_gpu_it_says_so_and_what_to_do() {
    if GpuInfo::probe().is_ok() {
        return;
    }
    let said = contains("no GPU").and(contains("NVIDIA GPU and its driver")).and(contains("check --device emulator"));
    bench(&["--head-dim", "64", "--dtype", "bf16"]).assert().code(3).stdout("").stderr(said);
}

#[test]
fn bad_usage_is_told_before_a_gpu_is_looked_for() {
    bench(&["--kind", "fwd_combine"]).assert().code(2).stderr(contains("no shape of their own"));
    bench(&["--heads", "8", "--heads-k", "3"]).assert().code(2).stderr(contains("`--heads-k`"));
    bench(&["--seqlen", "64", "--seqlen-k", "128"]).assert().code(2).stderr(contains("cannot be used with"));
    for flag in ["--rounds", "--measure-ms", "--batch", "--seqlen"] {
        bench(&[flag, "0"]).assert().code(2).stderr(contains(flag));
    }
}
