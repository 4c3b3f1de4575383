//! `kgen expression`: what kgen makes of a score or a mask.

use super::{CliError, Format, Global, escape::plain, ui};
use crate::expression::{
    self, Declared, Expr, Goal, HELPERS, Interval, List, Local, Spelling, Stage, Text, Trend, UserScore, Work,
};
use crate::files;
use serde::Serialize;
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

/// What kgen makes of one expression.
#[derive(Serialize)]
struct Report {
    #[serde(rename = "type")]
    kind: &'static str,
    canonical: String,
    hash: String,
    /// Integers that a call has to pass positive.
    divisors: Vec<String>,
    work: Work,
    cuda: Text,
    #[serde(skip_serializing_if = "Option::is_none")]
    derivative: Option<Derivative>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<Bounds>,
}

#[derive(Serialize)]
struct Derivative {
    canonical: String,
    work: Work,
    /// Two results: the score and its derivative.
    cuda: Text,
}

#[derive(Serialize)]
struct Bounds {
    low: String,
    high: String,
    exact: bool,
    low_trend: Trend,
    high_trend: Trend,
    cuda: Text,
}

/// One `[score.NAME]`.
#[derive(Serialize)]
struct Named {
    name: String,
    hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mask: Option<Report>,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Usage`] for a text that is no expression, names that cannot be declared, and files that cannot be read.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    if let Some(path) = args.file {
        let failed = |error| CliError::Usage(format!("cannot read `{}`: {error}; give `--file` a readable file", path.display()));
        let text = files::read_to_string(&path).map_err(failed)?;
        let scores = expression::read(&text, &path.display().to_string()).map_err(|error| CliError::Usage(error.to_string()))?;
        let scores: Vec<Named> = scores.iter().map(of_score).collect();
        return match global.format {
            Format::Json => ui::print_json(&scores),
            Format::Human => ui::print(&scores.iter().map(described).collect::<Vec<_>>().join("\n")),
        };
    }
    let mut names = Declared::default();
    for (list, given) in [(List::Scalars, &args.scalars), (List::Integers, &args.integers), (List::Tables, &args.tables)] {
        for name in given {
            names.declare(list, name).map_err(|error| CliError::Usage(format!("{}\nhelp: {}", error.title, error.help)))?;
        }
    }
    let goal = if args.mask { Goal::Mask } else { Goal::Score };
    let expr = Expr::parse(&args.text.unwrap_or_default(), &names, goal).map_err(|error| CliError::Usage(error.to_string()))?;
    let given = args.scalars.iter().chain(&args.integers).chain(&args.tables);
    if let Some(unused) = given.into_iter().find(|name| !expr.uses_name(name)) {
        return Err(CliError::Usage(format!(
            "`{unused}` is declared and not used\nhelp: leave it out, or use it in the expression"
        )));
    }
    let report = report(&expr, goal);
    match global.format {
        Format::Json => ui::print_json(&report),
        Format::Human => ui::print_verbatim(&shown(&report)),
    }
}

fn of_score(score: &UserScore) -> Named {
    Named {
        name: score.name.clone(),
        hash: score.hash(),
        score: score.score.as_ref().map(|expr| report(expr, Goal::Score)),
        mask: score.mask.as_ref().map(|expr| report(expr, Goal::Mask)),
    }
}

fn report(expr: &Expr, goal: Goal) -> Report {
    let spelling = Spelling::default();
    let derivative = || {
        let slope = expr.derivative();
        let both = [expr, &slope];
        Derivative { canonical: slope.to_string(), work: Work::of(&both), cuda: Text::of(&both, &spelling) }
    };
    let bounds = |found: Interval| {
        let (low_trend, high_trend) = found.trends();
        let cuda = Text::per_row(&[&found.low, &found.high], &spelling);
        let (low, high) = (found.low.to_string(), found.high.to_string());
        Bounds { low, high, exact: found.exact, low_trend, high_trend, cuda }
    };
    Report {
        kind: if goal == Goal::Mask { "mask" } else { "score" },
        canonical: expr.to_string(),
        hash: expr.hash(),
        divisors: expr.divisors(),
        work: Work::of(&[expr]),
        cuda: Text::of(&[expr], &spelling),
        derivative: (goal == Goal::Score).then(derivative),
        interval: if goal == Goal::Mask { expr.interval().map(bounds) } else { None },
    }
}

fn described(score: &Named) -> String {
    let mut text = format!("[score.{}]\n", score.name);
    for report in score.score.iter().chain(&score.mask) {
        text += &shown(report);
    }
    text
}

/// A report for people. Writing to a `String` cannot fail.
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
    format!(
        "{}{special} and {} per element",
        ui::count(work.flops as usize, "FLOP"),
        ui::count(work.other as usize, "other operation")
    )
}

fn no_interval() -> String {
    "no interval: every tile is loaded, and the mask is applied to every element".to_owned()
}

fn interval(bounds: &Bounds) -> String {
    let how = if bounds.exact { "all of these" } else { "of these those that the mask shows" };
    format!("{} <= k < {}, {how}", bounds.low, bounds.high)
}

/// Locals and results as a person would write them into a kernel, with the results at their stage.
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
