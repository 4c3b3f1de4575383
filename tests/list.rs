//! `kgen list` and `kgen completions`, through the binary.

use assert_cmd::Command;
use kgen::{grid::Grid, kernel::Variant, plan::Plan, toolchain};
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::Value;
use std::{
    collections::HashSet,
    fs,
    io::Read,
    path::Path,
    process::{self, Stdio},
    time::Duration,
};

fn kgen() -> Command {
    let mut command = Command::cargo_bin("kgen").expect("cargo builds it");
    command.env_remove("KGEN_VARIANTS");
    command
}

fn json(args: &[&str]) -> Vec<Value> {
    let output = kgen().arg("list").args(args).args(["--format", "json"]).assert().success().get_output().clone();
    serde_json::from_slice(&output.stdout).expect("an array")
}

#[test]
fn the_default_grid_is_a_table_with_a_line_a_variant() {
    let count = format!("\n{} variants\n", Grid::builtin().variants().len());
    kgen()
        .arg("list")
        .assert()
        .success()
        .stdout(contains("flash_fwd_hdim224_bf16_causal_sm80").and(contains("head dim")).and(contains(count)))
        .stderr("");
}

#[test]
fn json_is_an_array_of_objects_with_the_keys_scripts_rely_on() {
    let list = json(&["--hdim", "128", "--dtype", "bfloat16", "--causal", "--target", "ampere", "--kind", "fwd"]);
    let expected = serde_json::json!([{
        "name": "flash_fwd_hdim128_bf16_causal_sm80", "kind": "fwd", "head_dim": 128, "dtype": "bf16", "causal": true,
            "features": [], "head_dim_v": 128, "target": "sm80",
        "runs_on": ["8.0", "8.6", "8.7", "8.9"], "newer_by_ptx": true,
    }]);
    assert_eq!(Value::from(list), expected);
    assert_eq!(json(&[]).len(), Grid::builtin().variants().len());
    assert_eq!(json(&["--all"]), json(&[]));
}

/// CI must compile every template: a plan that occurs only in the rest of the grid is never compiled.
#[test]
fn the_slice_reaches_every_template_target_dtype_and_mask() {
    let grid = Grid::builtin();
    let point = |variant: &Variant| {
        let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("the grid holds what has a plan");
        (plan.template, variant.target(), variant.dtype(), variant.causal())
    };
    let slice: HashSet<_> = grid.members(grid.set("slice").expect("it is declared")).map(point).collect();
    let missing: HashSet<_> = grid.variants().iter().map(point).filter(|point| !slice.contains(point)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The kernels in `generated/` must show everything once and stay few enough to read.
#[test]
fn the_vendored_set_shows_every_template_target_dtype_and_feature_and_stays_small() {
    let grid = Grid::builtin();
    let words = |variant: &Variant| {
        let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("the grid holds what has a plan");
        let features =
            variant.features().into_iter().flat_map(|features| features.words().map(str::to_owned).collect::<Vec<_>>());
        let dtype = variant.dtype().map(|dtype| dtype.to_string());
        features.chain(dtype).chain([plan.template.to_string(), variant.target().to_string()]).collect::<Vec<_>>()
    };
    let kept: Vec<&Variant> = grid.members(grid.set("vendored").expect("it is declared")).collect();
    let shown: HashSet<String> = kept.iter().flat_map(|variant| words(variant)).collect();
    let missing: HashSet<String> = grid.variants().iter().flat_map(words).filter(|word| !shown.contains(word)).collect();
    assert!(missing.is_empty() && kept.len() <= 160, "{} kernels; {missing:?}", kept.len());

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated");
    let sizes = ["", "include", "include/kgen", "examples"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root.join(folder)).expect("readable");
        entries.map(|entry| entry.and_then(|entry| entry.metadata()).expect("readable")).filter(fs::Metadata::is_file)
    });
    let bytes: u64 = sizes.map(|metadata| metadata.len()).sum();
    assert!(bytes < 6 << 20, "generated/ has {bytes} bytes");
}

#[test]
fn the_standard_set_is_all_there() {
    let output =
        kgen().args(["list", "--set", "standard-74", "--format", "json"]).assert().success().stderr("").get_output().clone();
    let list: Vec<Value> = serde_json::from_slice(&output.stdout).expect("an array");
    assert_eq!(list.len(), 74);
}

