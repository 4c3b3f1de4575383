//! `kgen generate`.

use super::{
    CliError, Format, Global,
    list::print,
    select::{SelectionArgs, load_grid, plan},
    ui,
};
use crate::{
    grid::{Grid, Kind, Variant},
    plan::Plan,
    render::{self, Drift, Folder, OutputFile, Prune, RenderError, Renderer, Templates, WriteSummary},
};
use itertools::Itertools;
use serde::Serialize;
use std::{
    collections::BTreeSet,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Instant,
};

const EXAMPLES: &str = "\
Examples:
  kgen generate                 the whole grid into ./generated
  kgen generate --head-dim 128 --dtype bf16 --causal --target ampere
                                one kernel, added to ./generated
  kgen generate --head-dim 72 --dtype fp16 --target sm80 --output my.cu
                                one file, with include/ beside it
  kgen generate --all --check   is ./generated what the templates give?

A folder keeps the kernels it holds: those selected are added, and all are
brought up to date. When the selection is the whole grid, the folder becomes
exactly that. Files kgen did not write are never touched.";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Folder to write, or a file ending in .cu where one variant is selected.
    #[arg(long, short, value_name = "PATH", default_value = "generated")]
    output: PathBuf,

    /// Write nothing; fail, naming files, where the output is not what would be written.
    #[arg(long)]
    check: bool,
}

/// What was done, for `--format json`.
#[derive(Serialize)]
struct Report<'a> {
    output: &'a Path,
    variants: Vec<String>,
    #[serde(flatten)]
    summary: &'a WriteSummary,
    milliseconds: u128,
}

/// What `--check` found, for `--format json`.
#[derive(Serialize)]
struct CheckReport<'a> {
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
    let Args { selection, output, check } = args;
    let output = output.as_path();
    let grid = load_grid(global)?;
    let variants = selection.resolve(&grid)?;
    if let Some(note) = selection.note(&grid) {
        ui::note(&note);
    }
    let workshop = Workshop::new(global, grid)?;
    let is_file = output.extension().is_some_and(|extension| extension == "cu") && !output.is_dir();
    let variants = if is_file { vec![only_one(&variants, output)?] } else { variants };

    if check {
        return if is_file { workshop.check_file(output, variants[0]) } else { workshop.check_folder(output, &variants) }
            .and_then(|(variants, drift)| report_drift(global, output, &variants, &drift));
    }
    let (variants, summary) =
        if is_file { workshop.write_file(output, variants[0])? } else { workshop.write_folder(output, &variants)? };
    report(global, output, &variants, &summary, start)
}

/// What turns variants into files: the grid for their tiles, and the templates.
pub(super) struct Workshop {
    grid: Grid,
    pub(super) templates: Templates,
    pub(super) renderer: Renderer,
}

impl Workshop {
    /// Takes the templates of `--templates`, or the built-in ones.
    ///
    /// # Errors
    /// [`CliError::Usage`] where a template cannot be read or parsed.
    pub(super) fn new(global: &Global, grid: Grid) -> Result<Self, CliError> {
        let templates = match &global.templates {
            None => Templates::embedded(),
            Some(folder) => Templates::from_dir(folder).map_err(usage)?,
        };
        let renderer = Renderer::new(&templates).map_err(usage)?;
        Ok(Self { grid, templates, renderer })
    }

    /// Plans each variant, with the tile the grid holds for it.
    ///
    /// # Errors
    /// [`CliError::Usage`] with the first refusal and the number of others.
    pub(super) fn plan(&self, variants: &[Variant]) -> Result<Vec<Plan>, CliError> {
        let plan = |variant: &Variant| plan(&self.grid, *variant);
        let (plans, refused): (Vec<Plan>, Vec<_>) = variants.iter().map(plan).partition_result();
        match refused.first() {
            None => Ok(plans),
            Some(first) if refused.len() == 1 => Err(CliError::Usage(first.clone())),
            Some(first) => {
                let (count, all) = (refused.len(), variants.len());
                Err(CliError::Usage(format!("{count} of {all} variants cannot be generated; the first: {first}")))
            }
        }
    }

    /// Brings `folder` to hold `variants` beside what it held, or exactly the grid when they are the whole of it.
    /// Returns the variants it holds now.
    ///
    /// # Errors
    /// [`CliError::Usage`]; the folder is then as it was.
    pub(super) fn write_folder(&self, folder: &Path, variants: &[Variant]) -> Result<(Vec<Variant>, WriteSummary), CliError> {
        self.plan(variants)?;
        let open = Folder::open(folder, &ui::note).map_err(usage)?;
        let (variants, files) = self.folder_files(folder, variants, open.held())?;
        let summary = open.write(&files, Prune::Yes).map_err(usage)?;
        Ok((variants, summary))
    }

    fn check_folder(&self, folder: &Path, variants: &[Variant]) -> Result<(Vec<Variant>, Vec<Drift>), CliError> {
        let held = render::held_variants(folder).map_err(usage)?;
        let (variants, files) = self.folder_files(folder, variants, &held)?;
        Ok((variants, render::drift(folder, &files).map_err(usage)?))
    }

    /// The files of `folder` once it holds `variants`, and all variants it holds then.
    fn folder_files(
        &self,
        folder: &Path,
        variants: &[Variant],
        held: &[Variant],
    ) -> Result<(Vec<Variant>, Vec<OutputFile>), CliError> {
        let asked = self.plan(variants)?;
        let wanted: BTreeSet<&Variant> = variants.iter().collect();
        let is_whole_grid = wanted == self.grid.variants().iter().collect();
        let kept: Vec<Variant> =
            if is_whole_grid { vec![] } else { held.iter().filter(|v| !wanted.contains(v)).copied().collect() };
        let kept = self.plan(&kept).map_err(|error| {
            let remedy = "`kgen generate --all` drops what the grid does not hold";
            CliError::Usage(format!("`{}` holds a kernel that can no longer be made; {remedy}: {error}", folder.display()))
        })?;

        let plans: Vec<Plan> = asked.into_iter().chain(kept).collect();
        let files = render::tree(&self.renderer, &self.templates, &plans).map_err(usage)?;
        Ok((plans.iter().map(|plan| plan.variant).collect(), files))
    }

