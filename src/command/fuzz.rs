//! Random calls, or named ones, through the dispatcher of a library, against the float64 reference.

use super::{
    CommandError, Context, Event, Observer, SelectionRequest, Work,
    build::library,
    check::{place, refuse_unused},
    checking, emulated, limits,
    observer::Relay,
    session::Session,
};
use crate::{
    check::DEFAULT_SEED,
    device::{DeviceChoice, DeviceKind, EmulatorKit, GpuFacts, launchers_in},
    family::attention::{
        Kind, Point,
        fuzz::{self, Calls, Entry, FuzzCase, FuzzError, FuzzOptions, LibraryCall, Report, Scope, ScopeDevice, draws_calls},
    },
    grid::Grid,
    jobs,
    kernel::{HeadDim, Variant},
    text::count,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    num::{NonZeroU64, NonZeroUsize},
    path::{Path, PathBuf},
    time::Duration,
};

/// Head dims on the emulator for an empty selection: few enough to compile in minutes.
const EMULATED_HEAD_DIMS: [u32; 2] = [64, 128];

/// Default time limit of a call. On a GPU the driver may compile the kernel first.
const CALL_LIMIT: Duration = Duration::from_secs(120);

/// Request of random calls. Either `count` or `calls` must be set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Selected variants.
    pub selection: SelectionRequest,
    /// Number of calls to draw.
    pub count: Option<NonZeroU64>,
    /// Calls to make, by name, as a report prints them.
    pub calls: Vec<String>,
    /// Time after which no further call is drawn, in seconds.
    pub seconds: Option<u64>,
    /// Seed of the calls.
    pub seed: u64,
    /// Device that kernels run on.
    pub device: DeviceChoice,
    /// Library for a GPU; `None` for the library of a build into `build`.
    pub library: Option<PathBuf>,
    /// Parallel workers; `None` for one per core.
    pub jobs: Option<NonZeroUsize>,
    /// Time limit per call, in seconds; `None` for the usual one.
    pub call_limit_s: Option<u64>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            selection: SelectionRequest::default(),
            count: None,
            calls: Vec::new(),
            seconds: None,
            seed: DEFAULT_SEED,
            device: DeviceChoice::Auto,
            library: None,
            jobs: None,
            call_limit_s: None,
        }
    }
}

/// Outcome of the calls.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Outcome {
    /// Counts, failures and refusals.
    pub report: Report,
    /// Device that the calls ran on.
    #[serde(skip)]
    pub device: DeviceKind,
    /// True if the run was interrupted.
    #[serde(skip)]
    pub interrupted: bool,
}

/// Makes the calls.
///
/// # Errors
/// [`CommandError`] if the whole run stops. Failed calls are in the report.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let calls = request.wanted_calls()?;
    let library = library(request.library.as_deref(), None);
    let place = place(request.device, &library, None, observer)?;
    refuse_unused(request.library.as_deref(), &place)?;
    let jobs = jobs::busy(request.jobs);
    let session = Session::open(context)?;
    let wanted = wanted(&session.grid, &request.selection, &calls, place.gpu.is_none(), context, observer)?;
    // The kit protects an emulated library in the cache, from which workers load it during the run.
    let (library, scope, _kit) = if place.gpu.is_some() {
        let scope = gpu_scope(&session.grid, &wanted, &library)?;
        (library, scope, None)
    } else {
        emulator_library(&session, &wanted, jobs, context, observer)?
    };
    let steps = match &calls {
        Calls::Drawn { count, .. } => *count as usize,
        Calls::Given(calls) => calls.len(),
    };
    let options = FuzzOptions {
        library,
        scope,
        seconds: request.seconds.map(Duration::from_secs),
        jobs,
        call_limit: request.call_limit_s.map_or(CALL_LIMIT, Duration::from_secs),
        program: context.program()?,
        calls,
    };
    observer.event(Event::Begun { work: Work::Calling, steps, known: 0 });
    let cancel = &context.cancel;
    let report = fuzz::run(&options, &Relay { observer, cancel });
    observer.event(Event::Ended);
    let report = report.map_err(|error| match error {
        _ if cancel.requested() => CommandError::INTERRUPTED,
        FuzzError::Nothing => CommandError::Usage(error.to_string()),
        FuzzError::NoWorker(_) => CommandError::Environment(error.to_string()),
    })?;
    Ok(Outcome { report, device: options.scope.kind(), interrupted: cancel.requested() })
}

impl Request {
    fn wanted_calls(&self) -> Result<Calls, CommandError> {
        for (field, seconds) in [("seconds", self.seconds), ("call_limit_s", self.call_limit_s)] {
            seconds.map_or(Ok(()), |seconds| limits::within(field, seconds, &limits::SECONDS))?;
        }
        match (self.count, &*self.calls) {
            (Some(count), []) => Ok(Calls::Drawn { seed: self.seed, count: count.get() }),
            (None, [_, ..]) if self.seconds.is_none() => {
                let read = |call: &String| {
                    let read: Result<LibraryCall, String> = call.parse();
                    read.map_err(|error| CommandError::Usage(format!("cannot read the call `{call}`: {error}")))
                };
                Ok(Calls::Given(self.calls.iter().map(read).collect::<Result<_, _>>()?))
            }
            (None, [_, ..]) => Err(CommandError::Usage("`seconds` is for calls that are drawn; set `count`".to_owned())),
            _ => Err(CommandError::Usage("set either `count` or `calls`".to_owned())),
        }
    }
}

