//! Searches and ladders on the GPU of this machine: candidates are compiled, proved and timed, and each measurement is
//! a row of the store.

mod known;

use super::{
    Request, Search, Sizes, card,
    ladder::Ladder,
    space::{Rungs, Space, lessons},
};
use crate::{
    bench::{self, BenchOptions, BenchRequest, Ceiling, Made, Measurement, Report, Size, turns},
    check::{CheckRequest, Kernel, Level, Status as CheckStatus, Verdict},
    command::{
        CommandError, Context, Observer,
        bench::{find_gpu, operations},
        build,
        checking::{self, How},
        db,
        record::Recorder,
        session::Session,
        single::{Compiled, Compiler},
    },
    device::{DeviceKind, GpuFacts, Nvml, TimingPlan},
    jobs,
    kernel::{Card, Variant},
    lab::{
        Condition, Row, Status, Store,
        ladder::{LADDER, Switch},
        tune::{Candidate, Failure, Measurer, Settings, Suite, TUNE, ladder, search},
    },
    plan::{Plan, runs_on},
    text::count,
};
use known::Known;
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Time limit of a measurement at all its sizes.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Most proofs at once: most of their time is the reference's, on the host, and each holds a context of the GPU.
const PROOFS: usize = 16;

/// What was found of variants.
pub(super) struct Outcome {
    /// The card.
    pub gpu: String,
    pub searches: Vec<Search>,
    pub ladders: Vec<Ladder>,
}

/// Searches tiles of variants on this machine's GPU, or measures their ladders.
///
/// # Errors
/// [`CommandError`] if there is no GPU, compiler or store, or no variant runs on the GPU.
pub(super) fn run(
    request: &Request,
    variants: &[Variant],
    settings: &Settings,
    session: &Session,
    sizes: Sizes<'_>,
    context: &Context,
    observer: &dyn Observer,
) -> Result<Outcome, CommandError> {
    let gpu = find_gpu()?;
    let card = card(request.gpu.as_deref().unwrap_or(&gpu.info.name))?;
    let on_gpu = |variant: &&Variant| runs_on(variant.target(), gpu.info.compute_capability, true);
    let variants: Vec<Variant> = variants.iter().filter(on_gpu).copied().collect();
    if variants.is_empty() {
        return Err(CommandError::Usage(format!("none of the selected kernels runs on {}; choose another `--target`", gpu.info)));
    }
    let tools = build::Request { nvcc: request.nvcc.clone(), offline: request.offline, ..build::Request::default() }
        .tools(context, observer)?;
    let recorder = Recorder::open(request.db.as_deref(), context)?;
    let machine = Machine::new(request, gpu, recorder, session, context, observer);
    let compiler = Compiler { tools: &tools, session, context, folder: &request.build_dir, offline: request.offline };
    let mut outcome = Outcome { gpu: label(&card, &machine.report.gpu), searches: Vec::new(), ladders: Vec::new() };
    for variant in &variants {
        if context.cancel.requested() {
            break;
        }
        let rows = Store::open_to_read(&db::path(request.db.as_deref())?)?.rows(&Condition::default())?;
        let lessons = lessons(&rows, &card, *variant, &variants, session);
        let sizes = sizes(variant)?;
        let (space, rungs) = if request.ladder {
            let Some((space, rungs)) = Space::of_rungs(*variant, session, &card, &lessons, sizes)? else { continue };
            (space, Some(rungs))
        } else {
            let Some(space) = Space::new(*variant, session, &card, &lessons, sizes)? else { continue };
            (space, None)
        };
        let known = Known::new(&rows, *variant, &machine.report, request.ladder);
        let name = variant.name();
        let prepared = HashMap::new();
        let mut live = Live {
            machine: &machine,
            compiler: &compiler,
            space: &space,
            rungs: rungs.as_ref(),
            known,
            prepared,
            passes: 0,
            spent: Duration::ZERO,
        };
        if let Some(rungs) = &rungs {
            observer.note(&format!("taking back {} of `{name}`", count(rungs.timed.len(), "choice")));
            rungs.refused.iter().for_each(|(switch, tile, reason)| live.refuse(switch, tile, reason));
            let found = ladder(&space.candidates, settings, &mut live);
            outcome.ladders.push(Ladder::of(&space, rungs, found));
        } else {
            observer.note(&format!("searching among {} of `{name}`", count(space.candidates.len(), "tile")));
            let found = search(&space.candidates, settings, &mut live);
            outcome.searches.push(Search::of(&space, found, |_| machine.recorder.run.id.clone()));
        }
    }
    Ok(outcome)
}

