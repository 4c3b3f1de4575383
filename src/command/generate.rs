//! Kernels rendered to files.

mod chosen;
mod companions;
mod hashes;

use super::{
    CommandError, Context, Observer, SelectionRequest, helpers, names,
    selection::resolve_with_notes,
    session::{Session, unwritable, warn_of_edited},
};
use crate::{
    files::{self, path::lossy},
    kernel::Variant,
    plan::Plan,
    render::{self, Drift, Folder, OutputFile, Prune, WriteSummary},
};
use chosen::only_one;
use companions::Companions;
pub use hashes::Hashed;
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// The flag that names the output.
const FLAG: &str = "--output";

/// Request of rendered kernels. The default is the whole grid into `generated`.
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants.
    pub selection: SelectionRequest,
    /// Add the helper kernels that selected split-KV kernels need.
    pub helpers: bool,
    /// Folder to write, or a file ending in `.cu` if one variant is selected.
    pub output: PathBuf,
    /// Make the folder exactly the selection: kernels that are not selected are removed.
    pub exact: bool,
    /// File for the BLAKE3 of each selected kernel, as `b3sum` prints it; `output` then gets no kernels.
    pub hashes: Option<PathBuf>,
    /// Write nothing; files that differ from the rendered ones are a failure.
    pub check: bool,
    /// Beside a `.cu` file, also predicted times (`.prediction.json`), an explanation (`.md`), a test (`_test.cpp`) and
    /// the emulator that runs the test without a GPU.
    pub companions: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            selection: SelectionRequest::default(),
            helpers: true,
            output: "generated".into(),
            exact: false,
            hashes: None,
            check: false,
            companions: true,
        }
    }
}

/// Outcome of a request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// Files were written.
    Written(Written),
    /// Files were compared.
    Compared(Compared),
    /// Hashes were written or compared.
    Hashed(Hashed),
}

/// Files that were written.
#[derive(Debug, Serialize)]
pub struct Written {
    /// The folder or file.
    #[serde(serialize_with = "lossy")]
    pub output: PathBuf,
    /// Names of all kernels now in the output.
    pub variants: Vec<String>,
    /// The file of each kernel of the selection.
    pub selected: Vec<Selected>,
    /// The files.
    #[serde(flatten)]
    pub summary: WriteSummary,
    /// Duration of the command.
    pub milliseconds: u128,
    /// True if the selection is the whole grid.
    #[serde(skip)]
    pub whole_grid: bool,
}

/// The file of a selected kernel.
#[derive(Debug, Serialize)]
pub struct Selected {
    /// Name of the kernel.
    pub name: String,
    /// The file, below the output folder.
    pub file: String,
    /// True if the file is new or has changed.
    pub written: bool,
}

/// Files that were compared with the rendered ones.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// The folder or file.
    #[serde(serialize_with = "lossy")]
    pub output: PathBuf,
    /// Names of the kernels that it should contain.
    pub variants: Vec<String>,
    /// The differences.
    pub drift: Vec<Drift>,
}

