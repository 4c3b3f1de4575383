//! `kgen vendor DIR` through the binary. scripts/cmake.sh compiles such folders with nvcc.

use assert_cmd::{Command, assert::Assert};
use predicates::{prelude::*, str::contains};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process,
    time::SystemTime,
};

/// One kernel, which needs no helpers.
const ONE: &str = "--kind fwd --head-dim 64 --dtype bf16 --causal --target sm80";

/// A second kernel, which includes other headers.
const OTHER: &str = "--kind fwd --head-dim 64 --dtype bf16 --causal --target sm90";

/// A project into which kgen puts kernels.
struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Self {
        let project = Self(tempfile::tempdir().expect("temporary folder"));
        fs::write(project.path("main.c"), "int main(void) { return 0; }\n").expect("written");
        project
    }

    /// A project whose folder `k` holds [`ONE`].
    fn with_one() -> Self {
        let project = Self::new();
        project.vendor(&format!("k {ONE}")).success();
        project
    }

    fn kgen(&self, line: &str) -> Assert {
        let mut command = Command::cargo_bin("kgen").expect("the binary is built");
        command.current_dir(self.0.path()).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES");
        command.args(line.split_whitespace()).assert()
    }

    fn vendor(&self, line: &str) -> Assert {
        self.kgen(&format!("vendor {line}"))
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
    }

    /// Every file with its text and time, by path within `relative`.
    fn files(&self, relative: &str) -> BTreeMap<String, (String, SystemTime)> {
        let mut files = BTreeMap::new();
        collect(&self.path(relative), "", &mut files);
        files
    }

    fn names(&self, relative: &str) -> Vec<String> {
        self.files(relative).into_keys().collect()
    }

    /// Makes a file of the folder look as if written by an older kgen: another text, and its hash in the manifest.
    fn age(&self, relative: &str, text: &str) {
        let manifest = self.read("k/manifest.json");
        let new = kgen::files::content_hash(self.read(&format!("k/{relative}")));
        assert!(manifest.contains(&new), "{manifest}");
        fs::write(self.path(&format!("k/{relative}")), text).expect("written");
        let manifest = manifest.replace(&new, &kgen::files::content_hash(text));
        fs::write(self.path("k/manifest.json"), manifest).expect("written");
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut BTreeMap<String, (String, SystemTime)>) {
    for entry in fs::read_dir(folder).expect("readable") {
        let entry = entry.expect("readable");
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{name}/"), files);
        } else {
            let text = fs::read_to_string(entry.path()).expect("text");
            files.insert(name, (text, entry.metadata().and_then(|metadata| metadata.modified()).expect("has a time")));
        }
    }
}

fn json(assert: &Assert) -> serde_json::Value {
    serde_json::from_slice(&assert.get_output().stdout).expect("one JSON document")
}

/// Runs `command`, which must succeed.
fn run(command: &mut process::Command) {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A replacement for nvcc that compiles for the emulator.
const NVCC: &str = "#!/bin/sh
for word; do
  shift
  case $word in
    -gencode | -Xcompiler | arch=*) ;;
    *) set -- \"$@\" \"$word\" ;;
  esac
done
exec c++ -O0 -w -ffp-contract=off -IEMULATOR -x c++ \"$@\"
";

#[test]
fn a_folder_holds_the_kernels_what_they_include_and_how_to_compile_them() {
    let project = Project::new();
    project.vendor(&format!("k {ONE}")).success().stdout(contains("add     include/kgen.h\n").and(contains("k: 1 kernel; ")));
    let names = project.names("k");
    let top: Vec<&str> = names.iter().filter(|name| !name.starts_with("include/kgen/")).map(String::as_str).collect();
    let kernel = "flash_fwd_hdim64_bf16_causal_sm80.cu";
    let expected = ["CMakeLists.txt", "Makefile", "README.md", kernel, "include/kgen.h", "include/kgen_launchers.h"];
    assert_eq!(top, [&expected[..], &["kgen_dispatch.cpp", "manifest.json"]].concat());

    let files = project.files("k");
    let included = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"').map(str::to_owned));
        lines.collect()
    };
    let mut needed: Vec<String> = files.values().flat_map(|(text, _)| included(text)).collect();
    needed.push("kgen_launchers.h".to_owned());
    needed.sort();
    needed.dedup();
    let headers: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("include/")).collect();
    assert_eq!(headers, needed, "headers that are not needed, or lack");

    project.kgen(&format!("generate {ONE} --output g")).success();
    assert_eq!(project.read(&format!("k/{kernel}")), project.read(&format!("g/{kernel}")));
    assert_eq!(project.read("k/kgen_dispatch.cpp"), project.read("g/kgen_dispatch.cpp"), "a dispatcher of these kernels");
}

