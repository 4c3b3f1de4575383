//! Times a kernel that a person edited and the one that kgen renders for its variant, in turns: each in a library of
//! its own, by the same compiler.

use super::{Outcome, Request, find_gpu, sizes};
use crate::{
    bench::{self, BenchOptions, BenchRequest, Ceiling, Made, Measurement, Report, Size},
    command::{
        CommandError, Context, Event, Observer, Work, build, db,
        edited::Edited,
        observer::Relay,
        record::Recorder,
        session::Session,
        single::{Compiled, Compiler},
        suite::Timing,
    },
    device::{CardState, GpuFacts, Nvml, TimingPlan},
    lab::{
        Condition, Row, Run, Store, noise,
        tune::{Evidence, Ratio, size_key},
    },
    plan,
};
use serde::Serialize;
use std::{path::Path, time::Duration};

/// Folder of the libraries.
const FOLDER: &str = "build/edited";

/// An edited kernel beside the rendered one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The file of the edited kernel.
    pub file: String,
    /// BLAKE3 of its text.
    pub source: String,
    /// One for each size that both kernels were timed at.
    pub pairs: Vec<Pair>,
}

/// The times of both kernels at one size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The size.
    pub shape: Size,
    /// Time of the edited kernel by that of the rendered one.
    pub ratio: Ratio,
    /// The noise floor: a difference within it is a tie.
    pub floor: f64,
    /// The outcome for the edited kernel.
    pub verdict: Verdict,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It takes less time, by more than the noise.
    Faster,
    /// It takes more time, by more than the noise.
    Slower,
    /// The difference is within the noise.
    Tie,
}

impl Verdict {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Tie => "tie",
        }
    }

    /// A ratio differs from 1 if its whole interval is on one side and its mean is beyond the floor.
    fn of(ratio: &Ratio, floor: f64) -> Self {
        let [low, high] = ratio.interval;
        if (low <= 1.0 && high >= 1.0) || ratio.mean.ln().abs() <= floor.ln_1p() {
            return Self::Tie;
        }
        if ratio.mean < 1.0 { Self::Faster } else { Self::Slower }
    }
}

/// Times both kernels.
///
/// # Errors
/// [`CommandError`] if there is no kernel, GPU, compiler or store, or a kernel does not compile.
pub(super) fn run(request: &Request, file: &Path, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    if request.suite.is_some() || !request.peers.is_empty() {
        let why = "`--source` times an edited kernel beside the generated one only; leave out `--suite` and `--peer`";
        return Err(CommandError::Usage(why.to_owned()));
    }
    let plan = request.plan(Timing::default())?;
    if request.library.is_some() || request.run_as.is_some() {
        let why = "`--source` builds libraries of its own, for the kernel's target; leave out `--library` and `--run-as`";
        return Err(CommandError::Usage(why.to_owned()));
    }
    let session = Session::open(context)?;
    let edited = Edited::read(file, &request.selection, &session, context, observer)?;
    let variant = edited.variant;
    if variant.dtype().is_none() {
        let why = format!("`{}` has no shape of its own and is not timed by itself", variant.name());
        return Err(CommandError::Usage(why));
    }
    let sizes = sizes(&variant, &request.shape.wanted())?;
    let gpu = find_gpu()?;
    if !plan::runs_on(variant.target(), gpu.info.compute_capability, true) {
        let why = format!("`{}` is for `{}` and does not run on {}", variant.name(), variant.target(), gpu.info);
        return Err(CommandError::Usage(why));
    }
    let kernels = compiled(request, &edited, &session, context, observer)?;
    let recorder = request.record.then(|| Recorder::open(request.db.as_deref(), context)).transpose()?;
    let earlier = match &recorder {
        Some(_) => Store::open_existing(&db::path(request.db.as_deref())?)?
            .rows(&Condition { kernels: vec![variant.name()], ..Condition::default() })?,
        None => Vec::new(),
    };
    let mut report = request.report(gpu, &kernels, plan);
    let steps = sizes.len() * 2 * request.processes as usize;
    observer.event(Event::Begun { work: Work::Timing, steps, known: 0 });
    let run = recorder.as_ref().map_or_else(|| Run::new(Vec::new(), String::new()), |recorder| recorder.run.clone());
    let mut timing = Clock { request, plan, context, relay: Relay { observer, cancel: &context.cancel }, rows: earlier };
    let mut pairs = Vec::new();
    for shape in &sizes {
        let mut evidence = Evidence::default();
        let mut both = Vec::new();
        for pass in 0..request.processes {
            evidence.begin_pass();
            let order = if pass % 2 == 0 { [0, 1] } else { [1, 0] };
            for place in order {
                for measurement in timing.one(&kernels[place], shape)? {
                    let row = Row::of_measurement(&measurement, &report, &run, &kernels[place].built);
                    if let Some(recorder) = &recorder {
                        recorder.add(&row, observer);
                    }
                    timing.rows.push(row);
                    if let Some(numbers) = &measurement.numbers {
                        evidence.add(place, &[numbers.microseconds.median]);
                        both.push((place, numbers.microseconds.interval));
                    }
                    report.measurements.push(measurement);
                }
            }
        }
        pairs.extend(pair(shape, &evidence, &both, &timing.rows, &report));
    }
    observer.event(Event::Ended);
    report.card_after = state(&report.gpu);
    let comparison = Comparison { file: file.display().to_string(), source: kernels[1].made.source.clone(), pairs };
    Ok(Outcome { report, edited: Some(comparison), interrupted: context.cancel.requested() })
}

