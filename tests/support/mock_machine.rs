//! A machine with a mock GPU (`mock_gpu.c`) and an nvcc that makes kernels of the host.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};
use tempfile::TempDir;

/// The section that holds device code.
const DEVICE_CODE: &str = "asm(\".section .nv_fatbin,\\\"a\\\"\\n.byte 1\\n.text\");\n";

/// The script of an nvcc: `before` has the source in `$source` and the output in `$output`, and may change the host's
/// kernel, `$kernel`, and `$flags`; `facts` are the lines of ptxas. `ROOT` and `FOLDER` stand for the project's folder
/// and the machine's.
fn script(before: &str, facts: &str) -> String {
    format!(
        r#"#!/bin/sh
[ "$1" != --version ] || exec ROOT/tests/support/mock_nvcc.sh --version
output= source= shared= objects=
while [ $# -gt 0 ]; do
    case $1 in
    -o) output=$2 && shift ;;
    -c) source=$2 && shift ;;
    -shared) shared=1 ;;
    obj/*.o) objects="$objects $1" ;;
    esac
    shift
done
[ -z "$shared" ] || exec c++ -shared -o "$output" $objects
flags=-O1 kernel=ROOT/tests/support/mock_attention.cpp
{before}
echo "ptxas info    : Compiling entry function 'kernel' for 'sm_80'
ptxas info    : Function properties for kernel
{facts}" >&2
exec c++ $flags -fPIC -w -I ROOT/templates/include -include FOLDER/fat.h -c $kernel -o "$output"
"#
    )
}

/// A folder with the driver's libraries and `nvcc`, by the parts of its script.
pub fn machine(before: &str, facts: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for library in ["libcuda.so", "libnvidia-ml.so.1"] {
        let mut command = Command::new("cc");
        command.args(["-O2", "-shared", "-fPIC", "-w", "-o"]).arg(folder.path().join(library));
        assert!(command.arg(root.join("tests/support/mock_gpu.c")).status().expect("a compiler").success());
    }
    let script = script(before, facts).replace("ROOT", &root.display().to_string());
    let nvcc = folder.path().join("nvcc");
    fs::write(&nvcc, script.replace("FOLDER", &folder.path().display().to_string())).expect("written");
    fs::set_permissions(&nvcc, fs::Permissions::from_mode(0o755)).expect("made executable");
    fs::write(folder.path().join("fat.h"), DEVICE_CODE).expect("written");
    folder
}
