//! `kgen generate`.

mod chosen;
mod hashes;
mod selected;

use super::{
    CliError, Format, Global,
    helpers::HelperArgs,
    manner, names,
    select::SelectionArgs,
    ui,
    workshop::{Workshop, tell_edited, unwritable},
};
use crate::{
    files::{self, path::lossy},
    kernel::Variant,
    plan::Plan,
    render::{self, Drift, Folder, OutputFile, Prune, WriteSummary},
};
use chosen::only_one;
use itertools::Itertools;
use selected::Selected;
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

const EXAMPLES: &str = "\
Examples:
  kgen generate                 the whole grid into ./generated
  kgen generate --head-dim 128 --dtype bf16 --causal --target ampere
                                its kernels, added to ./generated
  kgen generate --head-dim 72 --dtype fp16 --target sm80 --output my.cu
                                my.cu, my.h and include/
  kgen generate --all --check   verify that ./generated is up to date
  kgen generate --all --hashes grid.b3
                                hashes of all kernels, and no kernel: `--check`
                                names those that an edited template changes

A folder keeps the kernels it holds: those selected are added, and all are
brought up to date. With `--exact`, and when the selection is the whole grid,
the folder becomes exactly the selection. Files kgen did not write are never touched; one that has been
edited since is replaced, and the edited text kept beside it.";

/// The flag that names where files go.
const FLAG: &str = "--output";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    helpers: HelperArgs,

    /// Folder to write, or a file ending in .cu where one variant is selected.
    #[arg(long, short, value_name = "PATH", default_value = "generated")]
    output: PathBuf,

    /// Make the folder exactly the selection: kernels of earlier runs that are not selected are removed.
    #[arg(long)]
    exact: bool,

    /// Write the BLAKE3 of each selected kernel's file to FILE, as `b3sum` prints it, and no kernels.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "exact"])]
    hashes: Option<PathBuf>,

    /// Write nothing; fail and name the files that differ from what would be written.
    #[arg(long)]
    check: bool,
}

/// What was done, for `--format json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    /// All kernels that the folder holds now.
    variants: Vec<String>,
    /// The file of each kernel of the selection.
    selected: &'a [Selected],
    #[serde(flatten)]
    summary: &'a WriteSummary,
    milliseconds: u128,
}

