//! Size of the cache, and removal of entries that have not been used for a while.

use super::{CommandError, Context, Observer, limits};
use crate::{
    build::UNFINISHED_OBJECTS,
    device::UNFINISHED_KITS,
    files::{Pruned, path::lossy, prune},
    toolchain::folder_size,
};
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, time::Duration};

/// Cache folders whose entries can be rebuilt, with the prefixes of unfinished entries. The compiler belongs to the
/// command `toolchain`.
const PARTS: [(&str, &[&str]); 3] = [("objects", UNFINISHED_OBJECTS), ("emulator", UNFINISHED_KITS), ("verdicts", &[])];

/// Request about the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Show the size.
    Show,
    /// Remove entries.
    Prune {
        /// Days after its last use when an entry is removed.
        days: u64,
        /// True to count entries without removing them.
        #[serde(default)]
        dry_run: bool,
    },
}

/// Outcome of a request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The sizes.
    Shown(Sizes),
    /// Removal from each part.
    Pruned(Vec<PrunedPart>),
}

/// Sizes of the cache.
#[derive(Debug, Serialize)]
pub struct Sizes {
    /// The folder.
    #[serde(serialize_with = "lossy")]
    pub folder: PathBuf,
    /// The parts that can be pruned.
    pub parts: Vec<PartSize>,
    /// Size of kgen's own compiler.
    pub toolchain_bytes: u64,
}

/// Size of a part.
#[derive(Debug, Serialize)]
pub struct PartSize {
    /// Size in bytes.
    pub bytes: u64,
    /// Name of the part: `objects`, `emulator` or `verdicts`.
    pub name: &'static str,
}

/// Removal from a part.
#[derive(Debug, Serialize)]
pub struct PrunedPart {
    /// Name of the part.
    pub name: &'static str,
    /// Entries removed and left.
    #[serde(flatten)]
    pub what: Pruned,
    /// True if they were only counted.
    pub dry_run: bool,
}

/// Shows or prunes the cache.
///
/// # Errors
/// [`CommandError::Environment`] if the cache cannot be read or written.
pub fn run(request: &Request, context: &Context, _observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let cache = context.cache_dir()?;
    match *request {
        Request::Show => {
            let size = |name: &str| folder_size(&cache.join(name));
            let parts = PARTS.iter().map(|(name, _)| PartSize { bytes: size(name), name }).collect();
            Ok(Outcome::Shown(Sizes { parts, toolchain_bytes: size("toolchain"), folder: cache }))
        }
        Request::Prune { days, dry_run } => {
            limits::within("days", days, &limits::DAYS)?;
            let unused = Duration::from_secs(days * 24 * 3600);
            let part = |(name, unfinished): &(&'static str, &[&str])| {
                let folder = cache.join(name);
                let size = |path: &std::path::Path| {
                    if path.is_dir() { folder_size(path) } else { path.metadata().map_or(0, |m| m.len()) }
                };
                let what = prune(&folder, unfinished, unused, dry_run, &size).map_err(|error| {
                    let folder = folder.display();
                    CommandError::Environment(format!("cannot prune `{folder}`: {error}; see to the folder's permissions"))
                })?;
                Ok(PrunedPart { name, what, dry_run })
            };
            PARTS.iter().map(part).collect::<Result<_, CommandError>>().map(Outcome::Pruned)
        }
    }
}