/// Renders the kernels, or compares the existing files.
///
/// # Errors
/// [`CommandError::Usage`] if a variant has no plan or the output cannot be written. Differences are in the outcome.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let start = Instant::now();
    let Request { selection, helpers, output, exact, hashes, check, companions } = request;
    let session = Session::open(context)?;
    let variants = resolve_with_notes(selection, context, &session.grid, observer)?;
    if let Some(file) = hashes {
        if *exact {
            return Err(CommandError::Usage("`hashes` writes no folder; leave out `exact`".to_owned()));
        }
        if output != &Request::default().output {
            return Err(CommandError::Usage("`hashes` writes no folder; leave out `output`".to_owned()));
        }
        let variants = if *helpers { helpers::complete(&session.grid, variants, observer) } else { variants };
        return hashes::run(&session, &variants, file, *check).map(Outcome::Hashed);
    }
    refuse_other_endings(output)?;
    let is_file = output.extension().is_some_and(|extension| extension == "cu") && !is_folder(output);
    let variants = if is_file {
        vec![only_one(&variants, output, selection.is_by_name(), observer)?]
    } else if *helpers {
        helpers::complete(&session.grid, variants, observer)
    } else {
        variants
    };
    if *exact && is_file {
        let said = "`--exact` is for a folder; a `.cu` file is always exactly one kernel";
        return Err(CommandError::Usage(said.to_owned()));
    }

    if *check {
        let compare = if is_file {
            check_file(&session, output, variants[0], *companions)
        } else {
            check_folder(&session, output, &variants, *exact)
        };
        let (variants, drift) = compare?;
        return Ok(Outcome::Compared(Compared { output: output.clone(), variants: names_of(&variants), drift }));
    }
    let (held, summary) = if is_file {
        write_file(&session, output, variants[0], *companions, observer)?
    } else {
        write_folder(&session, output, &variants, *exact, context, observer)?
    };
    let selected = |variant: &Variant| {
        let file = if is_file { name_of(output) } else { render::file_name(variant) };
        Selected { name: variant.name(), written: summary.written.contains(&file), file }
    };
    let selected = variants.iter().map(selected).collect();
    warn_of_edited(folder_of(output), &summary, observer);
    Ok(Outcome::Written(Written {
        output: output.clone(),
        variants: names_of(&held),
        selected,
        summary,
        milliseconds: start.elapsed().as_millis(),
        whole_grid: session.is_whole_grid(&variants),
    }))
}

impl Outcome {
    /// Fails if files differ from the rendered ones.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with the remedy.
    pub fn verdict(&self) -> Result<(), CommandError> {
        let Compared { output, drift, .. } = match self {
            Self::Written(_) => return Ok(()),
            Self::Compared(compared) => compared,
            Self::Hashed(hashed) => return hashed.verdict(),
        };
        let differences = match drift.len() {
            0 => return Ok(()),
            1 => "1 file is".to_owned(),
            count => format!("{count} files are"),
        };
        let stale = drift.iter().any(|drift| !matches!(drift, Drift::Extra { written_by_kgen: false, .. }));
        let remedy = if stale {
            "run the same command without `--check` to bring it up to date"
        } else {
            "move elsewhere what kgen did not write"
        };
        Err(CommandError::Failed(format!("`{}`: {differences} not as generated; {remedy}", output.display())))
    }
}

/// `output` itself if it is a folder, else its parent folder.
pub(crate) fn folder_of(output: &Path) -> &Path {
    if output.is_file() { output.parent().unwrap_or(Path::new("")) } else { output }
}

/// True for a folder that exists, or that is named as one: `new/`.
fn is_folder(output: &Path) -> bool {
    output.as_os_str().to_string_lossy().ends_with('/') || output.is_dir()
}

/// Refuses an output path that looks like a file of a type kgen does not write: `my.cuh`, or `.cu` without a name,
/// would silently become a folder. A version number at the end of a folder's name is not a file extension.
fn refuse_other_endings(output: &Path) -> Result<(), CommandError> {
    if !is_folder(output) && output.file_name().is_some_and(|name| name == ".cu") {
        let path = output.display();
        return Err(CommandError::Usage(format!(
            "`--output {path}` names no file before the ending; write `NAME.cu` for one kernel, or `{path}/` for a folder"
        )));
    }
    let Some(ending) = output.extension().map(|ending| ending.to_string_lossy().into_owned()) else { return Ok(()) };
    if ending == "cu" || is_folder(output) || ending.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(());
    }
    let (path, file) = (output.display(), output.with_extension("cu"));
    let file = file.display();
    Err(CommandError::Usage(format!(
        "`--output {path}` is no `.cu` file; write `{file}` for one kernel, or `{path}/` for a folder"
    )))
}

