//! The commands as functions: requests from JSON, outcomes equal to the command line's JSON, events, and errors.

use crate::support::{
    bench::{ONE, OTHER, support, walk},
    emulator::lend_emulator,
};
use kgen::command::{self, CommandError, Context, Event, Observer};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Mutex};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A request as a program would send it.
fn request<T: DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}"))
}

/// Settings with a separate cache, and the kgen that workers are started from.
fn context(folder: &TempDir) -> Context {
    let program = assert_cmd::cargo::cargo_bin!("kgen").to_owned();
    Context { cache_dir: Some(folder.path().join("cache/kgen")), program: Some(program), ..Context::default() }
}

/// The JSON that the command line prints, run in `folder`.
fn printed(folder: &TempDir, line: &str) -> String {
    let mut kgen = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("kgen"));
    kgen.args(line.split_whitespace()).args(["--format", "json"]).current_dir(folder.path());
    kgen.env("XDG_CACHE_HOME", folder.path().join("cache")).env_remove("KGEN_VARIANTS").env_remove("KGEN_TEMPLATES");
    String::from_utf8(kgen.output().expect("it runs").stdout).expect("JSON is text")
}

fn as_printed(outcome: &impl Serialize) -> String {
    serde_json::to_string_pretty(outcome).expect("plain data") + "\n"
}

/// Keeps all events, as JSON.
#[derive(Default)]
struct Kept(Mutex<Vec<Value>>);

impl Observer for Kept {
    fn event(&self, event: Event<'_>) {
        self.0.lock().expect("no panic").push(serde_json::to_value(event).expect("plain data"));
    }
}

impl Kept {
    fn names(&self) -> Vec<String> {
        let events = self.0.lock().expect("no panic");
        events.iter().map(|event| event["event"].as_str().expect("a name").to_owned()).collect()
    }

    fn messages(&self) -> Vec<String> {
        let events = self.0.lock().expect("no panic");
        events.iter().filter_map(|event| Some(event["message"].as_str()?.to_owned())).collect()
    }
}

#[test]
fn a_list_is_what_the_command_line_prints() {
    let folder = folder();
    let asked = request(json!({ "selection": { "kinds": ["fwd"], "dtypes": ["bf16"], "causal": true, "targets": ["rtx3090"],
        "head_dims": [64, "72"] }, "plan": true, "build_dir": "none" }));
    let list = command::list::run(&asked, &context(&folder), &()).expect("a list");
    let line = "list --kind fwd --dtype bf16 --causal --target rtx3090 --head-dim 64,72 --plan";
    assert_eq!(as_printed(&list), printed(&folder, line));
    assert_eq!(list.entries.len(), 2);
    assert!(list.notes[0].contains("`rtx3090` is compute capability 8.6"), "{:?}", list.notes);
    assert_eq!(list.verdict(), Ok(()));
}

#[test]
fn what_cannot_be_selected_is_bad_usage_with_what_was_meant() {
    let run = |selection: Value| {
        let asked = request(json!({ "selection": selection }));
        command::list::run(&asked, &Context::default(), &()).expect_err("nothing is selected")
    };
    let error = run(json!({ "names": ["flash_fwd_hdim64_bf61_sm80"] }));
    assert!(error.kind() == "usage" && error.to_string().contains("did you mean"), "{error}");
    let error = run(json!({ "names": [ONE], "causal": true }));
    assert!(error.to_string().contains("leave out the other fields"), "{error}");
    let error = run(json!({ "score": { "scalars": ["a"] } }));
    assert!(error.to_string().contains("no expression"), "{error}");
    let error = serde_json::from_value::<command::list::Request>(json!({ "selection": { "targets": ["ampre"] } }));
    assert!(error.expect_err("no target").to_string().contains("did you mean `ampere`?"));
    let error = serde_json::from_value::<command::SelectionRequest>(json!({ "head_dims": [7] }));
    assert!(error.expect_err("no head dim").to_string().contains('7'));
}