#[test]
fn its_header_is_plain_c_and_declares_launchers_and_workspaces() {
    let project = Project::new();
    project.vendor("k --kind fwd,fwd_split,bwd --head-dim 64 --dtype bf16 --causal --target sm80,sm90").success();
    fs::write(project.path("use.c"), "#include \"kgen_launchers.h\"\n").expect("written");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cc = process::Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-Ik/include", "-I"]);
    run(cc.arg(root.join("tests/library")).arg("use.c").current_dir(project.0.path()));
    let header = project.read("k/include/kgen_launchers.h");
    for name in ["fwd_hdim64_bf16_causal_sm80", "fwd_split_hdim64_bf16_causal_sm80_workspace", "bwd_hdim64_bf16_causal_sm90"] {
        assert!(header.contains(&format!(" flash_{name}(")), "{name}");
    }
}

#[test]
fn its_makefile_builds_it_and_leaves_it_as_it_was() {
    let project = Project::with_one();
    let emulator = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/emulator");
    fs::write(project.path("nvcc"), NVCC.replace("EMULATOR", &emulator.display().to_string())).expect("written");
    fs::set_permissions(project.path("nvcc"), fs::Permissions::from_mode(0o755)).expect("set");
    let (nvcc, out) = (project.path("nvcc"), project.path("made"));
    let mut make = process::Command::new("make");
    make.args(["-C", "k", "-j2"]).arg(format!("NVCC={}", nvcc.display())).arg(format!("BUILD={}", out.display()));
    run(make.current_dir(project.0.path()).env_remove("MAKEFLAGS"));
    let listed = process::Command::new("ar").arg("t").arg(project.path("made/libkgen.a")).output().expect("ar runs");
    let mut objects: Vec<&str> = std::str::from_utf8(&listed.stdout).expect("text").lines().collect();
    objects.sort_unstable();
    assert_eq!(objects, ["flash_fwd_hdim64_bf16_causal_sm80.o", "kgen_dispatch.o"]);
    project.vendor("k --check").success();
}

#[test]
fn a_second_run_touches_nothing_and_needs_no_selection() {
    let project = Project::with_one();
    let before = project.files(".");
    for line in ["k", "k --check", "k --dry-run", &format!("k {ONE}")] {
        project.vendor(line).success().stdout(contains("k: 1 kernel; nothing to do, "));
    }
    assert_eq!(project.files("."), before);
}

#[test]
fn what_an_older_kgen_wrote_is_brought_up_to_date() {
    let project = Project::with_one();
    let (fresh, launch) = (project.files("k"), project.read("k/include/kgen/launch.cuh"));
    project.age("include/kgen/launch.cuh", "// older\n");
    fs::remove_file(project.path("k/Makefile")).expect("there");
    let before = project.files(".");
    let found = project.vendor("k --check").code(1);
    let listed = "add     Makefile\nupdate  include/kgen/launch.cuh\nupdate  manifest.json\n\
                  k: 1 kernel; 1 file would be added, 2 files would be updated, ";
    found
        .stdout(predicates::str::starts_with(listed).and(contains("; nothing was written\n")))
        .stderr(contains("`k`: 3 files are not as `kgen vendor` writes them; run the same command without `--check`"));
    project
        .vendor("k --dry-run")
        .success()
        .stdout(contains("update  include/kgen/launch.cuh").and(contains("nothing was written")));
    assert_eq!(project.files("."), before, "`--check` or `--dry-run` wrote something");

    let report = json(&project.vendor("k --format json").success());
    assert_eq!((&report["written"], &report["dispatcher"]), (&true.into(), &true.into()));
    assert_eq!(report["variants"], serde_json::json!(["flash_fwd_hdim64_bf16_causal_sm80"]));
    let change = |path: &str, action: &str| serde_json::json!({"path": path, "action": action, "edited": false});
    let changes = [change("Makefile", "add"), change("include/kgen/launch.cuh", "update"), change("manifest.json", "update")];
    assert_eq!(report["changes"], serde_json::json!(changes));
    assert_eq!(project.read("k/include/kgen/launch.cuh"), launch);
    assert_eq!(project.names("k"), fresh.into_keys().collect::<Vec<_>>());
}

