//! `kgen generate` through the binary.

use crate::support::copy_folder;
use assert_cmd::Command;
use predicates::{prelude::*, str::contains};
use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// kgen in an empty folder.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("temporary folder"))
    }

    fn kgen(&self, line: &str) -> assert_cmd::assert::Assert {
        let mut command = Command::cargo_bin("kgen").expect("the binary is built");
        command.current_dir(self.0.path()).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES");
        command.args(line.split_whitespace()).assert()
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).expect("readable")
    }

    fn kernels(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).expect("readable");
        let names = entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
        let mut kernels: Vec<String> = names.filter(|name| Path::new(name).extension().is_some_and(|e| e == "cu")).collect();
        kernels.sort();
        kernels
    }
}

fn grid_size() -> usize {
    kgen::grid::Grid::builtin().variants().len()
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|metadata| metadata.modified()).expect("exists")
}

#[test]
fn the_whole_grid_goes_to_generated_and_a_second_run_touches_nothing() {
    let place = Place::new();
    place.kgen("generate").success().stdout(contains(format!("generated: {} kernels", grid_size())));
    assert_eq!(place.kernels("generated").len(), grid_size());
    let manifest: serde_json::Value = serde_json::from_str(&place.read("generated/manifest.json")).expect("JSON");
    assert_eq!(manifest["variants"].as_array().map(Vec::len), Some(grid_size()));

    let before = modified(&place.path("generated/kgen_dispatch.cpp"));
    place.kgen("generate --all").success().stdout(contains("0 files written"));
    assert_eq!(modified(&place.path("generated/kgen_dispatch.cpp")), before);
    place.kgen("generate --all --check").success().stdout(contains("as generated"));
}

#[test]
fn one_variant_goes_to_one_file_that_brings_its_headers() {
    let place = Place::new();
    let line = "generate --head-dim 72 --dtype fp16 --target sm80 --output my.cu";
    place.kgen(line).success().stderr(contains("`my.cu` is `flash_fwd_hdim72_fp16_sm80`"));
    let text = place.read("my.cu");
    assert!(text.contains("-Iinclude -c my.cu\n") && text.contains("extern \"C\" int flash_fwd_hdim72_fp16_sm80("), "{text}");
    assert!(place.path("include/kgen.h").exists() && !place.path("generated").exists());
    place.kgen(&format!("{line} --check")).success();
    assert!(!place.path("include/kgen/wgmma.cuh").exists(), "an Ampere kernel includes no `wgmma`");

    fs::write(place.path("my.cu"), text.replace("HEAD_DIM = 72", "HEAD_DIM = 73")).expect("written");
    let check = place.kgen(&format!("{line} --check")).code(1);
    check.stdout(contains("`my.cu` differs from line").and(contains("found `constexpr int HEAD_DIM = 73;`")));
}

#[test]
fn a_file_for_several_variants_is_refused_with_what_to_narrow() {
    let place = Place::new();
    let refused = place.kgen("generate --kind fwd --target sm80 --head-dim 64 --output one.cu").code(2);
    refused.stderr(contains("`--output one.cu` holds one kernel and 2 are selected (`flash_fwd_hdim64_fp16_sm80`, "));
    assert!(!place.path("one.cu").exists());
}

#[test]
fn a_file_with_another_ending_is_refused_and_a_folder_may_have_one() {
    let place = Place::new();
    let line = "generate --kind fwd --target sm80 --head-dim 64 --dtype bf16 --full --output";
    let refused = place.kgen(&format!("{line} my.cuh")).code(2);
    refused.stderr(contains("`--output my.cuh` is no `.cu` file; write `my.cu` for one kernel, or `my.cuh/` for a folder"));
    assert!(!place.path("my.cuh").exists());
    for nameless in [".cu", "below/.cu"] {
        let refused = place.kgen(&format!("{line} {nameless}")).code(2);
        refused.stderr(contains(format!("`--output {nameless}` names no file before the ending; write `NAME.cu`")));
        assert!(!place.path(nameless).exists());
    }
    place.kgen(&format!("{line} kernels.cu/")).success();
    assert!(place.path("kernels.cu/flash_fwd_hdim64_bf16_sm80.cu").exists());
    place.kgen(&format!("{line} my.kernels/")).success();
    place.kgen(&format!("{line} my.kernels")).success();
    place.kgen(&format!("{line} kernels-0.1")).success();
}

