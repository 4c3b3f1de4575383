//! Kernels as sources in another project.

mod destination;
mod installed;

use super::{
    CommandError, Context, Observer, SelectionRequest, helpers,
    selection::resolve_with_notes,
    session::{Session, unwritable_unless},
};
use crate::{
    files::path::lossy,
    kernel::Variant,
    render::{self, Changes, Layout, OutputFile, RenderError, Vendored, VendoredAs, VllmTree},
};
use destination::{Destination, LockedDestination};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Request to put kernels into another project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Destination of the kernels.
    pub place: Place,
    /// The variants; empty for those that the folder already contains.
    #[serde(default)]
    pub selection: SelectionRequest,
    /// Add the helper kernels that selected split-KV kernels need.
    #[serde(default = "yes")]
    pub helpers: bool,
    /// Accept a folder that kgen did not create and that contains other files, which stay.
    #[serde(default)]
    pub beside_others: bool,
    /// Include the dispatcher. Without a selection, it is included only if it is there already.
    #[serde(default = "yes")]
    pub dispatcher: bool,
    /// Treatment of the changes.
    #[serde(default)]
    pub mode: Mode,
    /// Remove the files written before. Not with [`Mode::Check`].
    #[serde(default)]
    pub remove: bool,
}

fn yes() -> bool {
    true
}

/// Destination of kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Place {
    /// A folder: a new one, or one that this command created.
    Folder(PathBuf),
    /// A checkout of vLLM, whose attention modules are then built on the kernels.
    VllmCheckout(PathBuf),
    /// An installed vLLM, whose modules are replaced by built ones.
    InstalledVllm {
        /// Folder of the installation.
        path: PathBuf,
        /// Folder of the built modules, as `scripts/torch_ops.sh` writes it; not needed to check or remove.
        #[serde(default)]
        prebuilt: Option<PathBuf>,
    },
}

/// Treatment of changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Changes are written.
    #[default]
    Write,
    /// Nothing is written; changes are a failure.
    Check,
    /// Nothing is written.
    DryRun,
}

/// Changes that were made or would be.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The folder, checkout or installation.
    #[serde(serialize_with = "lossy")]
    pub folder: PathBuf,
    /// Names of the kernels in the folder after the changes.
    pub variants: Vec<String>,
    /// True if it contains the dispatcher.
    pub dispatcher: bool,
    /// True if the changes were written.
    pub written: bool,
    /// The changes.
    #[serde(flatten)]
    pub changes: Changes,
    /// True if the folder to remove does not exist.
    #[serde(skip)]
    pub is_nowhere: bool,
    /// The message of the failure, if changes are a failure.
    #[serde(skip)]
    stale: Option<String>,
}

/// Puts kernels into another project, updates them there, or removes them.
///
/// # Errors
/// [`CommandError::Usage`] if no kernel is named and none is there, a variant has no plan, the folder was not created
/// by this command or has local changes, or a checkout differs from the supported ones. Changes that [`Mode::Check`]
/// finds are in the outcome.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    if request.remove && request.mode == Mode::Check {
        return Err(CommandError::Usage("`remove` has nothing to check; set another `mode`".to_owned()));
    }
    if request.remove && (request.beside_others || !request.dispatcher) {
        return Err(CommandError::Usage("`remove` writes nothing; leave out `beside_others` and `dispatcher`".to_owned()));
    }
    let (root, destination) = match &request.place {
        Place::InstalledVllm { path, prebuilt } => {
            let outcome = installed::run(path, prebuilt.as_deref(), request, observer)?;
            return Ok(outcome.stale_if(request.mode, |folder, changes| {
                let files = changes.changes.iter().map(|change| format!("`{}`", change.path)).join(", ");
                format!("`{}`: {files}: not as `kgen vendor vllm --prebuilt` leaves them", folder.display())
            }));
        }
        Place::VllmCheckout(checkout) => {
            (checkout, Destination::Vllm(VllmTree::open(checkout)?.beside_others(request.beside_others)))
        }
        Place::Folder(folder) => {
            let vendored = Vendored::new(folder, Layout::Plain).beside_others(request.beside_others);
            (folder, Destination::Folder(vendored))
        }
    };
    if request.remove {
        remove(root, &destination, request, observer)
    } else {
        write(root, &destination, request, context, observer)
    }
}

impl Outcome {
    /// An outcome without kernels.
    fn new(folder: PathBuf, mode: Mode, changes: Changes) -> Self {
        let written = mode == Mode::Write;
        Self { folder, variants: Vec::new(), dispatcher: false, written, changes, is_nowhere: false, stale: None }
    }

    /// This outcome, marked as a failure with this message if `mode` treats changes as a failure.
    fn stale_if(mut self, mode: Mode, message: impl FnOnce(&Path, &Changes) -> String) -> Self {
        let stale = mode == Mode::Check && !self.changes.changes.is_empty();
        self.stale = stale.then(|| message(&self.folder, &self.changes));
        self
    }

