//! Forward kernels whose K and V come by TMA, as `scripts/tma.toml` declares them for the GPU script, pass the check on the
//! emulator: one and two stages, both masks, panels of every width, padded head dims. So do those of `scripts/hopper_fp8.toml`, which
//! no default grid holds yet.

use std::{path::Path, process::Command};

/// Checks a grid of `scripts/` at some head dims on the emulator; `all` is what it then says.
fn assert_all_pass(grid: &str, head_dims: &str, all: &str) {
    let cache = tempfile::tempdir().expect("a temporary folder");
    let mut kgen = Command::new(env!("CARGO_BIN_EXE_kgen"));
    kgen.env("XDG_CACHE_HOME", cache.path()).arg("--variants");
    kgen.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(grid));
    kgen.args(["check", "--device", "emulator", "--head-dim", head_dims, "--fresh"]);
    let done = kgen.output().expect("it starts");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    assert!(text.contains(all), "{text}");
}

#[test]
fn kernels_that_copy_by_tma_pass_on_the_emulator() {
    assert_all_pass("tma.toml", "24,72,112", "12 of 12 variants passed");
}

#[test]
fn fp8_kernels_of_hopper_pass_on_the_emulator() {
    assert_all_pass("hopper_fp8.toml", "32,80,128,224,256", "10 of 10 variants passed");
}
