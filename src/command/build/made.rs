//! The steps from a selection to a linked library. Shared by `build`, `build-all` and `wheel`.

use super::{Outcome, Request, Tools, run_as};
use crate::{
    build::{BuildError, BuildFailure, BuildOptions, Builder, FailureKind, Unit},
    command::{
        CommandError, Context, Event, Observer, helpers,
        observer::Relay,
        selection::resolve_with_notes,
        session::{Session, unwritable, warn_of_edited},
    },
    files::FolderLock,
    jobs,
    kernel::{Target, Variant},
    plan::Plan,
    render::{self, Fingerprints, Folder, OutputFile, Prune, Templates},
    text::count,
};
use itertools::Itertools;
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

/// Name of the dispatcher's unit.
pub(in crate::command) const DISPATCHER: &str = "kgen_dispatch";

/// The flag that names the folder of kernels.
const FLAG: &str = "--generated";

/// Remedy that message texts offer for kernels of an earlier build.
const ONLY: &str = "`--only` links the selected kernels alone";

/// Products of a build. Other builds cannot change the output folder until this is dropped or [unlocked](Self::unlock).
pub(in crate::command) struct Made {
    /// Plans of the selected variants, in selection order, then those of other kernels that the library keeps.
    pub plans: Vec<Plan>,
    /// Number of plans that belong to selected variants.
    pub selected: usize,
    /// The kernels' units, in the same order.
    pub kernels: Vec<Unit>,
    /// The templates they were rendered from.
    pub templates: Templates,
    /// The compilers.
    pub tools: Tools,
    /// Outcome for the caller.
    pub outcome: Outcome,
    /// Keeps other builds out of the output folder.
    lock: Option<FolderLock>,
}

impl Made {
    /// Lets other builds change the output folder, which this build no longer reads.
    pub fn unlock(&mut self) {
        self.lock = None;
    }
}

