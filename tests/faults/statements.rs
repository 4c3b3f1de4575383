//! The programs of `tests/emulator/` that specify the emulator's primitives and rules of the machine, and what headers
//! compute on the host.

use super::Bodies;
use kgen::toolchain::host_compiler_in_process;
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

pub fn statements() -> Bodies {
    vec![
        ("every primitive means what its test says", || all_hold("primitives")),
        ("mbarriers and copies by TMA mean what their test says", || all_hold("tma_primitives")),
        ("clusters mean what their test says", || all_hold("cluster_primitives")),
        ("products of warpgroups mean what their test says", || all_hold("wgmma_primitives")),
        ("groups of heads give all blocks nearly the same work", || all_hold("work_groups")),
    ]
}

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The compiler with the flags of programs and runtime.
fn compiler() -> Command {
    let mut compiler = Command::new(host_compiler_in_process().expect("a host compiler").path);
    compiler.args(["-std=c++17", "-ffp-contract=off", "-O1", "-Wall", "-Wextra", "-Werror"]);
    for headers in ["templates/emulator", "templates/include"] {
        compiler.arg("-I").arg(Path::new(ROOT).join(headers));
    }
    compiler
}

/// The runtime's object, compiled once for all programs; `None` if it does not compile.
fn runtime() -> Option<&'static Path> {
    static RUNTIME: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let object = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("statements_runtime.o");
        let mut compiler = compiler();
        compiler.arg("-c").arg(Path::new(ROOT).join("templates/emulator/runtime.cpp")).arg("-o").arg(&object);
        compiler.status().expect("it starts").success().then_some(object)
    });
    RUNTIME.as_deref()
}

/// Compiles and runs a program of statements.
fn all_hold(statements: &str) -> Result<(), String> {
    let runtime = runtime().ok_or("runtime.cpp does not compile")?;
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(statements);
    let source = Path::new(ROOT).join(format!("tests/emulator/{statements}.cpp"));
    if !compiler().arg(source).arg(runtime).arg("-o").arg(&program).status().expect("it starts").success() {
        return Err(format!("{statements}.cpp does not compile"));
    }
    let done = Command::new(&program).output().expect("it starts");
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stdout).into_owned()) }
}