/// A newcomer's first build shows features that other libraries lack; it must take only minutes on two cores.
#[test]
fn the_first_build_holds_standard_74_and_the_kernels_that_others_do_not_have() {
    let names = |set: &str| -> HashSet<String> {
        json(&["--set", set]).iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    };
    let start = names("start");
    assert!(start.is_superset(&names("standard-74")));
    for novel in [
        "flash_fwd_hdim224_fp8_causal_sm121",
        "flash_fwd_hdim224_bf16_causal_sm80",
        "flash_fwd_hdim224_fp8_sm90",
        "flash_fwd_hdim128_bf16_causal_sm121",
    ] {
        assert!(start.contains(novel), "{novel}");
    }
    assert!((74..=100).contains(&start.len()), "{} kernels take too long for a first build", start.len());
}

#[test]
fn a_head_dim_outside_the_grid_is_made_for_the_selected_families() {
    let made = json(&["--head-dim", "72", "--dtype", "fp16", "--target", "sm80", "--kind", "fwd"]);
    let names: Vec<Value> = made.iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, ["flash_fwd_hdim72_fp16_sm80", "flash_fwd_hdim72_fp16_causal_sm80"]);
}

#[test]
fn bad_usage_exits_with_2_and_says_what_to_do() {
    let cases: [(&[&str], &str); 9] = [
        (&["--head-dim", "68"], "nearest: 64 and 72"),
        (&["--head-dim", "wide"], "is no head dim; write one number"),
        (&["--target", "sm42"], "unknown target `sm42`"),
        (&["--dtype", "bf16", "--target", "turing"], "Turing's tensor cores have no bf16; sm80 and newer do"),
        (&["--head-dim", "136", "--target", "turing"], "end at head dim 128"),
        (&["--set", "standard"], "standard-74"),
        (&["--filter", "hdm > 64"], "did you mean `hdim`?"),
        (
            &["--filter", "hdim > 64", "--head-dim", "64", "--kind", "fwd", "--target", "sm80"],
            "`--filter 'hdim > 64'` leaves none of the 23 variants with",
        ),
        (&["--causal", "--full"], "cannot be used with"),
    ];
    for (args, expected) in cases {
        kgen().arg("list").args(args).assert().code(2).stdout("").stderr(contains(expected));
    }
}

#[test]
fn another_grid_is_used_where_one_is_named_and_its_mistakes_are_quoted() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("my.toml");
    let grid = "version = 1\n[targets.gb10]\ndescription = 'Spark'\n[[family]]\nkind = ['bwd']\nhead_dim = [72]\ndtype = ['e4m3']\nmask = ['full']\ntarget = ['dgx-spark']\n";
    fs::write(&file, grid).expect("written");
    kgen().arg("--variants").arg(&file).arg("list").assert().success().stdout(contains("flash_bwd_hdim72_fp8_sm121"));
    kgen().env("KGEN_VARIANTS", &file).arg("list").assert().success().stdout(contains("1 variant\n"));

    fs::write(&file, grid.replace("[72]", "[70]")).expect("written");
    let quoted = contains("my.toml:6:13").and(contains("6 | head_dim = [70]")).and(contains("^^")).and(contains("help:"));
    kgen().arg("--variants").arg(&file).arg("list").assert().code(2).stdout("").stderr(quoted);

    fs::write(&file, [0xff, 0xfe]).expect("written");
    kgen().arg("--variants").arg(&file).arg("list").assert().code(2).stderr(contains("not UTF-8"));
    fs::remove_file(&file).expect("removed");
    kgen().arg("list").arg("--variants").arg(&file).assert().code(2).stderr(contains("my.toml").and(contains("check the path")));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"))
        .args(["list", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // Close this end of the pipe before kgen writes to it.
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    assert!(child.wait().expect("it ends").success() && stderr.is_empty(), "{stderr}");
}

#[test]
fn notes_nobody_reads_are_no_error() {
    let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    command.args(["list", "--set", "standard-74"]).env_remove("KGEN_VARIANTS").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    drop(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "a closed standard error made it panic");
}

#[test]
fn listing_is_instant() {
    let run = || {
        let mut command = process::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
        command.arg("list").env_remove("KGEN_VARIANTS").stdout(Stdio::null());
        let done = toolchain::process::run(&mut command, Duration::from_secs(30), &toolchain::Cancel::default());
        let done = done.expect("it starts");
        assert!(done.ending.is_success());
        done.usage.cpu_seconds
    };
    let fastest = (0..5).map(|_| run()).fold(f64::INFINITY, f64::min);
    // Below the limit of perception. CPU time, because a busy machine lengthens wall time.
    let limit = if cfg!(debug_assertions) { 0.5 } else { 0.02 };
    assert!(fastest < limit, "{fastest} s");
}

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        kgen().args(["completions", shell]).assert().success().stdout(contains("build-all").and(contains("head-dim")));
    }
    for shell in ["bash", "zsh"] {
        kgen().args(["completions", shell]).assert().success().stdout(contains("flash_fwd_hdim128_bf16_causal_sm80"));
    }
    kgen().args(["completions", "tcsh"]).assert().code(2).stderr(contains("possible values"));
}