#[test]
fn a_file_of_somebody_else_is_not_overwritten() {
    let place = Place::new();
    fs::write(place.path("mine.cu"), "__global__ void mine() {}\n").expect("written");
    let refused = place.kgen("generate --kind fwd --target sm80 --head-dim 64 --dtype bf16 --output mine.cu").code(2);
    refused.stderr(contains("that this kgen did not write: `mine.cu`"));
    assert_eq!(place.read("mine.cu"), "__global__ void mine() {}\n");
    assert!(!place.path("include").exists());

    fs::write(place.path("CMakeLists.txt"), "project(mine)\n").expect("written");
    place.kgen("generate --output .").code(2).stderr(contains("`CMakeLists.txt`"));
    assert_eq!(place.read("CMakeLists.txt"), "project(mine)\n");
}

#[test]
fn a_folder_keeps_what_it_held_until_the_whole_grid_is_asked_for() {
    let place = Place::new();
    place.kgen("generate --kind fwd --target sm80 --head-dim 72 --dtype fp16 --full").success();
    place
        .kgen("generate --kind fwd --head-dim 128 --dtype bf16 --causal --target ampere")
        .success()
        .stdout(contains("2 kernels"));
    assert_eq!(place.kernels("generated"), ["flash_fwd_hdim128_bf16_causal_sm80.cu", "flash_fwd_hdim72_fp16_sm80.cu"]);
    let dispatcher = place.read("generated/kgen_dispatch.cpp");
    assert!(dispatcher.contains("KERNEL(flash_fwd_hdim72_fp16_sm80,") && dispatcher.contains("hdim128_bf16_causal_sm80,"));

    fs::write(place.path("generated/notes.txt"), "mine").expect("written");
    place.kgen("generate --all").success().stdout(contains(format!("{} kernels", grid_size())).and(contains("1 removed")));
    assert!(!place.path("generated/flash_fwd_hdim72_fp16_sm80.cu").exists());
    assert!(place.path("generated/notes.txt").exists());
}

#[test]
fn check_names_missing_differing_and_extra_files_and_writes_nothing() {
    let place = Place::new();
    place.kgen("generate --all").success();
    fs::remove_file(place.path("generated/include/kgen/mma.cuh")).expect("removed");
    fs::write(place.path("generated/include/kgen.h"), "/* mine */\n").expect("written");
    fs::write(place.path("generated/flash_fwd_hdim8_int4_sm80.cu"), "").expect("written");

    let check = place.kgen("generate --all --check").code(1);
    check
        .stdout(
            contains("`include/kgen/mma.cuh` is missing")
                .and(contains("`include/kgen.h` differs from line 1"))
                .and(contains("`flash_fwd_hdim8_int4_sm80.cu` would not be generated")),
        )
        .stderr(contains("3 files are not as generated"));
    assert!(!place.path("generated/include/kgen/mma.cuh").exists());
    assert_eq!(place.read("generated/include/kgen.h"), "/* mine */\n");
}

#[test]
fn exact_drops_the_kernels_that_are_not_selected_and_check_names_them() {
    let place = Place::new();
    let select = |head_dim: u32| format!("generate --kind fwd --target sm80 --head-dim {head_dim} --dtype bf16 --full");
    place.kgen(&select(64)).success();
    place.kgen(&select(96)).success();
    place.kgen(&format!("{} --check", select(96))).success();
    let check = place.kgen(&format!("{} --exact --check", select(96))).code(1);
    check.stdout(contains("`flash_fwd_hdim64_bf16_sm80.cu` would not be generated"));
    place.kgen(&format!("{} --exact", select(96))).success().stdout(contains("1 removed"));
    assert_eq!(place.kernels("generated"), ["flash_fwd_hdim96_bf16_sm80.cu"]);
    place.kgen(&format!("{} --exact --check", select(96))).success();
    place.kgen(&format!("{} --exact --output one.cu", select(96))).code(2).stderr(contains("`--exact` is for a folder"));
}

