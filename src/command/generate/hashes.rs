//! A file with hashes of kernels and no kernels: comparing it shows the kernels that a change affects.

use crate::{
    command::{CommandError, session::Session},
    files::{self, path::lossy},
    kernel::Variant,
    render::{self, HashDrift, RenderError, Source},
};
use rayon::prelude::*;
use serde::Serialize;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Hashes that were written, or compared with the current ones.
#[derive(Debug, Serialize)]
pub struct Hashed {
    /// The file of hashes.
    #[serde(serialize_with = "lossy")]
    pub hashes: PathBuf,
    /// Names of the kernels.
    pub variants: Vec<String>,
    /// The differences; absent if hashes were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<Vec<HashDrift>>,
    /// True if the file is new or has changed.
    #[serde(skip)]
    pub written: bool,
}

/// Writes or, with `check`, compares the hashes of `variants` in `file`.
///
/// # Errors
/// [`CommandError::Usage`] if a variant has no plan, the file cannot be read or written, or a file that does not
/// contain hashes would be replaced.
pub(super) fn run(session: &Session, variants: &[Variant], file: &Path, check: bool) -> Result<Hashed, CommandError> {
    let plans = session.plan_all(variants, None)?;
    let sources: Vec<Source> = plans.par_iter().map(|plan| session.renderer.kernel(plan)).collect::<Result<_, RenderError>>()?;
    let unusable = |verb: &str, error: &io::Error| {
        let place = file.display();
        CommandError::Usage(format!("cannot {verb} `{place}`: {error}; choose another file with `--hashes`"))
    };
    let (drift, written) = if check {
        let text = files::read_to_string(file).map_err(|error| unusable("read", &error))?;
        (Some(render::hash_drift(&text, &sources)), false)
    } else {
        // A link itself would be replaced, not its target.
        let is_other = file.symlink_metadata().is_ok_and(|metadata| !metadata.is_file());
        let holds_other = || files::read_if_there(file).map(|old| old.is_some_and(|old| !are_hashes(&old)));
        if is_other || holds_other().map_err(|error| unusable("read", &error))? {
            let place = file.display();
            let remedy = "choose another file with `--hashes`";
            return Err(CommandError::Usage(format!("`{place}` holds no hashes of kernels; {remedy}")));
        }
        let text = render::hashes(&sources);
        (None, files::write_atomic(file, text.as_bytes()).map_err(|error| unusable("write", &error))?)
    };
    Ok(Hashed { hashes: file.to_owned(), variants: super::names_of(variants), drift, written })
}

fn are_hashes(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(render::are_hashes)
}

impl Hashed {
    /// Fails if hashes differ from the current ones.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with the remedy.
    pub(super) fn verdict(&self) -> Result<(), CommandError> {
        let lines = match self.drift.as_ref().map_or(0, Vec::len) {
            0 => return Ok(()),
            1 => "1 line is".to_owned(),
            found => format!("{found} lines are"),
        };
        let remedy = "run the same command without `--check` to bring it up to date";
        Err(CommandError::Failed(format!("`{}`: {lines} not as generated; {remedy}", self.hashes.display())))
    }
}