/// Updates `folder` to contain `variants` besides its other kernels, or only them if `exact` is set or they are the
/// whole grid. Returns the variants it now contains.
///
/// # Errors
/// [`CommandError::Usage`]; the folder is then unchanged.
fn write_folder(
    session: &Session,
    folder: &Path,
    variants: &[Variant],
    exact: bool,
    context: &Context,
    observer: &dyn Observer,
) -> Result<(Vec<Variant>, WriteSummary), CommandError> {
    // Planned before the folder is created.
    let plans = session.plan_all(variants, None)?;
    let open = Folder::open(folder, &|message| observer.note(message), &|| context.cancel.requested());
    let open = open.map_err(unwritable(FLAG))?;
    let (plans, files) = session.folder_files(folder, variants, plans, if exact { &[] } else { open.held() })?;
    Ok((variants_of(&plans), open.write(&files, Prune::Yes).map_err(unwritable(FLAG))?))
}

fn check_folder(
    session: &Session,
    folder: &Path,
    variants: &[Variant],
    exact: bool,
) -> Result<(Vec<Variant>, Vec<Drift>), CommandError> {
    let plans = session.plan_all(variants, None)?;
    let held = if exact { Vec::new() } else { render::held_variants(folder)? };
    let (plans, files) = session.folder_files(folder, variants, plans, &held)?;
    Ok((variants_of(&plans), render::drift(folder, &files)?))
}

fn write_file(
    session: &Session,
    file: &Path,
    variant: Variant,
    companions: bool,
    observer: &dyn Observer,
) -> Result<(Vec<Variant>, WriteSummary), CommandError> {
    let (kernel, others, notes) = kernel_files(session, file, variant, companions)?;
    let written = written_before(session, file).unwrap_or_default();
    let summary =
        render::write_kernel_file(file, &kernel.text, &others, &written, &session.templates, &|message| observer.note(message));
    let summary = summary.map_err(unwritable(FLAG))?;
    for note in &notes {
        observer.note(note);
    }
    Ok((vec![variant], summary))
}

/// The files that this kgen writes as `file`, and beside it, for the kernel that `file` names now, companions included;
/// `None` if it names none.
fn written_before(session: &Session, file: &Path) -> Option<Vec<OutputFile>> {
    let text = files::read_to_string(file).ok()?;
    let name = text.lines().next()?.strip_prefix("// ")?.to_owned();
    let variant = *names::resolve(&session.grid, &[name]).ok()?.first()?;
    let (kernel, others, _) = kernel_files(session, file, variant, true).ok()?;
    Some([vec![kernel], others].concat())
}

fn check_file(
    session: &Session,
    file: &Path,
    variant: Variant,
    companions: bool,
) -> Result<(Vec<Variant>, Vec<Drift>), CommandError> {
    let (kernel, others, _) = kernel_files(session, file, variant, companions)?;
    let files = render::with_used_headers(&session.templates, [vec![kernel], others].concat())?;
    let mut drift = render::drift(file.parent().unwrap_or(Path::new("")), &files)?;
    // Other kernels beside a single file are ignored.
    drift.retain(|drift| !matches!(drift, Drift::Extra { .. }));
    Ok((vec![variant], drift))
}

/// The kernel, what goes beside it (the header that declares it, and the companions if they are wanted), and notes.
fn kernel_files(
    session: &Session,
    file: &Path,
    variant: Variant,
    companions: bool,
) -> Result<(OutputFile, Vec<OutputFile>, Vec<String>), CommandError> {
    let plan = session.plan(variant).map_err(CommandError::Usage)?;
    let path = name_of(file);
    let text = session.renderer.kernel_in_file(&plan, &path)?.text;
    let mut others = vec![render::kernel_header(&session.renderer, &plan, &path)?];
    let Companions { files, notes } = if companions { Companions::of(session, &plan, file)? } else { Companions::default() };
    others.extend(files);
    Ok((OutputFile { path, text }, others, notes))
}

fn variants_of(plans: &[Plan]) -> Vec<Variant> {
    plans.iter().map(|plan| plan.variant).collect()
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn names_of(variants: &[Variant]) -> Vec<String> {
    variants.iter().map(Variant::name).collect()
}
