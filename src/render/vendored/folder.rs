//! The folder on disk: what it holds, and bringing it to other files or taking it away, all of it or none of it.

use super::changes::{Action, Changes};
use crate::{
    grid::Variant,
    render::{
        OutputFile, RenderError,
        folder::{lock, place, remove_empty_parents, remove_stale_staging},
        inside::all_inside,
        manifest::{self, Held, Layout, VendoredAs},
    },
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A folder to vendor into, with the layout that it is to have.
#[derive(Clone, Debug)]
pub struct Vendored {
    folder: PathBuf,
    layout: Layout,
}

impl Vendored {
    /// `folder`, which need not be there yet.
    pub fn new(folder: &Path, layout: Layout) -> Self {
        Self { folder: folder.to_owned(), layout }
    }

    /// Its kernels, and how it was made; `None` where there is no such folder, or an empty one. Takes no lock.
    ///
    /// # Errors
    /// [`RenderError::NotVendored`] where it holds anything and no manifest, [`RenderError::MadeBy`] where another
    /// command of kgen's looks after it, [`RenderError::Manifest`], [`RenderError::Io`].
    pub fn held(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        let held = self.manifest(&[])?;
        Ok(held.and_then(|held| Some((held.variants, held.vendored?))))
    }

    /// What would change so that it holds `files`; without files, if it were taken away. Writes nothing.
    ///
    /// # Errors
    /// As [`held`](Self::held).
    pub fn compare(&self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        let held = self.manifest(files)?.unwrap_or_default();
        Changes::to(&self.folder, &held.files, files)
    }

    /// Brings the folder to `files`, and says what that changed. `on_wait` receives one sentence if another process is
    /// at work there.
    ///
    /// # Errors
    /// As [`compare`](Self::compare), and [`RenderError::Edited`] where a person's change would be lost,
    /// [`RenderError::Outside`] where a link leads out of the folder: nothing has changed then.
    pub fn bring(&self, files: &[OutputFile], on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        let folder = &self.folder;
        // Before anything is made there.
        self.compare(files)?.refuse_edited(folder)?;
        fs::create_dir_all(folder).map_err(RenderError::io("create", folder))?;
        let _lock = lock(folder, on_wait, &|| false)?;
        let changes = self.checked(files)?;

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

    /// Removes what kgen wrote, and the folder where nothing else is left in it. Says what that changed: nothing where
    /// there is no folder.
    ///
    /// # Errors
    /// As [`bring`](Self::bring).
    pub fn take_away(&self, on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        if self.manifest(&[])?.is_none() {
            return Ok(Changes::default());
        }
        let lock = lock(&self.folder, on_wait, &|| false)?;
        let changes = self.checked(&[])?;
        remove(&self.folder, &changes)?;
        drop(lock);
        // It stays where a person put something into it.
        fs::remove_dir(&self.folder).ok();
        Ok(changes)
    }

    /// The changes to `files` under the folder's lock, once nothing stands against them.
    fn checked(&self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        remove_stale_staging(&self.folder);
        let changes = self.compare(files)?;
        changes.refuse_edited(&self.folder)?;
        all_inside(&self.folder, changes.changes.iter().map(|change| change.path.as_str()))?;
        Ok(changes)
    }

    /// The manifest; `None` where there is no folder, an empty one, or one that holds nothing but `files`, which a
    /// killed run has left.
    fn manifest(&self, files: &[OutputFile]) -> Result<Option<Held>, RenderError> {
        let folder = &self.folder;
        let Some(held) = Held::find(folder)? else {
            let left_over = is_left_over(folder, files)?;
            return if left_over { Ok(None) } else { Err(RenderError::NotVendored { folder: folder.clone() }) };
        };
        match held.vendored.map(|how| how.layout) {
            Some(layout) if layout == self.layout => Ok(Some(held)),
            other => {
                let command = other.map_or("kgen generate", Layout::command);
                Err(RenderError::MadeBy { folder: folder.clone(), command })
            }
        }
    }
}

fn remove(folder: &Path, changes: &Changes) -> Result<(), RenderError> {
    for path in changes.paths(Action::Remove) {
        let path = folder.join(path);
        fs::remove_file(&path).map_err(RenderError::io("remove", &path))?;
        remove_empty_parents(folder, &path);
    }
    Ok(())
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
