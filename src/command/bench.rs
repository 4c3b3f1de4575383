//! Times of kernels on the GPU of this machine.

mod by_hand;

pub use by_hand::{Comparison, Pair, Verdict};

use super::{
    CommandError, Context, Event, Observer, SelectionRequest, TargetWord, Work,
    build::{library, missing_library, run_as},
    limits::{self, within},
    observer::Relay,
    record::Recorder,
    session::Session,
};
use crate::{
    bench::{self, BenchOptions, BenchRequest, Ceiling, Made, Measurement, Report, Size, Status, Wanted},
    build::built,
    check::DEFAULT_SEED,
    device::{CardState, DeviceError, GpuFacts, Nvml, TimingPlan, launchers_in},
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
    /// The variants.
    pub selection: SelectionRequest,
    /// The sizes; every combination of the values listed.
    pub shape: Shape,
    /// Rounds; the median, its interval and the spread are taken over them.
    pub rounds: u32,
    /// Number of times that everything is measured, each time in new processes. Rounds of one process understate the
    /// noise.
    pub processes: u32,
    /// Duration of launches before the first round, in milliseconds.
    pub warm_up_ms: u32,
    /// Duration of all rounds together, in milliseconds.
    pub measure_ms: u32,
    /// Replay CUDA graphs of many launches, for kernels that the host cannot launch fast enough.
    pub graph: bool,
    /// Seed of the inputs.
    pub seed: u64,
    /// Time limit per variant for all its sizes, in seconds.
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
            rounds: 20,
            processes: 1,
            warm_up_ms: 25,
            measure_ms: 100,
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
    let run_as = run_as(request.run_as.as_ref())?;
    let library = library(request.library.as_deref(), run_as);
    let session = Session::open(context)?;
    let variants = request.selection.resolve(context, &session.grid, observer)?;
    let wanted = requests(&variants, &request.shape.wanted())?;
    let gpu = find_gpu()?;
    if !library.is_file() {
        return Err(CommandError::Environment(missing_library(&library, run_as)));
    }
    let mut requests = runnable(wanted, &gpu, &library, run_as, observer)?;
    for request in &mut requests {
        request.made = made(&session, request.variant, run_as)?;
    }
    let options = BenchOptions {
        library: library.clone(),
        plan: TimingPlan {
            warm_up_ms: request.warm_up_ms.into(),
            measure_ms: request.measure_ms.into(),
            rounds: request.rounds as usize,
            graph: request.graph,
        },
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
        measurements: Vec::new(),
    };
    let recorder = request.record.then(|| Recorder::open(request.db.as_deref(), context)).transpose()?;
    let steps = requests.iter().map(|request| request.shapes.len()).sum::<usize>() * request.processes as usize;
    observer.event(Event::Begun { work: Work::Timing, steps, known: 0 });
    let relay = Relay { observer, cancel: &context.cancel };
    let times = request.processes as usize;
    // All cases once, then all again: a drift of the card is then part of the noise.
    let measured = |observer: &dyn bench::Observer| (0..times).flat_map(|_| bench::run(&requests, &options, observer)).collect();
    report.measurements = match recorder {
        None => measured(&relay),
        Some(recorder) => measured(&Recording { relay, recorder, report: &report, built: built(&library) }),
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
}

impl bench::Observer for Recording<'_> {
    fn started(&self, variant: &str) {
        bench::Observer::started(&self.relay, variant);
    }

    fn measured(&self, measurement: &Measurement) {
        let built = self.built.get(&measurement.name).cloned().unwrap_or_default();
        let row = Row::of_measurement(measurement, self.report, &self.recorder.run, &built);
        self.recorder.add(&row, self.relay.observer);
        self.relay.measured(measurement);
    }

    fn interrupted(&self) -> bool {
        bench::Observer::interrupted(&self.relay)
    }
}

impl Request {
    fn refuse_out_of_range(&self) -> Result<(), CommandError> {
        within("rounds", self.rounds.into(), &limits::ROUNDS)?;
        within("processes", self.processes.into(), &limits::PROCESSES)?;
        within("warm_up_ms", self.warm_up_ms.into(), &limits::WARM_UP_MS)?;
        within("measure_ms", self.measure_ms.into(), &limits::MEASURE_MS)?;
        within("time_limit_s", self.time_limit_s, &limits::SECONDS)?;
        self.shape.refuse_out_of_range()
    }
}

impl Shape {
    /// All lists by name.
    fn lists(&self) -> [(&'static str, Vec<u64>); 9] {
        let wide = |list: &[u32]| list.iter().copied().map(u64::from).collect();
        [
            ("batch", wide(&self.batch)),
            ("heads", wide(&self.heads)),
            ("heads_k", wide(&self.heads_k)),
            ("seqlen", wide(&self.seqlen)),
            ("seqlen_q", wide(&self.seqlen_q)),
            ("seqlen_k", wide(&self.seqlen_k)),
            ("page_size", wide(&self.page_size)),
            ("rows", self.rows.clone()),
            ("columns", self.columns.clone()),
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
    // As an absolute path, so that the loader does not search for a bare name.
    let path = std::path::absolute(library).unwrap_or_else(|_| library.to_owned());
    let held =
        launchers_in(&path, &names).map_err(|error| CommandError::Environment(format!("{error}; `kgen build` makes another")))?;
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
