//! `kgen vendor`: kernels as sources in somebody else's project.

use super::{
    CliError, Format, Global,
    helpers::HelperArgs,
    select::SelectionArgs,
    ui,
    workshop::{Workshop, unwritable_unless},
};
use crate::{
    files::path::lossy,
    kernel::Variant,
    render::{
        self, Action, Changes, InstalledVllm, Layout, LockedVendored, LockedVllm, OutputFile, Prebuilt, RenderError, Restoration,
        Vendored, VendoredAs, VllmTree,
    },
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

const VLLM_EXAMPLES: &str = "\
Examples:
  kgen vendor vllm ~/vllm --kind fwd,fwd_split,append_kv --target sm90,sm80
  kgen vendor vllm ~/vllm --check
  kgen vendor vllm ~/vllm --remove
  kgen vendor vllm venv/lib/python3.12/site-packages --prebuilt out
                                       what scripts/torch_ops.sh has written to
                                       `out`, in place of an installed vLLM's
  kgen vendor vllm venv/lib/python3.12/site-packages --prebuilt --remove";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(subcommand_help_heading = "Projects kgen knows", subcommand_value_name = "PROJECT", disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    project: Option<Project>,

    /// Folder for the kernels: a new one, or one that `kgen vendor` made.
    #[arg(value_name = "DIR", required = true)]
    folder: Option<PathBuf>,

    #[command(flatten)]
    what: What,
}

/// Projects that kgen knows its way about.
#[derive(Debug, clap::Subcommand)]
enum Project {
    /// Put the kernels into a checkout of vLLM, whose attention modules are then built on them.
    #[command(after_help = VLLM_EXAMPLES)]
    Vllm {
        /// The checkout. `kgen/` in it is for the kernels; one file of its build gets three lines that lead there.
        #[arg(value_name = "PATH")]
        checkout: PathBuf,

        /// PATH is an installed vLLM, whose built modules those in DIR replace; its own are kept beside them. DIR is
        /// what `scripts/torch_ops.sh` has written; `--check` and `--remove` need none.
        #[arg(long, value_name = "DIR", num_args = 0..=1)]
        #[allow(clippy::option_option, reason = "absent, without a folder, with one")]
        prebuilt: Option<Option<PathBuf>>,

        #[command(flatten)]
        what: What,
    },
}

/// What is to be done, wherever it is.
#[derive(Debug, clap::Args)]
struct What {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    helpers: HelperArgs,

    /// Take a folder that kgen did not make and that holds other files. They stay; none may have a name of kgen's.
    #[arg(long, conflicts_with = "remove")]
    beside_others: bool,

    /// Leave out the dispatcher: kernels are called by their names, and `kgen_fwd` is not there.
    #[arg(long)]
    no_dispatcher: bool,

    #[command(flatten)]
    act: Act,
}

/// What is done with the changes; without a flag they are made.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Act {
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

/// Where it is done.
enum Place {
    Folder(Vendored),
    Vllm(VllmTree),
}

/// The same, where no other kgen writes meanwhile.
enum LockedPlace<'a> {
    Folder(LockedVendored<'a>),
    Vllm(LockedVllm<'a>),
}

impl LockedPlace<'_> {
    fn held(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        match self {
            Self::Folder(folder) => folder.held(),
            Self::Vllm(tree) => tree.held(),
        }
    }

    fn bring(self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        match self {
            Self::Folder(folder) => folder.bring(files),
            Self::Vllm(tree) => tree.bring(files),
        }
    }

    fn take_away(self) -> Result<Changes, RenderError> {
        match self {
            Self::Folder(folder) => folder.take_away(),
            Self::Vllm(tree) => tree.take_away(),
        }
    }
}

impl Place {
    fn layout(&self) -> Layout {
        match self {
            Self::Folder(_) => Layout::Plain,
            Self::Vllm(_) => Layout::Vllm,
        }
    }

    fn held(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        match self {
            Self::Folder(folder) => folder.held(&ui::note),
            Self::Vllm(tree) => tree.folder().held(&ui::note),
        }
    }

