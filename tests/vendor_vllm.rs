//! `kgen vendor vllm PATH` through the binary, on a tree with the files that kgen requires of a checkout of vLLM.

use crate::support::copy_folder;
use assert_cmd::{Command, assert::Assert};
use predicates::{prelude::*, str::contains};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process,
};

/// The file of vLLM's build that is edited.
const HOOK: &str = "cmake/external_projects/vllm_flash_attn.cmake";

/// Files that kgen requires in a checkout, and an unrelated one.
const TREE: [(&str, &str); 5] = [
    ("CMakeLists.txt", "include(cmake/external_projects/vllm_flash_attn.cmake)\n"),
    ("setup.py", "names = ['_vllm_fa2_C', '_vllm_fa3_C']\n"),
    ("vllm/vllm_flash_attn/flash_attn_interface.py", "ops._vllm_fa2_C.varlen_fwd\nops._vllm_fa3_C.fwd\n"),
    (
        HOOK,
        "install(CODE \"set(CMAKE_INSTALL_PREFIX \\\"\\${CMAKE_INSTALL_PREFIX}/vllm/\\\")\")\nFetchContent_MakeAvailable(vllm-flash-attn)\n",
    ),
    ("docs/index.md", "vLLM\n"),
];

const KERNELS: &str = "--kind fwd --head-dim 64 --dtype bf16 --causal --target sm80";

/// A temporary folder with a committed checkout `vllm`, and templates in which the modules' sources are stubs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("temporary folder"));
        for (path, text) in TREE {
            let path = place.path(&format!("vllm/{path}"));
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, text).expect("written");
        }
        place.git(&["init", "-q"]);
        place.commit();
        copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &place.path("templates"));
        let torch = place.path("templates/bindings/torch");
        fs::remove_dir_all(&torch).ok();
        fs::create_dir(&torch).expect("made");
        for (name, text) in
            [("fa2.cpp", "#include \"view.h\"\n"), ("fa3.cpp", ""), ("view.cpp", "#include \"kgen.h\"\n"), ("view.h", "")]
        {
            fs::write(torch.join(name), text).expect("written");
        }
        place
    }

    /// A place whose checkout has [`KERNELS`].
    fn with_kernels() -> Self {
        let place = Self::new();
        place.vendor(KERNELS).success();
        place
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    fn git(&self, line: &[&str]) {
        let mut git = process::Command::new("git");
        git.arg("-C").arg(self.path("vllm")).args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(line);
        assert!(git.status().expect("there is git").success(), "{line:?}");
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "all"]);
    }

    fn kgen(&self, line: &str) -> Assert {
        let mut command = Command::cargo_bin("kgen").expect("the binary is built");
        command.current_dir(self.0.path()).env_remove("KGEN_VARIANTS").env("KGEN_TEMPLATES", self.path("templates"));
        command.args(line.split_whitespace()).assert()
    }

    fn vendor(&self, line: &str) -> Assert {
        self.kgen(&format!("vendor vllm vllm {line}"))
    }

    fn hook(&self) -> String {
        fs::read_to_string(self.path(&format!("vllm/{HOOK}"))).expect("readable")
    }

    fn set_hook(&self, text: &str) {
        fs::write(self.path(&format!("vllm/{HOOK}")), text).expect("written");
    }

    /// Every file of the checkout outside `.git`.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut folders = vec![self.path("vllm")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("readable") {
                let path = entry.expect("readable").path();
                if path.is_file() {
                    files.insert(path.clone(), fs::read(path).expect("readable"));
                } else if !path.ends_with(".git") {
                    folders.push(path);
                }
            }
        }
        files
    }
}

