//! The programs of `tests/emulator/` that specify the emulator's primitives and rules of the machine.

use super::Bodies;
use kgen::toolchain::host_compiler_in_process;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub fn statements() -> Bodies {
    vec![
        ("every primitive means what its test says", || all_hold("primitives")),
        ("mbarriers and copies by TMA mean what their test says", || all_hold("tma_primitives")),
        ("clusters mean what their test says", || all_hold("cluster_primitives")),
        ("products of warpgroups mean what their test says", || all_hold("wgmma_primitives")),
    ]
}

/// Compiles and runs a program of statements.
fn all_hold(statements: &str) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(statements);
    let mut compiler = Command::new(host_compiler_in_process().expect("a host compiler").path);
    compiler.args(["-std=c++17", "-ffp-contract=off", "-O1", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg("-I").arg(root.join("templates/emulator")).arg("-I").arg(root.join("templates/include"));
    compiler.arg(root.join(format!("tests/emulator/{statements}.cpp"))).arg(root.join("templates/emulator/runtime.cpp"));
    if !compiler.arg("-o").arg(&program).status().expect("it starts").success() {
        return Err(format!("{statements}.cpp does not compile"));
    }
    let done = Command::new(&program).output().expect("it starts");
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stdout).into_owned()) }
}
