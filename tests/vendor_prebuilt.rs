//! `kgen vendor vllm PATH --prebuilt DIR` through the binary, on a folder with the files that kgen requires of an
//! installed vLLM.

use assert_cmd::{Command, assert::Assert};
use predicates::{prelude::*, str::contains};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process,
};

const FOLDER: &str = "site-packages/vllm/vllm_flash_attn";
const MODULES: [&str; 2] = ["_vllm_fa2_C.abi3.so", "_vllm_fa3_C.abi3.so"];
const LIBRARY: &str = "libkgen_vllm.so";
const RECORD: &str = "kgen-prebuilt.json";

/// An installed vLLM, and two builds of the modules, `first` and `second`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("temporary folder"));
        fs::create_dir_all(place.path(FOLDER)).expect("made");
        place
            .write(&format!("{FOLDER}/flash_attn_interface.py"), "torch.ops._vllm_fa2_C.varlen_fwd\ntorch.ops._vllm_fa3_C.fwd\n");
        for module in MODULES {
            place.write(&format!("{FOLDER}/{module}"), &format!("vLLM's own {module}"));
        }
        for (number, build) in ["first", "second"].iter().enumerate() {
            fs::create_dir(place.path(build)).expect("made");
            for module in MODULES {
                let name = module.strip_suffix(".abi3.so").expect("it ends so");
                place.compile(&format!("int PyInit_{name}(void) {{ return {number}; }}"), &format!("{build}/{module}"));
            }
            let text = ["kgen_fwd", "kgen_fwd_metadata", "kgen_last_error"]
                .map(|name| format!("int {name}(void) {{ return {number}; }}"));
            place.compile(&text.concat(), &format!("{build}/{LIBRARY}"));
        }
        place
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    fn write(&self, relative: &str, text: &str) {
        fs::write(self.path(relative), text).expect("written");
    }

    fn compile(&self, text: &str, to: &str) {
        let source = self.path("source.c");
        fs::write(&source, text).expect("written");
        let mut compiler = process::Command::new("cc");
        compiler.args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(self.path(to));
        assert!(compiler.status().expect("there is a compiler").success());
    }

    fn vendor(&self, path: &str, line: &str) -> Assert {
        let mut command = Command::cargo_bin("kgen").expect("the binary is built");
        command.current_dir(self.0.path()).env_remove("KGEN_VARIANTS");
        command.args(["vendor", "vllm", path]).args(line.split_whitespace()).assert()
    }

    /// Runs a command on the `site-packages` folder.
    fn there(&self, line: &str) -> Assert {
        self.vendor("site-packages", line)
    }

    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.path(FOLDER)).expect("readable").map(|entry| entry.expect("readable").path());
        entries.map(|path| (name_of(&path), fs::read(&path).expect("readable"))).collect()
    }

    fn holds(&self, build: &str) -> bool {
        let files = self.files();
        [MODULES[0], MODULES[1], LIBRARY]
            .iter()
            .all(|name| files.get(*name) == fs::read(self.path(build).join(name)).ok().as_ref())
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().expect("it has one").to_string_lossy().into_owned()
}

#[test]
fn the_modules_are_replaced_and_put_back_byte_for_byte() {
    let place = Place::new();
    let before = place.files();
    place
        .there("--prebuilt first --dry-run")
        .success()
        .stdout(contains("update  _vllm_fa3_C.abi3.so\n").and(contains("nothing was written")));
    place.there("--prebuilt first --check").code(1).stderr(contains("_vllm_fa2_C.abi3.so"));
    assert_eq!(place.files(), before);
    place.there("--prebuilt first").success().stdout(contains("add     libkgen_vllm.so\n"));
    assert!(place.holds("first"));
    for module in MODULES {
        assert_eq!(place.files()[&format!("{module}.kgen-original")], before[module]);
    }
    place.there("--prebuilt --check").success();
    place.there("--prebuilt first --check").success();
    let after = place.files();
    place.there("--prebuilt first").success().stdout(contains("nothing to do"));
    assert_eq!(place.files(), after);
    place.there("--prebuilt --remove --dry-run").success().stdout(contains("remove  libkgen_vllm.so\n"));
    assert_eq!(place.files(), after);
    place.there("--prebuilt --remove").success();
    assert_eq!(place.files(), before);
    place.there("--prebuilt --remove").success().stdout(contains("nothing to do"));
    place.there("--prebuilt --check").code(2).stderr(contains("nothing of kgen's is there"));
}

