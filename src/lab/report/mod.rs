//! A report of stored rows: sections of pictures, each with its table, as plain data and as files.
//!
//! The same rows give the same bytes: nothing of the time or the machine of writing is in a report.

mod changes;
mod costs;
mod dims;
mod draw;
mod heat;
mod kernels;
mod ladder;
mod lengths;
mod list;
mod measured;
mod noise;
mod page;
mod predictions;
mod roofline;
mod write;

pub use predictions::Forecast;
pub use write::{Form, write};

use super::Row;
use draw::{Picture, plain};
use itertools::Itertools;
use serde::Serialize;
use std::collections::BTreeMap;

/// A report.
#[derive(Debug)]
pub struct Report {
    /// Number of different rows.
    pub rows: usize,
    /// What the rows are, as names and values.
    pub facts: Vec<(&'static str, String)>,
    /// The parts.
    pub sections: Vec<Section>,
}

/// A part of a report.
#[derive(Debug)]
pub struct Section {
    /// Identity in the page.
    pub id: &'static str,
    /// The heading.
    pub title: &'static str,
    /// How to read it.
    pub about: &'static str,
    /// What makes the data that it lacks, in sentences.
    pub missing: Option<&'static str>,
    /// What is left out, and why.
    pub notes: Vec<String>,
    /// The pictures and tables.
    pub figures: Vec<Figure>,
}

/// A picture with its numbers, or numbers alone.
#[derive(Debug)]
pub struct Figure {
    /// Identity in the report.
    pub id: String,
    /// What it shows.
    pub title: String,
    picture: Option<Picture>,
    /// The numbers.
    pub table: Table,
}

/// Numbers and words in rows.
#[derive(Debug, Serialize)]
pub struct Table {
    /// The headings.
    pub columns: Vec<Column>,
    /// A cell for each column.
    pub rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Column {
    /// The heading.
    pub label: &'static str,
    /// `n` for numbers, which are aligned to the right; `l` for long texts, which are broken into lines; else empty.
    pub class: &'static str,
}

/// Pictures of a section; what more there would be is in the tables of other sections.
const MOST_PICTURES: usize = 60;

impl Report {
    /// The report of `rows`, each of which counts once, in whatever order.
    pub fn of(rows: Vec<Row>, forecast: &Forecast<'_>) -> Self {
        let mut named: Vec<(String, Row)> = rows.into_iter().map(|row| (row.id(), row)).collect();
        named.sort_by(|(a, _), (b, _)| a.cmp(b));
        named.dedup_by(|(a, _), (b, _)| a == b);
        let rows: Vec<Row> = named.into_iter().map(|(_, row)| row).collect();
        let rows = rows.as_slice();
        let cases = measured::latest(rows);
        // Tiles that a search tried are no kernels of their own: the pictures leave them out, and the list has them.
        let of_kernels: Vec<_> = cases.iter().filter(|case| case.row.searched_tile().is_none()).cloned().collect();
        let sections = vec![
            roofline::section(&of_kernels, rows),
            lengths::section(&of_kernels),
            dims::section(&of_kernels),
            heat::section(&of_kernels),
            ladder::section(rows),
            predictions::section(&cases, forecast),
            noise::section(rows),
            changes::section(rows),
            kernels::section(rows),
            costs::section(rows),
            list::cases(&cases),
            list::failures(rows),
        ];
        Self { rows: rows.len(), facts: facts(rows, cases.len()), sections }
    }

    /// The date of the latest row; empty if there is none.
    pub fn date(&self) -> &str {
        self.facts.iter().find(|(name, _)| *name == LATEST).map_or("", |(_, date)| date)
    }
}

const LATEST: &str = "latest row";

fn facts(rows: &[Row], cases: usize) -> Vec<(&'static str, String)> {
    let unique = |of: &dyn Fn(&Row) -> String| {
        let all: Vec<String> = rows.iter().map(of).filter(|text| !text.is_empty()).sorted().dedup().collect();
        let more = if all.len() > 8 { format!(", and {} more", all.len() - 8) } else { String::new() };
        plain(&(all.iter().take(8).join(", ") + &more))
    };
    let count = |is: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
    let foreign = count(&|row| row.foreign.is_some());
    vec![
        ("rows", rows.len().to_string()),
        ("timed cases", cases.to_string()),
        ("runs", rows.iter().map(Row::run_id).unique().count().to_string()),
        ("cards", unique(&|row| row.gpu().to_owned())),
        ("contenders", unique(&|row| row.contender.clone())),
        ("programs", unique(&|row| row.bench.clone())),
        ("versions of kgen", unique(&|row| row.run.get("kgen").and_then(|kgen| kgen.as_str()).unwrap_or_default().to_owned())),
        ("drivers", unique(&|row| row.driver().to_owned())),
        ("rows not compared", if foreign > 0 { format!("{foreign}, of other projects' programs") } else { String::new() }),
        ("first row", plain(rows.iter().map(Row::date).min().unwrap_or_default())),
        (LATEST, plain(rows.iter().map(Row::date).max().unwrap_or_default())),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .collect()
}

impl Section {
    /// A section with `figures`, or with what makes them if there are none.
    fn new(id: &'static str, [title, about, missing]: [&'static str; 3], figures: Vec<Figure>) -> Self {
        let missing = figures.is_empty().then_some(missing);
        Self { id, title, about, missing, notes: Vec::new(), figures }
    }
}

impl Section {
    /// A section with a picture for each of `groups`, up to [`MOST_PICTURES`]; `figure` also takes a picture's number.
    fn of_groups<G>(
        id: &'static str,
        words: [&'static str; 3],
        groups: impl IntoIterator<Item = G>,
        figure: impl Fn(G, usize) -> Figure,
    ) -> Self {
        let mut groups = groups.into_iter();
        let figures = groups.by_ref().take(MOST_PICTURES).zip(1..).map(|(group, place)| figure(group, place)).collect();
        let mut section = Self::new(id, words, figures);
        let left_out = groups.count();
        if left_out > 0 {
            section.notes.push(format!(
                "{left_out} further pictures are left out, and their cases are in the list of cases; conditions such as \
                 `--kernel` choose others."
            ));
        }
        section
    }
}

impl Figure {
    /// A table with the picture that `draw` makes of identity and title.
    fn drawn(id: &str, title: &str, table: Table, draw: impl FnOnce([String; 2]) -> Option<Picture>) -> Self {
        let (id, title) = (id.to_owned(), plain(title));
        Self { picture: draw([id.clone(), title.clone()]), id, title, table }
    }
}

impl Column {
    const fn text(label: &'static str) -> Self {
        Self { label, class: "" }
    }

