//! `kgen toolchain`.

use super::{
    CliError, Format, Global,
    ui::{self, Installing},
};
use crate::files::path::lossy_option;
use crate::toolchain::{self as tools, Bundle, COMPILER, DISASSEMBLER, ToolchainError};
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kgen toolchain install    fetch CUDA's compiler and disassembler with pip
  kgen toolchain show       where it is and how big
  CUDACXX=$(kgen toolchain show --path) cmake -B build
                            the path of nvcc alone, for CMake and scripts
  kgen toolchain remove     delete it";

/// Everything kgen can install.
const BUNDLES: [&Bundle; 2] = [&COMPILER, &DISASSEMBLER];

/// Arguments.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// What to do with kgen's own compiler and disassembler.
#[derive(Debug, Clone, Copy, Subcommand)]
enum Action {
    /// Install them, unless they are there (about 110 MB to download, 290 MB on disk).
    Install,
    /// Say where they are.
    Show {
        /// Print only the path of nvcc; exit code 3 if kgen has installed none.
        #[arg(long)]
        path: bool,
    },
    /// Remove them.
    Remove,
}

impl From<ToolchainError> for CliError {
    fn from(error: ToolchainError) -> Self {
        match error {
            ToolchainError::Cancelled => Self::INTERRUPTED,
            other => Self::Environment(other.to_string()),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Environment`] with what is missing on this machine.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let cancel = ui::cancel_on_ctrl_c();
    match args.action {
        Action::Install => {
            for bundle in BUNDLES {
                tools::install(bundle, &cancel, &Installing::default())?;
            }
            show(global)
        }
        Action::Show { path: false } => show(global),
        Action::Show { path: true } => show_path(global),
        Action::Remove => {
            let freed = tools::remove(&cancel, &ui::note)?;
            match global.format {
                Format::Json => ui::print_json(&json!({ "freed_bytes": freed })),
                Format::Human if freed == 0 => ui::print("kgen has no compiler and no disassembler of its own here\n"),
                Format::Human => ui::print(&format!("removed what kgen had installed: {} freed\n", ui::size(freed))),
            }
        }
    }
}

/// One bundle, for `--format json`.
#[derive(Serialize)]
struct Shown {
    name: &'static str,
    installed: bool,
    #[serde(serialize_with = "lossy_option")]
    folder: Option<PathBuf>,
    #[serde(serialize_with = "lossy_option")]
    program: Option<PathBuf>,
    size_bytes: Option<u64>,
}

/// The path of nvcc, alone on its line.
fn show_path(global: &Global) -> Result<(), CliError> {
    let own = tools::provisioned(&COMPILER)?.ok_or_else(|| {
        CliError::Environment("kgen has no nvcc of its own here; `kgen toolchain install` fetches one".to_owned())
    })?;
    let path = own.program(COMPILER.program);
    match global.format {
        Format::Human => ui::print_verbatim(&format!("{}\n", path.display())),
        Format::Json => ui::print_json(&json!({ "path": path.display().to_string() })),
    }
}

fn show(global: &Global) -> Result<(), CliError> {
    let shown = |bundle: &Bundle| -> Result<Shown, CliError> {
        let own = tools::provisioned(bundle)?;
        Ok(Shown {
            name: bundle.what,
            installed: own.is_some(),
            program: own.as_ref().map(|own| own.program(bundle.program)),
            size_bytes: own.as_ref().map(tools::Provisioned::size_bytes),
            folder: own.map(|own| own.folder),
        })
    };
    let all = BUNDLES.into_iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    if global.format == Format::Json {
        return ui::print_json(&all);
    }
    let line = |one: &Shown| match (&one.program, one.size_bytes) {
        (Some(program), Some(size)) => format!("{}: {} ({})\n", one.name, program.display(), ui::size(size)),
        _ => format!("{}: not installed; `kgen toolchain install` fetches it where you have none\n", one.name),
    };
    ui::print(&all.iter().map(line).collect::<String>())
}
