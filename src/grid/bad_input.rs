//! Every error a `variants.toml` can contain, with a message that quotes the line and suggests a change.

use super::{Grid, GridError};

const GOOD: &str = r#"version = 1

[targets.sm80]
description = "Ampere"

[[family]]
kind = ["fwd"]
head_dim = [64, 128]
dtype = ["fp16", "bf16"]
mask = ["full", "causal"]
target = ["sm80"]

[[exclude]]
when = "hdim == 128 and causal"
reason = "none"

[[tile]]
when = "hdim == 64"
measured = "run 1"
n = 64

[sets.some]
description = "some"
filter = "full"
size = 10
"#;

/// The valid file with one text replaced, and the expected parts of the message: title, position, caret, help.
struct Case {
    from: &'static str,
    to: &'static str,
    says: &'static str,
    line: usize,
    quotes: &'static str,
    help: &'static str,
}

const fn case(
    from: &'static str,
    to: &'static str,
    says: &'static str,
    line: usize,
    quotes: &'static str,
    help: &'static str,
) -> Case {
    Case { from, to, says, line, quotes, help }
}

const EMPTY: &str = "";

const CASES: &[Case] = &[
    // Shape.
    case("mask =", "masks =", "unknown key `masks`", 10, "masks = [\"full\"", "did you mean `mask`?"),
    case("[sets.some]", "[set.some]", "unknown key `set`", 22, "[set.some]", "did you mean `sets`?"),
    case("n = 64", "block_size = 64", "unknown key `block_size`", 20, "block_size = 64", "`q_in_registers`"),
    case("version = 1", EMPTY, "`version` is missing", 1, EMPTY, "`version = 1`"),
    case("version = 1", "version = 2", "version 2", 1, "version = 2", "`version = 1`"),
    case("version = 1", "version = \"1\"", "wrong type", 1, "version = \"1\"", "write `1`"),
    case("kind = [\"fwd\"]", "kind = \"fwd\"", "wrong type", 7, "kind = \"fwd\"", "write `[\"fwd\"]`"),
    case("[64, 128]", "64", "wrong type", 8, "head_dim = 64", "write `[64]`"),
    case("[64, 128]", "[64, \"128\"]", "wrong type", 8, "\"128\"", "write `128`"),
    case("\"Ampere\"", "80", "wrong type", 4, "description = 80", "write `\"80\"`"),
    case("n = 64", "n = -64", "wrong type", 20, "n = -64", "whole number"),
    case("n = 64", "n = 64\nq_in_registers = 1", "wrong type", 21, "q_in_registers = 1", "`true` or `false`"),
    case("n = 64", "n = 64\nturns = \"both\"", "unknown value `both`", 21, "\"both\"", "one of `\"none\"`, `\"products\"`"),
    case("n = 64", "n = 64\nstore = \"tam\"", "unknown value `tam`", 21, "\"tam\"", "did you mean `tma`?"),
    case("[[family]]", "[family]", "wrong type: table", 6, "[family]", "write `[[family]]`"),
    case("[64, 128]", "[64, 128", "not TOML", 9, "dtype = ", "correct the TOML"),
    case("mask = ", "kind = ", "twice", 10, "kind = [\"full\"", "keep one"),
    // Axes.
    case("[64, 128]", "[]", "axis `head_dim` is empty", 8, "head_dim = []", "at least one"),
    case("[\"fwd\"]", "[]", "axis `kind` is empty", 7, "kind = []", "at least one"),
    case("[64, 128]", "[64, 128, 64]", "value of `head_dim` is given twice", 8, "[64, 128, 64]", "remove one"),
    case("[\"fp16\", \"bf16\"]", "[\"fp16\", \"half\"]", "value of `dtype` is given twice", 9, "\"half\"", "remove one"),
    case("[64, 128]", "[64, 68]", "impossible head dim `68`", 8, "[64, 68]", "nearest: 64 and 72"),
    case("[64, 128]", "[64, \"192_100\"]", "impossible head dim `100`", 8, "\"192_100\"", "nearest: 96 and 104"),
    case("[64, 128]", "[64, \"wide\"]", "`wide` is no head dim", 8, "\"wide\"", "`192_128`"),
    case("[64, 128]", "[8]", "impossible head dim `8`", 8, "[8]", "nearest: 16"),
    case("[64, 128]", "[-64]", "impossible head dim `-64`", 8, "[-64]", "16 to 256"),
    case("\"bf16\"", "\"bf61\"", "unknown dtype `bf61`", 9, "\"bf61\"", "did you mean `bf16`?"),
    case("[\"fwd\"]", "[\"foward\"]", "unknown kind `foward`", 7, "\"foward\"", "did you mean `forward`?"),
    case("target = [\"sm80\"]", "target = [\"volta\"]", "unknown target `volta`", 11, "\"volta\"", "`sm80`"),
    case(
        "target = [\"sm80\"]",
        "target = [\"hopper\"]",
        "target `sm90` is not declared",
        11,
        "\"hopper\"",
        "add `[targets.sm90]`",
    ),
    case("\"causal\"]", "\"casual\"]", "unknown mask `casual`", 10, "\"casual\"", "did you mean `causal`?"),
    case("[targets.sm80]", "[targets.sm08]", "unknown target `sm08`", 3, "[targets.sm08]", "did you mean"),
    case("dtype = [\"fp16\", \"bf16\"]", EMPTY, "`dtype` is missing", 6, "[[family]]", "add `dtype`"),
    case("target = [\"sm80\"]", EMPTY, "`target` is missing", 6, "[[family]]", "target = [\"sm80\"]"),
    case("[\"fwd\"]", "[\"fwd\", \"fwd_combine\"]", "kinds with different axes", 7, "\"fwd_combine\"", "of its own"),
    case("[\"fwd\"]", "[\"fwd_combine\"]", "`fwd_combine` has no head_dim", 8, "head_dim = [64", "remove `head_dim`"),
    // Rules.
    case("reason = \"none\"", EMPTY, "`reason` is missing", 13, "[[exclude]]", "why these variants"),
    case("reason = \"none\"", "reason = \" \"", "`reason` says nothing", 15, "reason = \" \"", "one sentence"),
    case(
        "hdim == 128 and causal",
        "hdim == 128 and casual",
        "unknown field `casual`",
        14,
        "and casual",
        "did you mean `causal`?",
    ),
    case("hdim == 128 and causal", "hdim == 256", "exclude matches no variant", 14, "hdim == 256", "remove it"),
    case("when = \"hdim == 64\"", "when = \"hdim == 32\"", "tile matches no variant", 18, "hdim == 32", "remove it"),
    case(
        "when = \"hdim == 64\"",
        "when = \"hdim == 128 and causal\"",
        "tile matches no variant",
        18,
        "128 and causal",
        "remove it",
    ),
    case("measured = \"run 1\"", EMPTY, "`measured` is missing", 17, "[[tile]]", "the run these numbers come from"),
    case("\nn = 64", EMPTY, "this tile changes nothing", 17, "[[tile]]", "`stages`"),
    case("filter = \"full\"", "filter = \"\"", "a condition is missing", 24, "filter = \"\"", "hdim >= 128"),
    case("size = 10", "size = 3", "holds 4 variants, more than its size of 3", 25, "size = 3", "correct `size`"),
];