/// The card as tables name it: by the driver's name if the model's card is another.
fn label(card: &Card, gpu: &GpuFacts) -> String {
    let is_model = Card::named(&gpu.info.name).is_some_and(|of_gpu| of_gpu.name == card.name);
    if is_model { card.name.clone() } else { gpu.info.name.clone() }
}

/// What all searches on this machine share.
struct Machine<'a> {
    request: &'a Request,
    session: &'a Session,
    context: &'a Context,
    observer: &'a dyn Observer,
    recorder: Recorder,
    /// The circumstances of all rows.
    report: Report,
}

impl<'a> Machine<'a> {
    fn new(
        request: &'a Request,
        gpu: GpuFacts,
        recorder: Recorder,
        session: &'a Session,
        context: &'a Context,
        observer: &'a dyn Observer,
    ) -> Self {
        let nvml = Nvml::open(&gpu.pci_bus_id);
        let state = nvml.as_ref().map(Nvml::state).unwrap_or_default();
        let report = Report {
            format: bench::FORMAT,
            kgen: env!("CARGO_PKG_VERSION"),
            date: bench::now(),
            library: request.build_dir.display().to_string(),
            driver: nvml.as_ref().and_then(Nvml::driver),
            ceiling: Ceiling::of(&gpu),
            gpu,
            card_before: state,
            card_after: state,
            plan: TimingPlan {
                warm_up_ms: request.warm_up_ms.into(),
                measure_ms: request.measure_ms.into(),
                rounds: request.rounds as usize,
                graph: false,
                counts: None,
            },
            seed: request.seed,
            suite: None,
            missing: Vec::new(),
            measurements: Vec::new(),
            peers: Vec::new(),
        };
        Self { request, session, context, observer, recorder, report }
    }

    /// Adds the row of a measurement with further details; the status is that of the measurement, or `status`.
    fn add(&self, measurement: &Measurement, built: &Map<String, Value>, details: Value, status: Option<Status>) {
        let mut row = Row::of_measurement(measurement, &self.report, &self.recorder.run, built);
        TUNE.clone_into(&mut row.bench);
        row.status = status.unwrap_or(row.status);
        if let Value::Object(details) = details {
            row.details = details;
        }
        self.recorder.add(&row, self.observer);
    }
}

/// A candidate that compiled and is right.
struct Prepared {
    compiled: Compiled,
    prove_s: f64,
}

/// The candidates of one kernel on this machine.
struct Live<'a> {
    machine: &'a Machine<'a>,
    compiler: &'a Compiler<'a>,
    space: &'a Space,
    /// The choices that the candidates lack, if they are those of a ladder.
    rungs: Option<&'a Rungs>,
    known: Known<'a>,
    /// Candidates by the hash of their text.
    prepared: HashMap<String, Prepared>,
    /// Number of passes so far.
    passes: u64,
    spent: Duration,
}

