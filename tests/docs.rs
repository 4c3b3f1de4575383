//! The Markdown pages and the comments of the sources and templates, as text: links resolve, paths exist, lines fit in
//! 120 columns.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

/// Maximum columns of a line of prose.
const COLUMNS: usize = 120;

/// Folders of the repository whose files pages name.
const FOLDERS: [&str; 9] = ["benches/", "docs/", "python/", "scripts/", "src/", "suites/", "templates/", "tests/", "tiles/"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files tracked by git or untracked and not ignored, as paths from the root that end in `suffix`.
fn files(suffix: &str) -> Vec<String> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = git.output().expect("git lists the files");
    assert!(listed.status.success(), "git ls-files failed");
    let text = String::from_utf8(listed.stdout).expect("paths are text");
    text.lines().filter(|path| path.ends_with(suffix) && root().join(path).is_file()).map(str::to_owned).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("`{path}` cannot be read: {error}"))
}

/// The lines of a page outside its fenced code blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        (!in_code && !is_fence).then_some((index + 1, line))
    })
}

/// A line without its spans in back-ticks, which contain no links.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// The anchor of a heading: lower case, spaces as hyphens, punctuation left out.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_')).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The anchors of a page's headings; a repeated heading gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let name = anchor(line.trim_start_matches('#'));
            let before = seen.entry(name.clone()).or_default();
            *before += 1;
            if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
        })
        .collect()
}

/// The targets of the links of a page with their lines: `[text](target)`.
fn links(text: &str) -> Vec<(usize, String)> {
    prose(text)
        .flat_map(|(number, line)| {
            let line = without_code(line);
            let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
            targets.map(move |target| (number, target)).collect::<Vec<_>>()
        })
        .collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
        plain
    })
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading_that_exist() {
    let pages = files(".md");
    assert!(pages.iter().any(|page| page == "README.md"), "the README is among the pages");
    let mut broken = Vec::new();
    let mut followed = 0;
    for page in &pages {
        for (line, link) in links(&read(page)) {
            if link.contains("://") {
                continue;
            }
            followed += 1;
            let (path, heading) = link.split_once('#').map_or((link.as_str(), None), |(path, heading)| (path, Some(heading)));
            let folder = Path::new(page).parent().expect("a file lies in a folder");
            let target = if path.is_empty() { PathBuf::from(page) } else { plain(&folder.join(path)) };
            let is_there = root().join(&target).exists();
            let leads_somewhere = is_there
                && heading.is_none_or(|heading| anchors(&read(target.to_str().expect("a link is text"))).contains(heading));
            if !leads_somewhere {
                broken.push(format!("{page}:{line}: {link}"));
            }
        }
    }
    assert!(followed > 50, "only {followed} links were found");
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

/// The repository paths that a line names in back-ticks; patterns and placeholders are left out.
fn named_paths(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace).filter(|word| {
        FOLDERS.iter().any(|folder| word.starts_with(folder) && word.len() > folder.len())
            && !word.contains(['*', '<', '{', '[', '…', '$', '|'])
    })
}

#[test]
fn every_file_that_a_page_names_exists() {
    let mut missing = Vec::new();
    let mut found = 0;
    for page in files(".md").iter().filter(|page| *page != "CHANGELOG.md") {
        for (line, text) in prose(&read(page)) {
            for path in named_paths(text) {
                let path = path.trim_end_matches([',', ';', ':', '.', ')']);
                let path = path.split_once(':').map_or(path, |(file, _)| file);
                found += 1;
                if !root().join(path).exists() {
                    missing.push(format!("{page}:{line}: {path}"));
                }
            }
        }
    }
    assert!(found > 50, "only {found} paths were found");
    assert!(missing.is_empty(), "files that do not exist:\n{}", missing.join("\n"));
}

/// True if a line may be longer: a row of a table, or a line with a link or a command that cannot be wrapped.
fn cannot_be_wrapped(line: &str) -> bool {
    let line = line.trim_start();
    let longest = line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
    line.starts_with('|') || longest > COLUMNS - 20
}

