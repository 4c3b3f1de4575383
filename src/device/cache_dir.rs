//! Cache folders that are used only as long as their contents are unchanged: each has a sealed list of its files and
//! their hashes.

use super::KitError;
use crate::files::{content_hash, read, seal, touch, unseal};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Prefix of the names of unfinished folders.
pub(super) const UNFINISHED: &str = ".new-";

/// File name of the list.
const LIST: &str = "contents.json";

/// The files of a folder by relative path, with their hashes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Contents(BTreeMap<PathBuf, String>);

impl Contents {
    /// Reads every file in `folder` except the list.
    fn of(folder: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        collect(folder, Path::new(""), &mut files)?;
        files.remove(Path::new(LIST));
        Ok(Self(files))
    }

    /// The paths with this extension, in order.
    pub(super) fn with_extension(&self, extension: &str) -> impl Iterator<Item = &Path> {
        self.0.keys().map(PathBuf::as_path).filter(move |path| path.extension().is_some_and(|e| e == extension))
    }
}

/// The contents of `folder`, which is filled first if it is missing or was changed. `key` identifies the contents. A
/// new folder in `root` is filled and then renamed into place; if another process was first, its folder stays.
///
/// # Errors
/// [`KitError`], including those of `fill`.
pub(super) fn made(
    root: &Path,
    folder: &Path,
    key: &str,
    fill: impl FnOnce(&Path) -> Result<(), KitError>,
) -> Result<Contents, KitError> {
    touch(folder);
    if let Some(contents) = whole(folder, key) {
        return Ok(contents);
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| KitError::Io { path, source }
    };
    fs::create_dir_all(root).map_err(failed(root))?;
    let scratch = || tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(root).map_err(failed(root));
    let new = scratch()?;
    fill(new.path())?;
    let contents = Contents::of(new.path()).map_err(failed(new.path()))?;
    let list = seal(&contents.0, &[key.as_bytes()]).map_err(|error| failed(folder)(io::Error::from(error)))?;
    fs::write(new.path().join(LIST), list).map_err(failed(new.path()))?;
    touch(new.path());
    if fs::rename(new.path(), folder).is_err() {
        touch(folder);
        if let Some(other) = whole(folder, key) {
            return Ok(other);
        }
        // A damaged folder exists. It is moved away by a rename too, so that no process sees half of it.
        let doomed = scratch()?;
        fs::rename(folder, doomed.path().join("damaged")).map_err(failed(folder))?;
        fs::rename(new.path(), folder).map_err(failed(folder))?;
    }
    let _renamed = new.keep();
    Ok(contents)
}

/// True if `folder` holds unchanged contents that were made for `key`; it then counts as used now.
pub(super) fn is_whole(folder: &Path, key: &str) -> bool {
    let is_whole = whole(folder, key).is_some();
    if is_whole {
        touch(folder);
    }
    is_whole
}

/// The contents of `folder`, if they match the list that was written when it was filled for `key`.
fn whole(folder: &Path, key: &str) -> Option<Contents> {
    let listed = Contents(unseal(&read(&folder.join(LIST)).ok()?, &[key.as_bytes()])?);
    (Contents::of(folder).ok()? == listed).then_some(listed)
}

fn collect(folder: &Path, below: &Path, files: &mut BTreeMap<PathBuf, String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), below.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            collect(&path, &name, files)?;
        } else {
            // For a link, the hash of its target's contents.
            files.insert(name, content_hash(read(&path)?));
        }
    }
    Ok(())
}