#[test]
fn files_are_generated_compared_and_an_edited_one_is_warned_of() {
    let folder = folder();
    let output = folder.path().join("out");
    let run = |check: bool, observer: &dyn Observer| {
        let asked = request(json!({ "selection": { "names": [ONE] }, "output": output, "check": check }));
        command::generate::run(&asked, &context(&folder), observer).expect("it can be done")
    };
    let written = serde_json::to_value(run(false, &())).expect("plain data");
    let file = written["selected"][0]["file"].as_str().expect("a file").to_owned();
    assert!(written["written"].as_array().expect("a list").contains(&file.clone().into()), "{written}");
    assert_eq!(run(true, &()).verdict(), Ok(()));
    fs::write(output.join(&file), "edited").expect("written");
    let drift = run(true, &());
    assert_eq!(as_printed(&drift), printed(&folder, &format!("generate {ONE} --check --output {}", output.display())));
    assert!(matches!(drift.verdict(), Err(CommandError::Failed(message)) if message.contains("1 file is not as generated")));
    let kept = Kept::default();
    run(false, &kept);
    assert_eq!(kept.names(), ["warning"]);
    let hashes = json!({ "selection": { "names": [ONE] }, "hashes": folder.path().join("g.b3"), "exact": true });
    let error = command::generate::run(&request(hashes), &context(&folder), &()).expect_err("no folder is written");
    assert!(error.to_string().contains("leave out `exact`"), "{error}");
    assert!(kept.messages()[0].contains(&file), "{:?}", kept.messages());
}

#[test]
fn an_edited_kernel_is_compared_with_the_generated_one() {
    let folder = folder();
    let file = folder.path().join("my.cu");
    let asked = request(json!({ "selection": { "names": [ONE] }, "output": file, "companions": false }));
    command::generate::run(&asked, &context(&folder), &()).expect("it can be written");
    assert!(!folder.path().join("my.md").exists());
    let text = fs::read_to_string(&file).expect("readable");
    fs::write(&file, text.replace("namespace {\n", "// mine\nnamespace {\n")).expect("written");
    let asked = request(json!({ "source": file, "nvcc": "no-such-nvcc" }));
    let diff = command::diff::run(&asked, &context(&folder), &()).expect("they are compared");
    assert_eq!(as_printed(&diff), printed(&folder, &format!("diff --source {} --nvcc no-such-nvcc", file.display())));
    assert!(diff.uncompared.as_ref().is_some_and(|why| why.contains("no-such-nvcc")), "{:?}", diff.uncompared);
    assert_eq!((diff.old.as_str(), diff.lines), (ONE, [0, 1]));
    let error = command::diff::run(&request(json!({ "old": ONE })), &context(&folder), &()).expect_err("nothing to compare");
    assert!(error.to_string().contains("`--source`"), "{error}");
}

#[test]
fn kernels_are_vendored_and_removed() {
    let folder = folder();
    let place = json!({ "folder": folder.path().join("k") });
    let run = |asked: Value| command::vendor::run(&request(asked), &context(&folder), &()).map_err(|error| error.to_string());
    let error = run(json!({ "place": place })).expect_err("nothing is there");
    assert!(error.contains("holds no kernels yet"), "{error}");
    let there = run(json!({ "place": place, "selection": { "names": [ONE] } })).expect("vendored");
    assert!(there.written && there.variants == [ONE] && folder.path().join("k/include/kgen.h").is_file(), "{there:?}");
    let other = json!({ "place": place, "selection": { "names": [OTHER] }, "mode": "check" });
    assert_eq!(run(other).expect("compared").verdict().expect_err("it differs").kind(), "failed");
    assert!(run(json!({ "place": place, "mode": "check", "remove": true })).is_err());
    assert!(run(json!({ "place": place, "dispatcher": false, "remove": true })).is_err());
    assert!(run(json!({ "place": place, "beside_others": true, "remove": true })).is_err());
    run(json!({ "place": place, "remove": true })).expect("removed");
    assert!(!folder.path().join("k").exists());
}

/// Builds with a mock instead of nvcc.
fn build(folder: &TempDir, context: &Context, observer: &dyn Observer) -> Result<command::build::Outcome, CommandError> {
    let asked = request(json!({ "selection": { "names": [ONE] }, "nvcc": support("mock_nvcc.sh"), "offline": true, "jobs": 1,
        "generated": folder.path().join("generated"), "build_dir": folder.path().join("build") }));
    command::build::run(&asked, context, observer)
}

#[test]
fn a_build_is_observed_and_its_outcome_is_the_report() {
    let folder = folder();
    let kept = Kept::default();
    let built = build(&folder, &context(&folder), &kept).expect("it builds");
    assert_eq!(built.verdict(), Ok(()));
    let written: Value =
        serde_json::from_slice(&fs::read(folder.path().join("build/report.json")).expect("there")).expect("JSON");
    // Converted through text like the report: parsing a float may change its last bit.
    let outcome: Value = serde_json::from_str(&serde_json::to_string(&built).expect("plain data")).expect("JSON");
    assert_eq!(outcome["artifacts"], written["artifacts"]);
    let names = kept.names();
    let steps: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != "note").collect();
    assert_eq!(steps[..2], ["begun", "started"], "{names:?}");
    assert!(steps.contains(&"finished") && steps.last() == Some(&"ended"), "{names:?}");
}