#[test]
fn the_checkout_gets_a_folder_and_three_lines_and_loses_them_again() {
    let place = Place::new();
    let before = place.files();
    place.vendor(&format!("{KERNELS} --dry-run")).success().stdout(contains(format!("update  {HOOK}\n")));
    place.vendor(&format!("{KERNELS} --check")).code(1).stderr(contains("not as `kgen vendor vllm` writes them"));
    assert_eq!(place.files(), before);

    place.vendor(KERNELS).success().stdout(contains("add     kgen/vllm.cmake\n").and(contains(format!("update  {HOOK}\n"))));
    let added: Vec<String> =
        place.files().into_keys().filter(|path| !before.contains_key(path)).map(|path| path.display().to_string()).collect();
    assert!(added.iter().all(|path| path.contains("/vllm/kgen/")), "{added:?}");
    for name in ["vllm.cmake", "CMakeLists.txt", "kgen_dispatch.cpp", "torch/fa2.cpp", "torch/view.h", "include/kgen.h"] {
        assert!(place.path(&format!("vllm/kgen/{name}")).exists(), "{name}");
    }
    let changed: Vec<&PathBuf> = before.keys().filter(|path| place.files().get(*path) != before.get(*path)).collect();
    assert_eq!(changed, [&place.path(&format!("vllm/{HOOK}"))]);
    let hook = place.hook();
    let lines: Vec<&str> = hook.lines().collect();
    assert_eq!(lines.iter().position(|line| line.ends_with("/../../kgen/vllm.cmake)")), Some(2), "{hook}");
    assert!(lines[4] == "FetchContent_MakeAvailable(vllm-flash-attn)" && lines.len() == 5, "{hook}");
    let cmake = fs::read_to_string(place.path("vllm/kgen/vllm.cmake")).expect("readable");
    assert!(cmake.contains("${folder}/torch/view.cpp\n") && cmake.matches("torch/fa").count() == 1, "{cmake}");

    let after = place.files();
    for line in ["", KERNELS, "--check", "--dry-run"] {
        place.vendor(line).success().stdout(contains("1 kernel; nothing to do"));
    }
    assert_eq!(place.files(), after);
    place.vendor("--remove --dry-run").success();
    assert_eq!(place.files(), after);
    place.vendor("--remove").success().stdout(contains("remove  kgen/manifest.json").and(contains(format!("update  {HOOK}"))));
    assert_eq!(place.files(), before);
    assert!(!place.path("vllm/kgen").exists());
    place.vendor("--remove").success().stdout(contains("nothing to do"));
}

#[test]
fn a_tree_that_is_not_known_is_refused() {
    for (path, text, said) in [
        ("setup.py", "names = ['_vllm_fa2_C']\n", "`setup.py` does not name `_vllm_fa3_C`"),
        ("vllm/vllm_flash_attn/flash_attn_interface.py", "", "does not name `_vllm_fa2_C.varlen_fwd`"),
        ("CMakeLists.txt", "", "`CMakeLists.txt` does not name `vllm_flash_attn.cmake`"),
        (HOOK, "add_subdirectory(vllm-flash-attn)\n", "has no single line `FetchContent_MakeAvailable(vllm-flash-attn)`"),
        (HOOK, "FetchContent_MakeAvailable(vllm-flash-attn)\n", "does not set `CMAKE_INSTALL_PREFIX}/vllm/` before"),
    ] {
        let place = Place::new();
        fs::write(place.path(&format!("vllm/{path}")), text).expect("written");
        place.commit();
        let before = place.files();
        for line in [KERNELS, "--check", "--remove"] {
            place.vendor(line).code(2).stderr(contains(said).and(contains("`vllm` is not a checkout of vLLM that kgen knows")));
        }
        assert_eq!(place.files(), before, "{path}");
    }
    let place = Place::new();
    place.kgen(&format!("vendor vllm . {KERNELS}")).code(2).stderr(contains("cannot read `CMakeLists.txt`"));
}

#[test]
fn a_file_to_edit_that_has_uncommitted_changes_is_refused() {
    let place = Place::new();
    place.set_hook(&(place.hook() + "# mine\n"));
    let before = place.files();
    for line in [KERNELS.to_owned(), format!("{KERNELS} --dry-run")] {
        place.vendor(&line).code(2).stderr(contains("has changes that are not committed; commit or restore them first"));
    }
    assert_eq!(place.files(), before);
    fs::write(place.path("vllm/docs/index.md"), "mine\n").expect("written");
    place.commit();
    fs::write(place.path("vllm/docs/index.md"), "mine too\n").expect("written");
    place.vendor(KERNELS).success();
    assert!(place.hook().ends_with("# mine\n"));

    // Once the lines are there, other changes do not matter until the file must be edited again.
    place.set_hook(&(place.hook() + "# again\n"));
    place.vendor("--check").success();
    let before = place.files();
    place.vendor("--remove").code(2).stderr(contains("has changes that are not committed"));
    assert_eq!(place.files(), before);
}

