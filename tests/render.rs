//! Snapshots of rendered text: the start of a generated file, its header and constants.
//!
//! After an intended change of a template or a default tile, run `INSTA_UPDATE=always cargo test --test integration
//! render::` and review the difference. Function bodies are not in the snapshots; other tests compile and run them.

use kgen::{
    family::attention::{Kind, Point},
    grid::Grid,
    kernel::{Dtype, Feature, Features, HeadDim, Target},
    plan::Plan,
    render::{Renderer, Templates},
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn render(head_dim: u32, dtype: Dtype, causal: bool) -> String {
    render_for(Target::Sm80, head_dim, dtype, causal)
}

fn render_for(target: Target, head_dim: u32, dtype: Dtype, causal: bool) -> String {
    let variant = Point { kind: Kind::Fwd, head_dim: HeadDim::equal(head_dim), dtype, causal, features: Features::NONE, target };
    let plan = Plan::new(variant, None).expect("has a plan");
    Renderer::new(&Templates::embedded()).expect("templates parse").kernel(&plan).expect("renders").text
}

/// The text up to the first definition, without the version, which changes with every release.
fn opening(text: &str) -> String {
    let is_definition = |line: &str| ["struct ", "template", "KGEN_DEVICE"].iter().any(|word| line.starts_with(word));
    let lines: Vec<&str> = text.lines().take_while(|line| !is_definition(line)).collect();
    lines.join("\n").replace(env!("CARGO_PKG_VERSION"), "<version>")
}

#[test]
fn head_dim_64_bf16_full() {
    insta::assert_snapshot!(opening(&render(64, Dtype::Bf16, false)));
}

#[test]
fn head_dim_128_bf16_causal() {
    insta::assert_snapshot!(opening(&render(128, Dtype::Bf16, true)));
}

#[test]
fn head_dim_72_fp16_full() {
    insta::assert_snapshot!(opening(&render(72, Dtype::Fp16, false)));
}

#[test]
fn head_dim_224_fp8_causal_sm121() {
    insta::assert_snapshot!(opening(&render_for(Target::Sm121, 224, Dtype::Fp8, true)));
}

#[test]
fn head_dim_40_fp8_full_sm89() {
    insta::assert_snapshot!(opening(&render_for(Target::Sm89, 40, Dtype::Fp8, false)));
}

#[test]
fn every_header_a_kernel_includes_is_there() {
    let templates = Templates::embedded();
    let text = render(128, Dtype::Bf16, true);
    let included: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"')).collect();
    assert!(included.contains(&"kgen.h"));
    for header in included {
        assert!(templates.include_files().any(|(path, _)| path == header), "{header}");
    }
}

#[test]
fn only_a_causal_kernel_speaks_of_the_diagonal() {
    assert!(render(128, Dtype::Bf16, true).contains("diagonal"));
    assert!(!render(128, Dtype::Bf16, false).contains("diagonal"));
}

/// The templates of kernels and their parts: paths below `templates/` and texts.
fn kernel_templates() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    let mut todo: Vec<PathBuf> =
        fs::read_dir(&root).expect("it is there").map(|entry| entry.expect("it can be read").path()).collect();
    let mut found = Vec::new();
    while let Some(path) = todo.pop() {
        let below = path.strip_prefix(&root).expect("it is below").to_str().expect("text").to_owned();
        if path.is_dir() && !["bindings", "emulator", "include"].contains(&below.as_str()) {
            todo.extend(fs::read_dir(&path).expect("it is there").map(|entry| entry.expect("it can be read").path()));
        } else if path.extension().is_some_and(|extension| extension == "tera") {
            found.push((below, fs::read_to_string(&path).expect("it can be read")));
        }
    }
    assert!(found.len() > 100, "only {} templates were found", found.len());
    found
}

/// True if a line contains a Tera condition.
fn branches(line: &str) -> bool {
    line.split("{%").skip(1).any(|tag| {
        let tag = tag.trim_start_matches('-').trim_start();
        tag.starts_with("if ") || tag.starts_with("elif ")
    })
}

