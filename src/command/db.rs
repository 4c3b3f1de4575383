//! The store of measurements: query, export, import, merge, prune, noise, comparison of two states.

use super::{CommandError, Context, Observer};
use crate::{
    files,
    grid::Filter,
    lab::{self, Condition, Form, Merged, Noise, Regression, Row, Side, Status, Store, StoreError},
};
use chrono::NaiveDateTime;
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

/// Environment variable with the path of the store, if a request names none.
const VARIABLE: &str = "KGEN_DB";

/// Request to the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The store's file; `None` for that of `KGEN_DB`, else `measurements.db` in the user's state folder.
    #[serde(default)]
    pub db: Option<PathBuf>,
    /// The action.
    pub action: Action,
}

/// Action on the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Return rows.
    Query {
        /// The rows.
        #[serde(default)]
        rows: Rows,
    },
    /// Write rows to a file.
    Export {
        /// The rows.
        #[serde(default)]
        rows: Rows,
        /// Format of the file.
        form: FormWord,
        /// The file; `None` returns the text.
        #[serde(default)]
        out: Option<PathBuf>,
    },
    /// Add the rows of files: JSON Lines of rows, documents of `kgen bench`, traces of FlashInfer-Bench.
    Import {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// Add the rows of other stores.
    Merge {
        /// Files of the stores.
        stores: Vec<PathBuf>,
    },
    /// Remove rows.
    Prune {
        /// The rows; at least one condition.
        rows: Rows,
        /// True to count rows without removing them.
        #[serde(default)]
        dry_run: bool,
    },
    /// Report how much the times of the same machine code differ between runs.
    Noise {
        /// The rows.
        #[serde(default)]
        rows: Rows,
    },
    /// Compare two measurements of the same work.
    Regress {
        /// The old side: beginning of a run's id, or `nvcc=…`, `driver=…`, `kgen=…`, `commit=…`, `date=…`.
        old: String,
        /// The new side.
        new: String,
        /// The rows of both.
        #[serde(default)]
        rows: Rows,
    },
}

/// Conditions on rows; the default is all rows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rows {
    /// Names of kernels, with `*` and `?`.
    pub kernels: Vec<String>,
    /// Programs that measured.
    pub benches: Vec<String>,
    /// Implementations.
    pub contenders: Vec<String>,
    /// Prefixes of run ids.
    pub runs: Vec<String>,
    /// Outcomes.
    pub statuses: Vec<Status>,
    /// Part of the card's name.
    pub gpu: Option<String>,
    /// First date, UTC.
    pub since: Option<String>,
    /// Date before which the rows were measured.
    pub before: Option<String>,
    /// Condition on the variant, as `--filter` of other commands.
    pub filter: Option<String>,
    /// Maximum number of rows; the last ones are taken.
    pub limit: Option<usize>,
}

/// Form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormWord {
    /// JSON Lines of rows.
    Jsonl,
    /// Comma-separated values.
    Csv,
    /// T4 results.
    T4,
    /// Traces of FlashInfer-Bench.
    Traces,
}

impl From<FormWord> for Form {
    fn from(word: FormWord) -> Self {
        match word {
            FormWord::Jsonl => Self::Jsonl,
            FormWord::Csv => Self::Csv,
            FormWord::T4 => Self::T4,
            FormWord::Traces => Self::Traces,
        }
    }
}

/// Outcome of a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The rows of a query.
    Rows(Vec<Row>),
    /// An export.
    Exported {
        /// Number of rows.
        rows: usize,
        /// The text, if no file was named.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// Rows of each file or store.
    Added(Vec<Added>),
    /// Rows removed.
    Pruned {
        /// Number of rows.
        rows: usize,
        /// True if they were only counted.
        dry_run: bool,
    },
    /// The noise of each case, largest first.
    Noise(Vec<Noise>),
    /// A comparison.
    Regression(Regression),
}

