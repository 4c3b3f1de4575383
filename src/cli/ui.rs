//! Output styles: results, tables, sizes, progress, and what Ctrl-C does. Results go to standard output; everything
//! here that is not a result goes to standard error.

use super::{
    CliError, Format,
    escape::{plain, styled},
    estimate::Estimate,
    manner, wrap,
};
use crate::{
    build::{self, Outcome},
    toolchain::{Cancel, Say},
};
use console::{Term, style};
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    collections::HashMap,
    fmt,
    io::{self, ErrorKind, Write},
    num::NonZeroUsize,
    str::FromStr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The signal that interrupted this process last; Ctrl-C where none did.
static SIGNAL: AtomicI32 = AtomicI32::new(SIGINT);

/// The exit code of an interrupted process, as shells have it: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
pub(super) fn interrupted_code() -> u8 {
    u8::try_from(128 + SIGNAL.load(Ordering::SeqCst)).unwrap_or(130)
}

/// The flag that Ctrl-C sets from now on; the work then stops, removes what is unfinished and ends. Compilers that run
/// finish first, unless there is a second Ctrl-C or a SIGTERM or SIGHUP, whose senders do not wait for minutes. A
/// signal after that ends the process at once. Without a call of this function, Ctrl-C ends the process as it always
/// does.
pub fn cancel_on_ctrl_c() -> Cancel {
    static CANCEL: OnceLock<Cancel> = OnceLock::new();
    let make = || {
        let cancel = Cancel::default();
        // If no handler can be set, Ctrl-C keeps its old meaning, which is safe too: files appear whole or not at all.
        if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
            let flag = cancel.clone();
            std::thread::spawn(move || {
                for signal in signals.forever() {
                    SIGNAL.store(signal, Ordering::SeqCst);
                    match signal {
                        _ if flag.insisted() => std::process::exit(CliError::INTERRUPTED.code().into()),
                        SIGINT if !flag.requested() => flag.request(),
                        _ => flag.insist(),
                    }
                }
            });
        }
        cancel
    };
    CANCEL.get_or_init(make).clone()
}

/// Whether a JSON document has gone to standard output.
static JSON_PRINTED: AtomicBool = AtomicBool::new(false);

/// Writes a command's result to standard output. A reader that has seen enough (`kgen list | head -1`) is no error.
/// Control characters are written out, but for colours. On a terminal, lines that are too long for it break between
/// words.
///
/// # Errors
/// [`CliError::Environment`] where standard output cannot be written for another reason.
pub fn print(result: &str) -> Result<(), CliError> {
    write(&wrap::within(wrap::columns(&Term::stdout()), &styled(result)))
}

/// The same with all lines as they are: for source, scripts and paths.
///
/// # Errors
/// As [`print`].
pub fn print_verbatim(result: &str) -> Result<(), CliError> {
    write(&styled(result))
}

