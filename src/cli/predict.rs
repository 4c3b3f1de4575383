//! `kgen predict`.

use super::{
    Global,
    bench::{ShapeArgs, size},
    escape::plain,
    select::SelectionArgs,
    show,
    table::{self, Column},
};
use crate::{
    bench::Unit,
    command::{
        self, CommandError,
        predict::{Call, CardNumbers, Learned, Outcome, Request},
    },
    family,
    kernel::CardConstant,
    lab::predict::{Errors, Validation},
    text::count,
};
use std::{fmt::Write, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen predict flash_fwd_hdim128_bf16_sm90 --gpu h100,h200 --seqlen 4096
  kgen predict --kind fwd --head-dim 72 --dtype bf16 --target sm80 --gpu a100
  kgen predict --suite models --gpu h100,b200
  kgen predict flash_fwd_hdim128_bf16_causal_sm90 --gpu h100 \\
      --lengths 1000,37,4096          a packed batch of three sequences
  kgen predict flash_fwd_hdim64_bf16_sm80 --gpu probe.toml,a100
  kgen predict --validate             errors for calls that were held out";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    shape: ShapeArgs,

    /// Keys and queries of each sequence of a packed batch (`fwd_split`: keys).
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size(), help_heading = "Shapes",
        conflicts_with_all = ["batch", "seqlen", "seqlen_q", "seqlen_k", "rows", "columns", "suite"])]
    lengths: Vec<u32>,

    /// Queries of each sequence of a packed batch [default: as many as keys; `fwd_split`: 1].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size(), help_heading = "Shapes", requires = "lengths")]
    lengths_q: Vec<u32>,

    /// Kernels and sizes of a suite, as `kgen bench --list-suites` lists them; the selection narrows it.
    #[arg(long, value_name = "NAME", help_heading = "Prediction")]
    suite: Option<String>,

    /// Cards by name: h100, h200, a100, l40s, rtx-pro-6000, …; or files of `kgen probe`.
    #[arg(long = "gpu", value_name = "CARD", value_delimiter = ',', help_heading = "Prediction")]
    gpus: Vec<String>,

    /// Also learn from the measured rows of these files, as `kgen db export` writes them.
    #[arg(long, value_name = "FILE", help_heading = "Prediction")]
    learn: Vec<PathBuf>,

    /// Print the errors for lengths, head dims and cards that the model has not seen.
    #[arg(long, help_heading = "Prediction", conflicts_with = "gpus")]
    validate: bool,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::predict::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, shape, lengths, lengths_q, suite, gpus, learn, validate } = args;
    let (selection, shape) = (selection.into(), shape.into());
    let request = Request { selection, shape, lengths, lengths_q, suite, gpus, rows: learn, validate };
    let outcome = command::predict::run(&request, &global.context(), &global.console())?;
    show(global, &outcome, || {
        let text = if validate { validated(&outcome) } else { calls(&outcome.calls) };
        text + &notes(&outcome)
    })
}

fn validated(outcome: &Outcome) -> String {
    let of_axes = outcome.validation.iter().map(errors);
    let of_packed = outcome.packed.iter().map(|packed| "batches of lengths that differ\n".to_owned() + &table_of([packed]));
    of_axes.chain(of_packed).collect::<Vec<_>>().join("\n")
}

/// Where the cards' numbers come from, what was left out, and what was learned.
fn notes(outcome: &Outcome) -> String {
    let numbers = outcome.cards.iter().map(numbers);
    let left_out = outcome.left_out.iter().map(|out| format!("left out: {} on {}\n", out.name, out.gpu));
    let learned = outcome.learned.iter().map(|learned| {
        let Learned { file, rows, lessons } = learned;
        format!("{}: learned from {lessons} of {}\n", plain(&file.display().to_string()), count(*rows, "row"))
    });
    numbers.chain(left_out).chain(learned).collect()
}