#[test]
fn no_template_has_more_than_400_lines() {
    let long = kernel_templates().into_iter().map(|(path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > 400);
    assert_eq!(long.collect::<Vec<_>>(), []);
}

/// A kernel's template must show the algorithm; conditions on features belong in its parts.
#[test]
fn no_template_of_a_kernel_branches_in_more_than_one_line_of_twelve() {
    for (path, text) in kernel_templates().iter().filter(|(path, _)| path.ends_with(".cu.tera")) {
        let (lines, branching) = (text.lines().count(), text.lines().filter(|line| branches(line)).count());
        assert!(branching * 12 <= lines, "{path}: {branching} of {lines} lines");
    }
}

/// A long part with a condition every few lines must be split into several parts.
#[test]
fn no_part_of_more_than_60_lines_branches_in_more_than_one_of_six() {
    for (path, text) in kernel_templates().iter().filter(|(_, text)| text.lines().count() > 60) {
        let (lines, branching) = (text.lines().count(), text.lines().filter(|line| branches(line)).count());
        assert!(branching * 6 <= lines, "{path}: {branching} of {lines} lines");
    }
}

#[test]
fn a_line_branches_if_it_has_a_condition() {
    assert!(branches("{%- if a -%}") && branches("x{% if a %}y{% endif %}") && branches("{%- elif b %}"));
    assert!(!branches("{% else %}{% endif %}") && !branches("{{ 1 if a else 2 }}") && !branches("{% include \"if.tera\" %}"));
}

/// The words between `{{` and `}}`, and `{%` and `%}`, without strings and comments.
fn tags(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
        let (open, after) = rest[at..].split_at(2);
        let close = ["}}", "%}", "#}"][["{{", "{%", "{#"].iter().position(|mark| *mark == open).expect("one of them")];
        let end = after.find(close).unwrap_or(after.len());
        if open != "{#" {
            found.push(after[..end].trim_matches('-').trim().split('"').step_by(2).collect::<Vec<_>>().join(" "));
        }
        rest = &after[(end + 2).min(after.len())..];
    }
    found
}

/// The names in a tag that are not attributes of another name and not named arguments.
fn names(tag: &str) -> Vec<String> {
    let mut found = Vec::new();
    let characters: Vec<char> = tag.chars().collect();
    let mut at = 0;
    while at < characters.len() {
        let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
        let length = characters[at..].iter().take_while(|c| is_word(c)).count();
        if length == 0 {
            at += 1;
            continue;
        }
        let word: String = characters[at..at + length].iter().collect();
        let is_attribute = at > 0 && characters[at - 1] == '.';
        let is_component = at > 0 && characters[at - 1] == '<';
        let next: String = characters[at + length..].iter().collect::<String>().trim_start().chars().take(2).collect();
        let is_argument = next.starts_with('=') && next != "==";
        if !is_attribute && !is_component && !is_argument && !word.starts_with(char::is_numeric) {
            found.push(word);
        }
        at += length;
    }
    found
}