#[test]
fn help_shows_examples() {
    for command in ["list", "completions"] {
        kgen().args([command, "--help"]).assert().success().stdout(contains("Examples:\n  kgen"));
    }
}

#[test]
fn a_grid_without_end_is_refused() {
    let endless = kgen().args(["--variants", "/dev/zero", "list"]).timeout(Duration::from_secs(20)).assert().code(2);
    endless.stderr(contains("it is a device, and no file"));
    let folder = tempfile::tempdir().expect("a folder");
    let long = folder.path().join("long.toml");
    std::fs::write(&long, vec![b'#'; (8 << 20) + 1]).expect("written");
    kgen()
        .args(["--variants".as_ref(), long.as_os_str(), "list".as_ref()])
        .assert()
        .code(2)
        .stderr(contains("longer than 8 MiB"));
}

#[test]
fn a_variable_set_to_nothing_is_one_that_is_not_set() {
    kgen().env("KGEN_VARIANTS", "").env("KGEN_TEMPLATES", "").arg("list").assert().success();
    kgen().env("KGEN_VARIANTS", "/nowhere.toml").arg("list").assert().code(2);
    kgen().args(["--variants", "", "list"]).assert().code(2);
}

#[test]
fn a_target_that_newer_gpus_cannot_load_is_listed_with_the_gpus_that_run_it() {
    let note = |target| {
        let output = kgen().args(["list", "--head-dim", "64", "--target", target]).assert().success().get_output().clone();
        String::from_utf8(output.stderr).expect("text")
    };
    let both = "`sm120` files run on compute capability 12.0 (RTX PRO 6000, RTX 50) and 12.1 (GB10), and no other";
    assert!(note("blackwell").contains(both), "{}", note("blackwell"));
    assert!(note("blackwell").contains("B200 and GB200 are `--target b200`"), "{}", note("blackwell"));
    assert!(!note("sm120").contains("b200"), "`sm120` has one meaning");
    assert!(note("gb10").contains("`sm121` files run on compute capability 12.1 (GB10), and no other"));
    assert_eq!(note("ampere"), "", "newer GPUs compile its PTX");
    assert_eq!(json(&["--head-dim", "64", "--target", "blackwell"])[0]["runs_on"], serde_json::json!(["12.0", "12.1"]));
}

#[test]
fn the_gpu_of_a_machine_without_one_is_missing_and_a_gpu_without_kernels_bad_usage() {
    // An empty list makes the driver report no device.
    let native = kgen().args(["list", "--target", "native"]).env("CUDA_VISIBLE_DEVICES", "").assert().code(3);
    native.stderr(contains("`native`: ").and(contains("name a target instead, such as `sm80`")).and(contains("--device").not()));
    kgen().args(["list", "--target", "v100"]).assert().code(2).stderr(contains("older than 7.5"));
    let thor = kgen().args(["list", "--target", "sm110", "--kind", "fwd", "--hdim", "64"]).assert().success();
    thor.stdout(contains("flash_fwd_hdim64_bf16_sm80").and(contains("sm100").not()))
        .stderr(contains("`sm110` is compute capability 11.0: the files of `sm80` run there, from the PTX in them"));
    kgen().args(["list", "--filter", "target == rtx3090"]).assert().code(2).stderr(contains("`--target rtx3090` says"));
}

#[test]
fn completions_offer_the_sets_of_the_grid() {
    kgen().args(["completions", "bash"]).assert().success().stdout(contains("standard-74"));
}