/// A card's numbers and their sources.
fn numbers(card: &CardNumbers) -> String {
    let Some((probed, date)) = card.probed.as_ref().zip(card.date.as_ref()) else {
        return format!("numbers of {}: data sheet\n", card.gpu);
    };
    let columns = ["number", "value", "unit", "source"].map(Column::text);
    let line = |of: &CardConstant| vec![of.name.to_owned(), short(of.value), of.unit.to_owned(), of.source.words().to_owned()];
    let lines = table::of(&columns, card.constants.iter().map(line));
    format!("numbers of {}: probe of {} on {}\n{lines}", plain(&card.gpu), plain(date), plain(probed))
}

/// How the columns of units are read.
const UNITS_NOTE: &str = "units: µs by the plan that are not hidden by others; they overlap in part
limited by: the unit with the most µs; latency only if it has more than tensor cores and exponentials together\n";

/// Units in the order of columns.
const UNITS: [Unit; 6] = [Unit::Launch, Unit::Latency, Unit::TensorCores, Unit::Exponentials, Unit::L2, Unit::Memory];

/// A table for each kernel.
fn calls(calls: &[Call]) -> String {
    let mut text = String::new();
    for kernel in calls.chunk_by(|a, b| a.name == b.name) {
        let columns = ["size", "card", "µs", "9 of 10 within", "TFLOP/s", "GB/s", "limited by"].map(Column::text);
        let units = UNITS.map(|unit| Column::text(unit.word()));
        let columns = [&columns[..], &units[..]].concat();
        // Writing into a string cannot fail.
        writeln!(text, "{}", kernel[0].name).ok();
        text += &table::of(&columns, kernel.iter().map(line));
        text += "\n";
    }
    if calls.iter().any(|call| call.prediction.lessons == 0) {
        text +=
            "intervals of -33 to +49 %: nothing like these kernels was measured on such a card, and the plan alone predicts\n";
    }
    text + UNITS_NOTE
}

fn line(call: &Call) -> Vec<String> {
    let Call { prediction, .. } = call;
    let mut line = vec![
        label(call),
        call.gpu.clone(),
        short(prediction.microseconds),
        format!("{} to {}", short(prediction.interval[0]), short(prediction.interval[1])),
        format!("{:.0}", call.tflops),
        call.gbs.map_or_else(String::new, |gbs| format!("{gbs:.0}")),
        call.limit.word().to_owned(),
    ];
    let of = |unit| call.parts.iter().find(|part| part.unit == unit).map_or_else(String::new, |part| short(part.microseconds));
    line.extend(UNITS.map(of));
    line
}

/// The size; of a packed batch with the rows of all sequences.
fn label(call: &Call) -> String {
    let size = family::of(call.variant.kind()).label(&call.size);
    match ["total_q", "total_k"].map(|name| call.size.get(name)) {
        [Some(queries), Some(keys)] if queries == keys => format!("{size}, {keys} in all"),
        [Some(queries), Some(keys)] => format!("{size}, {queries} and {keys} in all"),
        _ => size,
    }
}

/// Three digits.
fn short(number: f64) -> String {
    match number {
        n if n < 10.0 => format!("{n:.2}"),
        n if n < 100.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}

fn errors(validation: &Validation) -> String {
    let held = validation.held.word();
    let by_plan = 100.0 * validation.estimate_mean;
    let mut text = format!("{held} held out (the plan alone: mean {by_plan:.1} %)\n");
    text += &table_of(&validation.errors);
    text
}

fn table_of<'a>(errors: impl IntoIterator<Item = &'a Errors>) -> String {
    let columns = ["calls", "n", "mean, %", "p95, %", "worst, %", "worst call"].map(Column::text);
    let line = |errors: &Errors| {
        let percent = |error: f64| format!("{:.1}", 100.0 * error);
        vec![
            errors.of.clone(),
            errors.calls.to_string(),
            percent(errors.mean),
            percent(errors.p95),
            percent(errors.worst),
            errors.worst_call.clone(),
        ]
    };
    table::of(&columns, errors.into_iter().map(line))
}