/// Rows added from one file.
#[derive(Debug, Serialize)]
pub struct Added {
    /// The file.
    pub file: String,
    /// Format of the file.
    pub form: &'static str,
    /// Rows added and known.
    #[serde(flatten)]
    pub merged: Merged,
}

/// Carries out a request.
///
/// # Errors
/// [`CommandError::Usage`] for conditions and files that cannot be read, [`CommandError::Environment`] for a store that
/// cannot be written.
pub fn run(request: &Request, _context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let path = path(request.db.as_deref())?;
    match &request.action {
        Action::Query { rows } => Ok(Outcome::Rows(rows.of_store(&Store::open_to_read(&path)?, observer)?)),
        Action::Export { rows, form, out } => {
            let rows = rows.of_store(&Store::open_to_read(&path)?, observer)?;
            let text = lab::export(&rows, (*form).into()).map_err(|error| CommandError::Usage(error.to_string()))?;
            let Some(out) = out else { return Ok(Outcome::Exported { rows: rows.len(), text: Some(text) }) };
            files::write_named(out, text.as_bytes()).map_err(|error| {
                CommandError::Usage(format!("cannot write `{}`: {error}; choose another place with `--out`", out.display()))
            })?;
            Ok(Outcome::Exported { rows: rows.len(), text: None })
        }
        Action::Import { files } => {
            // All are read before the first is added.
            let imported = files.iter().map(|file| read(file)).collect::<Result<Vec<_>, _>>()?;
            let mut store = Store::open(&path)?;
            let add = |(file, imported): (&PathBuf, lab::Imported)| {
                let merged = store.add_all(&imported.rows)?;
                Ok(Added { file: file.display().to_string(), form: imported.form, merged })
            };
            files.iter().zip(imported).map(add).collect::<Result<_, CommandError>>().map(Outcome::Added)
        }
        Action::Merge { stores } => {
            let mut store = Store::open(&path)?;
            let add = |other: &PathBuf| {
                let merged = store.merge(other)?;
                Ok(Added { file: other.display().to_string(), form: "store", merged })
            };
            stores.iter().map(add).collect::<Result<_, CommandError>>().map(Outcome::Added)
        }
        Action::Prune { rows, dry_run } => {
            if *rows == Rows::default() {
                let why = "`prune` removes the rows that conditions select, and none is given";
                return Err(CommandError::Usage(format!("{why}; give at least one, such as `--before 2026-01-01`")));
            }
            let rows = if *dry_run {
                rows.of_store(&Store::open_to_read(&path)?, observer)?.len()
            } else {
                let mut store = Store::open_existing(&path)?;
                let rows = rows.of_store(&store, observer)?;
                store.remove(&rows)?
            };
            Ok(Outcome::Pruned { rows, dry_run: *dry_run })
        }
        Action::Noise { rows } => Ok(Outcome::Noise(lab::noise(&rows.of_store(&Store::open_to_read(&path)?, observer)?))),
        Action::Regress { old, new, rows } => {
            let side = |text: &str| Side::from_str(text).map_err(CommandError::Usage);
            let (old, new) = (side(old)?, side(new)?);
            let rows = Store::open_to_read(&path)?.rows(&rows.condition()?)?;
            for side in [&old, &new] {
                if !rows.iter().any(|row| side.has(row)) {
                    let why = format!("no row of `{}` is of `{side}`", path.display());
                    return Err(CommandError::Usage(format!("{why}; `kgen db query --format json` shows the runs")));
                }
                one_run(side, &rows)?;
            }
            Ok(Outcome::Regression(lab::regress(&rows, &old, &new)))
        }
    }
}

/// The largest number of runs that a message lists.
const LISTED: usize = 8;