/// What `--check` found, for `--format json`.
#[derive(Serialize)]
struct CheckReport<'a> {
    #[serde(serialize_with = "lossy")]
    output: &'a Path,
    variants: Vec<String>,
    drift: &'a [Drift],
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Usage`] where a variant has no plan or the output cannot be written, [`CliError::VariantFailed`] where
/// `--check` finds a difference.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let start = Instant::now();
    let Args { selection, helpers, output, exact, hashes, check } = args;
    let output = output.as_path();
    let workshop = Workshop::new(global)?;
    let variants = selection.resolve(&workshop.grid)?;
    selection.tell_notes(&workshop.grid, &variants);
    if let Some(file) = hashes {
        return hashes::run(global, &workshop, &variants, &file, check);
    }
    refuse_other_endings(output)?;
    let is_file = output.extension().is_some_and(|extension| extension == "cu") && !output.is_dir();
    let variants = if is_file {
        vec![only_one(&variants, output, selection.is_by_name())?]
    } else {
        helpers.complete(&workshop.grid, variants)
    };
    if exact && is_file {
        return Err(CliError::Usage("`--exact` is for a folder; a `.cu` file is always exactly one kernel".to_owned()));
    }

    if check {
        return if is_file {
            check_file(&workshop, output, variants[0])
        } else {
            check_folder(&workshop, output, &variants, exact)
        }
        .and_then(|(variants, drift)| report_drift(global, output, &variants, &drift));
    }
    let (held, summary) =
        if is_file { write_file(&workshop, output, variants[0])? } else { write_folder(&workshop, output, &variants, exact)? };
    let file_of = |variant: &Variant| if is_file { name_of(output) } else { render::file_name(variant) };
    let selected: Vec<Selected> = variants.iter().map(|variant| Selected::new(variant, file_of(variant), &summary)).collect();
    let is_plain = workshop.is_whole_grid(&variants) && !manner::verbose();
    let shown = if is_plain { String::new() } else { selected::describe(folder_of(output), &selected) };
    report(global, output, &Written { held, selected, shown, summary }, start)
}

/// What was written.
struct Written {
    /// The kernels that the output holds now.
    held: Vec<Variant>,
    /// Those that were asked for.
    selected: Vec<Selected>,
    /// Their files, for people.
    shown: String,
    summary: WriteSummary,
}

/// The folder that a folder or a file is.
fn folder_of(output: &Path) -> &Path {
    if output.is_file() { output.parent().unwrap_or(Path::new("")) } else { output }
}

/// Refuses an output that looks like a file and is none that kgen writes: `my.cuh` would silently become a folder.
/// A version number at the end of a folder's name is no ending.
fn refuse_other_endings(output: &Path) -> Result<(), CliError> {
    let Some(ending) = output.extension().map(|ending| ending.to_string_lossy().into_owned()) else { return Ok(()) };
    let written_as_folder = output.as_os_str().to_string_lossy().ends_with('/');
    if ending == "cu" || written_as_folder || output.is_dir() || ending.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(());
    }
    let (path, file) = (output.display(), output.with_extension("cu"));
    let file = file.display();
    Err(CliError::Usage(format!("`--output {path}` is no `.cu` file; write `{file}` for one kernel, or `{path}/` for a folder")))
}

/// Brings `folder` to hold `variants` beside what it held, or exactly them if `exact` or if they are the whole grid.
/// Returns the variants it holds now.
///
/// # Errors
/// [`CliError::Usage`]; the folder is then as it was.
fn write_folder(
    workshop: &Workshop,
    folder: &Path,
    variants: &[Variant],
    exact: bool,
) -> Result<(Vec<Variant>, WriteSummary), CliError> {
    // Before the folder is made.
    let plans = workshop.plan_all(variants, None)?;
    let open = Folder::open(folder, &ui::note, &|| false).map_err(unwritable(FLAG))?;
    let (plans, files) = workshop.folder_files(folder, variants, plans, if exact { &[] } else { open.held() })?;
    Ok((variants_of(&plans), open.write(&files, Prune::Yes).map_err(unwritable(FLAG))?))
}

fn check_folder(
    workshop: &Workshop,
    folder: &Path,
    variants: &[Variant],
    exact: bool,
) -> Result<(Vec<Variant>, Vec<Drift>), CliError> {
    let plans = workshop.plan_all(variants, None)?;
    let held = if exact { Vec::new() } else { render::held_variants(folder)? };
    let (plans, files) = workshop.folder_files(folder, variants, plans, &held)?;
    Ok((variants_of(&plans), render::drift(folder, &files)?))
}

fn write_file(workshop: &Workshop, file: &Path, variant: Variant) -> Result<(Vec<Variant>, WriteSummary), CliError> {
    let (kernel, header) = kernel_files(workshop, file, variant)?;
    let written = written_before(workshop, file).unwrap_or_default();
    let summary = render::write_kernel_file(file, &kernel.text, &header, &written, &workshop.templates, &ui::note);
    Ok((vec![variant], summary.map_err(unwritable(FLAG))?))
}

/// What this kgen writes as `file`, and as the header beside it, for the kernel that `file` names now; `None` where it
/// names none.
fn written_before(workshop: &Workshop, file: &Path) -> Option<Vec<OutputFile>> {
    let text = files::read_to_string(file).ok()?;
    let name = text.lines().next()?.strip_prefix("// ")?.to_owned();
    let variant = *names::resolve(&workshop.grid, &[name]).ok()?.first()?;
    let (kernel, header) = kernel_files(workshop, file, variant).ok()?;
    Some(vec![kernel, header])
}

fn check_file(workshop: &Workshop, file: &Path, variant: Variant) -> Result<(Vec<Variant>, Vec<Drift>), CliError> {
    let (kernel, header) = kernel_files(workshop, file, variant)?;
    let files = render::with_used_headers(&workshop.templates, [kernel, header])?;
    let mut drift = render::drift(file.parent().unwrap_or(Path::new("")), &files)?;
    // Other kernels beside a single file are none of its business.
    drift.retain(|drift| !matches!(drift, Drift::Extra { .. }));
    Ok((vec![variant], drift))
}

/// The kernel and the header that declares it.
fn kernel_files(workshop: &Workshop, file: &Path, variant: Variant) -> Result<(OutputFile, OutputFile), CliError> {
    let plan = workshop.plan(variant).map_err(CliError::Usage)?;
    let path = name_of(file);
    let text = workshop.renderer.kernel_in_file(&plan, &path)?.text;
    Ok((OutputFile { path, text }, render::kernel_header(&workshop.renderer, &plan, &name_of(file))?))
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

fn report(global: &Global, output: &Path, written: &Written, start: Instant) -> Result<(), CliError> {
    let Written { held, selected, shown, summary } = written;
    tell_edited(folder_of(output), summary, &ui::insist);
    let milliseconds = start.elapsed().as_millis();
    if global.format == Format::Json {
        return ui::print_json(&Report { output, variants: names_of(held), selected, summary, milliseconds });
    }
    let removed = match summary.removed.len() {
        0 => String::new(),
        count => format!(", {count} removed"),
    };
    let text = format!(
        "{shown}{}: {}; {} written, {} unchanged{removed} ({milliseconds} ms)\n",
        output.display(),
        ui::count(held.len(), "kernel"),
        ui::count(summary.written.len(), "file"),
        summary.unchanged.len(),
    );
    ui::print(&text)
}

fn report_drift(global: &Global, output: &Path, variants: &[Variant], drift: &[Drift]) -> Result<(), CliError> {
    if global.format == Format::Json {
        ui::print_json(&CheckReport { output, variants: names_of(variants), drift })?;
    }
    let place = output.display();
    if drift.is_empty() {
        let text = format!("{place}: {} as generated\n", ui::count(variants.len(), "kernel"));
        return if global.format == Format::Human { ui::print(&text) } else { Ok(()) };
    }
    if global.format == Format::Human {
        ui::print(&format!("{}\n", drift.iter().join("\n")))?;
    }
    let differences = if drift.len() == 1 { "1 file is".to_owned() } else { format!("{} files are", drift.len()) };
    let stale = drift.iter().any(|drift| !matches!(drift, Drift::Extra { written_by_kgen: false, .. }));
    let remedy =
        if stale { "run the same command without `--check` to bring it up to date" } else { "remove what kgen did not write" };
    Err(CliError::VariantFailed(format!("`{place}`: {differences} not as generated; {remedy}")))
}