#[test]
fn the_last_selection_is_what_the_folder_holds() {
    let project = Project::with_one();
    let one = project.names("k");
    project.vendor(&format!("k {OTHER}")).success().stdout(
        contains("remove  flash_fwd_hdim64_bf16_causal_sm80.cu").and(contains("add     flash_fwd_hdim64_bf16_causal_sm90.cu")),
    );
    let other = project.names("k");
    assert!(other.contains(&"include/kgen/wgmma.cuh".to_owned()) && !one.contains(&"include/kgen/wgmma.cuh".to_owned()));
    assert!(!other.contains(&"include/kgen/mma.cuh".to_owned()), "a header that nothing includes any more");
    assert!(project.read("k/manifest.json").contains("\"name\": \"flash_fwd_hdim64_bf16_causal_sm90\""));
    project.vendor(&format!("k {ONE}")).success();
    assert_eq!(project.names("k"), one);
}

#[test]
fn a_local_change_is_never_overwritten_or_removed() {
    let project = Project::with_one();
    let kernel = "k/flash_fwd_hdim64_bf16_causal_sm80.cu";
    for file in [kernel, "k/include/kgen/mma.cuh"] {
        let right = project.read(file);
        fs::write(project.path(file), right.clone() + "// mine\n").expect("written");
        let before = project.files(".");
        let name = file.strip_prefix("k/").expect("below it");
        // The first three lines would replace the file, the others would remove it.
        for line in
            ["k", "k --dry-run", &format!("k {ONE} --no-dispatcher"), &format!("k {OTHER}"), "k --remove", "k --remove --dry-run"]
        {
            let refused = project.vendor(line).code(2);
            refused.stderr(contains(format!("`k` has local changes in `{name}`, which would be lost; nothing was changed")));
            assert_eq!(project.files("."), before, "`{line}` changed something");
        }
        let found = project.vendor("k --check").code(1);
        found
            .stdout(contains(format!("update  {name}  (has local changes)\n")).and(contains("1 file would be updated, ")))
            .stderr(contains("`k`: 1 file is not as `kgen vendor` writes it; keep the local changes elsewhere, delete those"));
        project.vendor("k").code(2).stderr(contains("keep them elsewhere, delete the file (kgen writes its own wherever one is"));
        fs::remove_file(project.path(file)).expect("there");
        project.vendor("k --check").code(1).stdout(contains("1 file would be added, "));
        project.vendor("k").success().stdout(contains("1 file added, "));
        assert_eq!(project.read(file), right);
    }
    project.vendor("k --check").success();
}

#[test]
fn a_file_of_somebody_else_in_the_way_is_not_overwritten() {
    let project = Project::with_one();
    let mine = "k/flash_fwd_hdim64_bf16_causal_sm90.cu";
    fs::write(project.path(mine), "mine\n").expect("written");
    project.vendor(&format!("k {OTHER}")).code(2).stderr(contains("local changes in `flash_fwd_hdim64_bf16_causal_sm90.cu`"));
    assert_eq!(project.read(mine), "mine\n");
    project.vendor("k --check").success();
}

#[test]
fn a_folder_that_is_not_its_own_is_refused() {
    let project = Project::new();
    let before = project.files(".");
    for line in [format!(". {ONE}"), ". --remove".to_owned(), ". --check".to_owned()] {
        let refused = project.vendor(&line).code(2);
        refused.stderr(contains("`.` is not empty, and `kgen vendor` did not make it; name a folder of its own"));
    }
    assert_eq!(project.files("."), before);

    project.kgen(&format!("generate {ONE} --output g")).success();
    project.vendor(&format!("k {ONE}")).success();
    let before = project.files(".");
    for line in [format!("vendor g {ONE}"), "vendor g --remove".to_owned()] {
        project.kgen(&line).code(2).stderr(contains("`g` was made by `kgen generate`"));
    }
    for line in [format!("generate {ONE} --output k"), "generate --output k --all".to_owned()] {
        project.kgen(&line).code(2).stderr(contains("`k` was made by `kgen vendor`"));
    }
    assert_eq!(project.files("."), before);
}

