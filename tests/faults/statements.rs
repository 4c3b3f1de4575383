//! The programs of `tests/emulator/` that state what the emulator's primitives mean.

use kgen::toolchain::host_compiler_in_process;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Compiles and runs a program of `tests/emulator/` that states the semantics of device primitives, and rules of the
/// machine.
fn assert_all_statements_hold(statements: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(statements);
    let mut compiler = Command::new(host_compiler_in_process().expect("a host compiler").path);
    compiler.args(["-std=c++17", "-ffp-contract=off", "-O1", "-Wall", "-Wextra", "-Werror"]);
    compiler.arg("-I").arg(root.join("templates/emulator")).arg("-I").arg(root.join("templates/include"));
    compiler.arg(root.join(format!("tests/emulator/{statements}.cpp"))).arg(root.join("templates/emulator/runtime.cpp"));
    assert!(compiler.arg("-o").arg(&program).status().expect("it starts").success());
    let done = Command::new(&program).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}

#[test]
fn every_primitive_of_the_emulator_means_what_its_test_says() {
    assert_all_statements_hold("primitives");
}

#[test]
fn mbarriers_and_copies_by_tma_mean_what_their_test_says() {
    assert_all_statements_hold("tma_primitives");
}

#[test]
fn clusters_mean_what_their_test_says() {
    assert_all_statements_hold("cluster_primitives");
}

#[test]
fn products_of_warpgroups_mean_what_their_test_says() {
    assert_all_statements_hold("wgmma_primitives");
}
