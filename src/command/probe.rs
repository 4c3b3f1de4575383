//! Constants of the GPU of this machine, by micro-benchmarks.

use super::{
    CommandError, Context, Event, Observer, Work,
    bench::find_gpu,
    build::{self, Tools},
    limits::{self, within},
    observer::Relay,
    record::Recorder,
    session::Session,
};
use crate::{
    bench::{self, Status},
    build::{BuildOptions, Builder, Unit},
    check::DEFAULT_SEED,
    device::{GpuFacts, Nvml, TimingPlan},
    files::write_atomic,
    kernel::Target,
    lab::Row,
    plan,
    probe::{self, File, Measured, Options, Probe, Sheet},
    render::{self, OutputFile, Prune},
    text::{count, suggestion, ticked},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Folder of the library.
const FOLDER: &str = "build/probe";

/// Time limit of a compiler.
const COMPILER_LIMIT: Duration = Duration::from_secs(600);

/// Request of a run. The default runs all probes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Names of the probes to run; empty for all that the card has.
    pub only: Vec<String>,
    /// Rounds of a probe; median and interval are taken over them.
    pub rounds: u32,
    /// Duration of launches before the first round, in milliseconds.
    pub warm_up_ms: u32,
    /// Duration of all rounds of a probe together, in milliseconds.
    pub measure_ms: u32,
    /// Seed of operands and bootstrap samples.
    pub seed: u64,
    /// Time limit of a probe, in seconds.
    pub time_limit_s: u64,
    /// The nvcc; `None` for the one in the environment, else kgen's own.
    pub nvcc: Option<PathBuf>,
    /// Never use the network to get a compiler.
    pub offline: bool,
    /// File to which the constants are written, for predictions.
    pub out: Option<PathBuf>,
    /// True to add a row for each probe to the store.
    pub record: bool,
    /// The store's file; `None` for the user's.
    pub db: Option<PathBuf>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            only: Vec::new(),
            rounds: 20,
            warm_up_ms: 100,
            measure_ms: 400,
            seed: DEFAULT_SEED,
            time_limit_s: 60,
            nvcc: None,
            offline: false,
            out: None,
            record: true,
            db: None,
        }
    }
}

/// Outcome of a run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// kgen's version.
    pub kgen: &'static str,
    /// Start of the run, UTC.
    pub date: String,
    /// The card.
    pub gpu: GpuFacts,
    /// Version of the GPU driver.
    pub driver: Option<String>,
    /// Target for which the probes were compiled.
    pub target: Target,
    /// Timing plan of each probe.
    pub plan: TimingPlan,
    /// Where the rated numbers come from.
    pub rated_by: &'static str,
    /// The constants, in the order of the probes.
    pub constants: Vec<Compared>,
    /// The probes, with those that failed.
    pub probes: Vec<Measured>,
    /// True if the command was interrupted before all probes had run.
    #[serde(skip)]
    pub interrupted: bool,
}

/// A constant beside the rated number.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// The constant.
    #[serde(flatten)]
    pub constant: probe::Constant,
    /// The rated number in the same unit; `None` if none is published.
    pub rated: Option<f64>,
    /// Measured by rated.
    pub ratio: Option<f64>,
}

