//! `kgen vendor`: kernels as sources in somebody else's project.

use super::{CliError, Format, Global, helpers::HelperArgs, select::SelectionArgs, ui, workshop::Workshop};
use crate::{
    files::path::lossy,
    grid::Variant,
    render::{self, Action, Changes, OutputFile, RenderError, Vendored},
};
use itertools::Itertools;
use serde::Serialize;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen vendor third_party/kgen --head-dim 128 --dtype bf16 --target sm80,sm90
                                       sources of these kernels, and how to
                                       compile them
  kgen vendor third_party/kgen         bring them to this kgen
  kgen vendor third_party/kgen --check is that needed? exit code 1 if it is
  kgen vendor third_party/kgen --remove

The folder holds exactly the kernels that were selected last, the headers they
use, a CMakeLists.txt, a Makefile and the dispatcher of these kernels. Files
with local changes are never replaced or removed, and nothing else is touched.";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder for the kernels: a new one, or one that `kgen vendor` made.
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    helpers: HelperArgs,

    /// Leave out the dispatcher: kernels are called by their names, and `kgen_fwd` is not there.
    #[arg(long)]
    no_dispatcher: bool,

    /// Write nothing; fail and name the files that would change.
    #[arg(long, conflicts_with_all = ["dry_run", "remove"])]
    check: bool,

    /// Write nothing; name the files that would change.
    #[arg(long)]
    dry_run: bool,

    /// Remove what was written, and the folder if nothing else is in it.
    #[arg(long, conflicts_with = "no_dispatcher")]
    remove: bool,
}

/// What was done or would be, for `--format json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(serialize_with = "lossy")]
    folder: &'a Path,
    /// The kernels that the folder holds then.
    variants: Vec<String>,
    dispatcher: bool,
    /// Whether the changes have been made.
    written: bool,
    #[serde(flatten)]
    changes: &'a Changes,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Usage`] where no kernel is named and none is there, a variant has no plan, the folder is not the
/// command's own or has local changes; [`CliError::VariantFailed`] where `--check` finds a difference.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    if args.remove {
        return remove(global, &args);
    }
    let folder = args.folder.as_path();
    let workshop = Workshop::new(global)?;
    let (variants, dispatcher) = wanted(&workshop, &args)?;
    let plans = workshop.plan_all(&variants, None)?;
    let files: Vec<OutputFile> = render::vendored_tree(&workshop.renderer, &workshop.templates, &plans, dispatcher)?;
    let writes = !(args.check || args.dry_run);
    let changes =
        if writes { render::bring(folder, &files, &ui::note).map_err(unwritable)? } else { render::compare(folder, &files)? };
    if args.dry_run {
        changes.refuse_edited(folder)?;
    }
    let names = variants.iter().map(Variant::name).collect();
    tell(global, &Report { folder, variants: names, dispatcher, written: writes, changes: &changes })?;
    if args.check { up_to_date(folder, &changes) } else { Ok(()) }
}

/// The kernels to hold, and whether the dispatcher comes with them: those selected, or those the folder holds where
/// nothing is.
fn wanted(workshop: &Workshop, args: &Args) -> Result<(Vec<Variant>, bool), CliError> {
    if !args.selection.is_empty() {
        let selected = args.selection.resolve(&workshop.grid)?;
        args.selection.tell_notes(&workshop.grid, &selected);
        return Ok((args.helpers.complete(&workshop.grid, selected), !args.no_dispatcher));
    }
    match render::vendored_in(&args.folder)? {
        Some(Vendored { variants, dispatcher }) => Ok((variants, dispatcher && !args.no_dispatcher)),
        None => Err(CliError::Usage(format!(
            "`{}` holds no kernels yet; say which: `--head-dim 128 --dtype bf16 --target sm80`, say, or `--all`",
            args.folder.display()
        ))),
    }
}

fn remove(global: &Global, args: &Args) -> Result<(), CliError> {
    if !args.selection.is_empty() {
        return Err(CliError::Usage("`--remove` takes away the whole folder; leave out the selection".to_owned()));
    }
    let folder = args.folder.as_path();
    let changes = if args.dry_run {
        let changes = render::compare_removal(folder)?;
        changes.refuse_edited(folder)?;
        changes
    } else {
        render::take_away(folder, &ui::note).map_err(unwritable)?
    };
    tell(global, &Report { folder, variants: Vec::new(), dispatcher: false, written: !args.dry_run, changes: &changes })
}

fn tell(global: &Global, report: &Report<'_>) -> Result<(), CliError> {
    if global.format == Format::Json {
        return ui::print_json(report);
    }
    let lines = report.changes.changes.iter().map(|change| {
        let edited = if change.edited { "  (has local changes)" } else { "" };
        format!("{:<6}  {}{edited}\n", change.action, change.path)
    });
    let done = [(Action::Add, "added"), (Action::Update, "updated"), (Action::Remove, "removed")];
    let counts = done.iter().map(|(action, word)| (report.changes.count(*action), word)).filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, word)| format!("{} {word}", ui::count(count, "file"))).join(", ");
    let counts = if counts.is_empty() { "nothing to do".to_owned() } else { counts };
    let kernels = ui::count(report.variants.len(), "kernel");
    let unwritten = if report.written || report.changes.changes.is_empty() { "" } else { "; nothing was written" };
    let text: String = lines.collect();
    ui::print(&format!(
        "{text}{}: {kernels}; {counts}, {} unchanged{unwritten}\n",
        report.folder.display(),
        report.changes.unchanged
    ))
}

/// What `--check` says of the changes it found.
fn up_to_date(folder: &Path, changes: &Changes) -> Result<(), CliError> {
    if changes.changes.is_empty() {
        return Ok(());
    }
    let files = match changes.changes.len() {
        1 => "1 file is".to_owned(),
        count => format!("{count} files are"),
    };
    let remedy = match changes.changes.iter().filter(|change| change.edited).count() {
        0 => "run the same command without `--check`",
        _ => "keep the local changes elsewhere, restore those files, then run the same command without `--check`",
    };
    Err(CliError::VariantFailed(format!("`{}`: {files} not as `kgen vendor` writes them; {remedy}", folder.display())))
}

/// Says what to do where the folder cannot be written.
fn unwritable(error: RenderError) -> CliError {
    match &error {
        RenderError::Io { action: "create" | "write" | "lock" | "remove", .. } => {
            CliError::Usage(format!("{error}; make it writable, or name another folder"))
        }
        _ => error.into(),
    }
}
