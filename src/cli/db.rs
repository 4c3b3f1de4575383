//! `kgen db`.

use super::{
    Format, Global,
    escape::cell,
    show,
    table::{self, Column},
    ui,
    values::whole,
};
use crate::{
    command::{
        CommandError,
        db::{self, Action, Added, FormWord, Outcome, Request, Rows},
    },
    lab::{Noise, Regression, Row, Status, Verdict},
    text::count,
};
use clap::{Subcommand, ValueEnum};
use std::{fmt::Write, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen db query --since 2026-11-27 --filter 'hdim == 128'
                                      what was measured since then
  kgen db export --as csv --out rows.csv
                                      a table for a spreadsheet
  kgen db import rows.jsonl           rows that another machine exported
  kgen db merge node1.db node2.db     the stores of other machines
  kgen db noise --gpu h100            how much repeated runs differ
  kgen db regress nvcc=12.9 nvcc=13.0
                                      what another compiler changed
  kgen db prune --status error --dry-run
                                      how many rows that would remove";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Verb,

    #[command(flatten)]
    store: StoreArgs,
}

/// The store.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StoreArgs {
    /// The store of measurements [default: `KGEN_DB`, or measurements.db in the user's state folder].
    #[arg(long, global = true, value_name = "FILE")]
    pub db: Option<PathBuf>,
}

/// Action on the store of measurements.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Print rows.
    Query {
        #[command(flatten)]
        rows: RowArgs,
    },
    /// Write rows in a form that other programs read.
    Export {
        #[command(flatten)]
        rows: RowArgs,

        /// Form: JSON Lines of rows, comma-separated values, T4 results, traces of FlashInfer-Bench.
        #[arg(long = "as", value_name = "FORM", value_enum, default_value_t = FormArg::Jsonl)]
        form: FormArg,

        /// File to write, instead of standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Add the rows of files: JSON Lines of rows, documents of `kgen bench`, traces of FlashInfer-Bench.
    Import {
        /// The files.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Add the rows of other stores.
    Merge {
        /// Their files.
        #[arg(required = true, value_name = "FILE")]
        stores: Vec<PathBuf>,
    },
    /// Remove the rows that conditions select.
    Prune {
        #[command(flatten)]
        rows: RowArgs,

        /// Remove nothing; print how many rows would be removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Print how much the times of the same machine code differ between runs.
    Noise {
        #[command(flatten)]
        rows: RowArgs,
    },
    /// Compare two measurements of the same work: under another compiler, driver or kgen.
    Regress {
        /// The old side: the beginning of a run's id, or nvcc=…, driver=…, kgen=…, commit=…, date=….
        #[arg(value_name = "OLD")]
        old: String,

        /// The new side.
        #[arg(value_name = "NEW")]
        new: String,

        #[command(flatten)]
        rows: RowArgs,
    },
}

/// Conditions on rows; without any, all rows.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rows")]
pub(super) struct RowArgs {
    /// Only these kernels; `*` and `?` stand for any text and any character.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    kernel: Vec<String>,

    /// Only rows of these programs: `kgen bench`, or a file of benches/.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    bench: Vec<String>,

    /// Only these implementations: kgen, fa3, sdpa, …
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    contender: Vec<String>,

    /// Only runs whose ids begin so.
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    run: Vec<String>,

    /// Only these outcomes.
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = status)]
    status: Vec<Status>,

    /// Only cards with this in their name, such as h100.
    #[arg(long, value_name = "TEXT")]
    gpu: Option<String>,

    /// Only rows of this date and later, UTC.
    #[arg(long, value_name = "DATE")]
    since: Option<String>,

    /// Only rows before this date, UTC.
    #[arg(long, value_name = "DATE")]
    before: Option<String>,

    /// Only variants that meet a condition, as with `kgen list --filter`.
    #[arg(long, value_name = "EXPR")]
    filter: Option<String>,

    /// The last N rows only.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(0..=u64::MAX))]
    limit: Option<usize>,
}

