//! `kgen expression`.

use super::{Format, Global, escape::plain, ui};
use crate::{
    command::{
        CommandError,
        expression::{self, Bounds, Named, Outcome, Report, Request},
    },
    expression::{HELPERS, Local, Stage, Text, Work},
    text::count,
};
use std::{fmt::Write, path::PathBuf};

const EXAMPLES: &str = concat!(
    "\
Examples:
  kgen expression 'a * tanh(s / a)' --scalars a
  kgen expression 's - slope[h] * abs(q - k)' --tables slope
  kgen expression --mask 'k <= q and q - k < window' --integers window
  kgen expression --file scores.toml           every [score.NAME] of a file

The language is described at
",
    page!("expressions.md")
);

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The expression.
    #[arg(value_name = "TEXT", required_unless_present = "file", allow_hyphen_values = true)]
    text: Option<String>,

    /// The text is a mask: a condition for a query to see a key. Without it, it is a score.
    #[arg(long)]
    mask: bool,

    /// Names of real numbers that a call passes.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    scalars: Vec<String>,

    /// Names of integers that a call passes.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    integers: Vec<String>,

    /// Names of tables with one real number per query head.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tables: Vec<String>,

    /// Read the tables `[score.NAME]` of a TOML file instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "mask", "scalars", "integers", "tables"])]
    file: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`expression::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { text, mask, scalars, integers, tables, file } = args;
    let text = text.unwrap_or_default();
    let request = file.map_or(Request::Text { text, mask, scalars, integers, tables }, Request::File);
    let outcome = expression::run(&request, &global.context(), &global.console())?;
    match (global.format, outcome) {
        (Format::Json, outcome) => ui::print_json(&outcome),
        (Format::Human, Outcome::File(scores)) => ui::print(&scores.iter().map(described).collect::<Vec<_>>().join("\n")),
        (Format::Human, Outcome::Text(report)) => ui::print_verbatim(&shown(&report)),
    }
}

fn described(score: &Named) -> String {
    let mut text = format!("[score.{}]\n", score.name);
    for report in score.score.iter().chain(&score.mask) {
        text += &shown(report);
    }
    text
}

/// The report as text. Writing to a `String` cannot fail.
fn shown(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{:<11} {}", report.kind, plain(&report.canonical));
    let _ = writeln!(out, "hash        {}", &report.hash[..16]);
    let _ = writeln!(out, "work        {}", work(report.work));
    if !report.divisors.is_empty() {
        let _ = writeln!(out, "positive    {}", report.divisors.join(", "));
    }
    if let Some(derivative) = &report.derivative {
        let _ = writeln!(out, "derivative  {}", derivative.canonical);
        let _ = writeln!(out, "            {} with the score", work(derivative.work));
    }
    if report.kind == "mask" {
        let _ = writeln!(out, "keys        {}", report.interval.as_ref().map_or_else(no_interval, interval));
    }
    out += "\nCUDA\n";
    out += &code(&report.cuda, Stage::Element, &["result"]);
    if let Some(derivative) = &report.derivative {
        out += "\nCUDA of score and derivative\n";
        out += &code(&derivative.cuda, Stage::Element, &["result", "slope"]);
    }
    if let Some(bounds) = &report.interval {
        out += "\nCUDA of the interval\n";
        out += &code(&bounds.cuda, Stage::Row, &["low", "high"]);
    }
    let texts = [Some(&report.cuda), report.interval.as_ref().map(|bounds| &bounds.cuda)];
    if texts.into_iter().flatten().any(|text| text.helpers) {
        out += "\nDevice functions\n";
        out += &indented(HELPERS);
    }
    out
}

fn work(work: Work) -> String {
    let special = if work.special > 0 { format!(" ({} special)", work.special) } else { String::new() };
    format!("{}{special} and {} per element", count(work.flops as usize, "FLOP"), count(work.other as usize, "other operation"))
}

fn no_interval() -> String {
    "no interval: every tile is loaded, and the mask is applied to every element".to_owned()
}

fn interval(bounds: &Bounds) -> String {
    let how = if bounds.exact { "all of these" } else { "of these those that the mask shows" };
    format!("{} <= k < {}, {how}", bounds.low, bounds.high)
}

/// Locals and results as a person would write them in a kernel, with the results at their stage.
fn code(text: &Text, at: Stage, results: &[&str]) -> String {
    let stages = [
        (Stage::Block, "once per head"),
        (Stage::Row, "once per row"),
        (Stage::Column, "once per column"),
        (Stage::Element, "per element"),
    ];
    let mut out = String::new();
    for (stage, when) in stages {
        let mut lines: Vec<String> = text.at(stage).map(Local::declaration).collect();
        if stage == at {
            lines.extend(results.iter().zip(&text.results).map(|(name, result)| format!("{name} = {result};")));
        }
        if !lines.is_empty() {
            out += &indented(&format!("// {when}\n{}\n", lines.join("\n")));
        }
    }
    out
}

fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect()
}
