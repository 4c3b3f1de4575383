//! `kgen diff`.

use super::{
    Global, show,
    table::{self, Column},
};
use crate::command::{
    self, CommandError,
    diff::{Difference, Outcome, Request},
};
use serde_json::Value;
use std::{fmt::Write, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen diff flash_fwd_hdim64_fp16_sm80 flash_fwd_hdim128_fp16_sm80
                                      two head dims
  kgen diff flash_fwd_hdim128_bf16_sm80 flash_fwd_hdim128_bf16_sm90 --summary
                                      two targets, without the sources
  kgen diff --source my.cu            an edited kernel with the generated one";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the first variant; with `--source`, of the file's kernel.
    #[arg(value_name = "VARIANT", required_unless_present = "source")]
    old: Option<String>,

    /// Name of the second variant.
    #[arg(value_name = "VARIANT", required_unless_present = "source", conflicts_with = "source")]
    new: Option<String>,

    /// Compare the kernel in this file with the one that kgen generates for its variant. They are compiled below the
    /// build folder if there is a compiler.
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,

    /// Leave out the diff of the sources; print how many lines differ.
    #[arg(long)]
    summary: bool,

    /// Build folder whose library has the compiled kernels.
    #[arg(long, value_name = "DIR", default_value = "build")]
    build_dir: PathBuf,

    /// The nvcc that compiles the kernel of `--source` [default: one that is installed].
    #[arg(long, value_name = "PATH", requires = "source")]
    nvcc: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// As [`command::diff::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { old, new, source, summary, build_dir, nvcc } = args;
    let request = Request { old, new, source, build_dir, nvcc };
    let mut outcome = command::diff::run(&request, &global.interruptible(), &global.console())?;
    if summary {
        outcome.source.clear();
    }
    show(global, &outcome, || describe(&outcome))
}

fn describe(outcome: &Outcome) -> String {
    let mut text = if outcome.plan.is_empty() { "the plans are equal\n".to_owned() } else { of(outcome, "plan", &outcome.plan) };
    match &outcome.compiled {
        None => {
            let why = outcome.uncompared.as_deref().unwrap_or_default();
            // Writing into a string cannot fail.
            writeln!(text, "\nmachine code is not compared: {why}").ok();
        }
        Some(equal) if equal.is_empty() => text += "\nthe compiled kernels are equal\n",
        Some(compiled) => text = text + "\n" + &of(outcome, "compiled", compiled),
    }
    let [removed, added] = outcome.lines;
    // Writing into a string cannot fail.
    writeln!(text, "\nsource: {removed} lines only in the first, {added} only in the second").ok();
    if !outcome.source.is_empty() {
        text = text + "\n" + &outcome.source;
    }
    text
}

fn of(outcome: &Outcome, heading: &str, differences: &[Difference]) -> String {
    let columns = [Column::text(heading).needed(), Column::text(&outcome.old).needed(), Column::text(&outcome.new).needed()];
    let cell = |value: &Value| match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    table::of(
        &columns,
        differences.iter().map(|difference| vec![difference.key.clone(), cell(&difference.old), cell(&difference.new)]),
    )
}