/// Builds, as [`run`](super::run) does.
///
/// # Errors
/// The errors of [`run`](super::run).
pub(in crate::command) fn make(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Made, CommandError> {
    let made = make_and_report(request, context, observer);
    observer.event(Event::Ended);
    made
}

fn make_and_report(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Made, CommandError> {
    let cancel = &context.cancel;
    let session = Session::open(context)?;
    let variants = resolve_with_notes(&request.selection, context, &session.grid, observer)?;
    let variants = if request.helpers { helpers::complete(&session.grid, variants, observer) } else { variants };
    let run_as = run_as(request.run_as.as_ref())?;
    let (mut plans, refused) = plan_all(&session, &variants, run_as);
    if let (true, Some(first)) = (plans.is_empty(), refused.first()) {
        return Err(CommandError::Usage(first.message.clone()));
    }
    if let Some(note) = request.note_on_jobs() {
        observer.note(&note);
    }
    let options = request.options(context)?; // before an nvcc is installed
    let tools = request.tools(context, observer)?;
    let relay = Relay { observer, cancel };
    let builder = Builder::open(&tools.nvcc, &tools.host, options, cancel.clone(), &relay)?;
    let options = builder.options();

    // Held while compilers read the folder.
    let folder = Folder::open(&options.generated_dir, &|message| observer.note(message), &|| cancel.requested());
    let folder = folder.map_err(unwritable(FLAG))?;
    let selected = plans.len();
    if !request.only && !session.is_whole_grid(&variants) {
        let held = also_held(&session, builder.held()?, folder.held(), &variants)?;
        plans.extend(session.plan_all(&held, run_as).map_err(|error| {
            CommandError::Usage(format!("{} holds a kernel that can no longer be made; {ONLY}: {error}", library_of(options)))
        })?);
        if !held.is_empty() {
            let kernels = count(held.len(), "more kernel");
            observer.note(&format!("{} holds {kernels}, kept and brought up to date; {ONLY}", library_of(options)));
        }
    }
    let requested: Vec<Variant> = variants.iter().copied().chain(plans[selected..].iter().map(|plan| plan.variant)).collect();
    let files = match run_as {
        None => session.folder_files(&options.generated_dir, &requested, plans.clone(), folder.held())?.1,
        // Results of earlier runs there are no longer needed.
        Some(_) => render::tree(&session.renderer, &session.templates, &plans)?,
    };
    // A kernel that can no longer be planned keeps its file from an earlier run.
    let prune = if refused.is_empty() { Prune::Yes } else { Prune::No };
    let summary = folder.write(&files, prune).map_err(unwritable(FLAG))?;
    warn_of_edited(&options.generated_dir, &summary, observer);
    let dispatcher = session.renderer.dispatcher(&plans)?;
    let dispatcher_path = builder.write_source(&Path::new("gen").join("kgen_dispatch.cpp"), &dispatcher)?;

    let mut units = kernel_units(&plans, &files, &session.templates, request.ptx);
    units.push(Unit::dispatcher(DISPATCHER, &dispatcher_path, &dispatcher, request.ptx));
    let mut report = builder.compile(&units)?;
    units.pop();
    if report.interrupted {
        let (done, all) = (report.artifacts.iter().filter(|artifact| artifact.target.is_some()).count(), units.len());
        return Err(CommandError::Interrupted(format!(
            "{done} of {all} kernels are compiled and cached; run the same command to resume"
        )));
    }
    report.failures.extend(refused);
    let mut link_error = None;
    if report.failures.is_empty() {
        match builder.link(&report.artifacts) {
            Ok(library) => report.library = Some(library),
            Err(error @ BuildError::Link { .. }) => link_error = Some(error.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    builder.write_manifest(&report)?;
    builder.write_report(&report)?;
    builder.write_database(&units)?;
    let (out_dir, jobs) = (options.out_dir.clone(), jobs::useful(options.jobs, units.len()));
    let lock = Some(builder.close());
    let launch_shared_bytes = plans.iter().map(|plan| (plan.variant.name(), plan.shared_memory_bytes)).collect();
    let outcome = Outcome { report, link_error, out_dir, jobs, launch_shared_bytes };
    Ok(Made { plans, selected, kernels: units, templates: session.templates, tools, outcome, lock })
}

/// The units of the kernels of `plans`, whose sources are among `files`.
pub(in crate::command) fn kernel_units(plans: &[Plan], files: &[OutputFile], templates: &Templates, ptx: bool) -> Vec<Unit> {
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let fingerprints = Fingerprints::of(templates);
    let kernel = |plan: &Plan| {
        let file = render::file_name(&plan.variant);
        let text = text(&file);
        Unit::kernel(plan, Path::new(&file), text, fingerprints.kernel(text), ptx)
    };
    plans.iter().map(kernel).collect()
}

/// The kernels that the library in the output folder holds by `names` and that are not among `requested`; the generated
/// folder and the grid map the names to variants.
fn also_held(
    session: &Session,
    names: Vec<String>,
    generated: &[Variant],
    requested: &[Variant],
) -> Result<Vec<Variant>, CommandError> {
    let requested: BTreeSet<String> = requested.iter().map(Variant::name).collect();
    let known: HashMap<String, Variant> =
        generated.iter().chain(session.grid.variants()).map(|variant| (variant.name(), *variant)).collect();
    let others = names.into_iter().filter(|name| !requested.contains(name));
    let variant = |name: String| {
        let unknown =
            || CommandError::Usage(format!("the library holds `{name}`, which neither the grid nor `{FLAG}` knows; {ONLY}"));
        known.get(&name).copied().ok_or_else(unknown)
    };
    others.map(variant).collect()
}

/// The library in the output folder, for messages.
fn library_of(options: &BuildOptions) -> String {
    format!("`{}`", options.out_dir.join("lib").join("libkgen.so").display())
}

/// Plans every variant; one without a plan becomes a failure and does not stop the others.
fn plan_all(session: &Session, variants: &[Variant], run_as: Option<Target>) -> (Vec<Plan>, Vec<BuildFailure>) {
    let refusal = |name, message| BuildFailure { name, kind: FailureKind::Plan, message, log: None };
    let plan = |v: &Variant| session.plan_to_run_as(*v, run_as).map_err(|error| refusal(v.name(), error));
    variants.iter().map(plan).partition_result()
}