    fn write_file(&self, file: &Path, variant: Variant) -> Result<(Vec<Variant>, WriteSummary), CliError> {
        let text = self.kernel_text(file, variant)?;
        let summary = render::write_kernel_file(file, &text, &self.templates, &ui::note).map_err(usage)?;
        Ok((vec![variant], summary))
    }

    fn check_file(&self, file: &Path, variant: Variant) -> Result<(Vec<Variant>, Vec<Drift>), CliError> {
        let text = self.kernel_text(file, variant)?;
        let kernel = OutputFile { path: name_of(file), text };
        let files: Vec<OutputFile> = std::iter::once(kernel).chain(render::include_tree(&self.templates)).collect();
        let mut drift = render::drift(file.parent().unwrap_or(Path::new("")), &files).map_err(usage)?;
        // Other kernels beside a single file are none of its business.
        drift.retain(|drift| !matches!(drift, Drift::Extra { .. }));
        Ok((vec![variant], drift))
    }

    fn kernel_text(&self, file: &Path, variant: Variant) -> Result<String, CliError> {
        let plans = self.plan(&[variant])?;
        Ok(self.renderer.kernel_in_file(&plans[0], &name_of(file)).map_err(usage)?.text)
    }
}

/// The variant a single file is to hold. Forward attention and the full mask are taken where the flags leave a choice of
/// kind or mask; anything else has to be said.
fn only_one(variants: &[Variant], file: &Path) -> Result<Variant, CliError> {
    let prefer = |variants: Vec<Variant>, wanted: fn(&Variant) -> bool| {
        if variants.iter().any(wanted) { variants.into_iter().filter(wanted).collect() } else { variants }
    };
    let left = prefer(prefer(variants.to_vec(), |v| v.kind == Kind::Fwd), |v| !v.causal);
    if let [variant] = left[..] {
        if variants.len() > 1 {
            ui::note(&format!("`{}` is `{variant}`; `--causal` and `--kind` choose others", file.display()));
        }
        return Ok(variant);
    }
    let (count, file) = (left.len(), file.display());
    let some = left.iter().take(3).map(|v| format!("`{v}`")).join(", ");
    let more = if count > 3 { ", …" } else { "" };
    let remedy = "narrow it with `--head-dim`, `--dtype`, `--target`, or give a folder";
    Err(CliError::Usage(format!("`--output {file}` holds one kernel and {count} are selected ({some}{more}); {remedy}")))
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn usage(error: RenderError) -> CliError {
    unusable("--output", &error)
}

/// The error of a folder or template the user named: what is wrong, and what to do with `flag`, which names the folder.
pub(super) fn unusable(flag: &str, error: &RenderError) -> CliError {
    let remedy = match error {
        RenderError::Io { action: "create" | "write" | "lock" | "remove", source, .. } => match source.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                format!("; a file is in the way of a folder: choose another place with `{flag}`, or move it away")
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                format!("; free some space, or choose another place with `{flag}`")
            }
            _ => format!("; make it writable, or choose another place with `{flag}`"),
        },
        _ => String::new(),
    };
    CliError::Usage(format!("{error}{remedy}"))
}

fn names(variants: &[Variant]) -> Vec<String> {
    variants.iter().map(Variant::name).collect()
}

fn report(global: &Global, output: &Path, variants: &[Variant], summary: &WriteSummary, start: Instant) -> Result<(), CliError> {
    for path in &summary.kept {
        let path = output.join(path);
        ui::note(&format!("`{}` is no longer generated but has been edited, so it stays", path.display()));
    }
    let milliseconds = start.elapsed().as_millis();
    if global.format == Format::Json {
        return print_json(&Report { output, variants: names(variants), summary, milliseconds });
    }
    let removed = match summary.removed.len() {
        0 => String::new(),
        count => format!(", {count} removed"),
    };
    let text = format!(
        "{}: {}; {} written, {} unchanged{removed} ({milliseconds} ms)\n",
        output.display(),
        counted(variants.len(), "kernel"),
        counted(summary.written.len(), "file"),
        summary.unchanged.len(),
    );
    print(text.as_bytes())
}

fn report_drift(global: &Global, output: &Path, variants: &[Variant], drift: &[Drift]) -> Result<(), CliError> {
    if global.format == Format::Json {
        print_json(&CheckReport { output, variants: names(variants), drift })?;
    }
    let place = output.display();
    if drift.is_empty() {
        let text = format!("{place}: {} as generated\n", counted(variants.len(), "kernel"));
        return if global.format == Format::Human { print(text.as_bytes()) } else { Ok(()) };
    }
    if global.format == Format::Human {
        print(format!("{}\n", drift.iter().join("\n")).as_bytes())?;
    }
    let differences = if drift.len() == 1 { "1 file is".to_owned() } else { format!("{} files are", drift.len()) };
    let stale = drift.iter().any(|drift| !matches!(drift, Drift::Extra { written_by_kgen: false, .. }));
    let remedy =
        if stale { "run the same command without `--check` to bring it up to date" } else { "remove what kgen did not write" };
    Err(CliError::VariantFailed(format!("`{place}`: {differences} not as generated; {remedy}")))
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| CliError::VariantFailed(format!("cannot write the report as JSON: {error}")))?;
    print((text + "\n").as_bytes())
}
