//! Where kernels lose time: bank conflicts and uncoalesced accesses by line of source, counters, resources.

mod facts;
mod place;
mod shape;

pub use facts::{Compiled, Facts};
pub use shape::Shape;

use super::{
    CommandError, Context, Event, Observer, SelectionRequest, StepResult, Work,
    build::library,
    edited::Edited,
    limits::{self, within},
    record::Recorder,
    session::Session,
};
use crate::{
    bench::{self, Made, Size, Status},
    build::built,
    check::DEFAULT_SEED,
    device::{DeviceChoice, DeviceKind, EmulatorKit, KitError},
    family,
    kernel::Variant,
    lab::{Profiled, Row},
    plan::Plan,
    profile::{self, FLAG, Found, Job, KernelCounters, Line, NcuError, Options, Sources, Totals},
    text::count,
};
use place::Place;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

/// Request of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants.
    pub selection: SelectionRequest,
    /// The size that each kernel runs at.
    pub shape: Shape,
    /// Device that kernels run on: the emulator counts accesses by line, a GPU has counters.
    pub device: DeviceChoice,
    /// Seed of the inputs and, on the emulator, of the thread order.
    pub seed: u64,
    /// Time limit per kernel, in seconds.
    pub time_limit_s: u64,
    /// Library of kernels for a GPU, whose manifest also has the resources of compiled kernels; `None` for the library
    /// of a build into `build`.
    pub library: Option<PathBuf>,
    /// File with one kernel of kgen's ABI, which runs on the emulator instead of the rendered one.
    pub source: Option<PathBuf>,
    /// Whether each profile is added to the store.
    pub record: bool,
    /// The store's file; `None` for the user's.
    pub db: Option<PathBuf>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            selection: SelectionRequest::default(),
            shape: Shape::default(),
            device: DeviceChoice::Auto,
            seed: DEFAULT_SEED,
            time_limit_s: 300,
            library: None,
            source: None,
            record: true,
            db: None,
        }
    }
}

/// Outcome: a profile of each variant.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Outcome {
    /// In the order of the variants.
    pub profiles: Vec<Profile>,
    /// Why no counter of the GPU could be read, if one was asked for.
    #[serde(skip)]
    pub unreadable: Option<NcuError>,
    /// True if the command was interrupted before everything had run.
    #[serde(skip)]
    pub interrupted: bool,
}

/// A profile of one kernel at one size.
#[derive(Debug, Serialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The variant itself.
    #[serde(flatten)]
    pub variant: Variant,
    /// The size.
    pub shape: Size,
    /// The device.
    pub device: DeviceKind,
    /// The outcome.
    pub status: Status,
    /// The reason for missing numbers; empty if there are numbers.
    pub message: String,
    /// Resources of the kernel.
    pub facts: Facts,
    /// Largest relative error of the sampled rows of its results.
    pub relative_error: Option<f64>,
    /// Accesses of all lines together; `None` unless the emulator has counted them.
    pub totals: Option<Totals>,
    /// Accesses by line, the largest waste first; `None` unless the emulator has counted them.
    pub lines: Option<Vec<Line>>,
    /// Counters of each launch; `None` unless a GPU has counted them.
    pub counters: Option<Vec<KernelCounters>>,
}

/// A kernel to run.
struct Kernel {
    plan: Plan,
    text: String,
    /// The text as the compiler is given it.
    compiled: String,
    made: Made,
    /// Name of its file in reports.
    file: String,
}

