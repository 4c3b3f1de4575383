//! `kgen vendor`.

use super::{
    Global,
    select::{HelperArgs, SelectionArgs},
    show,
};
use crate::{
    command::{
        self, CommandError,
        vendor::{Mode, Outcome, Place, Request},
    },
    render::Action,
    text::count,
};
use itertools::Itertools;
use std::path::PathBuf;

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
#[command(subcommand_help_heading = "Supported projects", subcommand_value_name = "PROJECT", disable_help_subcommand = true)]
pub struct Args {
    #[command(subcommand)]
    project: Option<Project>,

    /// Folder for the kernels: a new one, or one that `kgen vendor` created.
    #[arg(value_name = "DIR", required = true)]
    folder: Option<PathBuf>,

    #[command(flatten)]
    what: What,
}

/// Projects that kgen can modify.
#[derive(Debug, clap::Subcommand)]
enum Project {
    /// Put the kernels into a checkout of vLLM, whose attention modules are then built on them.
    #[command(after_help = VLLM_EXAMPLES)]
    Vllm {
        /// The checkout. The kernels go to `kgen/` in it; one file of its build gets three lines that include them.
        #[arg(value_name = "PATH")]
        checkout: PathBuf,

        /// PATH is an installed vLLM. The modules in DIR replace its built modules, which are kept beside them. DIR is
        /// the output of `scripts/torch_ops.sh`; `--check` and `--remove` do not need it.
        #[arg(long, value_name = "DIR", num_args = 0..=1)]
        #[allow(clippy::option_option, reason = "absent, without a folder, with one")]
        prebuilt: Option<Option<PathBuf>>,

        #[command(flatten)]
        what: What,
    },
}

/// The kernels and options, for any destination.
#[derive(Debug, clap::Args)]
struct What {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    helpers: HelperArgs,

    /// Take a folder that kgen did not make and that holds other files. They stay; none may have the name of a file of
    /// kgen's.
    #[arg(long, conflicts_with = "remove")]
    beside_others: bool,

    /// Leave out the dispatcher: kernels are called by their names, and `kgen_fwd` does not exist.
    #[arg(long)]
    no_dispatcher: bool,

    #[command(flatten)]
    act: Act,
}

/// Treatment of the changes; without a flag they are written.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Act {
    /// Write nothing; fail and name the files that would change.
    #[arg(long, conflicts_with_all = ["dry_run", "remove"])]
    check: bool,

    /// Write nothing; name the files that would change.
    #[arg(long)]
    dry_run: bool,

    /// Remove the files written before, and the folder if it is then empty.
    #[arg(long, conflicts_with = "no_dispatcher")]
    remove: bool,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::vendor::run`], and [`CommandError::Failed`] if `--check` finds a difference.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let (place, what) = match (args.project, args.folder) {
        (Some(Project::Vllm { checkout: path, prebuilt: Some(prebuilt), what }), _) => {
            (Place::InstalledVllm { path, prebuilt }, what)
        }
        (Some(Project::Vllm { checkout, prebuilt: None, what }), _) => (Place::VllmCheckout(checkout), what),
        (None, folder) => (Place::Folder(folder.unwrap_or_default()), args.what),
    };
    let What { selection, helpers, beside_others, no_dispatcher, act: Act { check, dry_run, remove } } = what;
    let mode = match (check, dry_run) {
        (true, _) => Mode::Check,
        (false, true) => Mode::DryRun,
        (false, false) => Mode::Write,
    };
    let (selection, helpers, dispatcher) = (selection.into(), helpers.wanted(), !no_dispatcher);
    let request = Request { place, selection, helpers, beside_others, dispatcher, mode, remove };
    let outcome = command::vendor::run(&request, &global.context(), &global.console())?;
    show(global, &outcome, || describe(&outcome))?;
    outcome.verdict()
}

/// The changes, and totals.
fn describe(report: &Outcome) -> String {
    if report.is_nowhere {
        return format!("there is no `{}`; nothing to do\n", report.folder.display());
    }
    let lines = report.changes.changes.iter().map(|change| {
        let edited = if change.edited { "  (has local changes)" } else { "" };
        format!("{:<6}  {}{edited}\n", change.action, change.path)
    });
    let done = [(Action::Add, "added"), (Action::Update, "updated"), (Action::Remove, "removed")];
    let counts = done.iter().map(|(action, word)| (report.changes.count(*action), word)).filter(|(number, _)| *number > 0);
    let would = if report.written { "" } else { "would be " };
    let counts = counts.map(|(number, word)| format!("{} {would}{word}", count(number, "file"))).join(", ");
    let counts = if counts.is_empty() { "nothing to do".to_owned() } else { counts };
    let kernels = match report.variants.len() {
        0 => String::new(),
        number => format!("{}; ", count(number, "kernel")),
    };
    let unwritten = if report.written || report.changes.changes.is_empty() { "" } else { "; nothing was written" };
    let text: String = lines.collect();
    let (folder, unchanged) = (report.folder.display(), report.changes.unchanged);
    format!("{text}{folder}: {kernels}{counts}, {unchanged} unchanged{unwritten}\n")
}
