//! Forward kernels whose K and V are loaded by TMA, as `scripts/tma.toml` declares them for the GPU script, pass the
//! check on the emulator: one and two stages, both masks, panels of every width, padded head dims.

use crate::support::emulator::lend_emulator;
use std::{path::Path, process::Command};

#[test]
fn kernels_that_copy_by_tma_pass_on_the_emulator() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    lend_emulator(cache.path());
    let mut kgen = Command::new(env!("CARGO_BIN_EXE_kgen"));
    kgen.env("XDG_CACHE_HOME", cache.path()).arg("--variants");
    kgen.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/tma.toml"));
    kgen.args(["check", "--device", "emulator", "--head-dim", "24,72,112", "--fresh"]);
    let done = kgen.output().expect("it starts");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    assert!(text.contains("12 of 12 variants passed"), "{text}");
}