/// Measures the constants of this machine's GPU.
///
/// # Errors
/// [`CommandError`] if there is no GPU, compiler or store, or a probe does not compile. Probes that fail to run are in
/// the outcome.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let plan = request.plan()?;
    let gpu = find_gpu()?;
    let target = target_of(&gpu)?;
    let probes = request.probes(target)?;
    let session = Session::open(context)?;
    let tools = build::Request { nvcc: request.nvcc.clone(), offline: request.offline, ..build::Request::default() };
    let tools = tools.tools(context, observer)?;
    observer.note(&format!("compiling {} for {target}", count(probes.len(), "probe")));
    let library = compiled(&probes, target, &session, &tools, request.offline, context)?;
    let recorder = request.record.then(|| Recorder::open(request.db.as_deref(), context)).transpose()?;
    let sheet = Sheet::of(&gpu);
    let options = Options {
        library,
        sheet: sheet.clone(),
        plan,
        seed: request.seed,
        time_limit: Duration::from_secs(request.time_limit_s),
        program: context.program()?,
    };
    let date = bench::now();
    let driver = Nvml::open(&gpu.pci_bus_id).as_ref().and_then(Nvml::driver);
    let circumstances = json!({
        "date": date, "kgen": env!("CARGO_PKG_VERSION"), "gpu": gpu, "driver": driver, "plan": plan, "seed": request.seed,
        "target": target, "nvcc": tools.nvcc.version,
    });
    observer.event(Event::Begun { work: Work::Probing, steps: probes.len(), known: 0 });
    let relay = Recording { relay: Relay { observer, cancel: &context.cancel }, recorder, circumstances };
    let measured = probe::run(probes.into_iter(), &options, &relay);
    observer.event(Event::Ended);
    let constants: Vec<Compared> = measured.iter().flat_map(|measured| compared(measured, &sheet)).collect();
    if let Some(path) = &request.out {
        let constants: Vec<probe::Constant> = constants.iter().map(|compared| compared.constant.clone()).collect();
        let text = File::of(&gpu, &sheet, driver.as_deref(), &date, &constants).text();
        write_atomic(path, text.as_bytes())
            .map_err(|error| CommandError::Usage(format!("cannot write `{}`: {error}; name another file", path.display())))?;
    }
    Ok(Outcome {
        kgen: env!("CARGO_PKG_VERSION"),
        date,
        gpu,
        driver,
        target,
        plan,
        rated_by: sheet.source().words(),
        constants,
        probes: measured,
        interrupted: context.cancel.requested(),
    })
}

/// The constants of a probe beside the rated numbers.
fn compared(measured: &Measured, sheet: &Sheet) -> Vec<Compared> {
    let probe = Probe::named(measured.probe);
    let compared = |constant: &probe::Constant| {
        let rated = probe.and_then(|probe| sheet.rated(probe, constant.unit));
        let ratio = rated.map(|rated| constant.summary.median / rated);
        Compared { constant: constant.clone(), rated, ratio }
    };
    measured.constants.iter().map(compared).collect()
}

/// The newest target whose code runs on a GPU.
fn target_of(gpu: &GpuFacts) -> Result<Target, CommandError> {
    let runs = |target: &&Target| plan::runs_on(**target, gpu.info.compute_capability, true);
    let newest = Target::ALL.iter().filter(runs).max_by_key(|target| target.compute_capability());
    newest.copied().ok_or_else(|| CommandError::Usage(format!("kgen has no target that runs on {}", gpu.info)))
}

/// The library of the probes, compiled unless it is in the cache.
fn compiled(
    probes: &[&Probe],
    target: Target,
    session: &Session,
    tools: &Tools,
    offline: bool,
    context: &Context,
) -> Result<PathBuf, CommandError> {
    let out_dir = Path::new(FOLDER).join(target.name());
    let options = BuildOptions {
        jobs: crate::jobs::busy(None),
        memory_limit: None,
        launcher: None,
        generated_dir: out_dir.join("generated"),
        cache_dir: context.cache_dir()?,
        out_dir,
        time_limit: COMPILER_LIMIT,
        offline,
        allow_spills: false,
    };
    let builder = Builder::open(&tools.nvcc, &tools.host, options, context.cancel.clone(), &Quiet)?;
    let include = session.templates.include_files();
    let mut files: Vec<OutputFile> =
        include.map(|(path, text)| OutputFile { path: format!("include/{path}"), text: text.to_owned() }).collect();
    let mut units = Vec::new();
    for probe in probes {
        let text = session.renderer.program(probe.template(), &probe.words())?;
        let path = probe.launcher() + ".cu";
        units.push(Unit::program(&probe.launcher(), Path::new(&path), &text, target));
        files.push(OutputFile { path, text });
    }
    render::write_tree(&builder.options().generated_dir, &files, Prune::Yes)?;
    let report = builder.compile(&units)?;
    if report.interrupted {
        return Err(CommandError::INTERRUPTED);
    }
    if let Some(failure) = report.failures.first() {
        return Err(CommandError::Failed(format!("`{}` does not compile: {}", failure.name, failure.message)));
    }
    if let Some(spilled) = report.artifacts.iter().find(|artifact| artifact.spill_bytes() > 0) {
        return Err(CommandError::Failed(format!("`{}` spills registers and would measure that", spilled.name)));
    }
    let library = builder.link(&report.artifacts)?;
    Ok(builder.options().out_dir.join(library.path))
}

