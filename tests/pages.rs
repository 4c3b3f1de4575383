//! Checks claims in the Markdown pages: `kgen` commands parse, flags exist, figures of README.md occur on the pages of
//! results that it links, and pictures and tables are what published rows give.

use crate::support::command_lines::{flags, flaw, kgen_commands};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// Languages of code blocks that hold shell lines; an indented block has none.
const SHELL: [&str; 4] = ["", "sh", "console", "bash"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("`{path}` cannot be read: {error}"))
}

/// The pages about the current kgen: all but the history, the dated results and files written by `kgen generate`.
fn pages() -> Vec<String> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"]);
    let listed = git.output().expect("git lists the files");
    assert!(listed.status.success(), "git ls-files failed");
    let text = String::from_utf8(listed.stdout).expect("paths are text");
    let of_today = |path: &&str| {
        let is_history = *path == "CHANGELOG.md" || path.starts_with("docs/results/20");
        !is_history && !path.starts_with("generated/") && root().join(path).is_file()
    };
    text.lines().filter(of_today).map(str::to_owned).collect()
}

/// A piece of code on a page.
#[derive(Debug, PartialEq)]
struct Code {
    /// Line of the page, from 1.
    line: usize,
    /// True for a line of a code block, which a reader copies; false for a span in back-ticks, which may omit
    /// arguments.
    is_block: bool,
    /// Text of the code, without the prompt; continued lines are joined.
    text: String,
}

/// The shell lines and the spans in back-ticks of a page.
fn code(page: &str) -> Vec<Code> {
    let line_of = |offset: usize| page[..offset].matches('\n').count() + 1;
    let mut found = Vec::new();
    let mut is_shell = false;
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => is_shell = SHELL.contains(&&*language),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => is_shell = true,
            Event::End(TagEnd::CodeBlock) => is_shell = false,
            Event::Text(text) if is_shell => found.extend(shell_lines(&text, line_of(range.start))),
            Event::Code(text) => found.push(Code { line: line_of(range.start), is_block: false, text: text.into_string() }),
            _ => {}
        }
    }
    found
}

/// The commands of a block that begins at `first`, continued lines joined.
fn shell_lines(block: &str, first: usize) -> Vec<Code> {
    let mut found: Vec<Code> = Vec::new();
    let mut goes_on = false;
    for (index, line) in block.lines().enumerate() {
        let line = line.trim();
        let part = line.strip_prefix("$ ").unwrap_or(line);
        let text = part.strip_suffix('\\').unwrap_or(part);
        match found.last_mut() {
            Some(before) if goes_on => before.text.push_str(text),
            _ => found.push(Code { line: first + index, is_block: true, text: text.to_owned() }),
        }
        goes_on = text.len() < part.len();
    }
    found
}

#[test]
fn every_command_that_a_page_names_is_one_that_kgen_takes() {
    let mut wrong = Vec::new();
    let mut found = 0;
    for page in pages() {
        for Code { line, is_block, text } in code(&read(&page)) {
            for words in kgen_commands(&text) {
                found += 1;
                wrong.extend(flaw(&words, is_block).map(|flaw| format!("{page}:{line}: `{}`: {flaw}", words.join(" "))));
            }
        }
    }
    assert!(found > 150, "only {found} commands were found");
    assert!(wrong.is_empty(), "commands that kgen does not take:\n{}", wrong.join("\n"));
}

/// Flags of compilers and linkers that pages mention.
const FLAGS_OF_OTHERS: [&str; 2] = ["exclude-libs", "orig_src_path_name"];

/// The text of the scripts, whose flags pages mention too.
fn scripts() -> String {
    let folders = ["scripts", "benches", "benches/lab"].map(|folder| fs::read_dir(root().join(folder)).expect("a folder"));
    let files = folders.into_iter().flatten().map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
    files.map(|path| fs::read_to_string(path).expect("a script is text")).collect()
}