/// Form of an export.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormArg {
    /// JSON Lines of whole rows, which `kgen db import` reads.
    Jsonl,
    /// Comma-separated values.
    Csv,
    /// Results in the schema T4 of Kernel Tuner.
    T4,
    /// Traces of FlashInfer-Bench.
    Traces,
}

/// Parser of an outcome.
fn status(text: &str) -> Result<Status, String> {
    let words = || Status::ALL.iter().map(|status| status.word()).collect::<Vec<_>>().join(", ");
    Status::ALL.into_iter().find(|status| status.word() == text).ok_or_else(|| format!("use one of {}", words()))
}

impl From<RowArgs> for Rows {
    fn from(args: RowArgs) -> Self {
        let RowArgs { kernel, bench, contender, run, status, gpu, since, before, filter, limit } = args;
        Self {
            kernels: kernel,
            benches: bench,
            contenders: contender,
            runs: run,
            statuses: status,
            gpu,
            since,
            before,
            filter,
            limit,
        }
    }
}

impl From<FormArg> for FormWord {
    fn from(arg: FormArg) -> Self {
        match arg {
            FormArg::Jsonl => Self::Jsonl,
            FormArg::Csv => Self::Csv,
            FormArg::T4 => Self::T4,
            FormArg::Traces => Self::Traces,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// As [`db::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let action = match args.action {
        Verb::Query { rows } => Action::Query { rows: rows.into() },
        Verb::Export { rows, form, out } => Action::Export { rows: rows.into(), form: form.into(), out },
        Verb::Import { files } => Action::Import { files },
        Verb::Merge { stores } => Action::Merge { stores },
        Verb::Prune { rows, dry_run } => Action::Prune { rows: rows.into(), dry_run },
        Verb::Noise { rows } => Action::Noise { rows: rows.into() },
        Verb::Regress { old, new, rows } => Action::Regress { old, new, rows: rows.into() },
    };
    let outcome = db::run(&Request { db: args.store.db, action }, &global.context(), &global.console())?;
    match &outcome {
        Outcome::Exported { text: Some(text), .. } if global.format == Format::Human => ui::print_file(text),
        _ => show(global, &outcome, || describe(&outcome)),
    }
}

fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Rows(rows) => describe_rows(rows),
        Outcome::Exported { text: Some(text), .. } => text.clone(),
        Outcome::Exported { rows, .. } => format!("{} exported\n", count(*rows, "row")),
        Outcome::Added(files) => files.iter().map(describe_added).collect(),
        Outcome::Pruned { rows, dry_run: true } => format!("{} would be removed\n", count(*rows, "row")),
        Outcome::Pruned { rows, dry_run: false } => format!("{} removed\n", count(*rows, "row")),
        Outcome::Noise(cases) => describe_noise(cases),
        Outcome::Regression(found) => describe_regression(found),
    }
}

fn describe_rows(rows: &[Row]) -> String {
    let columns = [
        Column::text("case").needed(),
        Column::text("contender").needed(),
        Column::text("status").needed(),
        Column::number("µs").needed(),
        Column::number("± %"),
        Column::number("TFLOP/s"),
        Column::number("GB/s"),
        Column::text("card"),
        Column::text("date"),
        Column::text("run"),
    ];
    let number = |value: Option<f64>, digits: usize| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
    let line = |row: &Row| {
        let relative = |mad: f64| row.median_us().map(|median| 100.0 * mad / median);
        vec![
            cell(&row.case),
            cell(&row.contender),
            row.status.word().to_owned(),
            number(row.median_us(), 2),
            number(row.statistic("mad").and_then(relative), 1),
            number(row.number("tflops"), 1),
            number(row.number("gbs"), 0),
            cell(row.gpu()),
            cell(row.date()),
            cell(&row.run_id().chars().take(8).collect::<String>()),
        ]
    };
    format!("{}{}\n", table::of(&columns, rows.iter().map(line)), count(rows.len(), "row"))
}