#[test]
fn lines_that_are_lost_are_found_and_lines_that_are_edited_refused() {
    let place = Place::with_kernels();
    let hook = place.hook();
    place.git(&["checkout", "-q", "--", HOOK]);
    place.vendor("--check").code(1).stdout(contains(format!("update  {HOOK}\nvllm: 1 kernel; 1 file would be updated, ")));
    place.vendor("").success();
    assert_eq!(place.hook(), hook);

    place.set_hook(&hook.replace("/../../kgen/", "/../../mine/"));
    let before = place.files();
    for line in ["", "--remove", "--check"] {
        place.vendor(line).code(2).stderr(contains("the lines of `kgen vendor vllm`").and(contains("have been edited")));
    }
    assert_eq!(place.files(), before);
}

#[test]
fn a_local_change_in_the_folder_keeps_everything_as_it_is() {
    let place = Place::with_kernels();
    fs::write(place.path("vllm/kgen/vllm.cmake"), "mine\n").expect("written");
    let before = place.files();
    for line in ["", "--dry-run", "--remove", "--remove --dry-run"] {
        place.vendor(line).code(2).stderr(contains("vllm.cmake`, which would be lost; nothing was changed"));
    }
    assert_eq!(place.files(), before);
}

#[test]
fn each_form_of_the_command_leaves_the_others_folders_alone() {
    let place = Place::with_kernels();
    let before = place.files();
    for line in [format!("vendor vllm/kgen {KERNELS}"), "vendor vllm/kgen --remove".to_owned()] {
        place.kgen(&line).code(2).stderr(contains("`vllm/kgen` was made by `kgen vendor vllm`"));
    }
    place.vendor("--no-dispatcher").code(2).stderr(contains("vLLM's modules call the dispatcher"));
    assert_eq!(place.files(), before);

    let other = Place::new();
    other.kgen(&format!("vendor vllm/kgen {KERNELS}")).success();
    other.vendor("").code(2).stderr(contains("was made by `kgen vendor`, "));
    fs::remove_dir_all(other.path("templates/bindings/torch")).expect("there");
    other.kgen("vendor vllm/kgen --remove").success();
    other.vendor(KERNELS).code(2).stderr(contains("template `bindings/torch/fa2.cpp`: the file is missing"));
    assert!(!other.path("vllm/kgen").exists());
}

#[test]
fn links_in_a_checkout_are_refused() {
    for (path, said) in [
        ("kgen", "`kgen` in it is a link"),
        (HOOK, "vllm_flash_attn.cmake` in it is a link"),
        ("cmake/external_projects", "cmake/external_projects` leads to"),
        ("cmake", "cmake` leads to"),
    ] {
        let place = Place::new();
        let (inside, outside) = (place.path(&format!("vllm/{path}")), place.path("outside"));
        if inside.exists() {
            fs::rename(&inside, &outside).expect("moved");
        } else {
            fs::create_dir(&outside).expect("made");
        }
        symlink(&outside, &inside).expect("linked");
        place.commit();
        for line in [KERNELS, "--check", "--remove", "--remove --dry-run"] {
            place.vendor(line).code(2).stderr(contains(said).and(contains("`vllm` is not a checkout of vLLM that kgen knows")));
        }
        assert!(inside.is_symlink() && !place.path("vllm/kgen/manifest.json").exists(), "{path}");
        assert!(fs::read_to_string(place.path(&format!("vllm/{HOOK}"))).is_ok_and(|text| !text.contains("kgen")));
    }
}

#[test]
fn a_checkout_in_which_removal_kept_a_file_takes_kernels_again() {
    let place = Place::with_kernels();
    fs::write(place.path("vllm/kgen/notes.txt"), "mine\n").expect("written");
    place.vendor("--remove").success();
    place.vendor(KERNELS).code(2).stderr(contains("add `--beside-others`"));
    place.vendor(&format!("{KERNELS} --beside-others")).success();
    place.vendor("--remove").success();
    assert!(place.path("vllm/kgen/notes.txt").exists() && !place.path("vllm/kgen/manifest.json").exists());
}
