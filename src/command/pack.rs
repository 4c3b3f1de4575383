//! Packs a kgen binary as a wheel, for releases.

use super::{CommandError, Context, Observer};
use crate::{
    files::{path::lossy, write_atomic},
    wheel,
};
use serde::{Deserialize, Serialize};
use std::{fs, path::PathBuf};

/// Request to pack a binary as a wheel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The binary, which must be of this version.
    pub binary: PathBuf,
    /// Folder for the wheel.
    pub output: PathBuf,
}

/// The wheel of a binary.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The file.
    #[serde(serialize_with = "lossy")]
    pub wheel: PathBuf,
    /// Version of the wheel.
    pub version: String,
    /// Platform tag of the wheel.
    pub platform: String,
    /// Size of the wheel.
    pub bytes: usize,
}

/// Packs the binary.
///
/// # Errors
/// [`CommandError::Usage`] if the binary cannot be read or packed, or the wheel cannot be written.
pub fn run(request: &Request, _context: &Context, _observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let Request { binary, output } = request;
    let refused = |error: &dyn std::fmt::Display| CommandError::Usage(format!("cannot pack `{}`: {error}", binary.display()));
    let content = fs::read(binary).map_err(|error| refused(&error))?;
    let wheel = wheel::program(&content).map_err(|error| refused(&error))?;
    let path = output.join(&wheel.file_name);
    fs::create_dir_all(output)
        .and_then(|()| write_atomic(&path, &wheel.bytes))
        .map_err(|error| CommandError::Usage(format!("cannot write `{}`: {error}", path.display())))?;
    Ok(Outcome { wheel: path, version: wheel.version, platform: wheel.platform, bytes: wheel.bytes.len() })
}