fn describe_added(added: &Added) -> String {
    let known = if added.merged.known == 0 { String::new() } else { format!(", {} known before", added.merged.known) };
    format!("{}: {} added{known} ({})\n", added.file, count(added.merged.added, "row"), added.form)
}

fn describe_noise(cases: &[Noise]) -> String {
    let columns = [
        Column::text("case").needed(),
        Column::number("runs"),
        Column::number("µs"),
        Column::number("floor %").needed(),
        Column::number("claimed %").needed(),
        Column::text("card"),
    ];
    let percent = |fraction: f64| format!("{:.2}", 100.0 * fraction);
    let line = |noise: &Noise| {
        vec![
            cell(&noise.case),
            noise.runs.to_string(),
            format!("{:.2}", noise.microseconds),
            percent(noise.floor),
            noise.claimed.map_or_else(String::new, percent),
            cell(&noise.gpu),
        ]
    };
    if cases.is_empty() {
        return "no case was measured by two runs; `kgen bench --processes 5` measures each case in five\n".to_owned();
    }
    let worst = "floor: 95 % of the pairs of runs differ by less; claimed: half of a run's own 95 % interval";
    format!("{}{worst}\n", table::of(&columns, cases.iter().map(line)))
}

fn describe_regression(found: &Regression) -> String {
    let columns = [
        Column::text("case").needed(),
        Column::number("old µs"),
        Column::number("new µs"),
        Column::number("new/old").needed(),
        Column::text("verdict").needed(),
        Column::text("source"),
        Column::text("machine code"),
        Column::text("card"),
    ];
    let same = |same: Option<bool>| match same {
        Some(true) => "same",
        Some(false) => "changed",
        None => "unknown",
    };
    let word = |verdict: Verdict| match verdict {
        Verdict::Slower => "slower",
        Verdict::Faster => "faster",
        Verdict::Tie => "tie",
        Verdict::Unchanged => "unchanged",
    };
    let rows = found.changes.iter().map(|change| table::Row {
        cells: vec![
            cell(&change.case),
            format!("{:.2}", change.old_us),
            format!("{:.2}", change.new_us),
            format!("{:.3}", change.ratio),
            word(change.verdict).to_owned(),
            same(change.same_source).to_owned(),
            same(change.same_code).to_owned(),
            cell(&change.gpu),
        ],
        notable: matches!(change.verdict, Verdict::Slower | Verdict::Faster),
    });
    let mut text = table::of_results(&columns, rows.collect());
    let floor = found.floor.map_or_else(
        || format!("no noise floor: {} with unchanged machine code, and 8 are needed", count(found.unchanged, "case")),
        |floor| {
            format!("noise floor {:.2} %, from {} with unchanged machine code", 100.0 * floor, count(found.unchanged, "case"))
        },
    );
    let of = |verdict: Verdict| found.changes.iter().filter(|change| change.verdict == verdict).count();
    // Writing into a string cannot fail.
    writeln!(text, "{floor}").ok();
    writeln!(
        text,
        "{}: {} slower, {} faster, {} within the noise",
        count(found.changes.len(), "case"),
        of(Verdict::Slower),
        of(Verdict::Faster),
        of(Verdict::Tie) + of(Verdict::Unchanged)
    )
    .ok();
    if let Some(mean) = found.mean_ratio {
        writeln!(text, "geometric mean of new/old where machine code may differ: {mean:.4}").ok();
    }
    if found.other_plans > 0 {
        let cases = count(found.other_plans, "case");
        writeln!(text, "not compared: {cases} that both have, but with other warm-ups or rounds").ok();
    }
    if found.only_old + found.only_new > 0 {
        writeln!(text, "not compared: {} of {}, {} of {}", found.only_old, found.old, found.only_new, found.new).ok();
    }
    text
}
