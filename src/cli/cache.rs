//! `kgen cache`: how large the cache is, and less of it.

use super::{CliError, Format, Global, ui};
use crate::{
    build::UNFINISHED_OBJECTS,
    device::UNFINISHED_KITS,
    files::{Pruned, prune},
    toolchain::{cache_dir, folder_size},
};
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use std::{path::Path, time::Duration};

const EXAMPLES: &str = "\
Examples:
  kgen cache show              what the cache holds
  kgen cache prune             remove what has not been used for 30 days
  kgen cache prune --dry-run   how much that would be
  kgen cache prune --days 0    remove everything but the compiler";

/// Folders of the cache whose entries can be made again, what they hold, and how the names of those begin that are not
/// finished. The compiler is left to `kgen toolchain remove`.
const PARTS: [(&str, &str, &[&str]); 3] = [
    ("objects", "compiled kernels and libraries", UNFINISHED_OBJECTS),
    ("emulator", "kernels compiled for the emulator", UNFINISHED_KITS),
    ("verdicts", "passed checks", &[]),
];

/// Arguments.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// What to do with what earlier runs left for later ones.
#[derive(Debug, Clone, Copy, Subcommand)]
enum Action {
    /// Print its size.
    Show,
    /// Remove what has not been used for some time; kgen rebuilds it when needed.
    Prune {
        /// Days since the last use.
        #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=36_500))]
        days: u64,

        /// Remove nothing; say what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
}

/// One part, for `--format json`.
#[derive(Serialize)]
struct Part {
    name: &'static str,
    #[serde(flatten)]
    what: Pruned,
    /// Whether it was only counted.
    dry_run: bool,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Environment`] where the cache cannot be read or written.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let cache = cache_dir()?;
    let failed = |folder: &Path, error: std::io::Error| {
        CliError::Environment(format!("cannot prune `{}`: {error}; see to the folder's permissions", folder.display()))
    };
    match args.action {
        Action::Show => {
            let size = |name: &str| folder_size(&cache.join(name));
            if global.format == Format::Json {
                let parts: Vec<_> = PARTS.iter().map(|(name, ..)| json!({ "name": name, "bytes": size(name) })).collect();
                return ui::print_json(
                    &json!({ "folder": cache.display().to_string(), "parts": parts, "toolchain_bytes": size("toolchain") }),
                );
            }
            let line = |name: &str, what: &str| format!("{:>8}  {name}: {what}\n", ui::size(size(name)));
            let parts: String = PARTS.iter().map(|(name, what, _)| line(name, what)).collect();
            let compiler = line("toolchain", "kgen's own compiler; `kgen toolchain remove` takes it away");
            ui::print(&format!("{}\n{parts}{compiler}", cache.display()))
        }
        Action::Prune { days, dry_run } => {
            let unused = Duration::from_secs(days * 24 * 3600);
            let part = |(name, _, unfinished): &(&'static str, &str, &[&str])| {
                let folder = cache.join(name);
                let size = |path: &Path| if path.is_dir() { folder_size(path) } else { path.metadata().map_or(0, |m| m.len()) };
                let what = prune(&folder, unfinished, unused, dry_run, &size).map_err(|error| failed(&folder, error))?;
                Ok(Part { name, what, dry_run })
            };
            let parts = PARTS.iter().map(part).collect::<Result<Vec<Part>, CliError>>()?;
            if global.format == Format::Json {
                return ui::print_json(&parts);
            }
            let (entries, bytes) = parts.iter().fold((0, 0), |sum, part| (sum.0 + part.what.entries, sum.1 + part.what.bytes));
            let stay = match parts.iter().map(|part| part.what.in_use).sum() {
                0 => String::new(),
                1 => "; 1 more stays, which a running kgen uses".to_owned(),
                in_use => format!("; {in_use} more stay, which a running kgen uses"),
            };
            let items = ui::count(entries, "item");
            let (removed, bytes) = (if dry_run { "would be removed" } else { "removed" }, ui::size(bytes));
            ui::print(&format!("{items} not used for {days} days {removed}, {bytes} freed{stay}\n"))
        }
    }
}