#[test]
fn every_flag_that_a_page_names_alone_exists() {
    let scripts = scripts();
    let flags = flags();
    let mut wrong = Vec::new();
    let mut found = 0;
    for page in pages() {
        for Code { line, text, .. } in code(&read(&page)).iter().filter(|code| !code.is_block && code.text.starts_with("--")) {
            let flag = text.trim_start_matches('-').split([' ', '=']).next().unwrap_or_default();
            found += 1;
            let is_of_a_script = scripts.contains(&format!("\"--{flag}\"")) || scripts.contains(&format!(" --{flag} "));
            if !flags.contains(flag) && !is_of_a_script && !FLAGS_OF_OTHERS.contains(&flag) {
                wrong.push(format!("{page}:{line}: --{flag}"));
            }
        }
    }
    assert!(found > 50, "only {found} flags were found");
    assert!(wrong.is_empty(), "flags that kgen does not have:\n{}", wrong.join("\n"));
}

/// Units that make a number a measured figure.
const UNITS: [&str; 15] =
    ["s", "ms", "µs", "second", "seconds", "minute", "minutes", "hours", "kB", "MB", "GB", "TFLOP/s", "times", "%", "ulp"];

/// A paragraph, list item or table of a page.
#[derive(Debug, Default)]
struct Block {
    line: usize,
    text: String,
    links: Vec<String>,
}

/// The blocks of a page with their text, without code, and their links.
fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut block = Block::default();
    let mut is_code = false;
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Paragraph | Tag::Item | Tag::Table(_)) => {
                block = Block { line: page[..range.start].matches('\n').count() + 1, ..Block::default() };
            }
            Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::Table) => found.push(std::mem::take(&mut block)),
            Event::Start(Tag::Link { dest_url, .. }) => block.links.push(dest_url.into_string()),
            Event::Start(Tag::CodeBlock(_)) => is_code = true,
            Event::End(TagEnd::CodeBlock) => is_code = false,
            Event::Text(text) if !is_code => block.text.push_str(&text),
            Event::SoftBreak | Event::HardBreak | Event::End(TagEnd::TableCell) => block.text.push(' '),
            _ => {}
        }
    }
    found
}

/// The word as a number, without the punctuation around it.
fn number(word: &str) -> Option<&str> {
    let word = word.trim_matches(|c: char| matches!(c, ',' | '.' | ';' | ':' | '(' | ')' | '|'));
    let is_number =
        word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',');
    is_number.then_some(word)
}

/// The measured figures of a text: numbers before a unit, and those joined to them by a range.
fn figures(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut found = Vec::new();
    for (place, word) in words.iter().enumerate() {
        let unit = word.trim_matches(|c: char| matches!(c, ',' | '.' | ';' | ':' | '(' | ')'));
        let Some(value) = place.checked_sub(1).filter(|_| UNITS.contains(&unit)).and_then(|before| number(words[before])) else {
            continue;
        };
        if place >= 3 && words[place - 2] == "to" {
            found.extend(number(words[place - 3]).map(str::to_owned));
        }
        found.push(value.to_owned());
    }
    found
}

#[test]
fn every_figure_of_the_readme_stands_on_the_page_that_it_links() {
    let mut wrong = Vec::new();
    let mut found = 0;
    // The table of costs has a separate test.
    let mut page = read("README.md");
    let table = cost(&page);
    page.replace_range(table.clone(), &"\n".repeat(page[table].matches('\n').count()));
    for Block { line, text, links } in blocks(&page) {
        let is_result = |link: &&String| link.starts_with("docs/results/");
        let pages: Vec<String> =
            links.iter().filter(is_result).map(|link| read(link.split('#').next().unwrap_or(link))).collect();
        let stands: BTreeSet<&str> = pages.iter().flat_map(|page| page.split_whitespace()).filter_map(number).collect();
        for figure in figures(&text) {
            found += 1;
            if !stands.contains(figure.as_str()) {
                wrong.push(format!("README.md:{line}: {figure}"));
            }
        }
    }
    assert!(found > 8, "only {found} figures were found");
    assert!(wrong.is_empty(), "figures that no page of results linked beside them has:\n{}", wrong.join("\n"));
}

#[test]
fn figures_are_numbers_with_units_and_ranges() {
    assert_eq!(
        figures("takes 5.4 s, or 1.01 to 1.09 times (0.9 MB) with vLLM 0.26 and 3 kernels"),
        ["5.4", "1.01", "1.09", "0.9"]
    );
}

/// The page with the measured table of costs, and the page that repeats it.
const COST: [&str; 2] = ["docs/results/2026-11-26-first-minute.md", "README.md"];

