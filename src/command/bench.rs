//! Times of kernels on the GPU of this machine.

mod by_hand;

pub use by_hand::{Comparison, Pair, Verdict};

use super::{
    CommandError, Context, Event, Observer, SelectionRequest, TargetWord, Work,
    build::{library, missing_library, run_as},
    limits::{self, within},
    observer::Relay,
    peers,
    record::Recorder,
    session::Session,
    suite::{self, Missing, Suite, SuiteKernel, Timing},
};
use crate::{
    bench::{
        self, BenchOptions, BenchRequest, Ceiling, Draws, Made, Measurement, Report, Size, Status, Wanted, Work as Operations,
        turns::{PeerMeasurement, Peers},
    },
    build::built,
    check::DEFAULT_SEED,
    device::{CardState, Counts, DeviceError, GpuFacts, Nvml, TimingPlan, launchers_in},
    family,
    kernel::{Target, Variant},
    lab::Row,
    plan,
    text::count,
};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// Request of a timing. The default is the whole grid at the usual sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants; with a suite, those of its kernels that are timed.
    pub selection: SelectionRequest,
    /// The sizes; every combination of the values listed. Not with a suite.
    pub shape: Shape,
    /// Name of a suite, which has its own kernels, sizes and plan.
    pub suite: Option<String>,
    /// Names of peers that take turns with the kernels; `all` for all that are known.
    pub peers: Vec<String>,
    /// Python that runs the peers; `None` for `python3`.
    pub python: Option<PathBuf>,
    /// Folders that hold libraries of peers.
    pub sites: Vec<PathBuf>,
    /// Rounds; the median, its interval and the spread are taken over them. `None` for those of the suite, or 20.
    pub rounds: Option<u32>,
    /// Number of times that everything is measured, each time in new processes. Rounds of one process understate the
    /// noise.
    pub processes: u32,
    /// Duration of launches before the first round, in milliseconds; `None` for that of the suite, or 25.
    pub warm_up_ms: Option<u32>,
    /// Duration of all rounds together, in milliseconds; `None` for that of the suite, or 100.
    pub measure_ms: Option<u32>,
    /// Exact number of calls before the first one that counts, in place of durations; with `runs`.
    pub warm_ups: Option<u32>,
    /// Exact number of calls that count, each timed on its own; with `warm_ups`.
    pub runs: Option<u32>,
    /// Replay CUDA graphs of many launches, for kernels that the host cannot launch fast enough.
    pub graph: bool,
    /// Seed of the inputs.
    pub seed: u64,
    /// Time limit per variant for all its sizes, in seconds; with peers, per contender for a size.
    pub time_limit_s: u64,
    /// Library of kernels; `None` for the library of a build into `build`.
    pub library: Option<PathBuf>,
    /// Target whose GPUs run the kernels instead of their own target's, as built with the same `run_as`.
    pub run_as: Option<TargetWord>,
    /// File with a kernel that a person edited: it and the rendered one are built and timed in turns.
    pub source: Option<PathBuf>,
    /// The nvcc for `source`; `None` for the one in the environment, else kgen's own.
    pub nvcc: Option<PathBuf>,
    /// Never use the network to get a compiler for `source`.
    pub offline: bool,
    /// True to add each measurement to the store.
    pub record: bool,
    /// The store's file; `None` for the user's.
    pub db: Option<PathBuf>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            selection: SelectionRequest::default(),
            shape: Shape::default(),
            suite: None,
            peers: Vec::new(),
            python: None,
            sites: Vec::new(),
            rounds: None,
            processes: 1,
            warm_up_ms: None,
            measure_ms: None,
            warm_ups: None,
            runs: None,
            graph: false,
            seed: DEFAULT_SEED,
            time_limit_s: 300,
            library: None,
            run_as: None,
            source: None,
            nvcc: None,
            offline: false,
            record: true,
            db: None,
        }
    }
}