impl Live<'_> {
    /// The plan of a candidate with its text's identity.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be rendered.
    fn made(&self, candidate: &Candidate) -> Result<(&Plan, Made), Failure> {
        let error = |message: String| Failure { status: Status::Error, message };
        let plan = self.space.plan(candidate).ok_or_else(|| error("it has no plan".to_owned()))?;
        let source = self.machine.session.renderer.kernel(plan).map_err(|failed| error(failed.to_string()))?;
        Ok((plan, Made::of(plan, source.hash)))
    }

    /// Details of a row, with those of the ladder if the candidate is of one.
    fn details(&self, tile: &Value, mut details: Value) -> Value {
        let Some(rungs) = self.rungs else { return details };
        details["suite"] = LADDER.into();
        let lacks = |(candidate, _): &(&Candidate, &Switch)| tile.as_object() == Some(&candidate.tile);
        if let Some((_, switch)) = self.space.candidates.iter().skip(1).zip(&rungs.timed).find(lacks) {
            details[LADDER] = json!(switch);
        }
        details
    }

    /// A row of a choice that cannot be taken back, unless there is one.
    fn refuse(&self, switch: &Switch, tile: &Map<String, Value>, reason: &str) {
        if self.known.is_refused(switch) {
            return;
        }
        let made = Made { tile: Value::Object(tile.clone()), ..Made::default() };
        let failure = Failure { status: Status::Refused, message: reason.to_owned() };
        self.add_failure(&made, &Map::new(), &failure, json!({ LADDER: switch }));
    }

    /// A row without times.
    fn add_failure(&self, made: &Made, built: &Map<String, Value>, failure: &Failure, details: Value) {
        let details = self.details(&made.tile, details);
        let (variant, size) = (self.space.variant, Size::new([]));
        let mut measurement = Measurement::without(variant, size, bench::Status::Error, failure.message.clone());
        measurement.made = made.clone();
        self.machine.add(&measurement, built, details, Some(failure.status));
    }

    /// Prepared candidates with their libraries.
    ///
    /// # Errors
    /// [`Failure`] if one was not prepared, or kgen's own program is not known.
    fn contenders(&self, made: Vec<Made>, sizes: &[Size]) -> Result<Vec<(BenchRequest, BenchOptions)>, Failure> {
        let error = |message: String| Failure { status: Status::Error, message };
        let program = self.machine.context.program().map_err(|failed| error(failed.to_string()))?;
        let contender = |made: Made| {
            let prepared = self.prepared.get(&made.source).ok_or_else(|| error("it is not compiled".to_owned()))?;
            let options = BenchOptions {
                library: prepared.compiled.library.clone(),
                plan: self.machine.report.plan,
                seed: self.machine.request.seed,
                time_limit: TIME_LIMIT,
                program: program.clone(),
            };
            Ok((BenchRequest { variant: self.space.variant, shapes: sizes.to_vec(), made }, options))
        };
        made.into_iter().map(contender).collect()
    }

    /// Adds the measurements of a candidate in a pass to the store. Its times, or its failure.
    fn record(&self, measured: &[Measurement], source: &str, suite: Suite, seconds: f64) -> Result<Vec<f64>, Failure> {
        let mut times = Ok(Vec::new());
        for measurement in measured {
            if !self.machine.context.cancel.requested()
                && let Some(Prepared { compiled, prove_s }) = self.prepared.get(source)
            {
                let details = json!({
                    "suite": suite.word(), "pass": self.passes, "seconds": seconds, "compile_s": compiled.compile_s,
                    "prove_s": prove_s,
                });
                self.machine.add(measurement, &compiled.built, self.details(&measurement.made.tile, details), None);
            }
            match (&measurement.numbers, &mut times) {
                (Some(numbers), Ok(times)) => times.push(numbers.microseconds.median),
                (None, Ok(_)) => {
                    times = Err(Failure { status: measurement.status.into(), message: measurement.message.clone() });
                }
                (_, Err(_)) => {}
            }
        }
        times
    }

    /// Compiles candidates in parallel; those of which a failure is known fail again without.
    fn compile(&self, candidates: &[&Candidate]) -> Vec<Result<Compiled, Failure>> {
        let made: Vec<Result<(&Plan, Made), Failure>> = candidates.iter().map(|candidate| self.made(candidate)).collect();
        let made = made.into_iter().map(|made| {
            let (plan, made) = made?;
            self.known.failure(&made.source).map_or(Ok((plan, made)), Err)
        });
        self.compiler.compile(made.collect(), jobs::busy(self.machine.request.jobs))
    }

    /// Proves compiled candidates right: a verdict for each.
    ///
    /// # Errors
    /// [`CommandError`] if the whole check stops.
    fn prove(&self, compiled: &[&Compiled]) -> Result<Vec<Verdict>, CommandError> {
        let Machine { session, context, observer, request, report, .. } = self.machine;
        let kernel = |compiled: &Compiled| {
            if request.prove_on_emulator {
                return session.renderer.kernel(&compiled.plan).map(|source| Kernel::Source(source.text));
            }
            Ok(Kernel::Library { device: DeviceKind::Gpu, path: compiled.library.clone() })
        };
        let check = |compiled: &&Compiled| {
            kernel(compiled).map(|kernel| CheckRequest {
                variant: compiled.plan.variant,
                tiling: compiled.plan.tiling(),
                compiled_for: compiled.plan.compiled_for(),
                kernel,
            })
        };
        let checks: Vec<CheckRequest> = compiled.iter().map(check).collect::<Result<_, _>>()?;
        let how = How {
            level: Level::Smoke,
            filter: None,
            seed: request.seed,
            schedule: None,
            time_limit: None,
            fresh: false,
            jobs: jobs::busy(request.jobs),
            gpu_jobs: jobs::busy(request.jobs).min(PROOFS),
            gpu: Some(report.gpu.info.clone()),
            done_before: None,
            record: None,
        };
        checking::run(&checks, how, &session.templates, || context.host_compiler(), context, *observer)
    }
}

/// The failure that a verdict other than a pass is.
fn failure_of(verdict: &Verdict) -> Option<Failure> {
    let status = match verdict.status {
        CheckStatus::Pass => return None,
        CheckStatus::Fail => Status::Wrong,
        CheckStatus::Error | CheckStatus::Interrupted => Status::Error,
        CheckStatus::Timeout => Status::Timeout,
        CheckStatus::Crash => Status::Crash,
    };
    Some(Failure { status, message: format!("check: {}", verdict.message) })
}