    /// Its lock, for `files` to be brought there; without them, where something is there.
    fn lock(&self, files: Option<&[OutputFile]>) -> Result<Option<LockedPlace<'_>>, RenderError> {
        Ok(match self {
            Self::Folder(folder) => folder.lock(files, &ui::note)?.map(LockedPlace::Folder),
            Self::Vllm(tree) => tree.lock(files, &ui::note)?.map(LockedPlace::Vllm),
        })
    }

    /// What would change; without `files`, if it were taken away.
    fn compare(&self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        match self {
            Self::Folder(folder) => folder.compare(files, &ui::note),
            Self::Vllm(tree) => tree.compare(files, &ui::note),
        }
    }

    /// As [`compare`](Self::compare), refusing what would be refused if it were done.
    fn rehearse(&self, root: &Path, files: &[OutputFile]) -> Result<Changes, RenderError> {
        if let Self::Vllm(tree) = self {
            tree.refuse_uncommitted(!files.is_empty())?;
        }
        let changes = self.compare(files)?;
        changes.refuse_edited(root, Restoration::Delete)?;
        Ok(changes)
    }
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
/// command's own or has local changes, or a checkout is not as it is known; [`CliError::VariantFailed`] where `--check`
/// finds a difference.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let (root, place, what) = match (args.project, args.folder) {
        (Some(Project::Vllm { checkout, prebuilt: Some(built), what }), _) => {
            return installed(global, &checkout, built.as_deref(), &what);
        }
        (Some(Project::Vllm { checkout, prebuilt: None, what }), _) => {
            let place = Place::Vllm(VllmTree::open(&checkout)?.beside_others(what.beside_others));
            (checkout, place, what)
        }
        (None, folder) => {
            let folder = folder.unwrap_or_default();
            let place = Place::Folder(Vendored::new(&folder, Layout::Plain).beside_others(args.what.beside_others));
            (folder, place, args.what)
        }
    };
    if what.act.remove { remove(global, &root, &place, &what) } else { write(global, &root, &place, &what) }
}

/// Replaces the modules of an installed vLLM, or puts its own back.
fn installed(global: &Global, path: &Path, built: Option<&Path>, what: &What) -> Result<(), CliError> {
    if !what.selection.is_empty() || what.no_dispatcher || what.beside_others {
        let said = "`--prebuilt` takes the kernels of `libkgen_vllm.so`; leave out the selection and what goes with it";
        return Err(CliError::Usage(said.to_owned()));
    }
    let mut vllm = InstalledVllm::open(path, &ui::note)?;
    let built = match built {
        Some(folder) if !what.act.remove => Some(Prebuilt::read(folder)?),
        None if !what.act.remove && !what.act.check => {
            let said = "`--prebuilt` needs the folder with the built modules, which `scripts/torch_ops.sh` writes";
            return Err(CliError::Usage(said.to_owned()));
        }
        _ => None,
    };
    if !what.act.check && !what.act.dry_run {
        vllm = vllm.lock(&ui::note).map_err(unwritable)?;
    }
    let changes = match (what.act, &built) {
        (Act { check: true, .. }, _) => vllm.compare(built.as_ref())?,
        (Act { dry_run: true, .. }, Some(_)) => rehearsed(&vllm, vllm.compare(built.as_ref())?)?,
        (Act { dry_run: true, .. }, None) => rehearsed(&vllm, vllm.compare_without()?)?,
        (_, Some(built)) => vllm.bring(built).map_err(unwritable)?,
        (_, None) => vllm.take_away().map_err(unwritable)?,
    };
    let written = !(what.act.check || what.act.dry_run);
    let root = vllm.folder().to_owned();
    tell(global, &Report { folder: &root, variants: Vec::new(), dispatcher: false, written, changes: &changes })?;
    if !what.act.check || changes.changes.is_empty() {
        return Ok(());
    }
    let files = changes.changes.iter().map(|change| format!("`{}`", change.path)).join(", ");
    Err(CliError::VariantFailed(format!("`{}`: {files}: not as `kgen vendor vllm --prebuilt` leaves them", root.display())))
}

/// The changes, refused where doing them would be.
fn rehearsed(vllm: &InstalledVllm, changes: Changes) -> Result<Changes, CliError> {
    changes.refuse_edited(vllm.folder(), Restoration::Restore)?;
    Ok(changes)
}

