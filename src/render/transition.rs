//! Bringing a folder from what it holds to other files, so that an interruption at any point leaves only what the next
//! run knows for kgen's.

use super::{OutputFile, RenderError, manifest};
use crate::files::{Staging, make_folder};
use rayon::prelude::*;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// What is to be done in a folder whose lock the caller has.
pub(super) struct Transition<'a> {
    pub folder: &'a Path,
    /// What it holds, by its manifest.
    pub held: &'a manifest::Held,
    /// Files to write, by path, in this order.
    pub put: Vec<(&'a str, &'a [u8])>,
    /// Files to remove.
    pub doomed: Vec<&'a str>,
    /// The manifest to come, unless it is there already or the folder has none.
    pub manifest: Option<&'a OutputFile>,
}

impl Transition<'_> {
    /// Does it: everything is written aside first; then a manifest that knows old and new takes its place, then the
    /// files, and last the manifest to come.
    ///
    /// # Errors
    /// [`RenderError::Io`]. Up to the first rename nothing has changed.
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

    /// Removes the files, and the folders of all files of kgen's that are empty then, or that an interrupted run has
    /// left empty.
    fn remove(&self) -> Result<(), RenderError> {
        for path in self.doomed.iter().map(|path| self.folder.join(path)) {
            fs::remove_file(&path).map_err(RenderError::io("remove", &path))?;
        }
        let known = self.held.paths();
        let files = known.iter().chain(&self.doomed);
        let folders: BTreeSet<PathBuf> = files.flat_map(|path| Path::new(path).ancestors().skip(1)).map(PathBuf::from).collect();
        // The deepest first. What is not empty stays.
        for folder in folders.iter().rev().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::remove_dir(self.folder.join(folder)).ok();
        }
        Ok(())
    }
}