fn write(result: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(result.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::Environment(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a command's result as one JSON document.
///
/// # Errors
/// As [`print`].
pub fn print_json(result: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(result);
    let text = text.map_err(|error| CliError::Environment(format!("cannot write the result as JSON: {error}")))?;
    JSON_PRINTED.store(true, Ordering::SeqCst);
    write(&(in_ascii_controls(&text) + "\n"))
}

/// Whether there is nothing yet for a reader of JSON.
pub(super) fn no_json_yet() -> bool {
    !JSON_PRINTED.load(Ordering::SeqCst)
}

/// JSON with the control characters written out that it allows in strings, and terminals obey: DEL and C1.
fn in_ascii_controls(json: &str) -> String {
    let escape = |c: char| if ('\u{7f}'..='\u{9f}').contains(&c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    if json.contains(|c| ('\u{7f}'..='\u{9f}').contains(&c)) { json.chars().map(escape).collect() } else { json.to_owned() }
}

/// A line to standard error, broken as [`print`] does it. Unlike `eprintln!` it does not panic if nothing reads it
/// (`kgen build 2>&1 | head -1`).
pub(super) fn tell(line: fmt::Arguments<'_>) {
    // Nobody is left to be told of a failure.
    writeln!(io::stderr(), "{}", for_stderr(&line.to_string())).ok();
}

/// A text as standard error gets it.
fn for_stderr(text: &str) -> String {
    wrap::within(wrap::columns(&Term::stderr()), &styled(text)).into_owned()
}

/// Tells of an installation: sentences, and a bar on a terminal while something is downloaded.
#[derive(Default)]
pub struct Installing {
    bar: Mutex<Option<ProgressBar>>,
}

impl Installing {
    fn bar(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Say for Installing {
    fn say(&self, message: &str) {
        note(message);
    }

    fn downloaded(&self, bytes: u64, of: u64) {
        if manner::quiet() || !Term::stderr().is_term() {
            return;
        }
        let style = || {
            let style =
                ProgressStyle::with_template("downloading {wide_bar:.cyan/dim} {decimal_bytes}/{decimal_total_bytes}  {elapsed}");
            style.unwrap_or_else(|_| ProgressStyle::default_bar())
        };
        // `of` is rounded.
        self.bar().get_or_insert_with(|| ProgressBar::new(of).with_style(style())).set_position(bytes.min(of));
    }

    fn download_ended(&self) {
        if let Some(bar) = self.bar().take() {
            bar.finish_and_clear();
        }
    }
}

/// One sentence about what is going on, to standard error; not with `--quiet`.
pub fn note(message: &str) {
    if !manner::quiet() {
        insist(message);
    }
}

/// The same, also with `--quiet`: for facts on a person's own files that nothing else says.
pub fn insist(message: &str) {
    tell(format_args!("{} {}", style("note:").cyan().for_stderr(), plain(message)));
}

/// `1 variant`, `2 variants`.
pub fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A size for people: `512 B`, `12 kB`, `190 MB`, `1.2 GB` (powers of ten).
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Longest time limit a user may set (seconds): a year, which no clock's arithmetic overflows with.
pub const LONGEST_LIMIT: u64 = 365 * 24 * 3600;

/// A size as written on the command line: `8G`, `500M`, `1.5GiB`, a bare number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size; write for example `8G`, `500M` or `2GiB`");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let factor = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kb" => 1e3,
            "m" | "mb" => 1e6,
            "g" | "gb" => 1e9,
            "t" | "tb" => 1e12,
            "ki" | "kib" => 1024.0,
            "mi" | "mib" => 1024.0 * 1024.0,
            "gi" | "gib" => 1024.0 * 1024.0 * 1024.0,
            _ => return Err(wrong()),
        };
        let bytes = number * factor;
        if bytes < 1.0 { Err(format!("`{text}` is no memory at all")) } else { Ok(Self(bytes as u64)) }
    }
}

/// A number of things done at once, as written on the command line.
///
/// # Errors
/// What is expected, where it is not a whole number from 1 on.
pub fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a whole number from 1 on".to_owned())
}

/// Progress of many things done in parallel: a bar and the running ones on a terminal, a line for each finished one
/// elsewhere, nothing with `--format json`.
pub struct Progress {
    look: Look,
    verb: &'static str,
    total: AtomicUsize,
    done: AtomicUsize,
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

/// Most running things that have a line each, so that they and the bar leave most of a small terminal alone.
const SHOWN: usize = 6;

/// What runs: the first few with a line of their own, the others counted in one.
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
        // After the bar and the lines there are, before the count.
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
    /// Shows nothing until the first call; `verb` is what is being done, such as `compiling`.
    pub fn new(format: Format, verb: &'static str) -> Self {
        let estimate = Arc::<Estimate>::default();
        let look = match format {
            _ if manner::quiet() => Look::Silent,
            Format::Json => Look::Silent,
            Format::Human if Term::stderr().is_term() => Look::bars(MultiProgress::new(), &estimate),
            Format::Human => Look::Lines,
        };
        Self { look, verb, total: AtomicUsize::new(0), done: AtomicUsize::new(0), estimate }
    }

    /// How many things there will be, and how many of them seem to be done already.
    pub fn expect(&self, total: usize, known: usize) {
        self.total.store(total, Ordering::SeqCst);
        self.done.store(0, Ordering::SeqCst);
        self.estimate.begin(total, known);
        if let Look::Bars { bar, .. } = &self.look {
            bar.set_message(self.verb);
            bar.set_length(total as u64);
            bar.enable_steady_tick(Duration::from_millis(200));
        }
    }

    /// `name` has begun.
    pub fn start(&self, name: &str) {
        self.estimate.start();
        if let Look::Bars { multi, running, .. } = &self.look {
            running.lock().unwrap_or_else(PoisonError::into_inner).start(name, multi);
        }
    }

    /// `name` is done. `line` says how; it is kept on the screen where there is no bar, or when it is `important`.
    /// `None` only counts.
    pub fn finish(&self, name: &str, line: Option<&str>, important: bool) {
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        let total = self.total.load(Ordering::SeqCst);
        self.estimate.count(line.is_some());
        match &self.look {
            Look::Bars { multi, bar, running } => {
                running.lock().unwrap_or_else(PoisonError::into_inner).finish(name, multi);
                if let Some(line) = line.filter(|_| important) {
                    // Only a closed standard error makes this fail, and then nothing reads it.
                    multi.println(for_stderr(&format!("{name}: {line}"))).ok();
                }
                bar.inc(1);
            }
            Look::Lines => {
                if let Some(line) = line {
                    let width = total.to_string().len();
                    tell(format_args!("[{done:>width$}/{total}] {name}: {line}"));
                }
            }
            Look::Silent => {}
        }
    }

    /// `name` will not be done. Nothing is said of it.
    pub fn give_up(&self, name: &str) {
        if let Look::Bars { multi, running, .. } = &self.look {
            running.lock().unwrap_or_else(PoisonError::into_inner).finish(name, multi);
        }
    }

    /// Prints a sentence above the bars.
    pub fn say(&self, message: &str) {
        self.above(|| note(message));
    }

    /// As [`insist`], above the bars.
    pub fn insist(&self, message: &str) {
        self.above(|| insist(message));
    }

    fn above(&self, print: impl FnOnce()) {
        match &self.look {
            Look::Bars { multi, .. } => multi.suspend(print),
            Look::Lines | Look::Silent => print(),
        }
    }

    /// Takes the bars off the screen.
    pub fn clear(&self) {
        if let Look::Bars { multi, bar, .. } = &self.look {
            bar.finish_and_clear();
            // As above: only a closed standard error makes this fail.
            multi.clear().ok();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

impl build::Observer for Progress {
    fn note(&self, message: &str) {
        self.say(message);
    }

    fn planned(&self, kernels: usize, known: usize) {
        self.expect(kernels, known);
    }

    fn started(&self, name: &str) {
        self.start(name);
    }

    fn finished(&self, outcome: Outcome<'_>) {
        match outcome {
            Outcome::Built(artifact) => {
                let line = (!artifact.cached).then(|| {
                    let seconds = format!("{:.1} s", artifact.wall_seconds);
                    if artifact.target.is_some() { format!("{seconds}, {} registers", artifact.registers()) } else { seconds }
                });
                self.finish(&artifact.name, line.as_deref(), false);
            }
            Outcome::Failed(failure) => {
                let line = format!("{} {}", style("failed:").red().for_stderr(), plain(&failure.message));
                self.finish(&failure.name, Some(&line), true);
            }
        }
    }
}

fn bar_style(estimate: &Arc<Estimate>) -> ProgressStyle {
    let style = ProgressStyle::with_template("{msg} {wide_bar:.cyan/dim} {pos}/{len}  {elapsed}{left}");
    let estimate = Arc::clone(estimate);
    let left = move |_: &ProgressState, text: &mut dyn fmt::Write| {
        if let Some(left) = estimate.left() {
            // What cannot be drawn is not missed.
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
        let (total, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let progress = Progress { look, verb: "compiling", total, done, estimate };
        progress.expect(74, 0);
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

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in
            [("8G", 8_000_000_000), ("500M", 500_000_000), ("1.5GiB", 1_610_612_736), ("1024", 1024), ("2k", 2000)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "G", "8X", "-1G", "0", "1.2.3M"] {
            assert!(text.parse::<ByteSize>().is_err(), "`{text}` was taken");
        }
    }

    #[test]
    fn a_size_is_shown_in_its_own_unit() {
        assert_eq!([999, 1_000, 190_500_000, 1_240_000_000].map(size), ["999 B", "1 kB", "190 MB", "1.2 GB"]);
    }

    #[test]
    fn json_holds_no_character_that_a_terminal_obeys() {
        let json = in_ascii_controls(&serde_json::to_string("a\u{9b}2J\u{7f}\u{1b}é").unwrap());
        assert_eq!(json, "\"a\\u009b2J\\u007f\\u001bé\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "a\u{9b}2J\u{7f}\u{1b}é");
    }
}