#[test]
fn a_man_page_is_that_of_its_command() {
    kgen().args(["man", "build"]).assert().success().stdout(contains(".TH kgen-build 1").and(contains("\\-\\-no\\-ptx")));
    let folder = tempfile::tempdir().expect("a temporary folder");
    kgen().args(["man", "--output"]).arg(folder.path()).assert().success();
    assert!(folder.path().join("kgen.1").is_file() && folder.path().join("kgen-cache-prune.1").is_file());
    for page in fs::read_dir(folder.path()).expect("readable").map(|page| page.expect("a page").path()) {
        let (name, text) = (page.display(), fs::read_to_string(&page).expect("text"));
        assert!(!name.to_string().contains("help") && !text.contains("help(1)"), "`{name}` is or names a page of help's help");
        for section in [".SH \"EXIT STATUS\"\n", ".SH ENVIRONMENT\n", ".SH FILES\n"] {
            assert!(text.contains(section), "`{name}` lacks {section}");
        }
    }
    let show = || contains(".TH kgen-toolchain-show 1 2001-09-09 \"kgen 0.").and(contains("\\-\\-path"));
    for line in [&["toolchain show"][..], &["toolchain-show"], &["toolchain", "show"], &["kgen-toolchain-show"]] {
        kgen().arg("man").args(line).env("SOURCE_DATE_EPOCH", "1000000000").assert().success().stdout(show());
    }
    let wrong = kgen().args(["man", "toolchain", "shwo"]).assert().code(2);
    wrong.stderr(contains("kgen has no command `toolchain shwo`"));
    kgen().arg("man").env("SOURCE_DATE_EPOCH", "yesterday").assert().code(2).stderr(contains("no number of seconds after 1970"));
    kgen().args(["man", "biuld"]).assert().code(2).stderr(contains("kgen has no command `biuld`"));
}

#[test]
fn quiet_says_nothing_but_results_and_a_file_gives_defaults() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list = |args: &[&str]| {
        let mut command = kgen();
        command.arg("list").args(args).args(["--target", "sm90", "--hdim", "64"]).current_dir(folder.path());
        command.assert()
    };
    list(&[]).success().stderr(contains("files run on"));
    list(&["-q"]).success().stderr("").stdout(contains("_sm90"));
    list(&["-q", "-v"]).code(2);
    list(&["--color", "always", "--variants", "none.toml"]).code(2).stderr(contains("\u{1b}["));
    fs::write(folder.path().join("kgen.toml"), "variants = 'none.toml'\n").expect("written");
    list(&[]).code(2).stderr(contains("none.toml"));
    fs::write(folder.path().join("other.toml"), "jobs = 2\n").expect("written");
    list(&["--config", "other.toml"]).success();
    list(&["--config", "missing.toml"]).code(2).stderr(contains("cannot read `missing.toml`"));
    fs::write(folder.path().join("kgen.toml"), "job = 2\n").expect("written");
    list(&[]).code(2).stderr(contains("unknown field `job`").and(contains("docs/config.md")));
    list(&["--format", "json"]).code(2).stdout(contains("\"exit_code\": 2"));
}

#[test]
fn the_cache_is_shown_and_pruned_but_for_the_compiler() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for file in ["objects/key/output", "verdicts/one.json", "toolchain/cuda/bin/nvcc"] {
        let file = folder.path().join("kgen").join(file);
        fs::create_dir_all(file.parent().expect("has one")).expect("made");
        fs::write(file, "something").expect("written");
    }
    let cache = |args: &[&str]| kgen().arg("cache").args(args).env("XDG_CACHE_HOME", folder.path()).assert().success();
    cache(&["show"]).stdout(contains("objects: compiled kernels"));
    cache(&["prune"]).stdout(contains("0 items not used for 30 days removed"));
    cache(&["prune", "--days", "0", "--dry-run"]).stdout(contains("2 items not used for 0 days would be removed, 18 B freed"));
    cache(&["prune", "--days", "0", "--dry-run", "--format", "json"]).stdout(contains("\"dry_run\": true"));
    assert!(folder.path().join("kgen/objects/key/output").is_file(), "a dry run removes nothing");
    cache(&["prune", "--days", "0"]).stdout(contains("2 items not used for 0 days removed, 18 B freed"));
    assert!(folder.path().join("kgen/toolchain/cuda/bin/nvcc").is_file());
    assert!(!folder.path().join("kgen/objects/key").exists());

    // Leftovers of killed builds and checks.
    for left in ["objects/.unfinished-a1/scratch.ptx", "emulator/.new-b2/kernel.cu"] {
        let left = folder.path().join("kgen").join(left);
        fs::create_dir_all(left.parent().expect("has one")).expect("made");
        fs::write(left, "something").expect("written");
    }
    let counted = contains("2 items not used for 0 days would be removed, 18 B freed\n");
    cache(&["prune", "--days", "0", "--dry-run"]).stdout(counted);
    let running = kgen::files::Presence::announce(&folder.path().join("kgen/objects"), &[]).expect("announced");
    let kept = contains("1 item not used for 0 days removed, 9 B freed; 1 more stays, which");
    cache(&["prune", "--days", "0"]).stdout(kept);
    assert!(folder.path().join("kgen/objects/.unfinished-a1").is_dir());
    drop(running);
    cache(&["prune", "--days", "0"]).stdout(contains("1 item not used for 0 days removed, 9 B freed\n"));
    cache(&["show"]).stdout(contains("     0 B  objects: compiled kernels").and(contains("     0 B  emulator")));
}