#[test]
fn another_build_replaces_the_first_and_the_originals_stay() {
    let place = Place::new();
    let before = place.files();
    place.there("--prebuilt first").success();
    place.there("--prebuilt second --check").code(1);
    place.vendor(FOLDER, "--prebuilt second").success();
    assert!(place.holds("second"));
    place.vendor("site-packages/vllm", "--prebuilt --remove").success();
    assert_eq!(place.files(), before);
}

#[test]
fn a_module_that_vllm_was_installed_without_is_added_and_removed() {
    let place = Place::new();
    fs::remove_file(place.path(FOLDER).join(MODULES[1])).expect("removed");
    let before = place.files();
    place.there("--prebuilt first").success();
    place.there("--prebuilt --remove").success();
    assert_eq!(place.files(), before);
}

#[test]
fn what_was_interrupted_is_finished_or_undone() {
    let place = Place::new();
    let before = place.files();
    place.there("--prebuilt first").success();
    // The state after an original was renamed, before kgen's file exists.
    fs::remove_file(place.path(FOLDER).join(MODULES[1])).expect("removed");
    let between = place.files();
    place.there("--prebuilt first").success();
    assert!(place.holds("first"));
    fs::remove_file(place.path(FOLDER).join(MODULES[1])).expect("removed");
    assert_eq!(place.files(), between);
    place.there("--prebuilt --remove").success();
    assert_eq!(place.files(), before);
    // The state after the record was written, before anything else.
    let record = {
        place.there("--prebuilt first").success();
        place.files()[RECORD].clone()
    };
    place.there("--prebuilt --remove").success();
    fs::write(place.path(FOLDER).join(RECORD), record).expect("written");
    place.there("--prebuilt second").success();
    assert!(place.holds("second"));
    place.there("--prebuilt --remove").success();
    assert_eq!(place.files(), before);
}

#[test]
fn nobody_elses_file_is_lost() {
    for (change, name) in [
        ("another", MODULES[1].to_owned()),                   // vLLM was installed again
        ("another", format!("{}.kgen-original", MODULES[1])), // the original was modified
    ] {
        let place = Place::new();
        place.there("--prebuilt first").success();
        place.write(&format!("{FOLDER}/{name}"), change);
        let before = place.files();
        for line in ["--prebuilt second", "--prebuilt second --dry-run", "--prebuilt --remove", "--prebuilt --remove --dry-run"] {
            place.there(line).code(2).stderr(contains(MODULES[1]));
            assert_eq!(place.files(), before, "{name}: {line}");
        }
        place.there("--prebuilt --check").code(1).stderr(contains(name.as_str()));
    }
    let place = Place::new();
    place.write(&format!("{FOLDER}/{LIBRARY}"), "somebody's");
    place.there("--prebuilt first").code(2).stderr(contains(LIBRARY));
    fs::remove_file(place.path(FOLDER).join(LIBRARY)).expect("removed");
    place.write(&format!("{FOLDER}/{}.kgen-original", MODULES[0]), "left behind");
    place.there("--prebuilt first").code(2).stderr(contains(MODULES[0]));
    // Without its original, a module of kgen's is not removed: no module would be left.
    let place = Place::new();
    place.there("--prebuilt first").success();
    fs::remove_file(place.path(FOLDER).join(format!("{}.kgen-original", MODULES[0]))).expect("removed");
    place.there("--prebuilt --check").code(1);
    place.there("--prebuilt --remove").code(2).stderr(contains(MODULES[0]));
}

#[test]
fn what_is_no_installed_vllm_or_no_module_is_refused() {
    let place = Place::new();
    place.vendor("first", "--prebuilt first").code(2).stderr(contains("is not an installed vLLM that kgen knows"));
    place.there("--prebuilt").code(2).stderr(contains("needs the folder with the built modules"));
    place.there("--prebuilt nowhere").code(2).stderr(contains("cannot take the place of vLLM's"));
    place.there("--prebuilt first --head-dim 64").code(2).stderr(contains("leave out the selection"));
    place.write(&format!("first/{}", MODULES[0]), "text");
    place.there("--prebuilt first").code(2).stderr(contains("is no ELF file"));
    fs::copy(place.path(&format!("second/{}", MODULES[1])), place.path(&format!("first/{}", MODULES[0]))).expect("copied");
    place.there("--prebuilt first").code(2).stderr(contains("does not define `PyInit__vllm_fa2_C`"));
    for module in MODULES {
        fs::remove_file(place.path(FOLDER).join(module)).expect("removed");
    }
    place.there("--prebuilt second").code(2).stderr(contains("vLLM is not installed there"));
    place.write(&format!("{FOLDER}/flash_attn_interface.py"), "another vLLM");
    place.there("--prebuilt second").code(2).stderr(contains("does not call `_vllm_fa2_C.varlen_fwd`"));
}