#[test]
fn hashes_name_the_kernels_that_a_template_changes() {
    let place = Place::new();
    let line = "generate --kind fwd,bwd --target sm80 --head-dim 64 --dtype bf16 --full --hashes g.b3";
    place.kgen(line).success().stdout("g.b3: hashes of 2 kernels\n");
    assert!(!place.path("generated").exists());
    place.kgen("generate --kind fwd --target sm80 --head-dim 64 --dtype bf16 --full").success();
    let text = place.read("generated/flash_fwd_hdim64_bf16_sm80.cu");
    let expected = format!("{}  flash_fwd_hdim64_bf16_sm80.cu", kgen::files::content_hash(text));
    assert!(place.read("g.b3").lines().any(|line| line == expected), "{}", place.read("g.b3"));
    place.kgen(line).success().stdout(contains("unchanged"));
    place.kgen(&format!("{line} --check")).success().stdout("g.b3: 2 kernels as generated\n");

    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &place.path("templates"));
    let template = place.path("templates/attention/bwd_sm80.cu.tera");
    fs::write(&template, format!("// changed\n{}", fs::read_to_string(&template).expect("readable"))).expect("written");
    let check = place.kgen(&format!("--templates templates {line} --check")).code(1);
    check.stdout("`flash_bwd_hdim64_bf16_sm80.cu` has another hash\n").stderr(contains("`g.b3`: 1 line is not as generated"));

    // Another selection, and invalid lines.
    fs::write(place.path("g.b3"), format!("{expected}\nnonsense\n")).expect("written");
    let check = place.kgen(&format!("{line} --check --format json")).code(1);
    let report: serde_json::Value = serde_json::from_slice(&check.get_output().stdout).expect("one JSON document");
    let drift = serde_json::json!([
        {"drift": "missing", "path": "flash_bwd_hdim64_bf16_sm80.cu"}, {"drift": "extra", "path": "nonsense"},
    ]);
    assert_eq!(report["drift"], drift);
    let kept = fs::read_to_string(place.path("g.b3")).expect("readable");
    place.kgen(line).code(2).stderr(contains("`g.b3` holds no hashes of kernels; choose another file with `--hashes`"));
    assert_eq!(place.read("g.b3"), kept);
    place.kgen("generate --hashes nowhere.b3 --check").code(2).stderr(contains("cannot read `nowhere.b3`"));
    place.kgen("generate --hashes a.b3 --exact").code(2).stderr(contains("cannot be used with"));
}

#[test]
fn check_of_a_folder_that_is_not_there_names_every_file_and_makes_none() {
    let place = Place::new();
    let check = place.kgen("generate --kind fwd --target sm80 --head-dim 64 --dtype bf16 --check --format json").code(1);
    let report: serde_json::Value = serde_json::from_slice(&check.get_output().stdout).expect("one JSON document");
    let drift = report["drift"].as_array().expect("a list");
    assert!(drift.iter().all(|drift| drift["drift"] == "missing") && drift.iter().any(|drift| drift["path"] == "manifest.json"));
    assert!(!place.path("generated").exists());
}

#[test]
fn json_lists_variants_and_files() {
    let place = Place::new();
    let done = place.kgen("generate --kind fwd --target sm80 --head-dim 64 --dtype bf16 --causal --format json").success();
    let report: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("one JSON document");
    assert_eq!(report["variants"], serde_json::json!(["flash_fwd_hdim64_bf16_causal_sm80"]));
    assert!(report["written"].as_array().is_some_and(|files| files.iter().any(|file| file == "include/kgen.h")));
    assert_eq!(report["removed"], serde_json::json!([]));
}

#[test]
fn an_output_that_cannot_be_written_is_one_clear_message() {
    let place = Place::new();
    fs::write(place.path("file"), "good").expect("written");
    for output in ["file", "file/below"] {
        let refused = place.kgen(&format!("generate --kind fwd --target sm80 --head-dim 64 --output {output}")).code(2);
        refused.stderr(contains(format!("cannot create `{output}`: ")).and(contains("choose another place with `--output`")));
    }
    assert_eq!(place.read("file"), "good");
}

#[test]
fn a_damaged_manifest_is_named_and_nothing_is_touched() {
    let place = Place::new();
    place.kgen("generate --kind fwd --target sm80 --head-dim 64").success();
    fs::write(place.path("generated/manifest.json"), "{").expect("written");
    let refused = place.kgen("generate --kind fwd --target sm80 --head-dim 96").code(2);
    refused.stderr(contains("`generated/manifest.json` is not a manifest this kgen can read: "));
    assert_eq!(place.kernels("generated").len(), 4);
}

