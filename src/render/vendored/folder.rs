//! A vendored folder on disk: reads, updates and removes it atomically.

use super::changes::{Action, Changes};
use crate::{
    files::{FolderLock, make_folder, sweep},
    kernel::Variant,
    render::{
        OutputFile, RenderError, Restoration,
        folder::{is_missing, lock},
        inside::all_inside,
        manifest::{self, Held, Layout, VendoredAs},
        transition::Transition,
    },
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A folder to vendor into, and its layout.
#[derive(Clone, Debug)]
pub struct Vendored {
    folder: PathBuf,
    layout: Layout,
    beside_others: bool,
}

/// A vendored folder that is locked against other kgen processes until this value is dropped, so its contents cannot
/// change between a check and an update.
#[derive(Debug)]
pub struct LockedVendored<'a> {
    of: &'a Vendored,
    lock: Option<FolderLock>,
    /// True if dropping this value removes the folder if it is empty.
    remove_if_empty: bool,
}

impl Vendored {
    /// `folder`, which need not exist yet.
    pub fn new(folder: &Path, layout: Layout) -> Self {
        Self { folder: folder.to_owned(), layout, beside_others: false }
    }

    /// True if a folder that kgen did not create may contain other files, which are kept. Otherwise it is an error.
    #[must_use]
    pub fn beside_others(self, beside_others: bool) -> Self {
        Self { beside_others, ..self }
    }

