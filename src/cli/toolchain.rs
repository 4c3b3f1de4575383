//! `kgen toolchain`.

use super::{CliError, Format, Global, ui};
use crate::toolchain::{self as tools, ToolchainError};
use clap::Subcommand;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  kgen toolchain install    fetch CUDA 13.0's compiler with your own pip
  kgen toolchain show       where it is and how big
  kgen toolchain remove     take it away again";

/// Arguments.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// What to do with kgen's own compiler.
#[derive(Debug, Clone, Copy, Subcommand)]
enum Action {
    /// Install it, unless it is there (about 105 MB to download, 270 MB on disk).
    Install,
    /// Say where it is.
    Show,
    /// Remove it.
    Remove,
}

impl From<ToolchainError> for CliError {
    fn from(error: ToolchainError) -> Self {
        match error {
            ToolchainError::Cancelled => Self::Interrupted,
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
            tools::install(&cancel, &ui::note)?;
            show(global)
        }
        Action::Show => show(global),
        Action::Remove => {
            let freed = tools::remove(&cancel, &ui::note)?;
            match global.format {
                Format::Json => ui::print_json(&json!({ "freed_bytes": freed })),
                Format::Human if freed == 0 => ui::print("kgen has no compiler of its own here\n"),
                Format::Human => ui::print(&format!("removed kgen's compiler: {} freed\n", ui::size(freed))),
            }
        }
    }
}

fn show(global: &Global) -> Result<(), CliError> {
    let own = tools::provisioned()?;
    match (global.format, own) {
        (Format::Json, own) => {
            let folder = own.as_ref().map(|o| &o.folder);
            let nvcc = own.as_ref().map(tools::Provisioned::nvcc);
            let size = own.as_ref().map(tools::Provisioned::size_bytes);
            ui::print_json(&json!({ "installed": own.is_some(), "folder": folder, "nvcc": nvcc, "size_bytes": size }))
        }
        (Format::Human, Some(own)) => ui::print(&format!("{} ({})\n", own.nvcc().display(), ui::size(own.size_bytes()))),
        (Format::Human, None) => {
            ui::print("kgen has no compiler of its own; `kgen toolchain install` fetches one where you have none\n")
        }
    }
}