/// Values of each dimension; an empty list selects the usual values of the kernel's family.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// Sequences.
    pub batch: Vec<u32>,
    /// Query heads.
    pub heads: Vec<u32>,
    /// Key heads.
    pub heads_k: Vec<u32>,
    /// Queries and keys of a sequence. Not together with `seqlen_k`.
    pub seqlen: Vec<u32>,
    /// Queries of a sequence.
    pub seqlen_q: Vec<u32>,
    /// Keys of a sequence.
    pub seqlen_k: Vec<u32>,
    /// Rows of a page, for kernels that read K and V from pages.
    pub page_size: Vec<u32>,
    /// Rows of a matrix, for families other than attention.
    pub rows: Vec<u64>,
    /// Elements of a row, or of a vector.
    pub columns: Vec<u64>,
}

/// Outcome of a timing.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Measurements and their circumstances.
    #[serde(flatten)]
    pub report: Report,
    /// The edited kernel by the rendered one, if there is a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited: Option<Comparison>,
    /// True if the command was interrupted before everything was timed.
    #[serde(skip)]
    pub interrupted: bool,
}

/// Times the variants.
///
/// # Errors
/// [`CommandError`] if the whole command stops. Variants that cannot be timed are in the report.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    request.refuse_out_of_range()?;
    if let Some(file) = &request.source {
        return by_hand::run(request, file, context, observer);
    }
    let suite = request.suite.as_deref().map(Suite::named).transpose()?;
    suite.as_ref().map_or(Ok(()), |suite| suite::refuse_sizes(suite, &request.shape))?;
    let plan = request.plan(suite.as_ref().map(|suite| suite.timing).unwrap_or_default())?;
    let peers = peers::known(&request.peers)?;
    let python = (!peers.is_empty()).then(|| peers::python(request.python.as_deref(), &request.sites)).transpose()?;
    let run_as = run_as(request.run_as.as_ref())?;
    let library = library(request.library.as_deref(), run_as);
    let session = Session::open(context)?;
    let asked = match &suite {
        None => Some(requests(&request.selection.resolve(context, &session.grid, observer)?, &request.shape.wanted())?),
        Some(_) => None,
    };
    let gpu = find_gpu()?;
    if !library.is_file() {
        return Err(CommandError::Environment(missing_library(&library, run_as)));
    }
    let (mut requests, points, missing) = match (asked, &suite) {
        (Some(asked), _) => (runnable(asked, &gpu, &library, run_as, observer)?, BTreeMap::new(), Vec::new()),
        (None, Some(suite)) => of_suite(suite, &request.selection, context, &session, &gpu, &library, run_as)?,
        (None, None) => unreachable!("there is a selection where there is no suite"),
    };
    for missing in &missing {
        observer.note(&format!("left out: {missing}"));
    }
    for request in &mut requests {
        request.made = made(&session, request.variant, run_as)?;
    }
    let options = BenchOptions {
        library: library.clone(),
        plan,
        seed: request.seed,
        time_limit: Duration::from_secs(request.time_limit_s),
        program: context.program()?,
    };
    let nvml = Nvml::open(&gpu.pci_bus_id);
    let state = || nvml.as_ref().map(Nvml::state).unwrap_or_default();
    let mut report = Report {
        format: bench::FORMAT,
        kgen: env!("CARGO_PKG_VERSION"),
        date: bench::now(),
        library: library.display().to_string(),
        driver: nvml.as_ref().and_then(Nvml::driver),
        ceiling: Ceiling::of(&gpu),
        gpu,
        card_before: state(),
        card_after: CardState::default(),
        plan: options.plan,
        seed: options.seed,
        suite: request.suite.clone(),
        missing: missing.iter().map(ToString::to_string).collect(),
        measurements: Vec::new(),
        peers: Vec::new(),
    };
    let recorder = request.record.then(|| Recorder::open(request.db.as_deref(), context)).transpose()?;
    let shapes: usize = requests.iter().map(|request| request.shapes.len()).sum();
    let steps = shapes * (1 + peers.len()) * request.processes as usize;
    observer.event(Event::Begun { work: Work::Timing, steps, known: 0 });
    let relay = Relay { observer, cancel: &context.cancel };
    let rivals = python.as_ref().map(|python| Peers { names: &peers, python, work: operations, ceiling: report.ceiling });
    // All cases once, then all again: a drift of the card is then part of the noise.
    let measured = |observer: &dyn bench::Observer| {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for _ in 0..request.processes {
            match &rivals {
                None => own.extend(bench::run(&requests, &options, observer)),
                Some(rivals) => {
                    let (kernels, peers) = bench::turns::run(&requests, rivals, &options, observer);
                    own.extend(kernels);
                    others.extend(peers);
                }
            }
        }
        (own, others)
    };
    (report.measurements, report.peers) = match recorder {
        None => measured(&relay),
        Some(recorder) => measured(&Recording { relay, recorder, report: &report, built: built(&library), points: &points }),
    };
    observer.event(Event::Ended);
    report.card_after = state();
    Ok(Outcome { report, edited: None, interrupted: context.cancel.requested() })
}