/// The range of the text between the two comments of a page.
fn cost(page: &str) -> std::ops::Range<usize> {
    let start = page.find("<!-- cost").and_then(|start| Some(start + page[start..].find("-->\n")? + 4));
    let (start, end) = (start.expect("the comment before it"), page.find("<!-- /cost -->").expect("the comment after it"));
    start..end
}

#[test]
fn readme_repeats_the_table_of_costs() {
    let [measured, mut repeated] = COST.map(read);
    let table = &measured[cost(&measured)];
    let place = cost(&repeated);
    if std::env::var_os("KGEN_UPDATE_PAGES").is_some() {
        repeated.replace_range(place, table);
        fs::write(root().join(COST[1]), repeated).expect("README.md is written");
    } else {
        assert_eq!(&repeated[place], table, "`KGEN_UPDATE_PAGES=1 cargo test --test integration pages::` copies it");
    }
}

#[test]
fn pictures_are_what_rows_and_tables_of_results_give() {
    rendered("scripts/plots.py");
}

#[test]
fn tables_of_results_are_what_their_rows_give() {
    rendered("scripts/result_tables.py");
    python(&["-m", "unittest", "-q", "scripts/result_tables_test.py"]);
}

/// Checks what a script renders; with `KGEN_UPDATE_PAGES`, renders it.
fn rendered(script: &str) {
    let check = ["--check"].into_iter().filter(|_| std::env::var_os("KGEN_UPDATE_PAGES").is_none());
    python(&[script].into_iter().chain(check).collect::<Vec<_>>());
}

/// Runs a script of the repository.
fn python(arguments: &[&str]) {
    let output = Command::new("python3")
        .current_dir(root())
        .env("KGEN", assert_cmd::cargo::cargo_bin!("kgen"))
        .args(arguments)
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_table_of_targets_covers_the_grid_and_follows_from_the_records() {
    python(&["scripts/targets_table.py", "--check", "--complete"]);
    python(&["-m", "unittest", "-q", "scripts/targets_table_test.py"]);
}

#[test]
fn the_knowledge_base_cites_figures_and_code_that_exist() {
    python(&["scripts/knowledge.py", "--check"]);
    python(&["-m", "unittest", "-q", "scripts/knowledge_test.py"]);
}

#[test]
fn every_page_ends_with_a_newline() {
    let cut: Vec<String> = pages().into_iter().filter(|page| !read(page).ends_with('\n')).collect();
    assert!(cut.is_empty(), "pages without a newline at their end: {}", cut.join(", "));
}

#[test]
fn architecture_lists_every_folder_of_attention_parts() {
    let page = read("docs/architecture.md");
    let folders = fs::read_dir(root().join("templates/attention/parts")).expect("the parts");
    let names = folders.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name is text"));
    let missing: Vec<String> = names.filter(|name| !page.contains(&format!("| `{name}` |"))).collect();
    assert!(missing.is_empty(), "docs/architecture.md has no row for the parts {}", missing.join(", "));
}

#[test]
fn commands_are_found_in_blocks_and_spans_and_judged_by_clap() {
    let page = "See `kgen list\n--plan`.\n\n```console\n$ A=1 kgen build \\\n    --all  # most\n```\n\n```c\nkgen bad\n```\n\n    kgen nothing | x\n";
    let found = code(page);
    let texts: Vec<(usize, bool, &str)> = found.iter().map(|code| (code.line, code.is_block, code.text.as_str())).collect();
    assert_eq!(
        texts,
        [(1, false, "kgen list --plan"), (5, true, "A=1 kgen build --all  # most"), (13, true, "kgen nothing | x")]
    );
    let commands: Vec<Vec<String>> = found.iter().flat_map(|code| kgen_commands(&code.text)).collect();
    assert_eq!(commands, [vec!["kgen", "list", "--plan"], vec!["kgen", "build", "--all"], vec!["kgen", "nothing"]]);
    let flaw_of = |line: &str, is_block| flaw(&kgen_commands(line)[0], is_block);
    assert!(flaw_of("kgen expound", false).is_some_and(|flaw| flaw.contains("expound")));
    assert!(flaw_of("kgen list --plans", false).is_some_and(|flaw| flaw.contains("--plans")));
    assert!(flaw_of("kgen vendor", true).is_some() && flaw_of("kgen vendor", false).is_none());
    assert_eq!(flaw_of("kgen check --kind fwd", true), None);
    assert_eq!(kgen_commands("kgen build --filter 'a > 1 # b' && x; kgen list").len(), 2);
}