impl Outcome {
    /// Fails if a call failed, or the run was interrupted.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with the number of failures, [`CommandError::Interrupted`].
    pub fn verdict(&self) -> Result<(), CommandError> {
        if self.interrupted {
            return Err(CommandError::INTERRUPTED);
        }
        match self.report.failures.len() {
            0 => Ok(()),
            failed => {
                let of = count(self.report.total(|row| row.calls) as usize, "call");
                Err(CommandError::Failed(format!("{failed} of {of} failed")))
            }
        }
    }
}

/// The selected variants; if `calls` is set, those that the calls may reach.
fn wanted(
    grid: &Grid,
    selection: &SelectionRequest,
    calls: &Calls,
    on_emulator: bool,
    context: &Context,
    observer: &dyn Observer,
) -> Result<Vec<Variant>, CommandError> {
    match calls {
        Calls::Drawn { .. } if on_emulator && selection.is_empty() => {
            let dims = EMULATED_HEAD_DIMS.map(|dim| dim.to_string()).join(" and ");
            observer.note(&format!(
                "head dims {dims} alone, for the emulator has to compile them; `--all` or `--head-dim` says otherwise"
            ));
            let small =
                |variant: &Variant| variant.head_dim().is_none_or(|dim| EMULATED_HEAD_DIMS.map(HeadDim::equal).contains(&dim));
            called(grid.variants().iter().copied().filter(small).collect())
        }
        Calls::Drawn { .. } => called(selection.resolve(context, grid, observer)?),
        Calls::Given(calls) => {
            let candidates = if selection.is_empty() {
                let of_calls = |variant: &Variant| calls.iter().any(|call| has_head_dim_of(*variant, call));
                grid.variants().iter().copied().filter(of_calls).collect()
            } else {
                called(selection.resolve(context, grid, observer)?)?
            };
            let answers = |variant: &Variant| calls.iter().any(|call| may_answer(*variant, call));
            let chosen: Vec<Variant> = candidates.into_iter().filter(answers).collect();
            let none = || CommandError::Usage(format!("no kernel that is selected computes `{}`", calls[0]));
            if chosen.is_empty() { Err(none()) } else { Ok(chosen) }
        }
    }
}

/// The variants for which calls are drawn.
fn called(mut variants: Vec<Variant>) -> Result<Vec<Variant>, CommandError> {
    variants.retain(|variant| Point::of(variant).is_some() || draws_calls(*variant));
    if variants.is_empty() {
        let others = "calls are drawn for attention and append_kv alone; select some, for example with `--kind fwd`";
        return Err(CommandError::Usage(others.to_owned()));
    }
    Ok(variants)
}

/// True if the variant has the call's head dims, or neither has head dims.
fn has_head_dim_of(variant: Variant, call: &LibraryCall) -> bool {
    match call {
        LibraryCall::Attention(case) => variant.head_dim() == Some(case.head_dim),
        LibraryCall::Drawn(_) => variant.head_dim().is_none(),
    }
}

/// True if the dispatcher may choose the variant for the call.
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

/// The kernels of the grid that the library at `library` contains, and the wanted ones among them.
fn gpu_scope(grid: &Grid, wanted: &[Variant], library: &Path) -> Result<Scope, CommandError> {
    let known = wanted.iter().copied().chain(grid.variants().iter().copied().filter(|v| Point::of(v).is_some()));
    let known: Vec<Variant> = known.collect::<BTreeSet<_>>().into_iter().collect();
    let names: Vec<String> = known.iter().map(Variant::name).collect();
    let there = launchers_in(library, &names).map_err(|error| CommandError::Environment(error.to_string()))?;
    let held: Vec<Variant> = known.into_iter().zip(there).filter_map(|(variant, there)| there.then_some(variant)).collect();
    let wanted: Vec<Variant> = wanted.iter().copied().filter(|variant| held.contains(variant)).collect();
    if wanted.is_empty() {
        let missing = format!("`{}` holds none of these kernels; build it with them", library.display());
        return Err(CommandError::Environment(missing));
    }
    let facts = GpuFacts::probe().map_err(|error| checking::unusable_gpu(&error))?;
    let device = ScopeDevice::Gpu { capability: facts.info.compute_capability, multiprocessors: facts.multiprocessors };
    let (wanted, others) = by_family(&wanted);
    Ok(Scope { held: by_family(&held).0, wanted, others, device })
}

/// Compiles for the emulator the wanted variants and the other kernels that splitting needs.
fn emulator_library(
    session: &Session,
    wanted: &[Variant],
    jobs: usize,
    context: &Context,
    observer: &dyn Observer,
) -> Result<(PathBuf, Scope, Option<EmulatorKit>), CommandError> {
    let (wanted, others) = by_family(wanted);
    let mut held = wanted.clone();
    if held.iter().any(|variant| variant.kind == Kind::FwdSplit) {
        let helpers = session.grid.variants().iter().filter_map(Point::of).filter(|point| !point.kind.has_shape());
        held.extend(helpers.filter(|point| !wanted.contains(point)));
    }
    let mut variants: Vec<Variant> = held.iter().copied().map(Variant::from).chain(others.iter().copied()).collect();
    variants.sort_unstable_by_key(Variant::name);
    let (library, kit) = emulated::library(session, &variants, jobs, context, observer)?;
    Ok((library, Scope { held, wanted, others, device: ScopeDevice::Emulator }, Some(kit)))
}