#[test]
fn lines_of_pages_fit_120_columns() {
    let mut long = Vec::new();
    for page in files(".md").iter().filter(|page| !page.starts_with("generated/")) {
        let text = read(page);
        let lines = text.lines().enumerate().filter(|(_, line)| line.chars().count() > COLUMNS && !cannot_be_wrapped(line));
        long.extend(lines.map(|(index, line)| format!("{page}:{}: {} columns", index + 1, line.chars().count())));
    }
    assert!(long.is_empty(), "lines of more than {COLUMNS} columns:\n{}", long.join("\n"));
}

#[test]
fn comments_of_the_sources_fit_120_columns() {
    let mut long = Vec::new();
    for source in files(".rs") {
        let text = read(&source);
        let comments = text.lines().enumerate().filter(|(_, line)| {
            line.trim_start().starts_with("//") && line.chars().count() > COLUMNS && !cannot_be_wrapped(line)
        });
        long.extend(comments.map(|(index, line)| format!("{source}:{}: {} columns", index + 1, line.chars().count())));
    }
    assert!(long.is_empty(), "comments of more than {COLUMNS} columns:\n{}", long.join("\n"));
}

/// The approximate rendered width of a template's line: control tags render to nothing, an expression to a number.
fn rendered_width(line: &str) -> usize {
    let mut width = 0;
    let mut rest = line;
    while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let (is_value, end) = (rest[start..].starts_with("{{"), if rest[start..].starts_with("{{") { "}}" } else { "%}" });
        let Some(length) = rest[start..].find(end) else { break };
        width += rest[..start].chars().count() + if is_value { 4 } else { 0 };
        rest = &rest[start + length + end.len()..];
    }
    width + rest.chars().count()
}

/// The lines of a template or header that contain only a comment, numbered from 1.
fn comments_of_template(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_comment = in_block || ["//", "/*", "{#"].iter().any(|start| line.trim_start().starts_with(start));
        let opened = line.rfind("{#").max(line.rfind("/*"));
        let closed = line.rfind("#}").max(line.rfind("*/"));
        in_block = if opened.is_some() || closed.is_some() { opened > closed } else { in_block };
        is_comment.then_some((index + 1, line))
    })
}

#[test]
fn comments_of_templates_fit_120_columns() {
    let mut long = Vec::new();
    let mut found = 0;
    let suffixes = [".tera", ".cuh", ".hpp", ".h", ".cpp", ".c"];
    for template in suffixes.iter().flat_map(|suffix| files(suffix)).filter(|path| path.starts_with("templates/")) {
        for (line, comment) in comments_of_template(&read(&template)) {
            found += 1;
            let width = rendered_width(comment);
            if width > COLUMNS && !cannot_be_wrapped(comment) {
                long.push(format!("{template}:{line}: {width} columns"));
            }
        }
    }
    assert!(found > 1000, "only {found} lines of comments were found");
    assert!(long.is_empty(), "comments of more than {COLUMNS} columns:\n{}", long.join("\n"));
}

#[test]
fn comments_of_templates_are_found_and_measured_as_rendered() {
    let text = "{# one\n   two #}\nint x;  // none\n// three\n/* four\n * five */\ncode();\n";
    let lines: Vec<usize> = comments_of_template(text).map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 2, 4, 5, 6]);
    assert_eq!(rendered_width("// a {{ plan.tile.m }} b{% if x %}s{% endif %}"), "// a 1234 bs".len());
}

#[test]
fn anchors_are_those_of_headings() {
    let text = "# `kgen.toml`: defaults for a folder\n## Names\n```sh\n# no heading\n```\n## Names\n";
    assert_eq!(anchors(text), ["kgentoml-defaults-for-a-folder", "names", "names-1"].map(str::to_owned).into());
    assert_eq!(links("see [a](b.md#c) and `[no](link)`, [d](#e)"), [(1, "b.md#c".to_owned()), (1, "#e".to_owned())]);
    assert_eq!(plain(Path::new("docs/results/../hopper.md")), Path::new("docs/hopper.md"));
}
