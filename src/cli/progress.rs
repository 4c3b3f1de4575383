//! Progress of many parallel tasks, on standard error.

use super::{
    Format,
    estimate::Estimate,
    ui::{for_stderr, note, tell},
    verbosity,
};
use console::Term;
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Interval between progress sentences about calls, without a terminal.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// Progress of many parallel tasks: a bar and the running tasks on a terminal, a line for each finished task elsewhere,
/// nothing with `--format json`.
pub(super) struct Progress {
    look: Look,
    total: usize,
    done: AtomicUsize,
    failed: AtomicUsize,
    said: Mutex<Instant>,
    estimate: Arc<Estimate>,
}

enum Look {
    Bars { multi: MultiProgress, bar: ProgressBar, running: Mutex<Running> },
    Lines,
    Silent,
}

impl Look {
    fn bars(multi: MultiProgress, estimate: &Arc<Estimate>) -> Self {
        let bar = multi.add(ProgressBar::new(0).with_style(bar_style(estimate)));
        Self::Bars { multi, bar, running: Mutex::default() }
    }
}

/// Maximum number of running tasks shown line by line, so that they and the bar leave most of a small terminal free.
const SHOWN: usize = 6;

/// Running tasks: the first few with a line each, the others as a count.
#[derive(Default)]
struct Running {
    shown: HashMap<String, ProgressBar>,
    others: Vec<(String, Instant)>,
    count: Option<ProgressBar>,
}

impl Running {
    fn start(&mut self, name: &str, multi: &MultiProgress) {
        if self.shown.len() < SHOWN {
            self.show(name, Duration::ZERO, multi);
        } else {
            self.others.push((name.to_owned(), Instant::now()));
        }
        self.count(multi);
    }

    fn finish(&mut self, name: &str, multi: &MultiProgress) {
        if let Some(line) = self.shown.remove(name) {
            line.finish_and_clear();
            multi.remove(&line);
            if !self.others.is_empty() {
                let (next, since) = self.others.remove(0);
                self.show(&next, since.elapsed(), multi);
            }
        } else {
            self.others.retain(|(other, _)| other != name);
        }
        self.count(multi);
    }

    fn show(&mut self, name: &str, elapsed: Duration, multi: &MultiProgress) {
        let line = ProgressBar::new_spinner().with_style(spinner_style()).with_message(name.to_owned()).with_elapsed(elapsed);
        // After the bar and the existing lines, before the count.
        let line = multi.insert(1 + self.shown.len(), line);
        line.enable_steady_tick(Duration::from_millis(200));
        self.shown.insert(name.to_owned(), line);
    }

    fn count(&mut self, multi: &MultiProgress) {
        if self.others.is_empty() {
            if let Some(count) = self.count.take() {
                count.finish_and_clear();
                multi.remove(&count);
            }
            return;
        }
        let count = self.count.get_or_insert_with(|| multi.add(ProgressBar::new_spinner().with_style(count_style())));
        count.set_message(format!("… and {} more", self.others.len()));
        count.tick();
    }
}

impl Progress {
    /// Shows that `total` tasks will run, `known` of which are expected to be cached; `verb` names the work, such as
    /// `compiling`.
    pub fn new(format: Format, verb: &'static str, total: usize, known: usize) -> Self {
        let estimate = Arc::<Estimate>::default();
        let look = match format {
            _ if verbosity::quiet() => Look::Silent,
            Format::Json => Look::Silent,
            Format::Human if Term::stderr().is_term() => Look::bars(MultiProgress::new(), &estimate),
            Format::Human => Look::Lines,
        };
        Self::with_look(look, verb, total, known, estimate)
    }