/// Refuses the beginning of a run's id that several runs share, and lists them.
fn one_run(side: &Side, rows: &[Row]) -> Result<(), CommandError> {
    let Side::Run(beginning) = side else { return Ok(()) };
    let runs: BTreeMap<_, _> = rows.iter().filter(|row| side.has(row)).map(|row| ((row.date(), row.run_id()), row)).collect();
    // A run may be named by its whole id even if that is the beginning of another's.
    if runs.len() < 2 || runs.keys().any(|(_, run)| run == beginning) {
        return Ok(());
    }
    let latest = runs.iter().rev().take(LISTED);
    let listed: Vec<String> = latest
        .map(|((date, run), row)| format!("\n  {run}  {date}  {}  {}", row.bench, row.gpu()).trim_end().to_owned())
        .collect();
    let more = if runs.len() > LISTED { format!("\n  and {} earlier ones", runs.len() - LISTED) } else { String::new() };
    let why = format!("`{beginning}` is the beginning of the ids of {} runs; give more of one of them:", runs.len());
    Err(CommandError::Usage(why + &listed.concat() + &more))
}

/// The store's file if one is named: by the request, or by `KGEN_DB`.
pub(super) fn named(requested: Option<&Path>) -> Option<PathBuf> {
    let by_variable = || std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    requested.map(Path::to_owned).or_else(by_variable)
}

/// The store's file: as requested, or by `KGEN_DB`, or in the user's state folder.
///
/// # Errors
/// [`CommandError::Environment`] if the user has none.
pub(super) fn path(requested: Option<&Path>) -> Result<PathBuf, CommandError> {
    use etcetera::BaseStrategy;
    if let Some(path) = named(requested) {
        return Ok(path);
    }
    let base = etcetera::choose_base_strategy().map_err(|_| {
        CommandError::Environment(format!("the user has no home folder for the store; name a file with `--db` or `{VARIABLE}`"))
    })?;
    Ok(base.state_dir().unwrap_or_else(|| base.data_dir()).join("kgen/measurements.db"))
}

/// The rows of a file.
pub(super) fn read(file: &Path) -> Result<lab::Imported, CommandError> {
    let text = fs::read_to_string(file)
        .map_err(|error| CommandError::Usage(format!("cannot read `{}`: {error}; name a file of rows", file.display())))?;
    let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
    lab::parse(&name, &text).map_err(|error| CommandError::Usage(format!("`{}`, {error}", file.display())))
}

impl Rows {
    /// The rows of a store that meet the conditions. If there are none, a note says which condition is the reason.
    ///
    /// # Errors
    /// [`CommandError`] if a condition or the store cannot be read.
    pub(super) fn of_store(&self, store: &Store, observer: &dyn Observer) -> Result<Vec<Row>, CommandError> {
        let found = store.rows(&self.condition()?)?;
        if found.is_empty() {
            observer.note(&self.why_none(store)?);
        }
        Ok(found)
    }

    /// The reason why no row of a store meets the conditions: one that none meets by itself, or all of them together.
    fn why_none(&self, store: &Store) -> Result<String, CommandError> {
        if store.count()? == 0 {
            return Ok("the store has no rows; `kgen bench` adds some, and `kgen db import` those of files".to_owned());
        }
        let all = Self::default;
        let Self { kernels, benches, contenders, runs, statuses, gpu, since, before, filter, limit } = self.clone();
        let words = statuses.iter().map(|status| status.word()).join(",");
        let texts = [kernels.join(","), benches.join(","), contenders.join(","), runs.join(","), words];
        let [of_kernels, of_benches, of_contenders, of_runs, of_statuses] =
            texts.map(Some).map(|text| text.filter(|text| !text.is_empty()));
        let each = [
            ("--kernel", of_kernels, Self { kernels, ..all() }),
            ("--bench", of_benches, Self { benches, ..all() }),
            ("--contender", of_contenders, Self { contenders, ..all() }),
            ("--run", of_runs, Self { runs, ..all() }),
            ("--status", of_statuses, Self { statuses, ..all() }),
            ("--gpu", gpu.clone(), Self { gpu, ..all() }),
            ("--since", since.clone(), Self { since, ..all() }),
            ("--before", before.clone(), Self { before, ..all() }),
            ("--filter", filter.clone(), Self { filter, ..all() }),
            ("--limit", limit.map(|limit| limit.to_string()), Self { limit, ..all() }),
        ];
        let mut given = Vec::new();
        for (flag, text, alone) in each {
            let Some(text) = text else { continue };
            given.push(format!("`{flag} {text}`"));
            if store.rows(&alone.condition()?)?.is_empty() {
                return Ok(format!("no row matches {}", given[given.len() - 1]));
            }
        }
        Ok(format!("no row matches all of {}, though some match each", given.join(", ")))
    }

