//! Replaces the files of a folder so that after an interruption at any point the next run still recognises every file
//! as kgen's.

use super::{OutputFile, RenderError, manifest};
use crate::files::{Staging, make_folder};
use rayon::prelude::*;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Changes to a folder. The caller holds the folder's lock.
pub(super) struct Transition<'a> {
    pub folder: &'a Path,
    /// The folder's current manifest.
    pub held: &'a manifest::Held,
    /// Files to write, in order: (path, contents).
    pub put: Vec<(&'a str, &'a [u8])>,
    /// Files to remove.
    pub doomed: Vec<&'a str>,
    /// The final manifest; `None` if it is unchanged or the folder has no manifest.
    pub manifest: Option<&'a OutputFile>,
}

impl Transition<'_> {
    /// Applies the changes. All files are first written under temporary names; then an intermediate manifest that lists
    /// old and new files is renamed into place, then the files, and last the final manifest.
    ///
    /// # Errors
    /// [`RenderError::Io`]. Nothing has changed if it occurs before the first rename.
    pub fn make(&self) -> Result<(), RenderError> {
        let until = self.manifest.filter(|_| self.put.len() + self.doomed.len() > 0).map(|new| self.held.until(new));
        let manifests = [until.as_ref(), self.manifest].into_iter().flatten().map(|file| (&*file.path, file.text.as_bytes()));
        let files: Vec<(&str, &[u8])> = manifests.chain(self.put.iter().copied()).collect();
        if files.is_empty() {
            return self.remove();
        }
        let folder = self.folder;
        let staging = Staging::new(folder).map_err(RenderError::io("write", folder))?;
        files.par_iter().enumerate().try_for_each(|(number, (path, bytes))| {
            staging.write(number, bytes).map_err(RenderError::io("write", folder.join(path)))
        })?;
        let place = |number: usize| {
            let path = folder.join(files[number].0);
            if let Some(parent) = path.parent() {
                make_folder(parent).map_err(RenderError::io("create", parent))?;
            }
            staging.place(number, &path).map_err(RenderError::io("write", &path))
        };
        let (first, last) = (usize::from(until.is_some()), usize::from(self.manifest.is_some()));
        (0..first).try_for_each(place)?;
        (first + last..files.len()).try_for_each(place)?;
        self.remove()?;
        (first..first + last).try_for_each(place)
    }

    /// Removes the files, then every folder of kgen's files that is now empty, including those that an interrupted run
    /// left empty.
    fn remove(&self) -> Result<(), RenderError> {
        for path in self.doomed.iter().map(|path| self.folder.join(path)) {
            fs::remove_file(&path).map_err(RenderError::io("remove", &path))?;
        }
        let known = self.held.paths();
        let files = known.iter().chain(&self.doomed);
        let folders: BTreeSet<PathBuf> = files.flat_map(|path| Path::new(path).ancestors().skip(1)).map(PathBuf::from).collect();
        // Deepest first; removing a folder that is not empty fails and is ignored.
        for folder in folders.iter().rev().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::remove_dir(self.folder.join(folder)).ok();
        }
        Ok(())
    }
}