/// Adds each measurement to the store before it is reported.
struct Recording<'a> {
    relay: Relay<'a>,
    recorder: Recorder,
    /// The circumstances.
    report: &'a Report,
    /// The manifest entry of each variant of the library.
    built: BTreeMap<String, Map<String, Value>>,
    /// The point of the suite, by the kernel's name and size.
    points: &'a Points,
}

/// Names of a suite's points, by kernel and size.
type Points = BTreeMap<(String, String), String>;

impl Recording<'_> {
    fn add(&self, row: Row, kernel: &str, size: &Size) {
        let mut row = row;
        if let (Some(suite), Some(point)) = (&self.report.suite, self.points.get(&(kernel.to_owned(), size.to_string()))) {
            row.details.insert("suite".to_owned(), suite.clone().into());
            row.details.insert("point".to_owned(), point.clone().into());
        }
        self.recorder.add(&row, self.relay.observer);
    }
}

impl bench::Observer for Recording<'_> {
    fn started(&self, variant: &str) {
        bench::Observer::started(&self.relay, variant);
    }

    fn measured(&self, measurement: &Measurement) {
        let built = self.built.get(&measurement.name).cloned().unwrap_or_default();
        let row = Row::of_measurement(measurement, self.report, &self.recorder.run, &built);
        self.add(row, &measurement.name, &measurement.shape);
        self.relay.measured(measurement);
    }

    fn peer_measured(&self, peer: &PeerMeasurement) {
        let row = Row::of_peer(peer, self.report, &self.recorder.run);
        self.add(row, &peer.measurement.variant.name(), &peer.measurement.shape);
        bench::Observer::peer_measured(&self.relay, peer);
    }

    fn interrupted(&self) -> bool {
        bench::Observer::interrupted(&self.relay)
    }
}

impl Request {
    fn refuse_out_of_range(&self) -> Result<(), CommandError> {
        let given = |field, value: Option<u32>, range| value.map_or(Ok(()), |value| within(field, value.into(), range));
        given("rounds", self.rounds, &limits::ROUNDS)?;
        within("processes", self.processes.into(), &limits::PROCESSES)?;
        given("warm_up_ms", self.warm_up_ms, &limits::WARM_UP_MS)?;
        given("measure_ms", self.measure_ms, &limits::MEASURE_MS)?;
        given("warm_ups", self.warm_ups, &limits::CALLS)?;
        given("runs", self.runs, &limits::CALLS)?;
        within("time_limit_s", self.time_limit_s, &limits::SECONDS)?;
        self.shape.refuse_out_of_range()
    }

