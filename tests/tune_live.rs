//! `kgen tune` without a GPU and without nvcc: a mock driver, a compiler that makes a kernel of the host of every tile,
//! and proofs on the emulator.

use assert_cmd::Command;
use kgen::lab::{Condition, Row, Status, Store};
use serde_json::Value;
use std::{collections::BTreeSet, fs, path::Path, process};
use tempfile::TempDir;

const NAME: &str = "flash_fwd_hdim16_bf16_sm80";

/// A compiler: the kernel on the host for every source, and spills for the first one whose key tile is not the
/// default's.
const NVCC: &str = r#"#!/bin/sh
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
echo compiled >>FOLDER/compiled
spill=0
if ! grep -q 'BLOCK_N = 64;' "$source" && mkdir FOLDER/spilled 2>/dev/null; then spill=48; fi
echo "ptxas info    : Compiling entry function 'kernel' for 'sm_80'
ptxas info    : Function properties for kernel
    $spill bytes stack frame, $spill bytes spill stores, $spill bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, $spill bytes cumulative stack size, 576 bytes cmem[0]" >&2
exec c++ -O1 -fPIC -w -I ROOT/templates/include -include FOLDER/fat.h -c ROOT/tests/support/mock_attention.cpp -o "$output"
"#;

/// The section that holds device code.
const DEVICE_CODE: &str = "asm(\".section .nv_fatbin,\\\"a\\\"\\n.byte 1\\n.text\");\n";

struct Mock(TempDir);

impl Mock {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for library in ["libcuda.so", "libnvidia-ml.so.1"] {
            let mut command = process::Command::new("cc");
            command.args(["-O2", "-shared", "-fPIC", "-w", "-o"]).arg(folder.path().join(library));
            assert!(command.arg(root.join("tests/support/mock_gpu.c")).status().expect("a compiler").success());
        }
        let script = NVCC.replace("ROOT", &root.display().to_string()).replace("FOLDER", &folder.path().display().to_string());
        let nvcc = folder.path().join("nvcc");
        fs::write(&nvcc, script).expect("written");
        fs::set_permissions(&nvcc, fs::Permissions::from_mode(0o755)).expect("made executable");
        fs::write(folder.path().join("fat.h"), DEVICE_CODE).expect("written");
        Self(folder)
    }

    fn tune(&self, flags: &[&str]) -> Value {
        let folder = self.0.path();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.args(["tune", NAME, "--gpu", "h100", "--budget", "6", "--prove-on-emulator", "--offline"]);
        command.args(["--batch", "1", "--heads", "1", "--seqlen", "16,64", "--held-out", "32"]);
        command.args(["--rounds", "3", "--warm-up-ms", "1", "--measure-ms", "2", "--format", "json"]).args(flags);
        command.env("LD_LIBRARY_PATH", folder).env("XDG_CACHE_HOME", folder.join("cache")).env_remove("KGEN_VARIANTS");
        command.arg("--nvcc").arg(folder.join("nvcc")).arg("--db").arg(folder.join("rows.db")).current_dir(folder);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")["searches"][0].take()
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
