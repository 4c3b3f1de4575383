//! `kgen __pack`: a kgen binary as a wheel, for scripts/release.sh.

use super::{CliError, Format, Global, ui};
use crate::{
    files::{path::lossy, write_atomic},
    wheel,
};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The binary, which must be of this version.
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,

    /// Folder to write the wheel into.
    #[arg(long, short, value_name = "DIR", default_value = "dist")]
    output: PathBuf,
}

/// What was made, for `--format json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(serialize_with = "lossy")]
    wheel: &'a Path,
    version: &'a str,
    platform: &'a str,
    bytes: usize,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Usage`] if the binary cannot be read or packed, or the wheel cannot be written.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let Args { binary, output } = args;
    let refused = |error: &dyn std::fmt::Display| CliError::Usage(format!("cannot pack `{}`: {error}", binary.display()));
    let content = fs::read(&binary).map_err(|error| refused(&error))?;
    let wheel = wheel::program(&content).map_err(|error| refused(&error))?;
    let path = output.join(&wheel.file_name);
    fs::create_dir_all(&output)
        .and_then(|()| write_atomic(&path, &wheel.bytes))
        .map_err(|error| CliError::Usage(format!("cannot write `{}`: {error}", path.display())))?;
    if global.format == Format::Json {
        let (version, platform, bytes) = (&wheel.version, &wheel.platform, wheel.bytes.len());
        return ui::print_json(&Report { wheel: &path, version, platform, bytes });
    }
    ui::print(&format!("{}: {}\n", path.display(), ui::size(wheel.bytes.len() as u64)))
}