#[test]
fn a_command_stops_when_it_is_asked_to() {
    let folder = folder();
    let context = context(&folder);
    context.cancel.request();
    assert_eq!(build(&folder, &context, &()).expect_err("stopped").kind(), "interrupted");
}

#[test]
fn a_kernel_is_checked_on_the_emulator() {
    let folder = folder();
    lend_emulator(&folder.path().join("cache"));
    let context = context(&folder);
    let kept = Kept::default();
    let run = |case: &str, observer: &dyn Observer| {
        let asked = request(json!({ "selection": { "names": [ONE] }, "device": "emulator", "case": case, "fresh": true,
            "time_limit_s": 600, "schedule": "shuffled" }));
        command::check::run(&asked, &context, observer)
    };
    let outcome = run("one-hot", &kept).expect("it runs");
    assert_eq!(outcome.verdict(), Ok(()));
    let names = kept.names();
    for name in ["begun", "started", "advanced", "finished", "ended"] {
        assert!(names.iter().any(|event| event == name), "no `{name}` in {names:?}");
    }
    let error = run("no-such-case", &()).expect_err("no case");
    assert!(error.kind() == "usage" && error.to_string().contains("a name is for example"), "{error}");
}

#[test]
fn numbers_out_of_range_and_fields_that_exclude_each_other_are_bad_usage() {
    let context = Context::default();
    let time = |asked: Value| command::bench::run(&request(asked), &context, &()).expect_err("refused").to_string();
    assert!(time(json!({ "rounds": 0 })).contains("`rounds` is 0; give a number from 1 to 10000"));
    assert!(time(json!({ "shape": { "batch": [1, 0] } })).contains("`batch` is 0"));
    assert!(time(json!({ "shape": { "seqlen": [64], "seqlen_k": [128] } })).contains("both set"));
    let call = |asked: Value| command::fuzz::run(&request(asked), &context, &()).expect_err("refused").to_string();
    assert!(call(json!({})).contains("either `count` or `calls`"));
    assert!(call(json!({ "calls": ["nonsense"] })).contains("nonsense"));
    let check = command::check::run(&request(json!({ "time_limit_s": 0 })), &context, &());
    assert!(check.expect_err("refused").to_string().contains("`time_limit_s` is 0"));
}

#[test]
fn an_expression_is_what_the_command_line_prints() {
    let folder = folder();
    let run = |asked: Value| command::expression::run(&request(asked), &Context::default(), &());
    let outcome = run(json!({ "text": { "text": "s*a", "scalars": ["a"] } })).expect("an expression");
    assert_eq!(as_printed(&outcome), printed(&folder, "expression s*a --scalars a"));
    let error = run(json!({ "text": { "text": "s*a" } })).expect_err("`a` is not declared");
    assert!(error.kind() == "usage" && error.to_string().contains("`a`"), "{error}");
}

#[test]
fn the_cache_of_a_context_is_shown_and_pruned_alone() {
    let folder = folder();
    let entry = folder.path().join("cache/kgen/verdicts/ab");
    fs::create_dir_all(&entry).expect("made");
    fs::write(entry.join("0".repeat(62)), "x".repeat(5000)).expect("written");
    let run = |asked: Value| command::cache::run(&request(asked), &context(&folder), &()).expect("it can be read");
    assert_eq!(as_printed(&run(json!("show"))), printed(&folder, "cache show"));
    let pruned = as_printed(&run(json!({ "prune": { "days": 0 } })));
    assert_eq!(pruned.matches("\"dry_run\": false").count(), 3, "{pruned}");
}

#[test]
fn the_toolchain_and_the_machine_are_described() {
    let folder = folder();
    let found = command::doctor::run(&request(json!({})), &context(&folder), &()).expect("findings");
    assert!(found.findings.iter().any(|finding| finding.name == "C++ compiler"), "{found:?}");
    let installed = command::toolchain::run(&request(json!("show")), &context(&folder), &()).expect("it can be read");
    assert_eq!(serde_json::to_value(installed).expect("plain data").as_array().map(Vec::len), Some(2));
}

/// Checks that `valid` is a request, survives a round trip, and is refused with an additional key.
fn refuses_unknown_keys<T: DeserializeOwned + Serialize>(valid: &Value) {
    let read: T = request(valid.clone());
    let written = serde_json::to_value(&read).expect("plain data");
    let again: T = request(written.clone());
    assert_eq!(serde_json::to_value(&again).expect("plain data"), written);
    let mut unknown = valid.clone();
    // The fields of an enum variant are below the object's single key.
    let of_variant = |value: &Value| value.as_object().is_some_and(|map| map.len() == 1 && map.values().all(Value::is_object));
    let fields = if of_variant(&unknown) {
        unknown.as_object_mut().and_then(|map| map.values_mut().next()).expect("one key")
    } else {
        &mut unknown
    };
    fields["no_such_field"] = 1.into();
    let error = serde_json::from_value::<T>(unknown).err().unwrap_or_else(|| panic!("{valid} with a key more is taken"));
    assert!(error.to_string().contains("unknown field `no_such_field`"), "{error}");
}

