//! Shows the events of commands on standard error: sentences, progress, and a bar while something is downloaded.

use super::{
    Format, bench,
    escape::plain,
    progress::Progress,
    ui::{insist, note},
    verbosity,
};
use crate::{
    bench::Status,
    command::{Event, Observer, StepResult, Work},
    text::count,
};
use console::{Term, style};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError, RwLock};

/// Maximum number of characters shown of a call's name during a run; the report has the full name.
const LONGEST_NAME: usize = 120;

/// The observer of the command line.
pub(super) struct Console {
    format: Format,
    progress: RwLock<Option<Progress>>,
    download: Mutex<Option<ProgressBar>>,
}

impl Console {
    /// Shows nothing until the first event.
    pub fn new(format: Format) -> Self {
        Self { format, progress: RwLock::default(), download: Mutex::default() }
    }

    fn set_progress(&self, progress: Option<Progress>) {
        *self.progress.write().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Runs `show` with the current progress, if there is one.
    fn with_progress(&self, show: impl FnOnce(&Progress)) {
        if let Some(progress) = &*self.progress.read().unwrap_or_else(PoisonError::into_inner) {
            show(progress);
        }
    }

    /// Prints a sentence, above the bars if there are any.
    fn above(&self, print: impl FnOnce()) {
        match &*self.progress.read().unwrap_or_else(PoisonError::into_inner) {
            Some(progress) => progress.above(print),
            None => print(),
        }
    }

    fn downloaded(&self, bytes: u64, of: u64) {
        if verbosity::quiet() || !Term::stderr().is_term() {
            return;
        }
        let style = || {
            let style =
                ProgressStyle::with_template("downloading {wide_bar:.cyan/dim} {decimal_bytes}/{decimal_total_bytes}  {elapsed}");
            style.unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        let mut bar = self.download.lock().unwrap_or_else(PoisonError::into_inner);
        // `of` is rounded.
        bar.get_or_insert_with(|| ProgressBar::new(of).with_style(style())).set_position(bytes.min(of));
    }

    fn download_ended(&self) {
        if let Some(bar) = self.download.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Console {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Note { message } => self.above(|| note(message)),
            Event::Warning { message } => self.above(|| insist(message)),
            Event::Begun { work, steps, known } => {
                self.set_progress(Some(Progress::new(self.format, verb(work), steps, known)));
            }
            Event::Started { step } => self.with_progress(|progress| progress.start(step)),
            Event::Advanced { .. } => {}
            Event::Finished { step, result } => self.with_progress(|progress| finish(progress, step, &result)),
            Event::GivenUp { step } => self.with_progress(|progress| progress.give_up(step)),
            Event::Shrinking { .. } if self.format == Format::Json => {}
            Event::Shrinking { call } => self.above(|| note(&format!("shrinking call {call}"))),
            Event::Ended => self.set_progress(None),
            Event::Downloaded { bytes, of } => self.downloaded(bytes, of),
            Event::DownloadEnded => self.download_ended(),
        }
    }
}

fn verb(work: Work) -> &'static str {
    match work {
        Work::Compiling => "compiling",
        Work::CompilingForEmulator => "compiling for the emulator",
        Work::Checking => "checking",
        Work::Timing => "timing",
        Work::Calling => "calling",
        Work::Profiling => "profiling",
        Work::Probing => "probing",
    }
}

/// Shows the result of a step: nothing for a cached result, a permanent line for a failure.
fn finish(progress: &Progress, step: &str, result: &StepResult<'_>) {
    let red = |word: &str| style(word.to_owned()).red().for_stderr();
    let first_line = |message: &str| plain(message.lines().next().unwrap_or_default()).into_owned();
    match result {
        StepResult::Done => progress.finish(step, None, false),
        StepResult::Called => {
            progress.finish(step, None, false);
            progress.count_call(false);
        }
        StepResult::Compiled(artifact) => {
            let seconds = || format!("{:.1} s", artifact.wall_seconds);
            let line = || match artifact.target {
                Some(_) => format!("{}, {} registers", seconds(), artifact.registers()),
                None => seconds(),
            };
            progress.finish(step, (!artifact.cached).then(line).as_deref(), false);
        }
        StepResult::NotCompiled(failure) => {
            progress.finish(step, Some(&format!("{} {}", red("failed:"), plain(&failure.message))), true);
        }
        StepResult::Checked(verdict) if verdict.passed() => {
            let line = || match &verdict.same_as {
                Some(other) => format!("passed: the same program as {other}"),
                None => format!("{} passed, {:.1} s", count(verdict.cases_run, "case"), verdict.seconds),
            };
            progress.finish(step, (!verdict.cached).then(line).as_deref(), false);
        }
        StepResult::Checked(verdict) => {
            let line = format!("{} {}", red(verdict.status.word()), first_line(&verdict.message));
            progress.finish(step, Some(&line), true);
        }
        StepResult::Measured(measurement) => {
            let line = match &measurement.numbers {
                Some(numbers) => format!("{:.1} µs, {}", numbers.microseconds.median, bench::rate(numbers)),
                None => format!("{} {}", red(measurement.status.word()), first_line(&measurement.message)),
            };
            let line = format!("{} {line}", bench::label(measurement));
            progress.finish(step, Some(&line), measurement.status != Status::Ok);
        }
        StepResult::Probed(measured) => {
            let line = match measured.constants.first() {
                Some(constant) => format!("{:.4} {}", constant.summary.median, constant.unit.word()),
                None => format!("{} {}", red(measured.status.word()), first_line(&measured.message)),
            };
            progress.finish(step, Some(&line), measured.status != Status::Ok);
        }
        StepResult::CallFailed { call, message } => {
            let mut name = (*call).to_owned();
            if let Some((end, _)) = name.char_indices().nth(LONGEST_NAME) {
                name.truncate(end);
                name += "…";
            }
            progress.finish(step, Some(&format!("{} `{name}`: {}", red("fail"), first_line(message))), true);
            progress.count_call(true);
        }
    }
}
