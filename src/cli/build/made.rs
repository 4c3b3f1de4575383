//! The line from a selection to a linked library, and the table it ends in. Shared by `build` and `build-all`.

use super::{BuildArgs, Tools, totals};
use crate::{
    build::{Artifact, BuildError, BuildFailure, BuildOptions, BuildReport, Builder, FailureKind, Unit},
    cli::{
        CliError, Global,
        escape::plain,
        select::SelectionArgs,
        table::{self, Column, Row},
        ui::{self, Progress},
        workshop::{Workshop, tell_edited, unwritable},
    },
    files::FolderLock,
    jobs,
    kernel::{Target, Variant},
    plan::Plan,
    render::{self, Fingerprints, Folder, Prune, Templates},
    toolchain::Cancel,
};
use console::style;
use itertools::Itertools;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Write,
    path::{Path, PathBuf},
};

/// Name of the dispatcher's unit.
const DISPATCHER: &str = "kgen_dispatch";

/// The flag that names where kernels go.
const FLAG: &str = "--generated";

/// What to do about kernels of an earlier build.
const ONLY: &str = "`--only` links the selected kernels alone";

/// What a build has made. No other build changes the output folder before it is dropped, or [unlocked](Self::unlock).
pub(in crate::cli) struct Made {
    /// Plans of the selected variants, in the order of the selection, then those of other kernels that the library
    /// keeps.
    pub plans: Vec<Plan>,
    /// How many of the plans are of selected variants.
    pub selected: usize,
    /// The kernels' units, in the same order.
    pub kernels: Vec<Unit>,
    /// The templates they came from.
    pub templates: Templates,
    /// The compilers.
    pub tools: Tools,
    /// What compiled and what did not; variants without a plan among the failures.
    pub report: BuildReport,
    /// Why everything compiled and yet nothing was linked.
    pub link_error: Option<String>,
    /// The output folder.
    pub out_dir: PathBuf,
    /// Most compilers at once.
    pub jobs: usize,
    /// Keeps other builds out of the output folder.
    lock: Option<FolderLock>,
}