#[test]
fn the_path_of_the_compiler_is_printed_alone_or_missing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let show =
        |args: &[&str]| kgen().args(["toolchain", "show", "--path"]).args(args).env("XDG_CACHE_HOME", folder.path()).assert();
    show(&[]).code(3).stdout("").stderr(contains("`kgen toolchain install`"));
    let shown = kgen().args(["toolchain", "show", "--format", "json"]).env("XDG_CACHE_HOME", folder.path()).assert().success();
    let installed: Value = serde_json::from_slice(&shown.get_output().stdout).expect("JSON");
    assert_eq!(installed[0]["installed"], false);
}

#[test]
fn a_default_target_is_found_above_and_counts_where_flags_leave_the_target_open() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let below = place.path().join("a/b");
    fs::create_dir_all(&below).expect("made");
    let write = |text: &str| fs::write(place.path().join("kgen.toml"), text).expect("written");
    let run = |args: &[&str]| kgen().args(args).current_dir(&below).env_remove("KGEN_CONFIG").assert();
    let targets = |args: &[&str]| {
        let done = run(&[&["list", "--format", "json"], args].concat()).success();
        let entries: Vec<Value> = serde_json::from_slice(&done.get_output().stdout).expect("JSON");
        let mut targets: Vec<String> = entries.iter().map(|entry| entry["target"].as_str().expect("one").to_owned()).collect();
        targets.sort();
        targets.dedup();
        targets
    };
    write("jobs = 3\ntarget = 'hopper'\n");
    assert_eq!(targets(&["--head-dim", "64"]), ["sm90"]);
    assert_eq!(targets(&["--causal", "--target", "sm80"]), ["sm80"]);
    assert_eq!(targets(&["flash_fwd_hdim128_bf16_causal_sm80"]), ["sm80"]);
    assert_eq!(targets(&["--set", "standard-74"]), ["sm80"]);
    for open in [&[][..], &["--all"], &["--filter", "hdim == 64"], &["--all", "--causal"]] {
        assert!(targets(open).len() > 1, "{open:?}");
    }
    let note = "only `sm90`, by `target` in `";
    run(&["list", "--head-dim", "64"]).success().stderr(contains(note).and(contains("files run on")));
    run(&["list", "--all"]).success().stderr(contains(note).not());
    run(&["list", "--head-dim", "64", "--dtype", "fp8", "--kind", "bwd"]).code(2).stderr(contains("takes `sm90` alone"));
    let doctor = run(&["doctor"]).get_output().stdout.clone();
    let doctor = String::from_utf8_lossy(&doctor).into_owned();
    assert!(doctor.contains("kgen.toml") && doctor.contains("jobs = 3, target = \"hopper\""), "{doctor}");
    run(&["list", "--help"]).success().stdout(contains("`target` of `kgen.toml`"));

    fs::write(below.join("kgen.toml"), "target = 'sm80, sm120'\n").expect("written");
    assert_eq!(targets(&["--head-dim", "64"]), ["sm120", "sm80"], "the nearest file counts");
    fs::remove_file(below.join("kgen.toml")).expect("removed");
    write("target = 'native'\n");
    let native = kgen().args(["list", "--head-dim", "64"]).current_dir(&below).env("CUDA_VISIBLE_DEVICES", "").assert();
    native.code(3).stderr(contains("`native`: ").and(contains("or change `target` in `")));
    write("jobs = 3\ntarget = 'hoper'\n");
    let refused = run(&["list", "--all"]).code(2);
    refused.stderr(contains("unknown target `hoper`").and(contains("kgen.toml:2:10")).and(contains("did you mean `hopper`?")));
}