    /// Fails if [`Mode::Check`] found changes.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with the remedy.
    pub fn verdict(&self) -> Result<(), CommandError> {
        self.stale.clone().map_or(Ok(()), |stale| Err(CommandError::Failed(stale)))
    }
}

fn write(
    root: &Path,
    destination: &Destination,
    request: &Request,
    context: &Context,
    observer: &dyn Observer,
) -> Result<Outcome, CommandError> {
    let note = |message: &str| observer.note(message);
    let session = Session::open(context)?;
    // Without a selection, the existing files decide.
    let looks_only = request.mode != Mode::Write;
    let early =
        if looks_only || !request.selection.is_empty() { None } else { destination.lock(None, &note).map_err(unwritable)? };
    let held = || early.as_ref().map_or_else(|| destination.held(&note), LockedDestination::held);
    let (variants, how) = wanted(&session, root, destination.layout(), &held, request, context, observer)?;
    let plans = session.plan_all(&variants, None)?;
    let files: Vec<OutputFile> = render::vendored_tree(&session.renderer, &session.templates, &plans, how)?;
    let changes = match request.mode {
        Mode::Check => destination.compare(&files, &note)?,
        Mode::DryRun => destination.rehearse(root, &files, &note)?,
        Mode::Write => {
            let locked = early.map_or_else(|| destination.lock(Some(&files), &note), |locked| Ok(Some(locked)));
            let done = locked.and_then(|locked| locked.map_or_else(|| Ok(Changes::default()), |locked| locked.bring(&files)));
            done.map_err(unwritable)?
        }
    };
    let outcome = Outcome {
        variants: variants.iter().map(Variant::name).collect(),
        dispatcher: how.dispatcher,
        ..Outcome::new(root.to_owned(), request.mode, changes)
    };
    Ok(outcome.stale_if(request.mode, |root, changes| stale_message(root, destination, changes)))
}

/// The kernels that the folder should contain, and whether the dispatcher is included: the selected ones, or the
/// existing ones if none are selected.
fn wanted(
    session: &Session,
    root: &Path,
    layout: Layout,
    held: &dyn Fn() -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError>,
    request: &Request,
    context: &Context,
    observer: &dyn Observer,
) -> Result<(Vec<Variant>, VendoredAs), CommandError> {
    if layout == Layout::Vllm && !request.dispatcher {
        return Err(CommandError::Usage("vLLM's modules call the dispatcher; leave out `--no-dispatcher`".to_owned()));
    }
    if !request.selection.is_empty() {
        let selected = resolve_with_notes(&request.selection, context, &session.grid, observer)?;
        let how = VendoredAs { layout, dispatcher: request.dispatcher };
        let all = if request.helpers { helpers::complete(&session.grid, selected, observer) } else { selected };
        return Ok((all, how));
    }
    match held()? {
        Some((variants, how)) => Ok((variants, VendoredAs { dispatcher: how.dispatcher && request.dispatcher, ..how })),
        None => Err(CommandError::Usage(format!(
            "`{}` holds no kernels yet; say which: `--head-dim 128 --dtype bf16 --target sm80`, say, or `--all`",
            root.display()
        ))),
    }
}

fn remove(root: &Path, destination: &Destination, request: &Request, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let note = |message: &str| observer.note(message);
    if !request.selection.is_empty() {
        return Err(CommandError::Usage("`--remove` takes away all that was written; leave out the selection".to_owned()));
    }
    // Not an error: running the same command again completes a removal that was killed at its very end.
    let is_nowhere = matches!(destination, Destination::Folder(_)) && !root.exists();
    let changes = if request.mode == Mode::DryRun {
        destination.rehearse(root, &[], &note)?
    } else {
        let locked = destination.lock(None, &note);
        let done = locked.and_then(|locked| locked.map_or_else(|| Ok(Changes::default()), LockedDestination::take_away));
        done.map_err(unwritable)?
    };
    Ok(Outcome { is_nowhere, ..Outcome::new(root.to_owned(), request.mode, changes) })
}

/// The failure of a check that found changes.
fn stale_message(root: &Path, destination: &Destination, changes: &Changes) -> String {
    let (files, them) = match changes.changes.len() {
        1 => ("1 file is".to_owned(), "it"),
        count => (format!("{count} files are"), "them"),
    };
    let remedy = match changes.changes.iter().filter(|change| change.edited).count() {
        0 => "run the same command without `--check`",
        _ => "keep the local changes elsewhere, delete those files, then run the same command without `--check`",
    };
    let command = destination.layout().command();
    format!("`{}`: {files} not as `{command}` writes {them}; {remedy}", root.display())
}

/// Adds the remedy if the folder cannot be written.
fn unwritable(error: RenderError) -> CommandError {
    unwritable_unless("name another folder", error)
}