    fn with_look(look: Look, verb: &'static str, total: usize, known: usize, estimate: Arc<Estimate>) -> Self {
        estimate.begin(total, known);
        if let Look::Bars { bar, .. } = &look {
            bar.set_message(verb);
            bar.set_length(total as u64);
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let (done, failed, said) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Instant::now()));
        Self { look, total, done, failed, said, estimate }
    }

    /// `name` has begun.
    pub fn start(&self, name: &str) {
        self.estimate.start();
        if let Look::Bars { multi, running, .. } = &self.look {
            running.lock().unwrap_or_else(PoisonError::into_inner).start(name, multi);
        }
    }

    /// `name` is done. `line` describes the result; it stays on the screen if there is no bar, or if it is `important`.
    /// `None` only counts.
    pub fn finish(&self, name: &str, line: Option<&str>, important: bool) {
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        self.estimate.count(line.is_some());
        match &self.look {
            Look::Bars { multi, bar, running } => {
                running.lock().unwrap_or_else(PoisonError::into_inner).finish(name, multi);
                if let Some(line) = line.filter(|_| important) {
                    // Only a closed standard error makes this fail, and then no reader is left.
                    multi.println(for_stderr(&format!("{name}: {line}"))).ok();
                }
                bar.inc(1);
            }
            Look::Lines => {
                if let Some(line) = line {
                    let (total, width) = (self.total, self.total.to_string().len());
                    tell(format_args!("[{done:>width$}/{total}] {name}: {line}"));
                }
            }
            Look::Silent => {}
        }
    }

    /// Removes the progress line of `name`, which failed to finish, without printing anything.
    pub fn give_up(&self, name: &str) {
        if let Look::Bars { multi, running, .. } = &self.look {
            running.lock().unwrap_or_else(PoisonError::into_inner).finish(name, multi);
        }
    }

    /// Counts a call, which gets a line only if it failed; prints a progress sentence from time to time.
    pub fn count_call(&self, failed: bool) {
        let failures = self.failed.fetch_add(failed.into(), Ordering::SeqCst) + usize::from(failed);
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(self.look, Look::Lines) && said.elapsed() >= SAY_EVERY {
            *said = Instant::now();
            let (done, total) = (self.done.load(Ordering::SeqCst), self.total);
            note(&format!("{done} of {total} calls, {failures} failed"));
        }
    }

    /// Runs `print`, whose lines appear above the bars.
    pub fn above(&self, print: impl FnOnce()) {
        match &self.look {
            Look::Bars { multi, .. } => multi.suspend(print),
            Look::Lines | Look::Silent => print(),
        }
    }
}

impl Drop for Progress {
    /// Removes the bars from the screen.
    fn drop(&mut self) {
        if let Look::Bars { multi, bar, .. } = &self.look {
            bar.finish_and_clear();
            // Fails only if standard error is closed.
            multi.clear().ok();
        }
    }
}

fn bar_style(estimate: &Arc<Estimate>) -> ProgressStyle {
    let style = ProgressStyle::with_template("{msg} {wide_bar:.cyan/dim} {pos}/{len}  {elapsed}{left}");
    let estimate = Arc::clone(estimate);
    let left = move |_: &ProgressState, text: &mut dyn fmt::Write| {
        if let Some(left) = estimate.left() {
            // Writing to a string cannot fail.
            write!(text, ", about {} left", HumanDuration(Duration::from_secs(left.as_secs()))).ok();
        }
    };
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left)
}

fn spinner_style() -> ProgressStyle {
    let style = ProgressStyle::with_template("  {spinner:.cyan} {wide_msg} {elapsed:.dim}");
    style.unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn count_style() -> ProgressStyle {
    ProgressStyle::with_template("    {wide_msg:.dim}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::{InMemoryTerm, ProgressDrawTarget};

    #[test]
    fn thirty_two_running_things_with_long_names_fit_a_terminal_of_80_by_24() {
        let terminal = InMemoryTerm::new(24, 80);
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal.clone()), 200);
        let estimate = Arc::<Estimate>::default();
        let look = Look::bars(MultiProgress::with_draw_target(target), &estimate);
        let progress = Progress::with_look(look, "compiling", 74, 0, estimate);
        let name =
            |index: usize| format!("flash_fwd_split_hdim192_128_bf16_causal_paged_append_softcap_window_packgqa_sm90_{index}");
        (0..32).for_each(|index| progress.start(&name(index)));
        let screen = |wanted: &str| {
            let start = Instant::now();
            while !terminal.contents().contains(wanted) {
                assert!(start.elapsed() < Duration::from_secs(20), "no `{wanted}` in\n{}", terminal.contents());
                std::thread::sleep(Duration::from_millis(10));
            }
            terminal.contents()
        };
        let text = screen("… and 26 more");
        assert!(text.lines().count() <= 2 + SHOWN && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        progress.finish(&name(0), Some("20 s"), false);
        screen("… and 25 more");
        let text = screen("1/74");
        assert!(text.contains(" left"), "an estimate follows the first result\n{text}");
    }
}