#[test]
fn a_wheel_for_the_emulator_refuses_another_target_to_run_as() {
    let folder = folder();
    let asked = json!({
        "build": { "selection": { "names": [ONE] }, "build_dir": folder.path().join("build"), "run_as": "sm90" },
        "output": folder.path().join("wheels"),
        "device": "emulator",
    });
    let error = command::wheel::run(&request(asked), &context(&folder), &()).expect_err("nothing would read it");
    assert!(matches!(&error, CommandError::Usage(message) if message.contains("`run_as` is for GPUs")), "{error}");
    assert!(!folder.path().join("wheels").exists());
}

#[test]
fn every_request_refuses_keys_that_it_does_not_know() {
    refuses_unknown_keys::<command::SelectionRequest>(&json!({}));
    refuses_unknown_keys::<command::ScoreRequest>(&json!({}));
    refuses_unknown_keys::<command::list::Request>(&json!({}));
    refuses_unknown_keys::<command::generate::Request>(&json!({}));
    refuses_unknown_keys::<command::build::Request>(&json!({}));
    refuses_unknown_keys::<command::emit::Request>(&json!({ "form": "ninja" }));
    refuses_unknown_keys::<command::build_all::Request>(&json!({ "device": "gpu" }));
    refuses_unknown_keys::<command::wheel::Request>(&json!({}));
    refuses_unknown_keys::<command::vendor::Request>(&json!({ "place": { "folder": "k" }, "remove": true }));
    refuses_unknown_keys::<command::vendor::Place>(&json!({ "installed_vllm": { "path": "v" } }));
    refuses_unknown_keys::<command::check::Request>(&json!({}));
    refuses_unknown_keys::<command::fuzz::Request>(&json!({}));
    refuses_unknown_keys::<command::bench::Request>(&json!({}));
    refuses_unknown_keys::<command::peers::Request>(&json!({ "sites": ["peers"] }));
    refuses_unknown_keys::<command::bench::Request>(&json!({ "source": "my.cu", "nvcc": "nvcc", "offline": true }));
    refuses_unknown_keys::<command::bench::Shape>(&json!({}));
    refuses_unknown_keys::<command::diff::Request>(&json!({ "source": "my.cu" }));
    refuses_unknown_keys::<command::explain::Request>(&json!({}));
    refuses_unknown_keys::<command::call::Request>(&json!({ "gpu": "h100", "kv_dtype": "e4m3", "window": [7, -1] }));
    refuses_unknown_keys::<command::probe::Request>(&json!({ "only": ["fma"], "out": "probe.toml" }));
    refuses_unknown_keys::<command::profile::Request>(&json!({}));
    refuses_unknown_keys::<command::profile::Shape>(&json!({}));
    refuses_unknown_keys::<command::report::Request>(&json!({ "rows": { "kernels": ["k"] }, "form": "svg" }));
    refuses_unknown_keys::<command::predict::Request>(&json!({ "gpus": ["h100"] }));
    refuses_unknown_keys::<command::tune::Request>(&json!({ "shard": { "index": 1, "of": 2 } }));
    refuses_unknown_keys::<command::tune::Shard>(&json!({ "index": 1, "of": 2 }));
    refuses_unknown_keys::<command::expression::Request>(&json!({ "text": { "text": "s" } }));
    refuses_unknown_keys::<command::cache::Request>(&json!({ "prune": { "days": 3 } }));
    refuses_unknown_keys::<command::doctor::Request>(&json!({}));
    refuses_unknown_keys::<command::pack::Request>(&json!({ "binary": "b", "output": "o" }));
    assert!(serde_json::from_value::<command::toolchain::Request>(json!("instal")).is_err());
    assert!(serde_json::from_value::<command::cache::Request>(json!("shew")).is_err());
}

#[test]
fn no_command_prints() {
    let mut wrong = Vec::new();
    let mut read = 0;
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command"), &mut |path| {
        let Ok(text) = fs::read_to_string(path) else { return };
        read += 1;
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let prints = ["print!", "println!", "eprint!", "eprintln!", "dbg!", "stdout", "stderr"];
        let printing = code.filter(|line| prints.iter().any(|word| line.contains(word)));
        wrong.extend(printing.map(|line| format!("{}: {}", path.display(), line.trim())));
    });
    assert!(read > 20, "only {read} files were read");
    assert!(wrong.is_empty(), "commands that print:\n{}", wrong.join("\n"));
}