    /// The plan of timing: what the request states, else what the suite does.
    fn plan(&self, suite: Timing) -> Result<TimingPlan, CommandError> {
        let counts = match (self.warm_ups, self.runs) {
            (None, None) => suite.counts().filter(|_| self.warm_up_ms.is_none() && self.measure_ms.is_none()),
            (Some(warm_ups), Some(runs)) => Some(Counts { warm_ups: warm_ups as usize, runs: runs as usize }),
            _ => return Err(CommandError::Usage("`warm_ups` and `runs` belong together; give both, or neither".to_owned())),
        };
        let graph = self.graph || suite.graph;
        if counts.is_some() && (graph || self.warm_up_ms.is_some() || self.measure_ms.is_some()) {
            let why = "exact counts of calls have no durations and are not replayed as graphs; leave out `graph`, \
                       `warm_up_ms` and `measure_ms`";
            return Err(CommandError::Usage(why.to_owned()));
        }
        Ok(TimingPlan {
            warm_up_ms: self.warm_up_ms.or(suite.warm_up_ms).unwrap_or(25).into(),
            measure_ms: self.measure_ms.or(suite.measure_ms).unwrap_or(100).into(),
            rounds: self.rounds.or(suite.rounds).unwrap_or(20) as usize,
            graph,
            counts,
        })
    }
}