/// Renders the selection into the generated folder, compiles it, links it and writes `report.json` and
/// `compile_commands.json`. Variants that fail are in the report; the others are made.
///
/// # Errors
/// [`CliError`] for what stops all of it: bad input, no compiler, an unwritable folder, an interruption.
pub(in crate::cli) fn make(
    global: &Global,
    selection: &SelectionArgs,
    args: &BuildArgs,
    cancel: &Cancel,
    progress: &Progress,
) -> Result<Made, CliError> {
    let workshop = Workshop::new(global)?;
    let variants = selection.resolve(&workshop.grid)?;
    selection.tell_notes(&workshop.grid, &variants);
    let variants = args.helpers.complete(&workshop.grid, variants);
    let run_as = args.run_as()?;
    let (mut plans, refused) = plan_all(&workshop, &variants, run_as);
    if let (true, Some(first)) = (plans.is_empty(), refused.first()) {
        return Err(CliError::Usage(first.message.clone()));
    }
    if let Some(note) = args.note() {
        progress.say(&note);
    }
    let tools = args.tools(cancel)?;
    let builder = Builder::open(&tools.nvcc, &tools.host, args.options()?, cancel.clone(), progress)?;
    let options = builder.options();

    // Held while compilers read the folder.
    let folder = Folder::open(&options.generated_dir, &|message| progress.say(message), &|| cancel.requested());
    let folder = folder.map_err(unwritable(FLAG))?;
    let selected = plans.len();
    if !args.only && !workshop.is_whole_grid(&variants) {
        let held = also_held(&workshop, builder.held()?, folder.held(), &variants)?;
        plans.extend(workshop.plan_all(&held, run_as).map_err(|error| {
            CliError::Usage(format!("{} holds a kernel that can no longer be made; {ONLY}: {error}", library_of(options)))
        })?);
        if !held.is_empty() {
            let kernels = ui::count(held.len(), "more kernel");
            progress.say(&format!("{} holds {kernels}, kept and brought up to date; {ONLY}", library_of(options)));
        }
    }
    let asked: Vec<Variant> = variants.iter().copied().chain(plans[selected..].iter().map(|plan| plan.variant)).collect();
    let files = match run_as {
        None => workshop.folder_files(&options.generated_dir, &asked, plans.clone(), folder.held())?.1,
        // What an earlier run tried there is of no use to anybody.
        Some(_) => render::tree(&workshop.renderer, &workshop.templates, &plans)?,
    };
    // A kernel that cannot be planned any more keeps the file an earlier run made.
    let prune = if refused.is_empty() { Prune::Yes } else { Prune::No };
    let summary = folder.write(&files, prune).map_err(unwritable(FLAG))?;
    tell_edited(&options.generated_dir, &summary, &|note| progress.insist(note));
    let dispatcher = workshop.renderer.dispatcher(&plans)?;
    let dispatcher_path = builder.write_source(&Path::new("gen").join("kgen_dispatch.cpp"), &dispatcher)?;

    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let fingerprints = Fingerprints::of(&workshop.templates);
    let kernel = |plan: &Plan| {
        let file = render::file_name(&plan.variant);
        let text = text(&file);
        Unit::kernel(plan, Path::new(&file), text, fingerprints.kernel(text), args.ptx())
    };
    let mut units: Vec<Unit> = plans.iter().map(kernel).collect();
    units.push(Unit::dispatcher(DISPATCHER, &dispatcher_path, &dispatcher, args.ptx()));
    let mut report = builder.compile(&units)?;
    units.pop();
    if report.interrupted {
        let (done, all) = (report.artifacts.iter().filter(|artifact| artifact.target.is_some()).count(), units.len());
        return Err(CliError::Interrupted(format!(
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
    Ok(Made { plans, selected, kernels: units, templates: workshop.templates, tools, report, link_error, out_dir, jobs, lock })
}

/// The kernels that the library in the output folder holds by `names` and that are not among `asked`; the generated
/// folder and the grid say what the names mean.
fn also_held(
    workshop: &Workshop,
    names: Vec<String>,
    generated: &[Variant],
    asked: &[Variant],
) -> Result<Vec<Variant>, CliError> {
    let asked: BTreeSet<String> = asked.iter().map(Variant::name).collect();
    let known: HashMap<String, Variant> =
        generated.iter().chain(workshop.grid.variants()).map(|variant| (variant.name(), *variant)).collect();
    let others = names.into_iter().filter(|name| !asked.contains(name));
    let variant = |name: String| {
        let unknown =
            || CliError::Usage(format!("the library holds `{name}`, which neither the grid nor `{FLAG}` knows; {ONLY}"));
        known.get(&name).copied().ok_or_else(unknown)
    };
    others.map(variant).collect()
}

/// The library in the output folder, for messages.
fn library_of(options: &BuildOptions) -> String {
    format!("`{}`", options.out_dir.join("lib").join("libkgen.so").display())
}

/// Plans every variant; one without a plan becomes a failure and stops no other.
fn plan_all(workshop: &Workshop, variants: &[Variant], run_as: Option<Target>) -> (Vec<Plan>, Vec<BuildFailure>) {
    let refusal = |name, message| BuildFailure { name, kind: FailureKind::Plan, message, log: None };
    let plan = |v: &Variant| workshop.plan_to_run_as(*v, run_as).map_err(|error| refusal(v.name(), error));
    variants.iter().map(plan).partition_result()
}

/// Columns a command adds to the table of variants.
#[derive(Default)]
pub(in crate::cli) struct Extra<'a> {
    /// What they are.
    pub columns: &'a [Column<'a>],
    /// Names of variants that a reader has to look at.
    pub notable: HashSet<&'a str>,
    /// Their cells by variant name; a variant that is not in it has dashes.
    pub cells: HashMap<&'a str, Vec<String>>,
}

impl Made {
    /// Lets other builds change the output folder, from which nothing is read any more.
    pub fn unlock(&mut self) {
        self.lock = None;
    }

    /// How many variants were asked for.
    pub fn rows(&self) -> usize {
        self.artifacts().count() + self.failed_variants()
    }

    /// How many variants did not build.
    pub fn failed_variants(&self) -> usize {
        self.report.failures.iter().filter(|f| f.name != DISPATCHER).count()
    }

    /// Whether the dispatcher, which is no variant, did not build.
    pub fn dispatcher_failed(&self) -> bool {
        self.report.failures.iter().any(|f| f.name == DISPATCHER)
    }

    /// Table, failures and totals, for people.
    pub fn describe(&self, extra: &Extra<'_>) -> String {
        let mut columns = vec![
            Column::text("variant").needed(),
            Column::number("registers"),
            Column::number("spills"),
            Column::number("tensor cores"),
            Column::number("shared"),
            Column::number("CPU s"),
            Column::number("peak"),
            Column::text("build").needed(),
        ];
        columns.extend(extra.columns);
        let dashes = vec!["-".to_owned(); extra.columns.len()];
        let cells = |name: &str| extra.cells.get(name).unwrap_or(&dashes).clone();
        let built = self.artifacts().map(|artifact| Row {
            cells: [self.row(artifact), cells(&artifact.name)].concat(),
            notable: artifact.spill_bytes() > 0 || artifact.stack_bytes() > 0 || extra.notable.contains(artifact.name.as_str()),
        });
        let failed = self.report.failures.iter().map(|failure| {
            let mut row = vec![failure.name.clone()];
            row.resize(7, "-".to_owned());
            row.push(style("FAILED").red().to_string());
            Row { cells: [row, cells(&failure.name)].concat(), notable: true }
        });
        let mut text = table::of_results(&columns, built.chain(failed).collect());
        for failure in &self.report.failures {
            // Writing into a string cannot fail.
            write!(text, "\n{} `{}`: {}", style("error:").red().bold(), failure.name, plain(&failure.message)).ok();
            if let Some(log) = &failure.log {
                write!(text, "\n       log: {}", self.out_dir.join(log).display()).ok();
            }
        }
        if !self.report.failures.is_empty() {
            text.push('\n');
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text + &totals::totals(self)
    }

    fn row(&self, artifact: &Artifact) -> Vec<String> {
        let plan = self.plans.iter().find(|p| p.variant.name() == artifact.name);
        let shared = plan.map_or(0, |p| p.shared_memory_bytes) + artifact.shared_bytes();
        let lost = match (artifact.spill_bytes(), artifact.stack_bytes()) {
            (0, 0) => "0".to_owned(),
            (0, stack) => style(format!("stack {stack} B")).yellow().to_string(),
            (spill, _) => style(format!("{spill} B")).yellow().bold().to_string(),
        };
        vec![
            artifact.name.clone(),
            artifact.registers().to_string(),
            lost,
            tensor_cores(artifact),
            format!("{:.1} KiB", f64::from(shared) / 1024.0),
            format!("{:.1}", artifact.cpu_seconds),
            ui::size(artifact.peak_memory_bytes),
            if artifact.cached { style("cached").dim().to_string() } else { "compiled".to_owned() },
        ]
    }

    /// The artifacts that are kernels.
    pub fn artifacts(&self) -> impl Iterator<Item = &Artifact> {
        self.report.artifacts.iter().filter(|a| a.target.is_some())
    }
}

/// `512 HMMA`; a dash for kernels without, and nothing if it was not inspected.
fn tensor_cores(artifact: &Artifact) -> String {
    let Some(code) = &artifact.machine_code else { return String::new() };
    let families = code.families();
    if families.is_empty() {
        return "-".to_owned();
    }
    families.iter().map(|(family, count)| format!("{count} {family}")).join(", ")
}
