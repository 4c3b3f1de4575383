//! `kgen check --fuzz` and `--fuzz-case`.

use super::{
    Global,
    escape::plain,
    show,
    table::{self, Column},
    values::whole,
};
use crate::{
    command::{self, CommandError, SelectionRequest, fuzz::Request, limits},
    device::{DeviceChoice, DeviceKind},
    family::attention::fuzz::{Ended, LibraryCall, Report, Row},
    text::count,
};
use console::style;
use std::{
    fmt::Write,
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
};

/// Flags for random calls, which replace the fixed cases.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Random calls")]
pub(super) struct FuzzArgs {
    /// Make N random calls through the dispatcher instead of the fixed cases.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=u64::MAX), conflicts_with_all = CONFLICTS)]
    fuzz: Option<u64>,

    /// Start no more calls after this many seconds.
    #[arg(long, value_name = "SECONDS", requires = "fuzz", value_parser = whole::<u64>(limits::SECONDS))]
    seconds: Option<u64>,

    /// Repeat the call of this name, as printed by a failed `--fuzz`; can be passed several times.
    #[arg(long, value_name = "CASE", conflicts_with = "fuzz", conflicts_with_all = CONFLICTS)]
    fuzz_case: Vec<LibraryCall>,
}

/// Flags that apply only to the fixed cases.
const CONFLICTS: [&str; 6] = ["case", "thorough", "fresh", "run_as", "schedule", "junit"];

impl FuzzArgs {
    /// True if calls are requested instead of the fixed cases.
    pub fn is_asked(&self) -> bool {
        self.fuzz.is_some() || !self.fuzz_case.is_empty()
    }

    /// The request that these flags and the other flags of `kgen check` describe.
    pub fn request(
        self,
        selection: SelectionRequest,
        device: DeviceChoice,
        library: Option<PathBuf>,
        seed: u64,
        jobs: Option<NonZeroUsize>,
        call_limit_s: Option<u64>,
    ) -> Request {
        let calls = self.fuzz_case.iter().map(ToString::to_string).collect();
        let (count, seconds) = (self.fuzz.and_then(NonZeroU64::new), self.seconds);
        Request { selection, count, calls, seconds, seed, device, library, jobs, call_limit_s }
    }
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::fuzz::run`], and those of its verdict after the report.
pub(super) fn run(global: &Global, request: &Request) -> Result<(), CommandError> {
    let outcome = command::fuzz::run(request, &global.interruptible(), &global.console())?;
    show(global, &outcome, || describe(&outcome.report, outcome.device))?;
    outcome.verdict()
}

/// The table, the failures, the refusals, and totals.
fn describe(report: &Report, device: DeviceKind) -> String {
    let text = ["kind", "dtype"].map(|heading| Column::text(heading).needed());
    let numbers = ["calls", "passed", "refused", "failed", "worst ratio"].map(|heading| Column::number(heading).needed());
    let columns: Vec<Column> = text.into_iter().chain(numbers).chain([Column::text("of")]).collect();
    let row = |row: &Row| {
        let worst = row.worst.as_ref();
        let ratio = worst.map_or_else(String::new, |worst| format!("{:.2}", worst.ratio));
        let output = worst.map_or_else(String::new, |worst| worst.output.clone());
        let failed = if row.failed == 0 { "0".to_owned() } else { style(row.failed).red().bold().to_string() };
        let counts = [row.calls, row.passed, row.refused].map(|count| count.to_string());
        [row.kind.to_string(), row.dtype.to_string()].into_iter().chain(counts).chain([failed, ratio, output]).collect()
    };
    let mut text = table::of(&columns, report.rows.iter().map(row));
    // Writing to a string cannot fail.
    for (reason, calls) in &report.refusals {
        let _ = writeln!(text, "\nrefused as it must be, {}: {reason}", count(*calls as usize, "call"));
    }
    for failure in &report.failures {
        let head = style(format!("call {} ({} {})", failure.number, failure.kind, failure.drawn.dtype())).red().bold();
        let _ = writeln!(text, "\n{head}");
        for line in plain(&failure.message).lines() {
            let _ = writeln!(text, "  {line}");
        }
        if failure.shrunk.is_some() {
            let _ = writeln!(text, "  drawn as: {}", failure.drawn);
        }
        let _ = writeln!(text, "  kgen check --device {device} --fuzz-case '{}'", failure.smallest());
    }
    let [calls, passed, refused] =
        [|row: &Row| row.calls, |row: &Row| row.passed, |row: &Row| row.refused].map(|of| report.total(of));
    let ended = match report.ended {
        Ended::Done => String::new(),
        Ended::TimeUp => format!(" of {}: the time was up", report.asked),
        Ended::TooManyFailures => format!(" of {}: stopped after too many failures", report.asked),
        Ended::Interrupted => format!(" of {}: interrupted", report.asked),
    };
    let lost = match report.workers_lost {
        0 => String::new(),
        lost => format!(", {} died or hung and were replaced", count(lost as usize, "worker")),
    };
    let _ = writeln!(
        text,
        "\n{}{ended}: {passed} passed, {refused} refused, {} failed{lost}; {:.0} s, seed {}, {}",
        count(calls as usize, "call"),
        report.failures.len(),
        report.seconds,
        report.seed,
        report.device
    );
    text
}