impl Measurer for Live<'_> {
    fn prepare(&mut self, candidates: &[&Candidate]) -> Vec<Result<u32, Failure>> {
        let start = Instant::now();
        self.machine.observer.note(&format!("compiling and checking {}", count(candidates.len(), "tile")));
        let compiled = self.compile(candidates);
        let share = |start: Instant, of: usize| start.elapsed().as_secs_f64() / of.max(1) as f64;
        let compile_s = share(start, candidates.len());
        let good: Vec<&Compiled> = compiled.iter().filter_map(|compiled| compiled.as_ref().ok()).collect();
        let proving = Instant::now();
        let verdicts = if good.is_empty() { Ok(Vec::new()) } else { self.prove(&good) };
        let prove_s = share(proving, good.len());
        let mut verdicts = verdicts.map(Vec::into_iter);
        let mut answers = Vec::new();
        for (candidate, compiled) in candidates.iter().zip(compiled) {
            let details = json!({ "compile_s": compile_s, "prove_s": prove_s });
            let failed = |failure: Failure, built: &Map<String, Value>| {
                if let Ok((_, made)) = self.made(candidate)
                    && self.known.failure(&made.source).is_none()
                    && !self.machine.context.cancel.requested()
                {
                    self.add_failure(&made, built, &failure, details.clone());
                }
                Err(failure)
            };
            let answer = match compiled {
                Err(failure) => failed(failure, &Map::new()),
                Ok(compiled) => {
                    let failure = match &mut verdicts {
                        Ok(verdicts) => verdicts.next().as_ref().and_then(failure_of),
                        Err(error) => Some(Failure { status: Status::Error, message: error.to_string() }),
                    };
                    match failure {
                        Some(failure) => failed(failure, &compiled.built),
                        None => Ok(Prepared { compiled: Compiled { compile_s, ..compiled }, prove_s }),
                    }
                }
            };
            answers.push(answer.map(|prepared| {
                let registers = prepared.compiled.registers;
                self.prepared.insert(prepared.compiled.made.source.clone(), prepared);
                registers
            }));
        }
        self.spent += start.elapsed();
        answers
    }

    fn time(&mut self, candidates: &[&Candidate], suite: Suite) -> Vec<Result<Vec<f64>, Failure>> {
        let sizes = match suite {
            Suite::Tuned | Suite::Ladder => &self.space.tuned,
            Suite::HeldOut => &self.space.held_out,
        };
        let made: Result<Vec<Made>, Failure> =
            candidates.iter().map(|candidate| self.made(candidate).map(|(_, made)| made)).collect();
        let refused = |failure: Failure| candidates.iter().map(|_| Err(failure.clone())).collect();
        let made = match made {
            Ok(made) => made,
            Err(failure) => return refused(failure),
        };
        self.passes += 1;
        let sources: Vec<String> = made.iter().map(|made| made.source.clone()).collect();
        if let Some(times) = self.known.pass(&sources, sizes) {
            return times.into_iter().map(Ok).collect();
        }
        let start = Instant::now();
        let contenders = match self.contenders(made, sizes) {
            Ok(contenders) => contenders,
            Err(failure) => return refused(failure),
        };
        let machine = self.machine;
        let measured = turns::together(&contenders, operations, machine.report.ceiling, &Quiet(machine.context));
        let seconds = start.elapsed().as_secs_f64() / (contenders.len() * sizes.len()).max(1) as f64;
        self.spent += start.elapsed();
        measured.iter().zip(&sources).map(|(measured, source)| self.record(measured, source, suite, seconds)).collect()
    }

    fn cut(&mut self, candidate: &Candidate, why: &str) {
        let Ok((_, made)) = self.made(candidate) else { return };
        if !self.known.is_cut(&made.source) {
            let failure = Failure { status: Status::Truncated, message: why.to_owned() };
            self.add_failure(&made, &Map::new(), &failure, json!({}));
        }
    }

    fn spent_s(&self) -> f64 {
        self.spent.as_secs_f64()
    }

    fn is_interrupted(&self) -> bool {
        self.machine.context.cancel.requested()
    }
}

/// Forwards only an interruption: the search reports progress.
struct Quiet<'a>(&'a Context);

impl bench::Observer for Quiet<'_> {
    fn started(&self, _variant: &str) {}

    fn measured(&self, _measurement: &Measurement) {}

    fn interrupted(&self) -> bool {
        self.0.cancel.requested()
    }
}
