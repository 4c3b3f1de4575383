//! Changes that an update of a vendored folder makes.

use crate::{
    files::{self, content_hash},
    render::{
        OutputFile, RenderError, Restoration,
        manifest::{self, Held},
    },
};
use serde::Serialize;
use std::{collections::BTreeSet, fmt, fs, path::Path};

/// Action on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The file is missing and will be written.
    Add,
    /// The file has other text and will be replaced.
    Update,
    /// The file is no longer needed and will be removed.
    Remove,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Add => "add",
            Self::Update => "update",
            Self::Remove => "remove",
        })
    }
}

/// A change of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Path below the folder.
    pub path: String,
    /// Action on the file.
    pub action: Action,
    /// True if a user edited the file after kgen wrote it, or put it there. Such files are never replaced or removed.
    pub edited: bool,
}

/// All changes of a folder, sorted by path, the manifest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The files that change.
    pub changes: Vec<Change>,
    /// Number of files that are already up to date.
    pub unchanged: usize,
}

impl Changes {
    /// Number of files with this action.
    pub fn count(&self, action: Action) -> usize {
        self.changes.iter().filter(|change| change.action == action).count()
    }

    /// Paths of files with this action.
    pub(super) fn paths(&self, action: Action) -> impl Iterator<Item = &str> {
        self.changes.iter().filter(move |change| change.action == action).map(|change| change.path.as_str())
    }

    /// Fails if a change would lose a user's edits in `folder`; `remedy` tells the user how to restore the files.
    ///
    /// # Errors
    /// [`RenderError::Edited`] with the files.
    pub fn refuse_edited(&self, folder: &Path, remedy: Restoration) -> Result<(), RenderError> {
        let files: Vec<String> = self.changes.iter().filter(|change| change.edited).map(|change| change.path.clone()).collect();
        if files.is_empty() { Ok(()) } else { Err(RenderError::Edited { folder: folder.to_owned(), files, remedy }) }
    }

    /// The changes that turn `folder`, whose current manifest is `held`, into one with `files` and no other files of
    /// kgen. A symbolic link at a file's path counts as a user's file.
    ///
    /// # Errors
    /// [`RenderError::Io`] when an existing file cannot be read.
    pub(super) fn to(folder: &Path, held: &Held, files: &[OutputFile]) -> Result<Self, RenderError> {
        let is_ours = |path: &str, hash: &str| held.wrote(path, hash) && !is_link(folder, path);
        let mut found = Self::default();
        for file in files {
            let Some(hash) = hash_of(folder, &file.path)? else {
                found.push(&file.path, Action::Add, false);
                continue;
            };
            if hash == content_hash(&file.text) {
                found.unchanged += 1;
            } else {
                // The manifest does not contain its own hash.
                let edited = file.path != manifest::FILE && !is_ours(&file.path, &hash);
                found.push(&file.path, Action::Update, edited);
            }
        }
        let wanted: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
        for path in held.paths().into_iter().filter(|path| !wanted.contains(path)) {
            if let Some(hash) = hash_of(folder, path)? {
                found.push(path, Action::Remove, !is_ours(path, &hash));
            }
        }
        if files.is_empty() && folder.join(manifest::FILE).exists() {
            found.push(manifest::FILE, Action::Remove, false);
        }
        found.changes.sort_by(|a, b| (a.path == manifest::FILE, &a.path).cmp(&(b.path == manifest::FILE, &b.path)));
        Ok(found)
    }

    fn push(&mut self, path: &str, action: Action, edited: bool) {
        self.changes.push(Change { path: path.to_owned(), action, edited });
    }
}

fn is_link(folder: &Path, path: &str) -> bool {
    fs::symlink_metadata(folder.join(path)).is_ok_and(|found| found.is_symlink())
}

/// The hash of a file; `None` if it does not exist.
fn hash_of(folder: &Path, path: &str) -> Result<Option<String>, RenderError> {
    let path = folder.join(path);
    let bytes = files::read_if_there(&path).map_err(RenderError::io("read", path))?;
    Ok(bytes.map(content_hash))
}
