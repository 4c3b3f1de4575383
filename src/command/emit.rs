//! The command lines of a build as a file for another scheduler, beside the sources.

use super::{
    CommandError, Context, Observer, SelectionRequest,
    build::{
        self,
        made::{DISPATCHER, kernel_units},
    },
    helpers,
    selection::resolve_with_notes,
    session::{Session, unwritable, warn_of_edited},
};
use crate::{
    build::{EmitForm, Unit, emit},
    files::path::lossy,
    render::{self, Folder, OutputFile, Prune, WriteSummary},
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The flag that names the output.
const FLAG: &str = "--output";

/// The dispatcher's source in the folder.
const DISPATCHER_SOURCE: &str = "kgen_dispatch.cpp";

/// Request of an emitted build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The form.
    pub form: EmitForm,
    /// The variants.
    #[serde(default)]
    pub selection: SelectionRequest,
    /// Add the helper kernels that selected split-KV kernels need.
    #[serde(default = "yes")]
    pub helpers: bool,
    /// The nvcc to name; `None` for the one in the environment, else kgen's own, which is installed when needed.
    #[serde(default)]
    pub nvcc: Option<PathBuf>,
    /// Never use the network.
    #[serde(default)]
    pub offline: bool,
    /// Compiler launcher in front of nvcc, such as `ccache`; it need not be installed here.
    #[serde(default)]
    pub launcher: Option<String>,
    /// Embed PTX, which GPUs newer than the target need.
    #[serde(default = "yes")]
    pub ptx: bool,
    /// The folder, which becomes exactly the selection.
    #[serde(default = "folder")]
    pub output: PathBuf,
}

fn yes() -> bool {
    true
}

fn folder() -> PathBuf {
    "emitted".into()
}

/// An emitted build.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The file with the command lines.
    #[serde(serialize_with = "lossy")]
    pub file: PathBuf,
    /// Names of the kernels, in the order of the library.
    pub kernels: Vec<String>,
    /// The files of the folder.
    #[serde(flatten)]
    pub summary: WriteSummary,
}

/// Renders the selection into a folder and writes the lines that compile and link it there.
///
/// # Errors
/// [`CommandError::Usage`] if a variant has no plan, the form cannot say what is asked or the folder cannot be written;
/// [`CommandError::Environment`] without compilers to name.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let Request { form, selection, helpers, nvcc, offline, launcher, ptx, output } = request;
    if *form == EmitForm::CompileCommands && launcher.is_some() {
        let why = "a compilation database names compilers, and no launcher of them";
        return Err(CommandError::Usage(format!("{why}; leave out `--launcher`, or emit `ninja` or `make`")));
    }
    let session = Session::open(context)?;
    let variants = resolve_with_notes(selection, context, &session.grid, observer)?;
    let variants = if *helpers { helpers::complete(&session.grid, variants, observer) } else { variants };
    let plans = session.plan_all(&variants, None)?;
    let build = build::Request { nvcc: nvcc.clone(), offline: *offline, ..build::Request::default() };
    let tools = build.tools(context, observer)?;
    let with_lines = |files: &[OutputFile]| -> Result<Vec<OutputFile>, CommandError> {
        let mut units = kernel_units(&plans, files, &session.templates, *ptx);
        units.push(Unit::dispatcher(DISPATCHER, Path::new(DISPATCHER_SOURCE), "", *ptx));
        let headers = files.iter().map(|file| file.path.clone()).filter(|path| path.starts_with("include/"));
        let headers: Vec<String> = headers.collect();
        let lines = emit(*form, &units, &headers, &tools.nvcc, &tools.host, launcher.as_deref(), output)?;
        Ok(lines.into_iter().map(|(path, text)| OutputFile { path: path.to_owned(), text }).collect())
    };
    let files = render::tree_with(&session.renderer, &session.templates, &plans, with_lines)?;
    let folder = Folder::open(output, &|message| observer.note(message), &|| context.cancel.requested());
    let summary = folder.map_err(unwritable(FLAG))?.write(&files, Prune::Yes).map_err(unwritable(FLAG))?;
    warn_of_edited(output, &summary, observer);
    let kernels = plans.iter().map(|plan| plan.variant.name()).collect();
    Ok(Outcome { file: output.join(form.file()), kernels, summary })
}