#[test]
fn two_runs_at_once_leave_a_whole_folder_of_both() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for head_dim in [32, 64, 96, 128] {
            let place = &place;
            scope.spawn(move || {
                place.kgen(&format!("generate --kind fwd --target sm80 --head-dim {head_dim} --dtype bf16 --full")).success()
            });
        }
    });
    assert_eq!(place.kernels("generated").len(), 4);
    place.kgen("generate --kind fwd --target sm80 --head-dim 32 --dtype bf16 --full --check").success();
}

#[test]
fn templates_of_ones_own_take_effect_and_a_broken_one_is_shown() {
    let place = Place::new();
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &place.path("templates"));
    let template = place.path("templates/attention/fwd_sm80.cu.tera");
    let text = fs::read_to_string(&template).expect("readable");

    fs::write(&template, format!("// changed by me\n{text}")).expect("written");
    place.kgen("--templates templates generate --kind fwd --target sm80 --head-dim 64 --dtype bf16 --output a.cu").success();
    assert!(place.read("a.cu").starts_with("// changed by me"));

    fs::write(&template, format!("{{{{ no_such_word }}}}\n{text}")).expect("written");
    let refused =
        place.kgen("--templates templates generate --kind fwd --target sm80 --head-dim 64 --dtype bf16 --output b.cu").code(2);
    refused.stderr(contains("template `attention/fwd_sm80.cu.tera`").and(contains("no_such_word")));
    assert!(!place.path("b.cu").exists());
    place.kgen("--templates nowhere generate").code(2).stderr(contains("cannot read `nowhere`"));
}

#[test]
fn an_edited_file_is_told_of_and_its_text_kept() {
    let place = Place::new();
    let one = "generate --kind fwd --head-dim 64 --dtype bf16 --causal --target sm80 --output g";
    place.kgen(one).success().stderr(contains("edited").not());
    let right = place.read("g/include/kgen.h");
    fs::write(place.path("g/include/kgen.h"), "/* mine */\n").expect("written");
    let said = "`g/include/kgen.h` held a text that this kgen did not write; it is replaced, and that text kept as \
                `g/include/kgen.h.edited`";
    place.kgen(one).success().stderr(contains(said));
    assert_eq!(place.read("g/include/kgen.h"), right);
    assert_eq!(place.read("g/include/kgen.h.edited"), "/* mine */\n");
    place.kgen(one).success().stderr(contains("edited").not());
    place.kgen(&format!("{one} --check")).success();

    fs::write(place.path("g/include/kgen.h"), "/* mine too */\n").expect("written");
    let quiet = place.kgen(&format!("{one} --quiet")).success();
    quiet.stderr(predicates::str::starts_with("note: `g/include/kgen.h` held a text").and(contains("kgen.h.edited-2`\n")));
    place.kgen(&format!("{one} --quiet")).success().stderr("");
}

#[test]
fn an_edited_single_file_is_kept_and_one_of_another_kernel_is_not() {
    let place = Place::new();
    let line = |head_dim: u32| format!("generate --head-dim {head_dim} --dtype fp16 --target sm80 --output g/my.cu");
    let copies = || {
        let entries = fs::read_dir(place.path("g")).expect("readable").map(|entry| entry.expect("readable").file_name());
        let mut copies: Vec<_> = entries.filter_map(|name| name.into_string().ok()).filter(|n| n.contains("edited")).collect();
        copies.sort();
        copies
    };
    place.kgen(&line(72)).success();
    place.kgen(&line(64)).success().stderr(contains("did not write").not());
    assert_eq!(copies(), [""; 0]);
    fs::write(place.path("g/include/kgen/mma.cuh"), "// mine\n").expect("written");
    place.kgen(&line(64)).success().stderr(contains("that text kept as `g/include/kgen/mma.cuh.edited`"));

    let mine = place.read("g/my.cu") + "// mine\n";
    fs::write(place.path("g/my.cu"), &mine).expect("written");
    place.kgen(&line(72)).success().stderr(contains(
        "`g/my.cu` held a text that this kgen did not write; it is replaced, and that text kept as `g/my.cu.edited`",
    ));
    assert_eq!(copies(), ["my.cu.edited"]);
    assert_eq!(place.read("g/my.cu.edited"), mine);
}