    const fn number(label: &'static str) -> Self {
        Self { label, class: "n" }
    }

    const fn long(label: &'static str) -> Self {
        Self { label, class: "l" }
    }
}

impl Table {
    fn new(columns: impl Into<Vec<Column>>, rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        let cells = |row: Vec<String>| row.iter().map(|cell| plain(cell)).collect();
        Self { columns: columns.into(), rows: rows.into_iter().map(cells).collect() }
    }
}

/// The values with the same key, in their order; sorted by key.
fn grouped<V, K: Ord>(values: impl IntoIterator<Item = V>, key: impl Fn(&V) -> K) -> BTreeMap<K, Vec<V>> {
    let mut groups: BTreeMap<K, Vec<V>> = BTreeMap::new();
    for value in values {
        groups.entry(key(&value)).or_default().push(value);
    }
    groups
}

/// A number with about four digits; empty if there is none.
fn number(value: impl Into<Option<f64>>) -> String {
    let Some(value) = value.into().filter(|value| value.is_finite()) else { return String::new() };
    if value != 0.0 && !(1e-6..1e12).contains(&value.abs()) {
        return format!("{value:.3e}");
    }
    let digits = if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    format!("{value:.digits$}")
}

/// A range of numbers; empty if there is none.
fn range(ends: Option<[f64; 2]>) -> String {
    ends.map_or_else(String::new, |[low, high]| format!("{} to {}", number(low), number(high)))
}

/// A fraction as percents; empty if there is none.
fn percent(value: impl Into<Option<f64>>) -> String {
    value.into().map_or_else(String::new, |value| format!("{:.1}", 100.0 * value))
}

#[cfg(test)]
mod tests {
    use super::{
        super::row::tests::{row, searched},
        *,
    };

    #[test]
    fn numbers_have_four_digits() {
        let of = [0.0, 0.012_345, 1.0, 12.345, 123.45, 123_456.7, 1e-9].map(number);
        assert_eq!(of, ["0", "0.01235", "1.000", "12.35", "123.5", "123457", "1.000e-9"]);
        assert_eq!(
            (number(None), number(f64::NAN), percent(0.123), range(Some([1.0, 2.0]))),
            (String::new(), String::new(), "12.3".to_owned(), "1.000 to 2.000".to_owned())
        );
    }

    #[test]
    fn tiles_of_a_search_are_listed_and_are_no_kernels_of_the_pictures() {
        let own = row("a", "2026-11-27T00:00:00Z", 100.0);
        let compiled = |row: Row, registers: u32| {
            let mut row = row;
            row.kernel.as_mut().expect("a kernel").insert("registers".to_owned(), registers.into());
            row
        };
        let tried = searched(&row("b", "2026-11-28T00:00:00Z", 50.0), 128, 64);
        let report = Report::of(vec![compiled(tried, 255), compiled(own, 168)], &|_| None);
        let names = |id: &str| {
            let section = report.sections.iter().find(|section| section.id == id).expect(id);
            section.figures.iter().flat_map(|figure| &figure.table.rows).map(|row| row[0].clone()).collect::<Vec<_>>()
        };
        let name = "flash_fwd_hdim128_bf16_sm90".to_owned();
        let both = [name.clone(), format!("{name}, copy=tma m=128 n=64")];
        assert_eq!(names("lengths"), [name]);
        assert_eq!((names("kernels"), names("cases")), (both.to_vec(), both.to_vec()));
    }

    #[test]
    fn without_rows_every_section_says_what_to_do() {
        let report = Report::of(Vec::new(), &|_| None);
        assert!(report.sections.iter().all(|section| section.missing.is_some() && section.figures.is_empty()));
        assert_eq!((report.date(), report.figures().count()), ("", 0));
    }
}