/// Profiles the variants.
///
/// # Errors
/// [`CommandError`] if the whole command stops. Kernels that do not run are in the outcome.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    request.refuse_out_of_range()?;
    if request.selection.is_empty() && request.source.is_none() {
        let why = "nothing is selected; name a variant, such as `flash_fwd_hdim128_bf16_sm80`";
        return Err(CommandError::Usage(why.to_owned()));
    }
    let session = Session::open(context)?;
    let kernels = request.kernels(&session, context, observer)?;
    let library = library(request.library.as_deref(), None);
    let place = Place::find(request, &library, observer)?;
    let sized = kernels.iter().map(|kernel| Ok((kernel, request.size(kernel.plan.variant, place.device())?)));
    let sized: Vec<(&Kernel, Size)> = sized.collect::<Result<_, CommandError>>()?;
    let options = Options {
        program: context.program()?,
        time_limit: Duration::from_secs(request.time_limit_s),
        cancel: context.cancel.clone(),
    };
    let compiled = || telling(observer, PATIENCE, COMPILING, || emulator(&session, context));
    let kit = (place.device() == DeviceKind::Emulator).then(compiled).transpose()?;
    let recorder = request.record.then(|| Recorder::open(request.db.as_deref(), context)).transpose()?;
    let built = if request.source.is_some() { BTreeMap::new() } else { built(&library) };
    let circumstances = json!({
        "date": bench::now(), "kgen": env!("CARGO_PKG_VERSION"), "gpu": { "name": place.name() }, "seed": request.seed,
    });
    let mut outcome = Outcome { profiles: Vec::new(), unreadable: place.unreadable(), interrupted: false };
    observer.event(Event::Begun { work: Work::Profiling, steps: sized.len(), known: 0 });
    for (kernel, size) in sized {
        if context.cancel.requested() {
            break;
        }
        let variant = kernel.plan.variant;
        let name = variant.name();
        observer.event(Event::Started { step: &name });
        let (device, capability) = (place.device(), kernel.plan.compiled_for().compute_capability());
        let job = Job { variant, device, capability, library: library.clone(), size: size.clone(), seed: request.seed };
        let found = match (&place, &kit, &outcome.unreadable) {
            (_, Some(kit), _) => on_emulator(kernel, job, kit, &session, &options),
            (Place::Gpu { ncu: Ok(ncu), .. }, _, None) => profile::with_counters(ncu, &job, &options).unwrap_or_else(|error| {
                let message = error.to_string();
                outcome.unreadable = Some(error);
                Found::nothing(Status::Error, message)
            }),
            (.., why) => Found::nothing(Status::Error, why.as_ref().map(ToString::to_string).unwrap_or_default()),
        };
        if context.cancel.requested() {
            observer.event(Event::GivenUp { step: &name });
            break;
        }
        let built = built.get(&name).cloned().unwrap_or_default();
        let profile = Profile::of(kernel, size, device, found, &built);
        if let Some(recorder) = &recorder {
            recorder.add(&Row::of_profile(&profile.row(kernel, &built), &recorder.run, &circumstances), observer);
        }
        observer.event(Event::Finished { step: &name, result: StepResult::Done });
        outcome.profiles.push(profile);
    }
    observer.event(Event::Ended);
    outcome.interrupted = context.cancel.requested();
    Ok(outcome)
}

/// What takes the time if the emulator is compiled: at the first profile, and after an update of kgen or the compiler.
const COMPILING: &str = "compiling the emulator that counts accesses; the cache keeps it";

/// Time after which a user wonders what the command does.
const PATIENCE: Duration = Duration::from_millis(500);

/// Does some work, and sends a note once it has taken longer than `patience`.
fn telling<T>(observer: &dyn Observer, patience: Duration, note: &str, work: impl FnOnce() -> T) -> T {
    let (working, done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                observer.note(note);
            }
        });
        let result = work();
        drop(working);
        result
    })
}

/// The emulator that counts accesses.
fn emulator(session: &Session, context: &Context) -> Result<EmulatorKit, CommandError> {
    let mut host = context.host_compiler()?;
    host.flags.push(FLAG.to_owned());
    let (include, emulator) = (session.templates.include_files(), session.templates.emulator_files());
    EmulatorKit::new(&context.cache_dir()?, include, emulator, &host, &context.cancel).map_err(|error| match error {
        KitError::Interrupted => CommandError::INTERRUPTED,
        other => CommandError::Environment(other.to_string()),
    })
}

/// Compiles a kernel for the emulator and runs it there.
fn on_emulator(kernel: &Kernel, job: Job, kit: &EmulatorKit, session: &Session, options: &Options) -> Found {
    let name = job.variant.name();
    let library = match kit.library(&name, &kernel.compiled) {
        Ok(library) => library,
        Err(error) => return Found::nothing(Status::Error, error.to_string()),
    };
    let mut found = profile::on_emulator(&Job { library, ..job }, options);
    let sources = Sources {
        kernel_file: file_name(&kernel.file),
        shown_as: kernel.file.clone(),
        kernel: &kernel.text,
        headers: session.templates.include_files().collect(),
    };
    found.lines.iter_mut().flatten().for_each(|line| sources.complete(line));
    found
}

/// The last part of a path.
fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

impl Request {
    fn refuse_out_of_range(&self) -> Result<(), CommandError> {
        within("time_limit_s", self.time_limit_s, &limits::SECONDS)?;
        self.shape.refuse_out_of_range()
    }