    /// The condition.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if the filter or a date cannot be read.
    pub(super) fn condition(&self) -> Result<Condition, CommandError> {
        let Self { kernels, benches, contenders, runs, statuses, gpu, since, before, filter, limit } = self.clone();
        let filter = filter.as_deref().map(Filter::from_str).transpose();
        let filter = filter.map_err(|error| CommandError::Usage(error.to_string()))?;
        for date in since.iter().chain(&before) {
            if !is_date(date) {
                let why = format!("`{date}` is no date of the calendar");
                return Err(CommandError::Usage(format!("{why}; write `2026-11-27`, or with the time `2026-11-27T18:00:00Z`")));
            }
        }
        Ok(Condition { kernels, benches, contenders, runs, statuses, gpu, since, before, filter, limit })
    }
}

/// True for a beginning of `2026-11-27T18:00:00Z` that has a year, a month and a day, and that a moment begins with.
fn is_date(text: &str) -> bool {
    const FORM: &str = "0000-00-00T00:00:00Z";
    let fits = |(have, form): (u8, u8)| if form == b'0' { have.is_ascii_digit() } else { have == form };
    if !(10..=FORM.len()).contains(&text.len()) || !text.bytes().zip(FORM.bytes()).all(fits) {
        return false;
    }
    let rest = &FORM[text.len()..];
    NaiveDateTime::parse_from_str(&format!("{text}{rest}"), "%Y-%m-%dT%H:%M:%SZ").is_ok()
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Sqlite { .. } => Self::Environment(error.to_string()),
            StoreError::Foreign { .. }
            | StoreError::Folder { .. }
            | StoreError::Newer { .. }
            | StoreError::Missing { .. }
            | StoreError::Damaged { .. }
            | StoreError::Flaw { .. } => Self::Usage(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_or_times() {
        assert!(["2026-11-27", "2026-11-27T18:00:00Z", "2026-11-27T18"].into_iter().all(is_date));
        let impossible =
            ["2026-02-31", "2026-02-29", "2026-13-01", "2026-00-10", "2026-04-00", "2026-11-27T24:00", "2026-11-27T18:60"];
        assert!(!impossible.into_iter().any(is_date) && is_date("2028-02-29"));
        assert!(!["", "2026", "2026-11", "27.11.2026", "2026-11-27 18:00", "2026-11-27T18:00:00ZZ"].into_iter().any(is_date));
    }

    #[test]
    fn a_request_is_plain_data_and_unknown_keys_are_refused() {
        let text = r#"{ "db": "x.db", "action": { "query": { "rows": { "kernels": ["flash_*"], "statuses": ["ok"] } } } }"#;
        let request: Request = serde_json::from_str(text).expect("a request");
        let Action::Query { rows } = request.action else { panic!("a query") };
        assert_eq!((rows.kernels, rows.statuses), (vec!["flash_*".to_owned()], vec![Status::Ok]));
        assert!(serde_json::from_str::<Request>(r#"{ "action": { "query": { "lines": 1 } } }"#).is_err());
    }

    #[test]
    fn everything_is_never_pruned_by_accident() {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Some(folder.path().join("rows.db"));
        let request = Request { db, action: Action::Prune { rows: Rows::default(), dry_run: false } };
        let error = run(&request, &Context::default(), &()).expect_err("no condition");
        assert!(matches!(error, CommandError::Usage(_)) && error.to_string().contains("at least one"), "{error}");
    }
}
