//! `kgen report`.

use super::{
    Global,
    db::{RowArgs, StoreArgs},
    show,
};
use crate::{
    command::{
        self, CommandError,
        report::{Outcome, Request},
    },
    lab::report::Form,
    text::count,
};
use clap::ValueEnum;
use std::{fmt::Write, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen report                    report.html, of all rows of the store
  kgen report --gpu h100 --since 2026-11-01 --out h100.html
                                 of some
  kgen report --rows measured.jsonl --rows peers.jsonl --out both.html
                                 of files, without a store
  kgen report --as svg --out pictures
                                 a folder of pictures; `--as csv`: of tables";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,

    /// Read rows from this file instead of the store, as `kgen db import` does; repeat it for more files. With `--db`,
    /// from both.
    #[arg(long = "rows", value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    rows: RowArgs,

    /// Form of the report [default: the ending of `--out`].
    #[arg(long = "as", value_enum)]
    form: Option<FormArg>,

    /// File to write, or for csv and svg a folder.
    #[arg(long, value_name = "PATH", default_value = "report.html")]
    out: PathBuf,
}

/// Form of a report.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormArg {
    /// One page that needs no network.
    Html,
    /// One text with the tables.
    Md,
    /// A folder with a file for each table.
    Csv,
    /// A folder with a file for each picture.
    Svg,
}

impl From<FormArg> for Form {
    fn from(arg: FormArg) -> Self {
        match arg {
            FormArg::Html => Self::Html,
            FormArg::Md => Self::Md,
            FormArg::Csv => Self::Csv,
            FormArg::Svg => Self::Svg,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Those of [`command::report::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { store, files, rows, form, out } = args;
    let request = Request { db: store.db, files, rows: rows.into(), form: form.map(Form::from), out };
    let outcome = command::report::run(&request, &global.context(), &global.console())?;
    show(global, &outcome, || describe(&outcome))
}

fn describe(outcome: &Outcome) -> String {
    let Outcome { out, files, rows, date, sections } = outcome;
    let files = if *files == 1 { String::new() } else { format!(" ({})", count(*files, "file")) };
    let date = if date.is_empty() { String::new() } else { format!(", the latest of {date}") };
    let mut text = format!("{}{files}: {}{date}\n", out.display(), count(*rows, "row"));
    for section in sections {
        let figures = if section.missing.is_some() { "none".to_owned() } else { count(section.figures, "figure") };
        // Writing into a string cannot fail.
        writeln!(text, "  {}: {figures}", section.title).ok();
    }
    text
}