impl Shape {
    /// All lists by name. A value that is listed again is not measured again.
    fn lists(&self) -> [(&'static str, Vec<u64>); 9] {
        let wide = |list: &[u32]| list.iter().copied().unique().map(u64::from).collect();
        [
            ("batch", wide(&self.batch)),
            ("heads", wide(&self.heads)),
            ("heads_k", wide(&self.heads_k)),
            ("seqlen", wide(&self.seqlen)),
            ("seqlen_q", wide(&self.seqlen_q)),
            ("seqlen_k", wide(&self.seqlen_k)),
            ("page_size", wide(&self.page_size)),
            ("rows", self.rows.iter().copied().unique().collect()),
            ("columns", self.columns.iter().copied().unique().collect()),
        ]
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted::new(self.lists())
    }

    pub(super) fn refuse_out_of_range(&self) -> Result<(), CommandError> {
        if !self.seqlen.is_empty() && !self.seqlen_k.is_empty() {
            return Err(CommandError::Usage("`seqlen` and `seqlen_k` are both set; leave one out".to_owned()));
        }
        for (name, list) in self.lists() {
            let range = if ["rows", "columns"].contains(&name) { limits::MATRIX_SIDE } else { limits::SIZE };
            list.into_iter().try_for_each(|value| within(name, value, &range))?;
        }
        Ok(())
    }
}

impl Outcome {
    /// Fails if a measurement has no numbers, or the command was interrupted.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with the number of failures, [`CommandError::Interrupted`].
    pub fn verdict(&self) -> Result<(), CommandError> {
        if self.interrupted {
            return Err(CommandError::INTERRUPTED);
        }
        let measurements = &self.report.measurements;
        match measurements.iter().filter(|measurement| measurement.status != Status::Ok).count() {
            0 => Ok(()),
            failed => {
                let of = count(measurements.len(), "measurement");
                Err(CommandError::Failed(format!("{failed} of {of} failed")))
            }
        }
    }
}

/// Tile and text of a variant's kernel, from the grid and the templates.
fn made(session: &Session, variant: Variant, run_as: Option<Target>) -> Result<Made, CommandError> {
    let plan = session.plan_to_run_as(variant, run_as).map_err(CommandError::Usage)?;
    Ok(Made::of(&plan, session.renderer.kernel(&plan)?.hash))
}

/// The variants that can be timed on their own, each with its shapes.
///
/// # Errors
/// [`CommandError::Usage`] if a variant has no shape.
fn requests(variants: &[Variant], wanted: &Wanted) -> Result<Vec<BenchRequest>, CommandError> {
    let timed: Vec<&Variant> = variants.iter().filter(|variant| variant.dtype().is_some()).collect();
    if timed.is_empty() {
        let why = "`fwd_combine` and `prepare_scheduler` have no shape of their own and are not timed by themselves";
        return Err(CommandError::Usage(format!("{why}; select another kind with `--kind`")));
    }
    let request =
        |variant: &Variant| Ok(BenchRequest { variant: *variant, shapes: sizes(variant, wanted)?, made: Made::default() });
    timed.into_iter().map(request).collect()
}

/// The sizes of a variant that is timed on its own.
///
/// # Errors
/// [`CommandError::Usage`] if the numbers of heads give none.
pub(super) fn sizes(variant: &Variant, wanted: &Wanted) -> Result<Vec<Size>, CommandError> {
    let sizes = family::of(variant.kind()).sizes(variant, wanted);
    if sizes.is_empty() {
        let why = "no number of `--heads` is a multiple of one of `--heads-k`; give both, one a multiple of the other";
        return Err(CommandError::Usage(why.to_owned()));
    }
    Ok(sizes)
}

/// The work of a kernel at a size.
pub(super) fn operations(variant: &Variant, size: &Size) -> Option<Operations> {
    let draws = Draws::new(0);
    let bench = bench::Bench { draws: &draws, seed: 0, multiprocessors: 1 };
    family::trial(variant, size, bench).map(|trial| trial.work())
}

/// The kernels of a suite that this GPU runs and the library contains, each with its sizes; the names of their points;
/// and what is missing.
///
/// # Errors
/// [`CommandError::Usage`] if nothing is left, [`CommandError::Environment`] if the library does not load.
fn of_suite(
    suite: &Suite,
    narrowed: &SelectionRequest,
    context: &Context,
    session: &Session,
    gpu: &GpuFacts,
    library: &Path,
    run_as: Option<Target>,
) -> Result<(Vec<BenchRequest>, Points, Vec<Missing>), CommandError> {
    let runs = |target: Target| plan::runs_on(run_as.unwrap_or(target), gpu.info.compute_capability, true);
    let has = |variants: &[Variant]| held(library, &variants.iter().map(Variant::name).collect::<Vec<_>>());
    let (kernels, missing) = suite.kernels(narrowed, context, &session.grid, &runs, &has)?;
    if let (true, Some(first)) = (kernels.is_empty(), missing.first()) {
        return Err(CommandError::Usage(format!(
            "`{}` holds no kernel of the suite `{}` that runs on this GPU, such as `{}`; `kgen build` makes them",
            library.display(),
            suite.name,
            first.kernel
        )));
    }
    let names = kernels.iter().flat_map(|SuiteKernel { point, variant, sizes }| {
        sizes.iter().map(move |size| ((variant.name(), size.to_string()), point.clone()))
    });
    let points = names.collect();
    let request = |kernel: SuiteKernel| BenchRequest { variant: kernel.variant, shapes: kernel.sizes, made: Made::default() };
    Ok((kernels.into_iter().map(request).collect(), points, missing))
}

/// Which of the kernels of these names a library holds.
///
/// # Errors
/// [`CommandError::Environment`] if it does not load.
fn held(library: &Path, names: &[String]) -> Result<Vec<bool>, CommandError> {
    // As an absolute path, so that the loader does not search for a bare name.
    let path = std::path::absolute(library).unwrap_or_else(|_| library.to_owned());
    launchers_in(&path, names).map_err(|error| CommandError::Environment(format!("{error}; `kgen build` makes another")))
}

/// The GPU.
///
/// # Errors
/// [`CommandError::Environment`] if there is none.
pub(super) fn find_gpu() -> Result<GpuFacts, CommandError> {
    GpuFacts::probe().map_err(|error| {
        CommandError::Environment(match error {
            DeviceError::NoGpu(why) => format!(
                "no GPU: {why}; times are taken on one: run this on a machine with an NVIDIA GPU and its driver \
                 (`kgen check --device emulator` needs none)"
            ),
            other => other.to_string(),
        })
    })
}

/// The variants that this GPU runs and the library contains; a note reports those left out.
///
/// # Errors
/// [`CommandError::Usage`] if nothing is left, [`CommandError::Environment`] if the library does not load.
fn runnable(
    requests: Vec<BenchRequest>,
    gpu: &GpuFacts,
    library: &Path,
    run_as: Option<Target>,
    observer: &dyn Observer,
) -> Result<Vec<BenchRequest>, CommandError> {
    let selected = requests.len();
    let compiled_for = |variant: &Variant| run_as.unwrap_or(variant.target());
    let runs = |request: &BenchRequest| plan::runs_on(compiled_for(&request.variant), gpu.info.compute_capability, true);
    let (run, elsewhere): (Vec<_>, Vec<_>) = requests.into_iter().partition(runs);
    let run_count = run.len();
    if run.is_empty() {
        let targets = elsewhere.iter().map(|request| format!("`{}`", compiled_for(&request.variant))).unique().join(", ");
        return Err(CommandError::Usage(format!(
            "{} selected, for {targets}, and none runs on {}; choose another `--target`",
            count(selected, "variant"),
            gpu.info
        )));
    }
    let names: Vec<String> = run.iter().map(|request| request.variant.name()).collect();
    let held = held(library, &names)?;
    let held: Vec<BenchRequest> = run.into_iter().zip(held).filter_map(|(request, held)| held.then_some(request)).collect();
    if held.is_empty() {
        return Err(CommandError::Usage(format!(
            "`{}` holds none of the {} that were selected and run on this GPU, such as `{}`; `kgen build` with the same selection makes them",
            library.display(),
            count(run_count, "variant"),
            names[0]
        )));
    }
    if held.len() < selected {
        let (elsewhere, missing) = (elsewhere.len(), run_count - held.len());
        observer.note(&format!(
            "of {selected} variants selected, {elsewhere} do not run on this GPU and {missing} are not in the library"
        ));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::Size,
        device::GpuInfo,
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim},
    };
    use std::fs;