/// Ignores the progress of the compilers.
struct Quiet;

impl crate::build::Observer for Quiet {}

impl Request {
    fn plan(&self) -> Result<TimingPlan, CommandError> {
        within("rounds", self.rounds.into(), &limits::ROUNDS)?;
        within("warm_up_ms", self.warm_up_ms.into(), &limits::WARM_UP_MS)?;
        within("measure_ms", self.measure_ms.into(), &limits::MEASURE_MS)?;
        within("time_limit_s", self.time_limit_s, &limits::SECONDS)?;
        let (warm_up_ms, measure_ms) = (self.warm_up_ms.into(), self.measure_ms.into());
        self.named()?;
        Ok(TimingPlan { warm_up_ms, measure_ms, rounds: self.rounds as usize, graph: false, counts: None })
    }

    /// The probes that are named.
    fn named(&self) -> Result<Vec<&'static Probe>, CommandError> {
        let known: Vec<&str> = Probe::all().iter().map(|probe| probe.name).collect();
        let named = |name: &String| {
            Probe::named(name).ok_or_else(|| {
                let meant = suggestion(name, &known).map_or_else(String::new, |meant| format!("; {meant}"));
                CommandError::Usage(format!("`{name}` is no probe{meant}; known: {}", ticked(&known)))
            })
        };
        self.only.iter().map(named).collect()
    }

    /// The probes to run on a card of this target.
    fn probes(&self, target: Target) -> Result<Vec<&'static Probe>, CommandError> {
        let named = self.named()?;
        let probes: Vec<&Probe> = Probe::of(target).filter(|probe| named.is_empty() || named.contains(probe)).collect();
        if probes.is_empty() {
            let what = ticked(&self.only);
            return Err(CommandError::Usage(format!(
                "{what} needs instructions that {target} does not have; name another probe"
            )));
        }
        Ok(probes)
    }
}

/// Adds each probe to the store before it is reported.
struct Recording<'a> {
    relay: Relay<'a>,
    recorder: Option<Recorder>,
    circumstances: serde_json::Value,
}

impl probe::Observer for Recording<'_> {
    fn started(&self, probe: &str) {
        probe::Observer::started(&self.relay, probe);
    }

    fn measured(&self, measured: &Measured) {
        if let Some(recorder) = &self.recorder {
            recorder.add(&Row::of_probe(measured, &recorder.run, &self.circumstances), self.relay.observer);
        }
        probe::Observer::measured(&self.relay, measured);
    }

    fn interrupted(&self) -> bool {
        probe::Observer::interrupted(&self.relay)
    }
}

impl Outcome {
    /// Fails if a probe has no constants, or the command was interrupted.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with the number of failures, [`CommandError::Interrupted`].
    pub fn verdict(&self) -> Result<(), CommandError> {
        if self.interrupted {
            return Err(CommandError::INTERRUPTED);
        }
        match self.probes.iter().filter(|probe| probe.status != Status::Ok).count() {
            0 => Ok(()),
            failed => Err(CommandError::Failed(format!("{failed} of {} failed", count(self.probes.len(), "probe")))),
        }
    }
}
