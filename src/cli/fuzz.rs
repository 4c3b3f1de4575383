//! `kgen check --fuzz` and `--fuzz-case`: random calls, or named ones, through the dispatcher of a library.

use super::{
    CliError, Format, Global,
    checking::{self, Place},
    emulated,
    escape::plain,
    select::SelectionArgs,
    table::{self, Column},
    ui::{self, Progress},
    workshop::Workshop,
};
use crate::{
    device::{DeviceKind, EmulatorKit, GpuFacts, launchers_in},
    family::attention::fuzz::{
        self, Calls, Ended, Entry, FuzzCase, FuzzError, FuzzObserver, FuzzOptions, LibraryCall, Report, Row, Scope, ScopeDevice,
        draws_calls,
    },
    family::attention::{Kind, Point},
    grid::Grid,
    kernel::{HeadDim, Variant},
    toolchain::Cancel,
};
use console::style;
use std::{
    collections::BTreeSet,
    fmt::Write,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Random calls in place of the fixed cases.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Random calls")]
pub(super) struct FuzzArgs {
    /// Make N random calls through the dispatcher instead of the fixed cases.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = CONFLICTS)]
    fuzz: Option<u64>,

    /// Start no more calls after this many seconds.
    #[arg(long, value_name = "SECONDS", requires = "fuzz", value_parser = clap::value_parser!(u64).range(1..=ui::LONGEST_LIMIT))]
    seconds: Option<u64>,

    /// Repeat the call of this name, as a failed `--fuzz` prints it; can be given several times.
    #[arg(long, value_name = "CASE", conflicts_with = "fuzz", conflicts_with_all = CONFLICTS)]
    fuzz_case: Vec<LibraryCall>,
}

/// Flags that are about the fixed cases.
const CONFLICTS: [&str; 4] = ["case", "thorough", "fresh", "run_as"];

/// Head dims on the emulator where no flag says which: what compiles in a few minutes.
const EMULATED_HEAD_DIMS: [u32; 2] = [64, 128];

/// Longest that a call may take unless a user says otherwise. On a GPU the driver may compile the kernel first.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// How often a run without a terminal says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// Characters of a call's name while the run goes on; the report has all of it.
const LONGEST_NAME: usize = 120;

impl FuzzArgs {
    /// Whether calls are asked for in place of the fixed cases.
    pub fn is_asked(&self) -> bool {
        self.fuzz.is_some() || !self.fuzz_case.is_empty()
    }
}

/// What the flags of `kgen check` say besides.
pub(super) struct Fuzz<'a> {
    pub args: FuzzArgs,
    pub selection: &'a SelectionArgs,
    pub place: Place,
    pub library: &'a Path,
    pub seed: u64,
    pub jobs: usize,
    pub call_limit: Option<Duration>,
}

/// Makes the calls and prints what was found.
///
/// # Errors
/// [`CliError::VariantFailed`] when a call failed, after the report; [`CliError`] for what stops all of it.
pub(super) fn run(global: &Global, fuzz: Fuzz<'_>) -> Result<(), CliError> {
    let cancel = ui::cancel_on_ctrl_c();
    let workshop = Workshop::new(global)?;
    let Fuzz { args, selection, place, library, seed, jobs, call_limit } = fuzz;
    let calls = match args.fuzz {
        Some(count) => Calls::Drawn { seed, count },
        None => Calls::Given(args.fuzz_case),
    };
    // The kit keeps an emulated library where it is, from which workers load it as long as calls are made.
    let (library, scope, _kit) = if place.gpu.is_some() {
        (library.to_owned(), gpu_scope(&workshop.grid, selection, &calls, library)?, None)
    } else {
        let wanted = wanted(&workshop.grid, selection, &calls, true)?;
        emulator_library(&workshop, &wanted, jobs, global.format, &cancel)?
    };
    let options = FuzzOptions {
        library,
        scope,
        seconds: args.seconds.map(Duration::from_secs),
        jobs,
        call_limit: call_limit.unwrap_or(CALL_LIMIT),
        program: std::env::current_exe()
            .map_err(|error| CliError::Environment(format!("cannot find kgen's own executable: {error}")))?,
        calls,
    };
    let report = {
        let watch = Watch::new(&options, global.format, &cancel);
        fuzz::run(&options, &watch).map_err(|error| match error {
            _ if cancel.requested() => CliError::INTERRUPTED,
            FuzzError::Nothing => CliError::Usage(error.to_string()),
            FuzzError::NoWorker(_) => CliError::Environment(error.to_string()),
        })?
    };
    match global.format {
        Format::Human => ui::print(&describe(&report, options.scope.kind()))?,
        Format::Json => ui::print_json(&report)?,
    }
    if cancel.requested() {
        return Err(CliError::INTERRUPTED);
    }
    match report.failures.len() {
        0 => Ok(()),
        failed => {
            let of = ui::count(report.total(|row| row.calls) as usize, "call");
            Err(CliError::VariantFailed(format!("{failed} of {of} failed")))
        }
    }
}