    const POINT: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(64),
        dtype: Dtype::Bf16,
        causal: true,
        features: Features::NONE,
        target: Target::Sm80,
    };
    fn variant() -> Variant {
        POINT.into()
    }
    fn shape() -> Size {
        Size::new([("batch", 2), ("heads", 4), ("heads_k", 4), ("seqlen_q", 64), ("seqlen_k", 64)])
    }

    fn gpu() -> GpuFacts {
        let info = GpuInfo { name: "Some GPU".into(), compute_capability: 75, cuda_version: "13.0".into() };
        GpuFacts {
            info,
            multiprocessors: 40,
            sm_clock_khz: 1_590_000,
            memory_clock_khz: 0,
            memory_bus_bits: 256,
            l2_bytes: 4 << 20,
            pci_bus_id: String::new(),
        }
    }

    #[test]
    fn what_runs_on_another_gpu_or_is_not_in_the_library_is_bad_usage() {
        let requests = || vec![BenchRequest { variant: variant(), shapes: vec![shape()], made: Made::default() }];
        let error = runnable(requests(), &gpu(), Path::new("x.so"), None, &()).expect_err("sm80 is newer");
        assert!(
            matches!(error, CommandError::Usage(_))
                && error.to_string().contains("none runs on Some GPU (compute capability 7.5"),
            "{error}"
        );
        let folder = tempfile::tempdir().expect("a folder");
        let (source, library) = (folder.path().join("empty.c"), folder.path().join("empty.so"));
        fs::write(&source, "int nothing;\n").expect("written");
        let status = std::process::Command::new("cc").args(["-shared", "-o"]).args([&library, &source]).status();
        assert!(status.is_ok_and(|status| status.success()));
        let mut newer = gpu();
        newer.info.compute_capability = 90;
        let error = runnable(requests(), &newer, &library, None, &()).expect_err("an empty library");
        assert!(matches!(error, CommandError::Usage(_)) && error.to_string().contains("holds none of the 1 variant"), "{error}");
        let error = runnable(requests(), &newer, &source, None, &()).expect_err("no library at all");
        assert!(matches!(error, CommandError::Environment(_)), "{error}");
    }

    #[test]
    fn kernels_without_a_shape_are_not_timed_and_heads_that_fit_nothing_are_refused() {
        let helper = Variant::from(Point { kind: Kind::FwdCombine, head_dim: HeadDim::equal(0), causal: false, ..POINT });
        assert_eq!(requests(&[helper], &Wanted::default()).expect_err("nothing").kind(), "usage");
        assert_eq!(requests(&[helper, variant()], &Wanted::default()).expect("one").len(), 1);
        let uneven = Wanted::new([("heads", vec![8]), ("heads_k", vec![3])]);
        assert_eq!(requests(&[variant()], &uneven).expect_err("8 / 3").kind(), "usage");
    }
}
