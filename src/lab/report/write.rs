//! A report as files.

use super::{Figure, Report, Table, draw, page};
use crate::{files::write_named, lab::export::quoted};
use serde::{Deserialize, Serialize};
use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
};

/// Form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// One page that needs nothing else.
    Html,
    /// One text with the tables.
    Md,
    /// A folder with a file for each table.
    Csv,
    /// A folder with a file for each picture.
    Svg,
}

/// Writes the report as `out`, and returns the files. From a folder, the files that an earlier report has left there
/// are removed.
///
/// # Errors
/// The file system's.
pub fn write(report: &Report, form: Form, out: &Path) -> io::Result<Vec<PathBuf>> {
    let files: Vec<(PathBuf, String)> = match form {
        Form::Html => vec![(out.to_owned(), page::page(report).map_err(io::Error::other)?)],
        Form::Md => vec![(out.to_owned(), markdown(report))],
        Form::Csv => report.figures().map(|figure| (out.join(format!("{}.csv", figure.id)), csv(&figure.table))).collect(),
        Form::Svg => {
            let pictures = report.figures().filter_map(|figure| figure.picture.as_ref());
            pictures.map(|picture| (out.join(format!("{}.svg", picture.id)), picture.alone(draw::STYLE))).collect()
        }
    };
    if let Some(ending) = form.ending_in_folder() {
        fs::create_dir_all(out)?;
        for entry in fs::read_dir(out)? {
            let path = entry?.path();
            if is_of_a_report(report, &path, ending) && files.iter().all(|(new, _)| *new != path) {
                fs::remove_file(path)?;
            }
        }
    }
    files.into_iter().map(|(path, text)| write_named(&path, text.as_bytes()).map(|_| path)).collect()
}

impl Form {
    /// Ending of the files of a form that is a folder.
    fn ending_in_folder(self) -> Option<&'static str> {
        match self {
            Self::Html | Self::Md => None,
            Self::Csv => Some("csv"),
            Self::Svg => Some("svg"),
        }
    }
}

/// True for a path such as `heat-12.csv`, by which any report names a picture or table of its section `heat`.
fn is_of_a_report(report: &Report, path: &Path, ending: &str) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let stem = name.strip_suffix(ending).and_then(|name| name.strip_suffix('.'));
    let Some((section, number)) = stem.and_then(|stem| stem.rsplit_once('-')) else { return false };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && report.sections.iter().any(|known| known.id == section)
}

impl Report {
    /// All pictures and tables.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.sections.iter().flat_map(|section| &section.figures)
    }
}

fn csv(table: &Table) -> String {
    let line = |cells: &mut dyn Iterator<Item = &str>| cells.map(quoted).collect::<Vec<_>>().join(",") + "\r\n";
    let head = line(&mut table.columns.iter().map(|column| column.label));
    table.rows.iter().fold(head, |text, row| text + &line(&mut row.iter().map(String::as_str)))
}

fn markdown(report: &Report) -> String {
    let mut text = "# Measurements of kgen\n\n| | |\n|---|---|\n".to_owned();
    // Writing into a string cannot fail.
    for (name, value) in &report.facts {
        writeln!(text, "| {name} | {} |", literal(value)).ok();
    }
    for section in &report.sections {
        write!(text, "\n## {}\n\n{}\n", section.title, section.missing.unwrap_or(section.about)).ok();
        for note in &section.notes {
            write!(text, "\n{note}\n").ok();
        }
        for Figure { title, table, .. } in &section.figures {
            write!(text, "\n### {}\n\n", literal(title)).ok();
            let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
            text += &line(&mut table.columns.iter().map(|column| column.label.to_owned()));
            text += &line(&mut table.columns.iter().map(|column| if column.class == "n" { "---:" } else { "---" }.to_owned()));
            for row in &table.rows {
                text += &line(&mut row.iter().map(|cell| literal(cell)));
            }
        }
    }
    text
}

/// A text that Markdown shows as it is.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => literal.push_str("&amp;"),
            '<' => literal.push_str("&lt;"),
            '>' => literal.push_str("&gt;"),
            '|' | '`' | '[' | ']' | '*' | '\\' => literal.extend(['\\', c]),
            c => literal.push(c),
        }
    }
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_row_are_no_markup_of_any_form() {
        assert_eq!(literal("a|b <x> [l](u) `c` *d* & \\"), "a\\|b &lt;x&gt; \\[l\\](u) \\`c\\` \\*d\\* &amp; \\\\");
        let columns = vec![super::super::Column::text("name"), super::super::Column::number("n")];
        let table = Table::new(columns, [vec!["a,\"b\"".to_owned(), "1".to_owned()]]);
        assert_eq!(csv(&table), "name,n\r\n\"a,\"\"b\"\"\",1\r\n");
    }
}