/// The variants that the flags mean, and with `--fuzz-case` those that its calls may reach.
fn wanted(grid: &Grid, selection: &SelectionArgs, calls: &Calls, on_emulator: bool) -> Result<Vec<Variant>, CliError> {
    match calls {
        Calls::Drawn { .. } if on_emulator && selection.is_empty() => {
            let dims = EMULATED_HEAD_DIMS.map(|dim| dim.to_string()).join(" and ");
            ui::note(&format!(
                "head dims {dims} alone, for the emulator has to compile them; `--all` or `--head-dim` says otherwise"
            ));
            let small =
                |variant: &Variant| variant.head_dim().is_none_or(|dim| EMULATED_HEAD_DIMS.map(HeadDim::equal).contains(&dim));
            called(grid.variants().iter().copied().filter(small).collect())
        }
        Calls::Drawn { .. } => called(selection.resolve(grid)?),
        Calls::Given(calls) => {
            let candidates = if selection.is_empty() {
                let of_calls = |variant: &Variant| calls.iter().any(|call| has_head_dim_of(*variant, call));
                grid.variants().iter().copied().filter(of_calls).collect()
            } else {
                called(selection.resolve(grid)?)?
            };
            let answers = |variant: &Variant| calls.iter().any(|call| may_answer(*variant, call));
            let chosen: Vec<Variant> = candidates.into_iter().filter(answers).collect();
            let nobody = || CliError::Usage(format!("no kernel that is selected computes `{}`", calls[0]));
            if chosen.is_empty() { Err(nobody()) } else { Ok(chosen) }
        }
    }
}

/// Those of `variants` that calls are drawn for.
fn called(mut variants: Vec<Variant>) -> Result<Vec<Variant>, CliError> {
    variants.retain(|variant| Point::of(variant).is_some() || draws_calls(*variant));
    if variants.is_empty() {
        let others = "calls are drawn for attention and append_kv alone; select some, for example with `--kind fwd`";
        return Err(CliError::Usage(others.to_owned()));
    }
    Ok(variants)
}

/// Whether a variant has the head dims of a call, or neither has any.
fn has_head_dim_of(variant: Variant, call: &LibraryCall) -> bool {
    match call {
        LibraryCall::Attention(case) => variant.head_dim() == Some(case.head_dim),
        LibraryCall::Drawn(_) => variant.head_dim().is_none(),
    }
}

/// Whether the dispatcher may choose a variant for a call.
fn may_answer(variant: Variant, call: &LibraryCall) -> bool {
    match (call, Point::of(&variant)) {
        (LibraryCall::Attention(case), Some(point)) => serves(point, case),
        (LibraryCall::Drawn(call), None) => call.is_served_by(variant),
        _ => false,
    }
}

fn serves(point: Point, case: &FuzzCase) -> bool {
    let entry = if point.kind == Kind::Bwd { Entry::Bwd } else { Entry::Fwd };
    entry == case.entry && case.is_served_by(point)
}

/// Attention kernels, and the others.
fn by_family(variants: &[Variant]) -> (Vec<Point>, Vec<Variant>) {
    let others = variants.iter().copied().filter(|variant| Point::of(variant).is_none());
    (variants.iter().filter_map(Point::of).collect(), others.collect())
}