/// The rendered kernel and the edited one.
fn compiled(
    request: &Request,
    edited: &Edited,
    session: &Session,
    context: &Context,
    observer: &dyn Observer,
) -> Result<[Compiled; 2], CommandError> {
    let plan = session.plan(edited.variant).map_err(CommandError::Usage)?;
    let rendered = Made::of(&plan, session.renderer.kernel(&plan)?.hash);
    let tools = build::Request { nvcc: request.nvcc.clone(), offline: request.offline, ..build::Request::default() };
    let tools = tools.tools(context, observer)?;
    let compiler = Compiler { tools: &tools, session, context, folder: Path::new(FOLDER), offline: request.offline };
    let build = |made: Made, edited: Option<&Edited>| {
        compiler.build(&plan, made, edited)?.map_err(|failure| CommandError::Failed(failure.message))
    };
    observer.note(&format!("compiling `{}` and the kernel that it replaces", edited.file.display()));
    Ok([build(rendered, None)?, build(edited.made(&plan), Some(edited))?])
}

fn state(gpu: &GpuFacts) -> CardState {
    Nvml::open(&gpu.pci_bus_id).as_ref().map(Nvml::state).unwrap_or_default()
}

impl Request {
    /// The circumstances.
    fn report(&self, gpu: GpuFacts, kernels: &[Compiled; 2], plan: TimingPlan) -> Report {
        Report {
            format: bench::FORMAT,
            kgen: env!("CARGO_PKG_VERSION"),
            date: bench::now(),
            library: kernels[1].library.display().to_string(),
            driver: Nvml::open(&gpu.pci_bus_id).as_ref().and_then(Nvml::driver),
            ceiling: Ceiling::of(&gpu),
            card_before: state(&gpu),
            card_after: CardState::default(),
            gpu,
            plan,
            seed: self.seed,
            suite: None,
            missing: Vec::new(),
            measurements: Vec::new(),
            peers: Vec::new(),
        }
    }
}

/// The measurements of a comparison.
struct Clock<'a> {
    request: &'a Request,
    plan: TimingPlan,
    context: &'a Context,
    relay: Relay<'a>,
    /// Rows of both kernels, those of earlier runs too: they tell the noise.
    rows: Vec<Row>,
}

impl Clock<'_> {
    /// Times a kernel once at a size, in a new process; nothing after an interruption.
    fn one(&self, kernel: &Compiled, shape: &Size) -> Result<Vec<Measurement>, CommandError> {
        if self.context.cancel.requested() {
            return Ok(Vec::new());
        }
        let request = BenchRequest { variant: kernel.plan.variant, shapes: vec![shape.clone()], made: kernel.made.clone() };
        let options = BenchOptions {
            library: kernel.library.clone(),
            plan: self.plan,
            seed: self.request.seed,
            time_limit: Duration::from_secs(self.request.time_limit_s),
            program: self.context.program()?,
        };
        Ok(bench::run(&[request], &options, &self.relay))
    }
}

/// The comparison at one size; `None` unless both kernels have times. `intervals` are those of the rounds of each
/// measurement, with the kernel's place.
fn pair(shape: &Size, evidence: &Evidence, intervals: &[(usize, [f64; 2])], rows: &[Row], report: &Report) -> Option<Pair> {
    let mut ratio = evidence.ratio(1, 0, report.seed)?;
    if ratio.passes == 1 {
        let of = |place: usize| intervals.iter().find(|(of, _)| *of == place).map(|(_, interval)| *interval);
        let ([low, high], [low_edited, high_edited]) = (of(0)?, of(1)?);
        ratio.interval = [low_edited / high, high_edited / low];
    }
    // The floor of this case by all runs of the two texts that are known, or that of the passes.
    let texts: Vec<&str> = report.measurements.iter().map(|measurement| measurement.made.source.as_str()).collect();
    let is_of_case = |row: &&Row| {
        row.gpu() == report.gpu.info.name && row.size_key() == size_key(shape) && texts.contains(&row.kernel_fact("source"))
    };
    let of_case: Vec<Row> = rows.iter().filter(is_of_case).cloned().collect();
    let known = noise(&of_case).into_iter().map(|noise| noise.floor).reduce(f64::max);
    let floor = known.unwrap_or_default().max(evidence.floor());
    Some(Pair { shape: shape.clone(), ratio, floor, verdict: Verdict::of(&ratio, floor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_within_the_floor_or_with_1_in_its_interval_is_a_tie() {
        let verdict = |mean, interval, floor| Verdict::of(&Ratio { mean, interval, passes: 3 }, floor);
        assert_eq!(verdict(0.9, [0.89, 0.91], 0.01), Verdict::Faster);
        assert_eq!(verdict(1.1, [1.09, 1.11], 0.01), Verdict::Slower);
        assert_eq!(verdict(0.995, [0.994, 0.996], 0.01), Verdict::Tie);
        assert_eq!(verdict(0.9, [0.8, 1.01], 0.01), Verdict::Tie);
    }
}