#[test]
fn the_files_of_a_selection_are_named_and_whether_they_are_new() {
    let place = Place::new();
    let one = "generate --kind fwd --head-dim 64 --dtype bf16 --causal --target sm80 --output g";
    let file = "g/flash_fwd_hdim64_bf16_causal_sm80.cu\n";
    place.kgen(one).success().stdout(contains(format!("written    {file}")));
    place.kgen(one).success().stdout(contains(format!("unchanged  {file}g: 1 kernel; 0 files written")));
    let two = one.replace("--causal", "");
    let both = place.kgen(&two).success();
    both.stdout(contains("written    g/flash_fwd_hdim64_bf16_sm80.cu\n").and(contains(format!("unchanged  {file}"))));

    let many = "generate --kind fwd --dtype bf16 --target sm80 --features any --output g";
    let said = "kernels, 0 written, ";
    place.kgen(many).success();
    place.kgen(many).success().stdout(contains(said).and(contains("`--verbose` lists their files")).and(contains(".cu\n").not()));
    place.kgen(&format!("{many} --verbose")).success().stdout(contains(format!("unchanged  {file}")));
    let done = place.kgen(&format!("{many} --format json")).success();
    let report: serde_json::Value = serde_json::from_slice(&done.get_output().stdout).expect("one JSON document");
    let selected = report["selected"].as_array().expect("a list");
    let ours = serde_json::json!({
        "name": "flash_fwd_hdim64_bf16_causal_sm80", "file": "flash_fwd_hdim64_bf16_causal_sm80.cu", "written": false
    });
    assert!(selected.len() > 20 && selected.contains(&ours), "{report}");
}

#[test]
fn a_single_file_is_noted_with_the_flags_that_choose_others_and_no_flag_that_was_given() {
    let place = Place::new();
    let line = "generate --head-dim 72 --dtype fp16 --target sm80 --output my.cu";
    let said = |flags: &str| {
        let done = place.kgen(&format!("{line} {flags}")).success();
        String::from_utf8_lossy(&done.get_output().stderr).into_owned()
    };
    let both = said("");
    assert!(both.contains("is `flash_fwd_hdim72_fp16_sm80`; `--causal` takes the causal kernel or `--kind` takes "), "{both}");
    assert!(both.contains("`bwd`"), "{both}");
    for (flags, wanted, unwanted) in [
        ("--causal", "`--kind` takes `fwd_split`, `bwd` instead", "--causal"),
        ("--full", "`--kind` takes `fwd_split`, `bwd` instead", "--causal"),
        ("--kind fwd", "`--causal` takes the causal kernel instead", "--kind"),
    ] {
        let note = said(flags);
        assert!(note.contains(wanted) && !note.contains(unwanted), "{flags}: {note}");
    }
    assert_eq!(said("--kind fwd --causal"), "");
    assert_eq!(said("--kind fwd --full"), "");
}

#[test]
fn the_remedy_of_a_file_for_several_variants_is_one_that_helps() {
    let place = Place::new();
    for flags in [
        "--dtype fp16 --target sm80",
        "--head-dim 128 --dtype fp16 --target sm80 --features any",
        "--filter hdim==64",
        "--kind bwd,fwd_split --head-dim 64,96",
    ] {
        let refused = place.kgen(&format!("generate {flags} --output my.cu")).code(2);
        let said = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        let remedy = said.split("narrow it, as with `").nth(1).and_then(|rest| rest.split('`').next()).expect(&said).to_owned();
        let given: Vec<&str> = flags.split_whitespace().filter(|word| word.starts_with("--")).collect();
        // The remedy repeats a flag that had several values with one of them.
        let kept = remedy.split(" --").map(|flag| flag.trim_start_matches("--").split(' ').next().unwrap_or_default().to_owned());
        let kept: Vec<String> = kept.map(|flag| format!("--{flag}")).collect();
        let others = flags.split(" --").map(|flag| format!("--{}", flag.trim_start_matches("--")));
        let others: Vec<String> = others.filter(|flag| !kept.iter().any(|kept| flag.starts_with(kept.as_str()))).collect();
        assert!(!given.is_empty());
        place.kgen(&format!("generate {} {remedy} --output my.cu", others.join(" "))).success();
    }
    let named = "generate flash_fwd_hdim64_bf16_sm80 flash_fwd_hdim64_bf16_causal_sm80 --output my.cu";
    place.kgen(named).code(2).stderr(contains("2 are selected").and(contains("name one of them")).and(contains("--").count(1)));
}