/// What the library at `library` holds of the grid, and of that what is wanted.
fn gpu_scope(grid: &Grid, selection: &SelectionArgs, calls: &Calls, library: &Path) -> Result<Scope, CliError> {
    let wanted = wanted(grid, selection, calls, false)?;
    let known = wanted.iter().copied().chain(grid.variants().iter().copied().filter(|v| Point::of(v).is_some()));
    let known: Vec<Variant> = known.collect::<BTreeSet<_>>().into_iter().collect();
    let names: Vec<String> = known.iter().map(Variant::name).collect();
    let there = launchers_in(library, &names).map_err(|error| CliError::Environment(error.to_string()))?;
    let held: Vec<Variant> = known.into_iter().zip(there).filter_map(|(variant, there)| there.then_some(variant)).collect();
    let wanted: Vec<Variant> = wanted.into_iter().filter(|variant| held.contains(variant)).collect();
    if wanted.is_empty() {
        let missing = format!("`{}` holds none of these kernels; build it with them", library.display());
        return Err(CliError::Environment(missing));
    }
    let facts = GpuFacts::probe().map_err(|error| checking::unusable_gpu(&error))?;
    let device = ScopeDevice::Gpu { capability: facts.info.compute_capability, multiprocessors: facts.multiprocessors };
    let (wanted, others) = by_family(&wanted);
    Ok(Scope { held: by_family(&held).0, wanted, others, device })
}

/// Compiles the wanted variants, and what splitting needs besides, for the emulator.
fn emulator_library(
    workshop: &Workshop,
    wanted: &[Variant],
    jobs: usize,
    format: Format,
    cancel: &Cancel,
) -> Result<(PathBuf, Scope, Option<EmulatorKit>), CliError> {
    let (wanted, others) = by_family(wanted);
    let mut held = wanted.clone();
    if held.iter().any(|variant| variant.kind == Kind::FwdSplit) {
        let helpers = workshop.grid.variants().iter().filter_map(Point::of).filter(|point| !point.kind.has_shape());
        held.extend(helpers.filter(|point| !wanted.contains(point)));
    }
    let mut variants: Vec<Variant> = held.iter().copied().map(Variant::from).chain(others.iter().copied()).collect();
    variants.sort_unstable_by_key(Variant::name);
    let (library, kit) = emulated::library(workshop, &variants, jobs, format, cancel)?;
    Ok((library, Scope { held, wanted, others, device: ScopeDevice::Emulator }, Some(kit)))
}

/// Shows progress and hears of Ctrl-C.
struct Watch<'a> {
    progress: Progress,
    /// Somebody looks at a terminal, and sees a bar.
    terminal: bool,
    silent: bool,
    asked: u64,
    done: AtomicU64,
    failed: AtomicU64,
    said: Mutex<Instant>,
    cancel: &'a Cancel,
}

impl<'a> Watch<'a> {
    fn new(options: &FuzzOptions, format: Format, cancel: &'a Cancel) -> Self {
        let asked = match &options.calls {
            Calls::Drawn { count, .. } => *count,
            Calls::Given(cases) => cases.len() as u64,
        };
        let progress = Progress::new(format, "calling");
        progress.expect(asked as usize, 0);
        Self {
            progress,
            terminal: console::Term::stderr().is_term(),
            silent: format == Format::Json,
            asked,
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            said: Mutex::new(Instant::now()),
            cancel,
        }
    }
}

impl FuzzObserver for Watch<'_> {
    fn called(&self, failed: bool) {
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        let failures = self.failed.fetch_add(failed.into(), Ordering::SeqCst) + u64::from(failed);
        if !failed {
            self.progress.finish("", None, false);
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.terminal && !self.silent && said.elapsed() >= SAY_EVERY {
            *said = Instant::now();
            self.progress.say(&format!("{done} of {} calls, {failures} failed", self.asked));
        }
    }

    fn failed(&self, number: u64, case: &LibraryCall, message: &str) {
        let first = plain(message.lines().next().unwrap_or_default());
        let mut name = case.to_string();
        if let Some((end, _)) = name.char_indices().nth(LONGEST_NAME) {
            name.truncate(end);
            name += "…";
        }
        let line = format!("{} `{name}`: {first}", style("fail").red().for_stderr());
        self.progress.finish(&format!("call {number}"), Some(&line), true);
    }

    fn shrinking(&self, number: u64) {
        if !self.silent {
            self.progress.say(&format!("shrinking call {number}"));
        }
    }

    fn interrupted(&self) -> bool {
        self.cancel.requested()
    }
}

/// The table, what failed, what was refused, and totals.
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
    for (reason, count) in &report.refusals {
        let _ = writeln!(text, "\nrefused as it must be, {}: {reason}", ui::count(*count as usize, "call"));
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
        lost => format!(", {} died or hung and were replaced", ui::count(lost as usize, "worker")),
    };
    let _ = writeln!(
        text,
        "\n{}{ended}: {passed} passed, {refused} refused, {} failed{lost}; {:.0} s, seed {}, {}",
        ui::count(calls as usize, "call"),
        report.failures.len(),
        report.seconds,
        report.seed,
        report.device
    );
    text
}