fn write(global: &Global, root: &Path, place: &Place, what: &What) -> Result<(), CliError> {
    let workshop = Workshop::new(global)?;
    let only_looks = what.act.check || what.act.dry_run;
    // Without a selection it is what lies there that decides.
    let early = if only_looks || !what.selection.is_empty() { None } else { place.lock(None).map_err(unwritable)? };
    let held = || early.as_ref().map_or_else(|| place.held(), LockedPlace::held);
    let (variants, how) = wanted(&workshop, root, place.layout(), &held, what)?;
    let plans = workshop.plan_all(&variants, None)?;
    let files: Vec<OutputFile> = render::vendored_tree(&workshop.renderer, &workshop.templates, &plans, how)?;
    let changes = match what.act {
        Act { check: true, .. } => place.compare(&files)?,
        Act { dry_run: true, .. } => place.rehearse(root, &files)?,
        Act { .. } => {
            let locked = early.map_or_else(|| place.lock(Some(&files)), |locked| Ok(Some(locked)));
            let done = locked.and_then(|locked| locked.map_or_else(|| Ok(Changes::default()), |locked| locked.bring(&files)));
            done.map_err(unwritable)?
        }
    };
    let written = !only_looks;
    let names = variants.iter().map(Variant::name).collect();
    tell(global, &Report { folder: root, variants: names, dispatcher: how.dispatcher, written, changes: &changes })?;
    if what.act.check { up_to_date(root, place, &changes) } else { Ok(()) }
}

/// The kernels to hold, and whether the dispatcher comes with them: those selected, or those the folder holds where
/// nothing is.
fn wanted(
    workshop: &Workshop,
    root: &Path,
    layout: Layout,
    held: &dyn Fn() -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError>,
    what: &What,
) -> Result<(Vec<Variant>, VendoredAs), CliError> {
    if layout == Layout::Vllm && what.no_dispatcher {
        return Err(CliError::Usage("vLLM's modules call the dispatcher; leave out `--no-dispatcher`".to_owned()));
    }
    if !what.selection.is_empty() {
        let selected = what.selection.resolve(&workshop.grid)?;
        what.selection.tell_notes(&workshop.grid, &selected);
        let how = VendoredAs { layout, dispatcher: !what.no_dispatcher };
        return Ok((what.helpers.complete(&workshop.grid, selected), how));
    }
    match held()? {
        Some((variants, how)) => Ok((variants, VendoredAs { dispatcher: how.dispatcher && !what.no_dispatcher, ..how })),
        None => Err(CliError::Usage(format!(
            "`{}` holds no kernels yet; say which: `--head-dim 128 --dtype bf16 --target sm80`, say, or `--all`",
            root.display()
        ))),
    }
}

fn remove(global: &Global, root: &Path, place: &Place, what: &What) -> Result<(), CliError> {
    if !what.selection.is_empty() {
        return Err(CliError::Usage("`--remove` takes away all that was written; leave out the selection".to_owned()));
    }
    // No error: a removal that was killed at its very end is finished by the same command.
    let is_nowhere = matches!(place, Place::Folder(_)) && !root.exists();
    let take_away = || place.lock(None)?.map_or_else(|| Ok(Changes::default()), LockedPlace::take_away);
    let changes = if what.act.dry_run { place.rehearse(root, &[])? } else { take_away().map_err(unwritable)? };
    if is_nowhere && global.format == Format::Human {
        return ui::print(&format!("there is no `{}`; nothing to do\n", root.display()));
    }
    tell(global, &Report { folder: root, variants: Vec::new(), dispatcher: false, written: !what.act.dry_run, changes: &changes })
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
    let would = if report.written { "" } else { "would be " };
    let counts = counts.map(|(count, word)| format!("{} {would}{word}", ui::count(count, "file"))).join(", ");
    let counts = if counts.is_empty() { "nothing to do".to_owned() } else { counts };
    let kernels = match report.variants.len() {
        0 => String::new(),
        count => format!("{}; ", ui::count(count, "kernel")),
    };
    let unwritten = if report.written || report.changes.changes.is_empty() { "" } else { "; nothing was written" };
    let text: String = lines.collect();
    ui::print(&format!(
        "{text}{}: {kernels}{counts}, {} unchanged{unwritten}\n",
        report.folder.display(),
        report.changes.unchanged
    ))
}

/// What `--check` says of the changes it found.
fn up_to_date(root: &Path, place: &Place, changes: &Changes) -> Result<(), CliError> {
    if changes.changes.is_empty() {
        return Ok(());
    }
    let (files, them) = match changes.changes.len() {
        1 => ("1 file is".to_owned(), "it"),
        count => (format!("{count} files are"), "them"),
    };
    let remedy = match changes.changes.iter().filter(|change| change.edited).count() {
        0 => "run the same command without `--check`",
        _ => "keep the local changes elsewhere, delete those files, then run the same command without `--check`",
    };
    let command = place.layout().command();
    Err(CliError::VariantFailed(format!("`{}`: {files} not as `{command}` writes {them}; {remedy}", root.display())))
}

/// Says what to do where the folder cannot be written.
fn unwritable(error: RenderError) -> CliError {
    unwritable_unless("name another folder", error)
}