#[test]
fn what_a_killed_first_run_left_is_taken_over() {
    let project = Project::with_one();
    let whole = project.names("k");
    for lost in ["k/manifest.json", "k/README.md"] {
        fs::remove_file(project.path(lost)).expect("there");
    }
    fs::create_dir(project.path("k/.kgen-staging-dead")).expect("made");
    project.vendor(&format!("k {ONE}")).success().stdout(contains("2 files added"));
    assert_eq!(project.names("k"), whole);
}

#[test]
fn removal_takes_what_was_written_and_nothing_else() {
    let project = Project::with_one();
    fs::write(project.path("k/notes.txt"), "mine\n").expect("written");
    project.vendor("k --check").success();
    project
        .vendor("k --remove --dry-run")
        .success()
        .stdout(contains("remove  manifest.json").and(contains("nothing was written")));
    assert!(project.path("k/manifest.json").exists());
    project.vendor("k --remove").success().stdout(contains("removed"));
    assert_eq!(project.names("."), ["k/notes.txt", "main.c"]);

    fs::remove_file(project.path("k/notes.txt")).expect("there");
    project.vendor(&format!("k {ONE}")).success();
    project.vendor("k --remove").success();
    assert!(!project.path("k").exists());
    for line in ["k --remove", "k --remove --dry-run"] {
        project.vendor(line).success().stdout("there is no `k`; nothing to do\n");
    }
    project.vendor(&format!("k --remove {ONE}")).code(2).stderr(contains("leave out the selection"));
}

#[test]
fn a_dry_run_makes_no_folder() {
    let project = Project::new();
    project.vendor(&format!("a/b {ONE} --dry-run")).success().stdout(contains("add     manifest.json"));
    project.vendor(&format!("a/b {ONE} --check")).code(1);
    assert_eq!(project.names("."), ["main.c"]);
    assert!(!project.path("a").exists());
}

#[test]
fn a_new_folder_needs_a_selection() {
    let project = Project::new();
    project.vendor("k").code(2).stderr(contains("`k` holds no kernels yet; say which: `--head-dim 128"));
    assert!(!project.path("k").exists());
}

#[test]
fn helpers_and_the_dispatcher_come_along_unless_they_are_left_out() {
    let project = Project::new();
    let split = "k --kind fwd_split --head-dim 64 --dtype bf16 --full --target sm80";
    let held = || json(&project.vendor("k --format json").success());
    project.vendor(split).success().stderr(contains("`flash_fwd_combine_sm80`, `flash_prepare_scheduler_sm80` come along"));
    assert_eq!(held()["variants"].as_array().map(Vec::len), Some(3));
    project.vendor(&format!("{split} --no-helpers --no-dispatcher")).success().stdout(contains("remove  kgen_dispatch.cpp"));
    let alone = held();
    assert_eq!((alone["variants"].as_array().map(Vec::len), &alone["dispatcher"]), (Some(1), &false.into()), "it is remembered");
    assert!(!project.names("k").iter().any(|name| name.ends_with("path_cost.cuh")), "the dispatcher's headers stay");
    let cmake = project.read("k/CMakeLists.txt");
    assert!(!cmake.contains("kgen_dispatch") && !project.read("k/Makefile").contains("kgen_dispatch"));
}

#[test]
fn a_manifest_or_a_link_leads_nowhere_else() {
    let project = Project::with_one();
    let manifest = project.read("k/manifest.json");
    let line = format!("\"files\": {{\n    \"../main.c\": \"{}\",", kgen::files::content_hash(project.read("main.c")));
    fs::write(project.path("k/manifest.json"), manifest.replace("\"files\": {", &line)).expect("written");
    project.vendor("k").success();
    assert!(project.path("main.c").exists(), "a manifest removed a file outside");

    fs::rename(project.path("k/include"), project.path("elsewhere")).expect("moved");
    symlink(project.path("elsewhere"), project.path("k/include")).expect("linked");
    let before = project.files("elsewhere");
    for line in [format!("k {OTHER}"), "k --remove".to_owned()] {
        project.vendor(&line).code(2).stderr(contains("k/include` leads to"));
    }
    assert_eq!(project.files("elsewhere"), before);
}

