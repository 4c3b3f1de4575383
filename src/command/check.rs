//! Checks kernels against the float64 reference, on a GPU or on the emulator.

use super::{
    CommandError, Context, Observer, SelectionRequest, TargetWord,
    build::{library, missing_library, run_as},
    checking::{self, How, Place, Record},
    db,
    edited::Edited,
    limits,
    record::Recorder,
    session::Session,
};
use crate::{
    bench::Made,
    build::built,
    check::{self, CheckRequest, DEFAULT_SEED, Kernel, Level, Subject, Verdict},
    device::{DeviceChoice, DeviceKind, Order},
    family, jobs,
    kernel::Target,
    plan::Plan,
};
use serde::{Deserialize, Serialize};
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

/// Request of a check. The default is a smoke check of the whole grid, on the GPU if there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants.
    pub selection: SelectionRequest,
    /// Device that kernels run on.
    pub device: DeviceChoice,
    /// Level of the cases.
    pub level: Level,
    /// Text that case names must contain; `None` for all cases.
    pub case: Option<String>,
    /// Seed of the inputs and, on the emulator, of the thread order.
    pub seed: u64,
    /// Thread order on the emulator; `None` for the usual ones.
    pub schedule: Option<Order>,
    /// Time limit per variant, in seconds; `None` for the usual one of the level.
    pub time_limit_s: Option<u64>,
    /// Run kernels again that passed before and have not changed.
    pub fresh: bool,
    /// Parallel variants; `None` for one per core on the emulator, one on a GPU.
    pub jobs: Option<NonZeroUsize>,
    /// Library of kernels for a GPU; `None` for the library of a build into `build`.
    pub library: Option<PathBuf>,
    /// Target whose GPUs run the kernels instead of their own target's, as built with the same `run_as`.
    pub run_as: Option<TargetWord>,
    /// File with one kernel of kgen's ABI, which is checked on the emulator instead of the rendered one. The selection
    /// names its variant; an empty one leaves that to the launcher in the file.
    pub source: Option<PathBuf>,
    /// Store that each verdict is added to, except those of earlier runs; `None` for that of `KGEN_DB`, if it is set.
    pub db: Option<PathBuf>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            selection: SelectionRequest::default(),
            device: DeviceChoice::Auto,
            level: Level::Smoke,
            case: None,
            seed: DEFAULT_SEED,
            schedule: None,
            time_limit_s: None,
            fresh: false,
            jobs: None,
            library: None,
            run_as: None,
            source: None,
            db: None,
        }
    }
}

/// Outcome of a check.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Outcome {
    /// A verdict on each variant, in their order.
    pub verdicts: Vec<Verdict>,
}

/// Checks the variants.
///
/// # Errors
/// [`CommandError`] if the whole command stops. Variants that do not pass are in the outcome.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    if let Some(seconds) = request.time_limit_s {
        limits::within("time_limit_s", seconds, &limits::SECONDS)?;
    }
    let run_as = run_as(request.run_as.as_ref())?;
    let library = library(request.library.as_deref(), run_as);
    let session = Session::open(context)?;
    let read = |path| Edited::read(path, &request.selection, &session, context, observer);
    let edited = request.source.as_deref().map(read).transpose()?;
    let variants = match &edited {
        None => request.selection.resolve(context, &session.grid, observer)?,
        Some(edited) => vec![edited.variant],
    };
    let plans = session.plan_all(&variants, run_as)?;
    let place = match &edited {
        None => place(request.device, &library, run_as, observer)?,
        Some(_) => request.place_of_source(run_as)?,
    };
    refuse_unused(request.library.as_deref(), &place)?;
    request.refuse_unknown_case(&plans, &place)?;
    if request.schedule.is_some() && plans.iter().any(|plan| place.device_of(plan) == DeviceKind::Gpu) {
        let said = "`--schedule` is for the emulator, a GPU has its own; add `--device emulator`";
        return Err(CommandError::Usage(said.to_owned()));
    }
    // A GPU runs the library's kernels, and the library is assumed to carry PTX if it can; the emulator compiles the
    // rendered source.
    let kernel = |plan: &Plan| {
        if let Some(edited) = &edited {
            Ok(Kernel::Source(edited.to_compile()))
        } else if place.device_of(plan) == DeviceKind::Gpu {
            Ok(Kernel::Library { device: DeviceKind::Gpu, path: library.clone() })
        } else {
            session.renderer.kernel(plan).map(|source| Kernel::Source(source.text))
        }
    };
    let check = |plan: &Plan| {
        kernel(plan).map(|kernel| CheckRequest {
            variant: plan.variant,
            tiling: plan.tiling(),
            compiled_for: plan.compiled_for(),
            kernel,
        })
    };
    let checks: Vec<CheckRequest> = plans.iter().map(check).collect::<Result<_, _>>()?;
    let how = How {
        level: request.level,
        filter: request.case.clone(),
        seed: request.seed,
        schedule: request.schedule,
        time_limit: request.time_limit_s.map(Duration::from_secs),
        fresh: request.fresh,
        jobs: jobs::busy(request.jobs),
        gpu_jobs: request.jobs.map_or(1, NonZeroUsize::get),
        gpu: place.gpu,
        done_before: None,
        record: request.record(&session, &plans, edited.as_ref(), &library, context)?,
    };
    let verdicts = checking::run(&checks, how, &session.templates, || context.host_compiler(), context, observer)?;
    Ok(Outcome { verdicts })
}

