//! `kgen expression`, through the binary.

use assert_cmd::Command;
use predicates::{prelude::PredicateBooleanExt, str::contains};
use serde_json::Value;
use std::fs;

fn kgen(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("kgen").expect("cargo builds it");
    command.arg("expression").args(args);
    command
}

fn json(args: &[&str]) -> Value {
    let output = kgen(args).args(["--format", "json"]).assert().success().get_output().clone();
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_score_is_shown_with_its_code_and_its_derivative() {
    kgen(&["cap*tanh((s)/cap)", "--scalars", "cap"]).assert().success().stderr("").stdout(
        contains("score       cap * tanh(s / cap)\n")
            .and(contains("derivative  1.0 - tanh(s / cap) * tanh(s / cap)\n"))
            .and(contains("    // once per head\n    const float block0 = 1.0f / cap;\n"))
            .and(contains("    result = cap * element0;\n    slope = 1.0f - element0 * element0;\n")),
    );
}

#[test]
fn a_mask_is_shown_with_its_interval() {
    kgen(&["--mask", "k <= q and q - k < window", "--integers", "window"])
        .assert()
        .success()
        .stdout(contains("keys        q - window + 1 <= k < q + 1, all of these\n").and(contains("    low = q - window + 1;\n")));
    kgen(&["--mask", "k % 2 == 0"]).assert().success().stdout(contains("no interval: every tile is loaded"));
}

#[test]
fn json_holds_everything() {
    let score = json(&["s - slope[h] * abs(q - k)", "--tables", "slope"]);
    assert_eq!(score["type"], "score");
    assert_eq!(score["work"]["flops"], 2);
    assert_eq!(score["derivative"]["canonical"], "1.0");
    assert_eq!(score["cuda"]["locals"][0]["stage"], "block");
    assert_eq!(score["cuda"]["locals"][0]["per_head"], true);
    let mask = json(&["--mask", "q // c == k // c", "--integers", "c"]);
    assert_eq!(mask["divisors"][0], "c");
    assert_eq!(mask["cuda"]["helpers"], true);
    let interval = &mask["interval"];
    assert_eq!((&interval["low"], &interval["exact"]), (&Value::from("q // c * c"), &Value::from(true)));
    assert_eq!(interval["low_trend"], "rising");
    assert!(mask["derivative"].is_null());
    assert_eq!(mask["hash"], json(&["--mask", "((q//c))==k // c", "--integers", "c"])["hash"]);
}

#[test]
fn what_is_wrong_is_refused_with_its_column() {
    for (args, message) in [
        (&["s - dcay * k", "--scalars", "decay"][..], "expression:1:5"),
        (&["--mask", "s < 1"], "`s` cannot be used in a mask"),
        (&["s", "--scalars", "unused"], "`unused` is declared and not used"),
        (&["s", "--scalars", "float"], "`float` is a name of C++ and CUDA"),
        (&["s + a", "--scalars", "a,a"], "`a` is declared twice"),
        (&[""], "a value is missing"),
        (&["--file", "no/such/file"], "cannot read `no/such/file`"),
    ] {
        kgen(args).assert().code(2).stderr(contains(message));
    }
    kgen(&[]).assert().code(2).stderr(contains("TEXT"));
    kgen(&["s", "--file", "scores.toml"]).assert().code(2).stderr(contains("cannot be used with"));
    let output = kgen(&["s +", "--format", "json"]).assert().code(2).get_output().clone();
    let error: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(error["error"]["message"].as_str().is_some_and(|message| message.contains("a value is missing")), "{error}");
}

#[test]
fn the_examples_of_the_page_are_what_it_says() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/expressions.md")).expect("the page");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut known = Vec::new();
    for (index, block) in page.split("```toml\n").skip(1).enumerate() {
        let path = folder.path().join(format!("{index}.toml"));
        // Only the declarations of scores are kept: in a grid's block they precede the families.
        let block = block.split("```").next().expect("a block");
        fs::write(&path, block.split("[[family]]").next().expect("its start")).expect("written");
        known.extend(json(&["--file", path.to_str().expect("a path")]).as_array().expect("a list").clone());
    }
    assert!(known.len() > 10, "{} examples", known.len());
    // | `name` | `low <= k < high` | yes |
    let mut compared = 0;
    for row in page.lines().filter(|line| line.contains(" <= k < ")) {
        let cells: Vec<&str> = row.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect();
        let [name, interval, exact] = cells[..] else { continue };
        let interval_of =
            &known.iter().find(|score| score["name"] == name).unwrap_or_else(|| panic!("{row}"))["mask"]["interval"];
        let text = |key: &str| interval_of[key].as_str().unwrap_or_else(|| panic!("{row}")).to_owned();
        assert_eq!(format!("{} <= k < {}", text("low"), text("high")), interval, "{row}");
        assert_eq!(interval_of["exact"], exact == "yes", "{row}");
        compared += 1;
    }
    assert!(compared >= 7, "{compared} rows");
}

#[test]
fn a_file_holds_several_scores() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("scores.toml");
    let file = "[score.decay]\nscalars = ['rate']\nscore = 's - rate * abs(q - k)'\n[score.prefix]\nintegers = ['n']\nmask = 'k <= q or k < n'\n";
    fs::write(&path, file).expect("written");
    let name = path.to_str().expect("a path");
    kgen(&["--file", name]).assert().success().stdout(
        contains("[score.decay]\nscore       s - rate * abs(q - k)\n").and(contains("0 <= k < max(q + 1, n), all of these")),
    );
    let scores = json(&["--file", name]);
    assert_eq!((&scores[0]["name"], &scores[1]["mask"]["interval"]["exact"]), (&"decay".into(), &true.into()));
    assert!(scores[0]["mask"].is_null());
    fs::write(&path, file.replace("k < n'", "k < m'")).expect("written");
    kgen(&["--file", name]).assert().code(2).stderr(contains("scores.toml:6:").and(contains("unknown name `m`")));
}