/// A part may use variables that every template gets, and those it sets itself. Other values must be arguments of a
/// component: Tera rejects a missing or misspelt argument, while an undefined variable is false.
#[test]
fn no_part_reads_what_the_template_that_includes_it_has_set() {
    const GIVEN: &str = "plan name target template compile_line dtype_constant kgen_version features_constant and_declared \
         with_declared identity_tail requested_features features_of_rows adds_elements changes_weights stages_elements declares declared \
         v params hopper";
    const TERA: &str = "if elif else endif set for in endfor include not and or is defined loop range true false component \
         endcomponent none join indent";
    const GIVEN_TO_COMPANIONS: &str = "kind kernel_file header_file program capability exponent_bits fraction_bits gpu_line \
         emulator_line of_q of_k of_o of_p o_constant fp8 fp8_keys fp8_weights packs_keys aligned_only";
    let features = Feature::ALL.iter().map(|feature| feature.name());
    let of_companions: BTreeSet<&str> = GIVEN_TO_COMPANIONS.split_whitespace().chain(features).collect();
    let known: BTreeSet<&str> = GIVEN.split_whitespace().chain(TERA.split_whitespace()).collect();
    let parts = kernel_templates().into_iter().filter(|(path, _)| !path.ends_with(".cu.tera") && !path.ends_with(".cpp.tera"));
    let mut looked_at = 0;
    for (path, text) in parts {
        let tags = tags(&text);
        let mut own = BTreeSet::new();
        for tag in &tags {
            let words = names(&tag.replace('=', " "));
            match words.first().map(String::as_str) {
                Some("set") => own.extend(words.get(1).cloned()),
                Some("for") => own.extend(words.iter().skip(1).take_while(|word| *word != "in").cloned()),
                Some("component" | "endcomponent") => own.extend(words),
                _ => {}
            }
        }
        for name in tags.iter().filter(|tag| !tag.contains("component ")).flat_map(|tag| names(tag)) {
            looked_at += 1;
            let is_given = path.starts_with("companion/") && of_companions.contains(name.as_str());
            assert!(is_given || known.contains(name.as_str()) || own.contains(&name), "`{path}` reads `{name}`");
        }
    }
    assert!(looked_at > 1000, "only {looked_at} names were found");
}

#[test]
fn names_in_tags_are_those_that_are_read() {
    let text = "{# no #}{{- <a.b c={d} e=\"f\" /> }}{% if plan.g == h %}{%- set i = j[1] -%}";
    assert_eq!(tags(text).len(), 3);
    assert_eq!(tags(text).iter().flat_map(|tag| names(tag)).collect::<Vec<_>>(), ["d", "if", "plan", "h", "set", "j"]);
}

/// Names declared by a header, approximately: the word before the first bracket, `=` or `;` of a line that starts a
/// declaration.
fn declared_by(header: &str) -> BTreeSet<&str> {
    let begins = |line: &&str| {
        let words = ["KGEN_", "struct ", "enum ", "constexpr ", "inline ", "using ", "template ", "#define ", "int ", "bool "];
        words.iter().any(|word| line.starts_with(word))
    };
    header
        .lines()
        .filter(begins)
        .filter_map(|line| {
            let line = line.strip_prefix("#define ").map_or(line, |rest| rest.split([' ', '(']).next().unwrap_or(rest));
            let line = line.split_once("alignas(").and_then(|(_, rest)| rest.split_once(')')).map_or(line, |(_, rest)| rest);
            let end = line.find(['(', '=', ';', '{', ':']).unwrap_or(line.len());
            line[..end].split(|c: char| !c.is_alphanumeric() && c != '_').rfind(|word| !word.is_empty())
        })
        .collect()
}

#[test]
fn a_kernel_includes_only_headers_of_which_it_names_something() {
    let templates = Templates::embedded();
    let renderer = Renderer::new(&templates).expect("templates parse");
    let grid = Grid::builtin();
    let mut sets = BTreeSet::new();
    for variant in grid.variants() {
        let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("fits");
        let text = renderer.kernel(&plan).expect("renders").text;
        let (included, body): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("#include"));
        let headers: Vec<&str> = included.iter().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(headers.first(), Some(&"kgen.h"), "{}", variant.name());
        assert!(headers[1..].is_sorted(), "{}: {headers:?}", variant.name());
        let code = body.iter().map(|line| line.split("//").next().unwrap_or(line));
        let words: BTreeSet<&str> = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
        for header in &headers[1..] {
            let (_, text) = templates.include_files().find(|(path, _)| path == header).expect("it is there");
            assert!(!declared_by(text).is_disjoint(&words), "{} includes {header}", variant.name());
        }
        sets.insert(headers.into_iter().map(str::to_owned).collect::<Vec<_>>());
    }
    assert!(sets.len() > 20, "{} lists of headers", sets.len());
}