impl Request {
    /// The place of a kernel in a file: only the emulator compiles it.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if another place is requested.
    fn place_of_source(&self, run_as: Option<Target>) -> Result<Place, CommandError> {
        if self.device == DeviceChoice::Only(DeviceKind::Gpu) || self.library.is_some() || run_as.is_some() {
            let why = "`--source` is compiled for the emulator; leave out `--device gpu`, `--library` and `--run-as`";
            return Err(CommandError::Usage(why.to_owned()));
        }
        Ok(Place::EMULATOR)
    }

    /// The store of the verdicts, with the kernels that they are on.
    fn record(
        &self,
        session: &Session,
        plans: &[Plan],
        edited: Option<&Edited>,
        library: &Path,
        context: &Context,
    ) -> Result<Option<Record>, CommandError> {
        let Some(db) = db::named(self.db.as_deref()) else { return Ok(None) };
        let recorder = Recorder::open(Some(&db), context)?;
        let mut built = built(library);
        let kernel = |plan: &Plan| {
            let name = plan.variant.name();
            let made = match edited {
                None => Made::of(plan, session.renderer.kernel(plan)?.hash),
                Some(edited) => edited.made(plan),
            };
            let facts = built.remove(&name).unwrap_or_default();
            Ok((name, (plan.variant, made, facts)))
        };
        let kernels = plans.iter().map(kernel).collect::<Result<_, CommandError>>()?;
        Ok(Some(Record { recorder, kernels }))
    }

    /// Refuses a case filter that matches no case, before anything is compiled.
    fn refuse_unknown_case(&self, plans: &[Plan], place: &Place) -> Result<(), CommandError> {
        let (level, part) = (self.level, self.case.as_deref());
        let named = |plan: &Plan, part| {
            let device = place.device_of(plan);
            check::selected_cases(family::cases, &Subject { variant: plan.variant, tiling: plan.tiling(), device }, level, part)
        };
        if part.is_none() || plans.iter().any(|plan| !named(plan, part).is_empty()) {
            return Ok(());
        }
        let example = plans.iter().flat_map(|plan| named(plan, None)).map(|case| case.name()).next().unwrap_or_default();
        Err(CommandError::Usage(format!(
            "no {} case's name contains `{}`; a name is for example `{example}`",
            level.word(),
            part.unwrap_or_default()
        )))
    }
}

impl Outcome {
    /// Fails if a variant did not pass.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with the number of failed variants.
    pub fn verdict(&self) -> Result<(), CommandError> {
        checking::judge(&self.verdicts)
    }
}

/// Finds the device. With [`DeviceChoice::Auto`] a GPU also needs the library; if that is missing, the emulator is
/// used.
///
/// # Errors
/// [`CommandError::Environment`] if a GPU is requested and there is none, or no library.
pub(super) fn place(
    device: DeviceChoice,
    library: &Path,
    run_as: Option<Target>,
    observer: &dyn Observer,
) -> Result<Place, CommandError> {
    let place = Place::find(device, observer)?;
    if place.gpu.is_none() || library.is_file() {
        return Ok(place);
    }
    let missing = missing_library(library, run_as);
    if place.only_gpu {
        return Err(CommandError::Environment(missing));
    }
    observer.note(&format!("{missing}; checking on the emulator"));
    Ok(Place::EMULATOR)
}

/// Refuses a library that was passed and would not be used.
pub(super) fn refuse_unused(named: Option<&Path>, place: &Place) -> Result<(), CommandError> {
    match named {
        Some(library) if place.gpu.is_none() => Err(CommandError::Environment(format!(
            "`--library {}` is run on a GPU, and the emulator compiles kernels itself; leave it out, or go where there is a GPU",
            library.display()
        ))),
        _ => Ok(()),
    }
}
