//! Checks that the commands and flags named in kgen's help texts, notes and errors exist.

use crate::support::command_lines::{flags, flaw, kgen_commands, tree};
use clap::CommandFactory;
use kgen::cli::Cli;
use proc_macro2::{TokenStream, TokenTree};
use std::{fs, path::Path};

#[test]
fn every_command_in_an_example_of_a_help_text_is_one_that_kgen_takes() {
    let mut root = Cli::command();
    root.build();
    let mut wrong = Vec::new();
    let mut found = 0;
    for command in tree(&root).into_iter().filter(|command| command.get_name() != "help") {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in text.lines().filter_map(|line| line.strip_prefix("  kgen ")) {
            // The explanation follows the command after two or more spaces.
            let line = format!("kgen {}", line.split("  ").next().unwrap_or(line).trim_end_matches('\\'));
            for words in kgen_commands(&line) {
                found += 1;
                wrong.extend(flaw(&words, false).map(|flaw| format!("kgen {}: `{line}`: {flaw}", command.get_name())));
            }
        }
    }
    assert!(found > 30, "only {found} examples were found");
    assert!(wrong.is_empty(), "examples that kgen does not take:\n{}", wrong.join("\n"));
}

/// The code in back-ticks of a text; empty if they are unbalanced.
fn spans(text: &str) -> Vec<&str> {
    let pieces: Vec<&str> = text.split('`').collect();
    if pieces.len().is_multiple_of(2) { Vec::new() } else { pieces.into_iter().skip(1).step_by(2).collect() }
}

/// `text` with `…` for the placeholders of a format string, which are dropped at the end of a word.
fn without_placeholders(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, (_, after))) = rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        plain += before;
        plain += if plain.ends_with(' ') { "…" } else { "" };
        rest = after;
    }
    plain + rest
}

/// Errors in the commands and flags that a text names, and the number of names.
fn flaws(text: &str) -> (usize, Vec<String>) {
    let flags = flags();
    let (mut found, mut wrong) = (0, Vec::new());
    for span in spans(text) {
        let span = without_placeholders(span);
        if let Some(flag) = span.strip_prefix("--") {
            let flag = flag.split([' ', '=', '…']).next().unwrap_or_default();
            // A format inserts its name.
            if flag.is_empty() {
                continue;
            }
            found += 1;
            if !flags.contains(flag) {
                wrong.push(format!("`{span}`: kgen has no such flag"));
            }
        }
        for words in kgen_commands(&span) {
            found += 1;
            wrong.extend(flaw(&words, false).map(|flaw| format!("`{span}`: {flaw}")));
        }
    }
    (found, wrong)
}

/// Checks `texts`, each with its origin; at least `least` commands and flags must be named.
fn judge(texts: impl IntoIterator<Item = (String, String)>, least: usize) {
    let (mut found, mut wrong) = (0, Vec::new());
    for (place, text) in texts {
        let (count, flaws) = flaws(&text);
        found += count;
        wrong.extend(flaws.into_iter().map(|flaw| format!("{place}: {flaw}")));
    }
    assert!(found >= least, "only {found} commands and flags were found");
    assert!(wrong.is_empty(), "commands and flags that kgen does not have:\n{}", wrong.join("\n"));
}

#[test]
fn every_command_and_flag_that_a_help_text_names_exists() {
    let mut root = Cli::command();
    root.build();
    let mut texts = Vec::new();
    for command in tree(&root) {
        let of_command = [command.get_about(), command.get_long_about(), command.get_after_help(), command.get_after_long_help()];
        let of_arguments = command.get_arguments().flat_map(|argument| [argument.get_help(), argument.get_long_help()]);
        let place = format!("kgen {} --help", command.get_name());
        texts.extend(of_command.into_iter().chain(of_arguments).flatten().map(|text| (place.clone(), text.to_string())));
    }
    judge(texts, 40);
}

/// The string literals of a source, without doc comments, whose lines are not complete on their own.
fn literals(tokens: TokenStream, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let is_doc = group.stream().into_iter().next().is_some_and(|first| first.to_string() == "doc");
                if !is_doc {
                    literals(group.stream(), found);
                }
            }
            TokenTree::Literal(literal) => {
                found.extend(syn::parse_str::<syn::LitStr>(&literal.to_string()).ok().map(|text| text.value()));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Paths and string literals of the sources in a folder, without tests.
fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("a source is text");
            let of_product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let mut texts = Vec::new();
            literals(of_product.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display())), &mut texts);
            found.extend(texts.into_iter().map(|text| (path.display().to_string(), text)));
        }
    }
}

#[test]
fn every_command_and_flag_that_a_message_names_exists() {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    judge(found, 100);
}

#[test]
fn a_message_is_judged_without_what_a_format_puts_there() {
    assert_eq!(without_placeholders("kgen build{flag} --output {path} {x}"), "kgen build --output … …");
    assert_eq!(spans("run `kgen list` or `--all`; ` is no span"), [""; 0]);
    let wrong = |text: &str| flaws(text).1;
    for good in
        ["`kgen build{flag}` makes it", "`--output {path}` is no `.cu` file", "`kgen check --case {case}`", "kgen expound"]
    {
        assert_eq!(wrong(good), [""; 0], "{good}");
    }
    for bad in ["`kgen expound`", "run `kgen list --plans`", "`--no-such` narrows it", "`kgen build --output {path}`"] {
        assert_eq!(wrong(bad).len(), 1, "{bad}");
    }
    let mut found = Vec::new();
    let source = "/// `kgen no`\nfn a() { b(\"one \\\n   two\", r\"three\", 'x', 4, concat!(\"five\")); }";
    literals(source.parse().expect("tokens"), &mut found);
    assert_eq!(found, ["one two", "three", "five"]);
}
