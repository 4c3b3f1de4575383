//! Reports of stored measurements: a page, tables or pictures.

use super::{
    CommandError, Context, Observer,
    db::{self, Rows},
    predict::Forecast,
};
use crate::{
    files::path::lossy,
    lab::{
        Row, Store,
        report::{self, Form, Report},
    },
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Request of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The store; `None` for the user's, unless there are `files`.
    pub db: Option<PathBuf>,
    /// Files of rows, as `kgen db import` reads them, which count beside those of a named store.
    pub files: Vec<PathBuf>,
    /// The rows.
    pub rows: Rows,
    /// The form; `None` for that which the ending of `out` names.
    pub form: Option<Form>,
    /// The file, or for `csv` and `svg` the folder.
    pub out: PathBuf,
}

impl Default for Request {
    fn default() -> Self {
        Self { db: None, files: Vec::new(), rows: Rows::default(), form: None, out: "report.html".into() }
    }
}

/// A report that was written.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The file or folder.
    #[serde(serialize_with = "lossy")]
    pub out: PathBuf,
    /// Number of files.
    pub files: usize,
    /// Number of different rows.
    pub rows: usize,
    /// Date of the latest row; empty if there is none.
    pub date: String,
    /// The sections.
    pub sections: Vec<Section>,
}

/// A section of a report.
#[derive(Debug, Serialize)]
pub struct Section {
    /// Identity in the page.
    pub id: &'static str,
    /// The heading.
    pub title: &'static str,
    /// Number of pictures and tables.
    pub figures: usize,
    /// What makes the data that it lacks.
    pub missing: Option<&'static str>,
}

/// Writes a report.
///
/// # Errors
/// [`CommandError::Usage`] for rows that cannot be read, a form that nothing names and a place that cannot be written.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let Request { db, files, rows, form, out } = request;
    let form = form.map_or_else(|| of_ending(out), Ok)?;
    let rows = read(db.as_deref(), files, rows, observer)?;
    let grid = context.grid()?;
    let forecast = Forecast::of(&grid);
    let report = Report::of(rows, &|row| forecast.of_row(row));
    let written = report::write(&report, form, out).map_err(|error| {
        CommandError::Usage(format!("cannot write `{}`: {error}; choose another place with `--out`", out.display()))
    })?;
    let section = |section: &report::Section| Section {
        id: section.id,
        title: section.title,
        figures: section.figures.len(),
        missing: section.missing,
    };
    Ok(Outcome {
        out: out.clone(),
        files: written.len(),
        rows: report.rows,
        date: report.date().to_owned(),
        sections: report.sections.iter().map(section).collect(),
    })
}

/// The rows of the store, or of the files and of the store that is named beside them.
fn read(db: Option<&Path>, files: &[PathBuf], rows: &Rows, observer: &dyn Observer) -> Result<Vec<Row>, CommandError> {
    if files.is_empty() {
        return rows.of_store(&Store::open_to_read(&db::path(db)?)?, observer);
    }
    let imported = files.iter().map(|file| db::read(file)).collect::<Result<Vec<_>, _>>()?;
    if db.is_none() && *rows == Rows::default() {
        let rows: Vec<Row> = imported.into_iter().flat_map(|file| file.rows).collect();
        if rows.is_empty() {
            observer.note("the files have no rows");
        }
        return Ok(rows);
    }
    // A store evaluates conditions.
    let folder = tempfile::tempdir();
    let folder = folder.map_err(|error| {
        CommandError::Environment(format!("cannot make a temporary folder: {error}; `TMPDIR` names another place"))
    })?;
    let mut store = Store::open(&folder.path().join("rows.db"))?;
    imported.iter().try_for_each(|file| store.add_all(&file.rows).map(drop))?;
    db.into_iter().try_for_each(|db| store.merge(db).map(drop).map_err(|error| error.named(" with `--db`")))?;
    rows.of_store(&store, observer)
}

fn of_ending(out: &Path) -> Result<Form, CommandError> {
    match out.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => Ok(Form::Html),
        Some("md") => Ok(Form::Md),
        _ => {
            let why = format!("`{}` names no form: its ending is neither `.html` nor `.md`", out.display());
            Err(CommandError::Usage(format!("{why}; `--as csv` and `--as svg` write a folder")))
        }
    }
}