#[track_caller]
fn refused(text: &str) -> (usize, String) {
    match Grid::parse(text, "my.toml") {
        Err(GridError::Invalid { origin, line, message }) => {
            assert_eq!(origin, "my.toml");
            (line, message)
        }
        other => panic!("this should be refused, not {other:?}:\n{text}"),
    }
}

#[test]
fn the_good_file_is_good() {
    let grid = Grid::parse(GOOD, "my.toml").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((grid.variants().len(), grid.excluded().len()), (6, 2));
}

#[test]
fn every_mistake_is_quoted_with_its_line_and_what_to_change() {
    for Case { from, to, says, line, quotes, help } in CASES {
        assert!(GOOD.contains(from), "`{from}` is in the good file");
        let (at, message) = refused(&GOOD.replacen(from, to, 1));
        let first = message.lines().next().unwrap_or_default();
        assert!(first.contains(says), "the first line should say {says}:\n{message}");
        assert_eq!(at, *line, "{message}");
        assert!(message.contains(&format!("my.toml:{line}:")), "{message}");
        assert!(message.contains(&format!("{line} | ")) || quotes.is_empty(), "line {line} should be quoted:\n{message}");
        assert!(message.contains(quotes) && message.contains('^'), "{quotes} should be quoted:\n{message}");
        let advice = message.split_once("help: ").unwrap_or_else(|| panic!("no help:\n{message}")).1;
        assert!(advice.contains(help), "the help should say {help}:\n{message}");
    }
}

#[test]
fn the_caret_of_a_filter_in_the_file_stands_under_the_word() {
    let (_, message) = refused(&GOOD.replace("hdim == 128 and causal", "hdim == 128 and casual"));
    let mut lines = message.lines().skip_while(|line| !line.contains("and casual"));
    let (quoted, carets) = (lines.next().expect("quoted"), lines.next().expect("carets"));
    assert_eq!(quoted.find("casual"), carets.find("^^^^^^"), "{message}");
    // Escapes shift the characters: the caret marks the whole string instead.
    let (_, message) = refused(&GOOD.replace("hdim == 128 and causal", "hdim == 128 \\u0061nd casual"));
    assert!(message.contains("^^^^^^^^^^^^^^^^^^^^^^^^^^^^"), "{message}");
}

#[test]
fn a_variant_of_two_families_is_refused_with_both_places() {
    let second = "\n[[family]]\nkind = [\"fwd\", \"bwd\"]\nhead_dim = [128]\ndtype = [\"bf16\"]\nmask = [\"causal\"]\ntarget = [\"a100\"]\n";
    let (line, message) = refused(&format!("{GOOD}{second}"));
    assert_eq!(line, 27, "{message}");
    for part in [
        "`flash_fwd_hdim128_bf16_causal_sm80` is declared by two families",
        "first time",
        "second time",
        " 6 | [[family]]",
        "27 | [[family]]",
    ] {
        assert!(message.contains(part), "{part} is missing:\n{message}");
    }
}

#[test]
fn one_target_under_two_names_is_refused() {
    let (line, message) = refused(&GOOD.replace("[[family]]", "[targets.a100]\ndescription = \"again\"\n\n[[family]]"));
    assert!(line == 6 && message.contains("target `sm80` is declared twice"), "{message}");
}

#[test]
fn a_file_without_families_is_refused() {
    assert!(refused("version = 1\n").1.contains("declares no variants"));
    assert!(refused("").1.contains("`version` is missing"));
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = Grid::load(&folder.path().join("no.toml")).expect_err("not there").to_string();
    assert!(missing.contains("no.toml") && missing.contains("help: check the path"), "{missing}");
    let directory = Grid::load(folder.path()).expect_err("a folder").to_string();
    assert!(directory.contains("help: give the file itself"), "{directory}");
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, b"version = 1\n# \xff\xfe\n").expect("written");
    let binary = Grid::load(&binary).expect_err("not UTF-8").to_string();
    assert!(binary.contains("line 2") && binary.contains("save it as UTF-8"), "{binary}");
}