#[test]
fn a_manifest_that_cannot_be_read_is_refused() {
    let project = Project::with_one();
    fs::write(project.path("k/manifest.json"), "{\"name\": \"web\"}").expect("written");
    let before = project.files(".");
    for line in [format!("k {ONE}"), "k --remove".to_owned(), "k --check".to_owned()] {
        project.vendor(&line).code(2).stderr(contains("manifest.json` is not a manifest this kgen can read"));
    }
    assert_eq!(project.files("."), before);
}

#[test]
fn a_folder_in_which_removal_kept_a_file_takes_kernels_again() {
    let project = Project::with_one();
    fs::write(project.path("k/notes.txt"), "mine\n").expect("written");
    project.vendor("k --remove").success();
    project.vendor(&format!("k {ONE}")).code(2).stderr(contains("add `--beside-others` to put kernels beside what is there"));
    project.vendor(&format!("k {ONE} --beside-others --check")).code(1);
    project.vendor(&format!("k {ONE} --beside-others")).success();
    // From then on the manifest records the option.
    project.vendor(&format!("k {OTHER}")).success();
    project.vendor("k --check").success();
    project.vendor("k --remove").success();
    assert_eq!(project.names("."), ["k/notes.txt", "main.c"]);

    fs::write(project.path("k/README.md"), "mine\n").expect("written");
    project.vendor(&format!("k {ONE} --beside-others")).code(2).stderr(contains("`k` has local changes in `README.md`"));
    assert_eq!(project.names("."), ["k/README.md", "k/notes.txt", "main.c"]);
}

#[test]
fn a_link_is_somebodys_and_one_that_leads_nowhere_is_named() {
    let project = Project::new();
    symlink("nowhere", project.path("k")).expect("linked");
    for line in ["k", "k/below"] {
        let refused = project.vendor(&format!("{line} {ONE}")).code(2);
        refused.stderr(contains("k` is a link to `nowhere`, which is not there; make that, or remove the link, or name another"));
    }
    project.kgen(&format!("generate {ONE} --output k")).code(2).stderr(contains("k` is a link to `nowhere`"));
    assert!(project.path("k").is_symlink() && !project.path("nowhere").exists());

    fs::remove_file(project.path("k")).expect("there");
    project.vendor(&format!("k {ONE}")).success();
    fs::remove_file(project.path("k/README.md")).expect("there");
    symlink("nowhere", project.path("k/README.md")).expect("linked");
    for line in ["k", "k --remove"] {
        project.vendor(line).code(2).stderr(contains("k/README.md` is a link to `nowhere`"));
    }
    fs::write(project.path("diary"), "mine\n").expect("written");
    fs::remove_file(project.path("k/README.md")).expect("there");
    symlink("../diary", project.path("k/README.md")).expect("linked");
    for line in ["k", "k --remove"] {
        project.vendor(line).code(2).stderr(contains("`k` has local changes in `README.md`"));
    }
    assert_eq!(project.read("diary"), "mine\n");
}

#[test]
fn processes_at_work_in_one_folder_take_turns_and_give_no_wrong_reason() {
    let project = Project::new();
    let one = format!("k {ONE}");
    let other = format!("k {OTHER}");
    let lines = [&one, &other, "k --remove", &format!("{one} --check"), &format!("{other} --dry-run")];
    for _ in 0..3 {
        let start = |line: &&str| {
            let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
            command.arg("vendor").args(line.split_whitespace()).current_dir(project.0.path());
            command.stdout(process::Stdio::piped()).stderr(process::Stdio::piped()).spawn().expect("it starts")
        };
        let running: Vec<_> = lines.iter().chain(&lines).map(|line| (line, start(line))).collect();
        for (line, child) in running {
            let output = child.wait_with_output().expect("it ends");
            let allowed = if line.ends_with("--check") { [0, 1] } else { [0, 0] };
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code().is_some_and(|code| allowed.contains(&code)), "`{line}`: {said}");
        }
        project.vendor(&one).success();
        project.vendor(&format!("{one} --check")).success();
        project.vendor("k --remove").success();
        assert_eq!(project.names("."), ["main.c"]);
        assert!(!project.path("k").exists());
    }
}