    /// The folder's kernels and vendoring options; `None` if it does not exist or is empty. Waits until no other
    /// process writes the folder, and takes no lock; `on_wait` receives one sentence if there is such a process.
    ///
    /// # Errors
    /// [`RenderError::NotVendored`] when it has files but no manifest, [`RenderError::MadeBy`] when another
    /// kgen command manages it, [`RenderError::Manifest`], [`RenderError::Io`].
    pub fn held(&self, on_wait: &dyn Fn(&str)) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        self.steady(on_wait, || self.held_now())
    }

    /// The changes of an update to `files`, or of a removal if `files` is empty. Writes nothing; waits like
    /// [`held`](Self::held).
    ///
    /// # Errors
    /// The errors of [`held`](Self::held).
    pub fn compare(&self, files: &[OutputFile], on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        self.steady(on_wait, || self.changes(files).map(|(_, changes)| changes))
    }

    /// Locks the folder. If it does not exist, it is created if there are `files`; otherwise returns `None`. `on_wait`
    /// receives one sentence if another process has the lock.
    ///
    /// # Errors
    /// The errors of [`held`](Self::held), and [`RenderError::Io`] when the folder cannot be created or locked.
    pub fn lock(&self, files: Option<&[OutputFile]>, on_wait: &dyn Fn(&str)) -> Result<Option<LockedVendored<'_>>, RenderError> {
        let folder = &self.folder;
        loop {
            // Check before creating anything: the folder may belong to something else.
            self.steady(on_wait, || self.manifest(files.unwrap_or_default()))?;
            let is_new = !folder.exists();
            if is_new && files.is_none() {
                return Ok(None);
            }
            if is_new {
                make_folder(folder).map_err(RenderError::io("create", folder))?;
            }
            match lock(folder, on_wait, &|| false) {
                Ok(lock) => {
                    sweep(folder);
                    return Ok(Some(LockedVendored { of: self, lock: Some(lock), remove_if_empty: is_new }));
                }
                // Another process has removed the folder in the meantime.
                Err(error) if is_missing(&error) && !folder.exists() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The result of `look` while no other process writes the folder; repeats it if one did.
    fn steady<T>(&self, on_wait: &dyn Fn(&str), look: impl Fn() -> Result<T, RenderError>) -> Result<T, RenderError> {
        let manifest = || fs::read(self.folder.join(manifest::FILE)).ok();
        let waiting = |who: &str| on_wait(&format!("{who} is writing `{}`; waiting for it", self.folder.display()));
        loop {
            FolderLock::wait(&self.folder, &waiting);
            let before = manifest();
            let found = look();
            if !FolderLock::is_held(&self.folder) && manifest() == before {
                return found;
            }
        }
    }

    fn held_now(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        let held = self.manifest(&[])?;
        Ok(held.and_then(|held| Some((held.variants, held.vendored?))))
    }

    /// The manifest, and the changes of an update to `files`.
    fn changes(&self, files: &[OutputFile]) -> Result<(Held, Changes), RenderError> {
        let held = self.manifest(files)?.unwrap_or_default();
        let changes = Changes::to(&self.folder, &held, files)?;
        Ok((held, changes))
    }

    /// The manifest; `None` if the folder does not exist, is empty, or contains only `files`, as after a killed run of
    /// an older kgen.
    fn manifest(&self, files: &[OutputFile]) -> Result<Option<Held>, RenderError> {
        let folder = &self.folder;
        match self.find()? {
            None if !self.beside_others && !is_left_over(folder, files)? => {
                Err(RenderError::NotVendored { folder: folder.clone() })
            }
            held => Ok(held),
        }
    }

    /// The manifest, if there is one. Fails if it has another layout.
    fn find(&self) -> Result<Option<Held>, RenderError> {
        let folder = &self.folder;
        let Some(held) = Held::find(folder)? else { return Ok(None) };
        match held.vendored.map(|how| how.layout) {
            Some(layout) if layout == self.layout => Ok(Some(held)),
            other => {
                let command = other.map_or("kgen generate", Layout::command);
                Err(RenderError::MadeBy { folder: folder.clone(), command })
            }
        }
    }
}

impl LockedVendored<'_> {
    /// [`Vendored::held`] of the locked folder.
    ///
    /// # Errors
    /// The errors of [`Vendored::held`].
    pub fn held(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        self.of.held_now()
    }

    /// Replaces the folder's files with `files`, and returns the changes.
    ///
    /// # Errors
    /// The errors of [`held`](Self::held), [`RenderError::Edited`] when a user's edits would be lost, and
    /// [`RenderError::Outside`] when a link leads out of the folder: nothing has changed then. [`RenderError::Io`] when
    /// a file cannot be written; the next run recognises the files written until then.
    pub fn bring(self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        self.bring_and(files, || Ok(()))
    }

    /// Like [`bring`](Self::bring), then runs `more` before the lock is released.
    ///
    /// # Errors
    /// The errors of [`bring`](Self::bring), and those of `more`.
    pub(super) fn bring_and(
        self,
        files: &[OutputFile],
        more: impl FnOnce() -> Result<(), RenderError>,
    ) -> Result<Changes, RenderError> {
        self.change(files, |transition| transition.make().and_then(|()| more()))
    }

    /// Returns the errors of [`take_away`](Self::take_away) without removing anything.
    ///
    /// # Errors
    /// The errors of [`take_away`](Self::take_away).
    pub(super) fn may_be_taken_away(&self) -> Result<(), RenderError> {
        self.change(&[], |_| Ok(())).map(drop)
    }

    /// Removes all files that kgen wrote, and the folder if it is empty then. Returns the changes.
    ///
    /// # Errors
    /// The errors of [`bring`](Self::bring).
    pub fn take_away(mut self) -> Result<Changes, RenderError> {
        let folder = &self.of.folder;
        let done = self.change(&[], |transition| {
            // The manifest lists the other files, so it is removed last.
            let (manifests, doomed): (Vec<&str>, Vec<&str>) =
                transition.doomed.into_iter().partition(|path| *path == manifest::FILE);
            Transition { doomed, ..transition }.make()?;
            manifests
                .iter()
                .map(|path| folder.join(path))
                .try_for_each(|path| fs::remove_file(&path).map_err(RenderError::io("remove", &path)))
        });
        self.remove_if_empty |= done.is_ok();
        done
    }

    /// Computes the changes to `files`, checks that they lose no edits, and applies them with `make`.
    fn change(
        &self,
        files: &[OutputFile],
        make: impl FnOnce(Transition<'_>) -> Result<(), RenderError>,
    ) -> Result<Changes, RenderError> {
        let folder = &self.of.folder;
        let (held, changes) = self.of.changes(files)?;
        changes.refuse_edited(folder, Restoration::Delete)?;
        all_inside(folder, changes.changes.iter().map(|change| change.path.as_str()))?;
        let written = |file: &&OutputFile| {
            let mut written = changes.paths(Action::Add).chain(changes.paths(Action::Update));
            written.any(|path| path == file.path)
        };
        let (manifests, others): (Vec<&OutputFile>, Vec<&OutputFile>) =
            files.iter().filter(written).partition(|file| file.path == manifest::FILE);
        make(Transition {
            folder,
            held: &held,
            put: others.iter().map(|file| (file.path.as_str(), file.text.as_bytes())).collect(),
            doomed: changes.paths(Action::Remove).collect(),
            manifest: manifests.first().copied(),
        })?;
        Ok(changes)
    }
}

impl Drop for LockedVendored<'_> {
    fn drop(&mut self) {
        drop(self.lock.take());
        if self.remove_if_empty {
            // Fails, as intended, if the folder contains kernels or a user's files by now.
            fs::remove_dir(&self.of.folder).ok();
        }
    }
}

/// True if `folder` contains only some of `files` and kgen's temporary files.
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