    /// The kernels, with their texts.
    fn kernels(&self, session: &Session, context: &Context, observer: &dyn Observer) -> Result<Vec<Kernel>, CommandError> {
        if let Some(path) = &self.source {
            let edited = Edited::read(path, &self.selection, session, context, observer)?;
            let plan = session.plan(edited.variant).map_err(CommandError::Usage)?;
            let (made, compiled) = (edited.made(&plan), edited.to_compile());
            return Ok(vec![Kernel { plan, compiled, text: edited.text, made, file: path.display().to_string() }]);
        }
        let variants = self.selection.resolve(context, &session.grid, observer)?;
        let kernel = |plan: Plan| {
            let source = session.renderer.kernel(&plan)?;
            let made = Made::of(&plan, source.hash);
            let file = format!("{}.cu", plan.variant.name());
            Ok(Kernel { file, plan, compiled: source.text.clone(), text: source.text, made })
        };
        session.plan_all(&variants, None)?.into_iter().map(kernel).collect()
    }

    /// The size that a variant runs at.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if it has none.
    fn size(&self, variant: Variant, device: DeviceKind) -> Result<Size, CommandError> {
        let name = variant.name();
        if variant.dtype().is_none() {
            let why = format!("`{name}` has no size of its own and is not profiled by itself");
            return Err(CommandError::Usage(format!("{why}; select another kind with `--kind`")));
        }
        let sizes = family::of(variant.kind()).sizes(&variant, &self.shape.wanted(device));
        sizes.into_iter().next().ok_or_else(|| {
            CommandError::Usage(format!(
                "`{name}`: `--heads` is no multiple of `--heads-k`; give both, one a multiple of the other"
            ))
        })
    }
}

impl Profile {
    /// The profile of what was found.
    fn of(kernel: &Kernel, shape: Size, device: DeviceKind, found: Found, built: &Map<String, Value>) -> Self {
        let Found { status, message, relative_error, lines, counters } = found;
        let (variant, facts) = (kernel.plan.variant, Facts::of(&kernel.plan, built));
        let totals = lines.as_deref().map(Totals::of);
        Self { name: variant.name(), variant, shape, device, status, message, facts, relative_error, totals, lines, counters }
    }

    /// The profile as the store takes it.
    fn row<'a>(&'a self, kernel: &'a Kernel, built: &'a Map<String, Value>) -> Profiled<'a> {
        Profiled {
            variant: kernel.plan.variant,
            made: &kernel.made,
            built,
            shape: &self.shape,
            status: self.status,
            message: &self.message,
            numbers: json!({
                "relative_error": self.relative_error, "totals": self.totals, "lines": self.lines, "counters": self.counters,
            }),
            details: json!({ "device": self.device, "facts": self.facts }),
        }
    }
}

impl Outcome {
    /// Fails if a kernel has no numbers, or the command was interrupted.
    ///
    /// # Errors
    /// [`CommandError::Environment`] if the GPU's counters cannot be read, [`CommandError::Failed`] with the number of
    /// failures, [`CommandError::Interrupted`].
    pub fn verdict(&self) -> Result<(), CommandError> {
        if self.interrupted {
            return Err(CommandError::INTERRUPTED);
        }
        if let Some(error) = &self.unreadable {
            return Err(CommandError::Environment(format!("{error}; `--device emulator` counts accesses by line without a GPU")));
        }
        match self.profiles.iter().filter(|profile| profile.status != Status::Ok).count() {
            0 => Ok(()),
            failed => Err(CommandError::Failed(format!("{failed} of {} failed", count(self.profiles.len(), "profile")))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Observer for Notes {
        fn event(&self, event: Event<'_>) {
            if let Event::Note { message } = event {
                self.0.lock().expect("no test panicked").push(message.to_owned());
            }
        }
    }

    #[test]
    fn long_work_is_named_and_short_work_is_not() {
        let notes = Notes::default();
        assert_eq!(telling(&notes, Duration::from_secs(60), "short", || 1), 1);
        let long = || {
            while notes.0.lock().expect("no test panicked").is_empty() {
                thread::yield_now();
            }
            2
        };
        assert_eq!(telling(&notes, Duration::from_millis(1), "long", long), 2);
        assert_eq!(notes.0.into_inner().expect("no test panicked"), ["long"]);
    }
}
