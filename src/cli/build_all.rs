//! `kgen build-all`.

use super::{
    Format, Global,
    build::{
        BuildArgs,
        table::{self, Extra},
    },
    escape::plain,
    select::SelectionArgs,
    table::Column,
    ui,
};
use crate::{
    check::Verdict,
    command::{
        self, CommandError,
        build_all::{Outcome, Request},
    },
    device::DeviceChoice,
};
use console::style;
use serde_json::json;
use std::fmt::Write;

const EXAMPLES: &str = "\
Examples:
  kgen build-all             nvcc if there is none, then all of it
  kgen build-all -j 32       32 compilers at once, as far as memory allows
  kgen build-all --offline   never use the network";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    build: BuildArgs,

    /// Device of the smoke tests: auto (the GPU if there is one), gpu or emulator.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::build_all::run`], and [`CommandError::Failed`] after the report.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, build, device } = args;
    let request = Request { build: build.request(selection), device };
    let outcome = command::build_all::run(&request, &global.interruptible(), &global.console())?;
    match global.format {
        Format::Human => ui::print(&describe(&outcome))?,
        // Printed as a `Value`, which sorts the keys, because scripts rely on that order.
        Format::Json => ui::print_json(&json!(outcome))?,
    }
    outcome.verdict()
}

/// The joint table of both steps, the failures, and totals.
fn describe(outcome: &Outcome) -> String {
    let Outcome { build, checks: verdicts, check_seconds: seconds } = outcome;
    let cells = |verdict: &Verdict| {
        let word = if verdict.passed() { style("pass").green() } else { style(verdict.status.word()).red().bold() };
        let worst = verdict.worst.as_ref().map_or_else(|| "-".to_owned(), |w| format!("{:.1e} of {:.1e}", w.error, w.tolerance));
        vec![word.to_string(), worst]
    };
    let extra = Extra {
        columns: &[Column::text("smoke").needed(), Column::text("worst error")],
        notable: verdicts.iter().filter(|v| !v.passed()).map(|v| v.name.as_str()).collect(),
        cells: verdicts.iter().map(|v| (v.name.as_str(), cells(v))).collect(),
    };
    let mut text = table::describe(build, &extra);
    let passed = verdicts.iter().filter(|v| v.passed()).count();
    let cached = verdicts.iter().filter(|v| v.cached).count();
    let mut devices: Vec<&str> = verdicts.iter().map(|v| v.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let (count, devices) = (verdicts.len(), devices.join(" and "));
    let twins = match verdicts.iter().filter(|v| v.same_as.is_some()).count() {
        0 => String::new(),
        twins => format!(", {twins} the same program as another"),
    };
    // Writing into a string cannot fail.
    match count {
        0 => writeln!(text, "smoke: nothing compiled, so nothing was checked"),
        _ => {
            writeln!(
                text,
                "smoke: {passed} of {count} passed on {devices} in {seconds:.1} s, {cached} of them known from before{twins}"
            )
        }
    }
    .ok();
    for verdict in verdicts.iter().filter(|v| !v.passed()) {
        write!(text, "\n{} `{}`: {}\n", style("error:").red().bold(), verdict.name, plain(verdict.message.trim_end())).ok();
    }
    text
}
