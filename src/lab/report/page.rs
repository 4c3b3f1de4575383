//! The report as one page that needs nothing else: no network, no script, no font of its own.

use super::{Figure, Report, Section, Table, draw};
use serde::Serialize;
use tera::{Context, Tera};

/// The template; its name makes Tera escape what is put into it.
const TEMPLATE: (&str, &str) = ("page.html", include_str!("page.html.tera"));

/// Rows up to which a table is open from the start.
const OPEN: usize = 20;

/// A section as the template reads it; its own texts are HTML.
#[derive(Serialize)]
struct SectionOfPage<'a> {
    id: &'a str,
    title: &'a str,
    about: String,
    missing: Option<String>,
    notes: Vec<String>,
    figures: Vec<FigureOfPage<'a>>,
}

#[derive(Serialize)]
struct FigureOfPage<'a> {
    id: &'a str,
    title: &'a str,
    svg: Option<String>,
    open: bool,
    classes: Vec<&'static str>,
    table: &'a Table,
}

impl<'a> From<&'a Section> for SectionOfPage<'a> {
    fn from(section: &'a Section) -> Self {
        Self {
            id: section.id,
            title: section.title,
            about: with_code(section.about),
            missing: section.missing.map(with_code),
            notes: section.notes.iter().map(|note| with_code(note)).collect(),
            figures: section.figures.iter().map(FigureOfPage::from).collect(),
        }
    }
}

impl<'a> From<&'a Figure> for FigureOfPage<'a> {
    fn from(Figure { id, title, picture, table }: &'a Figure) -> Self {
        let open = picture.is_none() || table.rows.len() <= OPEN;
        let classes = table.columns.iter().map(|column| column.class).collect();
        Self { id, title, svg: picture.as_ref().map(draw::Picture::inline), open, classes, table }
    }
}

/// The page.
///
/// # Errors
/// Tera's report if the template is at fault.
pub(super) fn page(report: &Report) -> Result<String, String> {
    let mut tera = Tera::default();
    tera.add_raw_template(TEMPLATE.0, TEMPLATE.1).map_err(|error| error.to_string())?;
    let mut context = Context::new();
    context.insert("date", report.date());
    context.insert("style", draw::STYLE);
    context.insert("facts", &report.facts);
    context.insert("sections", &report.sections.iter().map(SectionOfPage::from).collect::<Vec<_>>());
    tera.render(TEMPLATE.0, &context).map_err(|error| error.to_string())
}

/// A text with what is between back-ticks as code, in HTML.
fn with_code(text: &str) -> String {
    let part = |(place, part): (usize, &str)| {
        let part = draw::escaped(part);
        if place % 2 == 1 { format!("<code>{part}</code>") } else { part }
    };
    text.split('`').enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_ticks_are_code_and_nothing_is_markup() {
        assert_eq!(with_code("run `kgen bench` <now>"), "run <code>kgen bench</code> &lt;now&gt;");
    }

    #[test]
    fn an_empty_report_is_a_page_with_what_to_do() {
        let page = page(&Report::of(Vec::new(), &|_| None)).expect("the template is right");
        assert!(page.contains("<code>kgen bench</code>") && !page.contains("<svg") && page.ends_with("</html>\n"), "{page}");
    }
}
