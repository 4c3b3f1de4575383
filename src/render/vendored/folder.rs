//! The folder on disk: what it holds, and bringing it to other files or taking it away, all of it or none of it.

use super::changes::{Action, Changes};
use crate::{
    grid::Variant,
    render::{
        OutputFile, RenderError,
        folder::{lock, place, remove_empty_parents, remove_stale_staging},
        inside::all_inside,
        manifest::{self, Held},
    },
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What a vendored folder holds, by its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vendored {
    /// Its kernels.
    pub variants: Vec<Variant>,
    /// Whether the dispatcher lies beside them.
    pub dispatcher: bool,
}

/// What `folder` holds; `None` where there is no such folder, or an empty one. Takes no lock.
///
/// # Errors
/// [`RenderError::NotVendored`] where it holds anything and no manifest, [`RenderError::MadeBy`] where another command
/// of kgen's wrote it, [`RenderError::Manifest`], [`RenderError::Io`].
pub fn vendored_in(folder: &Path) -> Result<Option<Vendored>, RenderError> {
    Ok(held_in(folder, &[])?
        .map(|held| Vendored { dispatcher: held.vendored.is_some_and(|how| how.dispatcher), variants: held.variants }))
}

/// What would change in `folder` so that it holds `files`. Writes nothing.
///
/// # Errors
/// As [`vendored_in`].
pub fn compare(folder: &Path, files: &[OutputFile]) -> Result<Changes, RenderError> {
    let held = held_in(folder, files)?.unwrap_or_default();
    Changes::to(folder, &held.files, files)
}

/// What would change in `folder` if it were taken away. Writes nothing.
///
/// # Errors
/// As [`vendored_in`].
pub fn compare_removal(folder: &Path) -> Result<Changes, RenderError> {
    compare(folder, &[])
}

/// Brings `folder` to `files`, and says what that changed. `on_wait` receives one sentence if another process is at
/// work there.
///
/// # Errors
/// As [`compare`], and [`RenderError::Edited`] where a person's change would be lost: nothing has changed then;
/// [`RenderError::Outside`] where a link leads out of the folder.
pub fn bring(folder: &Path, files: &[OutputFile], on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
    // Before anything is made there.
    compare(folder, files)?.refuse_edited(folder)?;
    fs::create_dir_all(folder).map_err(RenderError::io("create", folder))?;
    let _lock = lock(folder, on_wait, &|| false)?;
    remove_stale_staging(folder);
    let changes = compare(folder, files)?;
    changes.refuse_edited(folder)?;
    all_inside(folder, changes.changes.iter().map(|change| change.path.as_str()))?;

    let is_new = |file: &&OutputFile| {
        let mut written = changes.paths(Action::Add).chain(changes.paths(Action::Update));
        written.any(|path| path == file.path)
    };
    let (manifest, others): (Vec<&OutputFile>, Vec<&OutputFile>) =
        files.iter().filter(is_new).partition(|file| file.path == manifest::FILE);
    place(folder, &others)?;
    remove(folder, &changes)?;
    // Last: a run that was killed before has left the old one, by which the next run removes what this one did not.
    place(folder, &manifest)?;
    Ok(changes)
}

/// Removes what kgen wrote into `folder`, and the folder where nothing else is left in it. Says what that changed:
/// nothing where there is no folder.
///
/// # Errors
/// As [`bring`].
pub fn take_away(folder: &Path, on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
    if held_in(folder, &[])?.is_none() {
        return Ok(Changes::default());
    }
    let lock = lock(folder, on_wait, &|| false)?;
    remove_stale_staging(folder);
    let changes = compare_removal(folder)?;
    changes.refuse_edited(folder)?;
    all_inside(folder, changes.changes.iter().map(|change| change.path.as_str()))?;
    remove(folder, &changes)?;
    drop(lock);
    // It stays where a person put something into it.
    fs::remove_dir(folder).ok();
    Ok(changes)
}

fn remove(folder: &Path, changes: &Changes) -> Result<(), RenderError> {
    for path in changes.paths(Action::Remove) {
        let path = folder.join(path);
        fs::remove_file(&path).map_err(RenderError::io("remove", &path))?;
        remove_empty_parents(folder, &path);
    }
    Ok(())
}

/// The manifest of a vendored folder; `None` where there is no folder, an empty one, or one that holds nothing but
/// `files`, which a killed run has left.
fn held_in(folder: &Path, files: &[OutputFile]) -> Result<Option<Held>, RenderError> {
    match Held::find(folder)? {
        Some(held) if held.vendored.is_some() => Ok(Some(held)),
        Some(_) => Err(RenderError::MadeBy { folder: folder.to_owned(), command: "kgen generate" }),
        None if is_left_over(folder, files)? => Ok(None),
        None => Err(RenderError::NotVendored { folder: folder.to_owned() }),
    }
}

/// Whether all that lies in `folder` are some of `files`, or files that kgen needs while it works.
fn is_left_over(folder: &Path, files: &[OutputFile]) -> Result<bool, RenderError> {
    let mut left = vec![PathBuf::new()];
    while let Some(below) = left.pop() {
        let path = folder.join(&below);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(RenderError::io("read", path)(error)),
        };
        for entry in entries {
            let entry = entry.map_err(RenderError::io("read", &path))?;
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(".kgen") {
                continue;
            }
            let below = below.join(name);
            if entry.file_type().is_ok_and(|found| found.is_dir()) {
                left.push(below);
                continue;
            }
            let text = crate::files::read(&folder.join(&below)).unwrap_or_default();
            if !files.iter().any(|file| Path::new(&file.path) == below && file.text.as_bytes() == text) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
