//! What bringing a folder up to date would change.

use crate::{
    files::{self, content_hash},
    render::{
        OutputFile, RenderError, Restoration,
        manifest::{self, Held},
    },
};
use serde::Serialize;
use std::{collections::BTreeSet, fmt, fs, path::Path};

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is not there and will be written.
    Add,
    /// It is there with another text, which will be replaced.
    Update,
    /// It is no longer needed and will be removed.
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

/// One file that would change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Path below the folder.
    pub path: String,
    /// What is done with it.
    pub action: Action,
    /// Whether the text found there is not what kgen wrote: a person's, which is never replaced or removed.
    pub edited: bool,
}

/// All of them, sorted by path, the manifest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The files that change.
    pub changes: Vec<Change>,
    /// How many are already right.
    pub unchanged: usize,
}

impl Changes {
    /// How many files have this done to them.
    pub fn count(&self, action: Action) -> usize {
        self.changes.iter().filter(|change| change.action == action).count()
    }

    /// The paths with this done to them.
    pub(super) fn paths(&self, action: Action) -> impl Iterator<Item = &str> {
        self.changes.iter().filter(move |change| change.action == action).map(|change| change.path.as_str())
    }

    /// Refuses a change that would lose a person's work in `folder`; `remedy` says how its files are brought back.
    ///
    /// # Errors
    /// [`RenderError::Edited`] with the files.
    pub fn refuse_edited(&self, folder: &Path, remedy: Restoration) -> Result<(), RenderError> {
        let files: Vec<String> = self.changes.iter().filter(|change| change.edited).map(|change| change.path.clone()).collect();
        if files.is_empty() { Ok(()) } else { Err(RenderError::Edited { folder: folder.to_owned(), files, remedy }) }
    }

    /// What would change in `folder`, where kgen wrote what is `held`, to hold `files` and nothing else of kgen's. A
    /// link in a file's place is a person's.
    ///
    /// # Errors
    /// [`RenderError::Io`] where a file is there and cannot be read.
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
                // The manifest does not hold its own hash.
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

/// The hash of a file, `None` where there is none.
fn hash_of(folder: &Path, path: &str) -> Result<Option<String>, RenderError> {
    let path = folder.join(path);
    let bytes = files::read_if_there(&path).map_err(RenderError::io("read", path))?;
    Ok(bytes.map(content_hash))
}
