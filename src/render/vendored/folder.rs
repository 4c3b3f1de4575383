//! The folder on disk: what it holds, and bringing it to other files or taking it away, all of it or none of it.

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

/// A folder to vendor into, with the layout that it is to have.
#[derive(Clone, Debug)]
pub struct Vendored {
    folder: PathBuf,
    layout: Layout,
    beside_others: bool,
}

/// The same, locked against other kgen processes for as long as this value lives: what is decided by what lies there
/// stays true.
#[derive(Debug)]
pub struct LockedVendored<'a> {
    of: &'a Vendored,
    lock: Option<FolderLock>,
    /// Whether the folder goes with it where nothing is in it then.
    remove_if_empty: bool,
}

impl Vendored {
    /// `folder`, which need not be there yet.
    pub fn new(folder: &Path, layout: Layout) -> Self {
        Self { folder: folder.to_owned(), layout, beside_others: false }
    }

    /// Whether a folder that kgen did not make may hold other files, which stay; otherwise it is refused.
    #[must_use]
    pub fn beside_others(self, beside_others: bool) -> Self {
        Self { beside_others, ..self }
    }

    /// Its kernels, and how it was made; `None` where there is no such folder, or an empty one. Waits for other
    /// processes that write there, and takes no lock; `on_wait` receives one sentence if there is one.
    ///
    /// # Errors
    /// [`RenderError::NotVendored`] where it holds anything and no manifest, [`RenderError::MadeBy`] where another
    /// command of kgen's looks after it, [`RenderError::Manifest`], [`RenderError::Io`].
    pub fn held(&self, on_wait: &dyn Fn(&str)) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        self.steady(on_wait, || self.held_now())
    }

    /// What would change so that it holds `files`; without files, if it were taken away. Writes nothing, and waits as
    /// [`held`](Self::held) does.
    ///
    /// # Errors
    /// As [`held`](Self::held).
    pub fn compare(&self, files: &[OutputFile], on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        self.steady(on_wait, || self.changes(files).map(|(_, changes)| changes))
    }

    /// Takes its lock. A folder that is not there is made where it is to hold `files`; otherwise `None`. `on_wait`
    /// receives one sentence if another process is at work there.
    ///
    /// # Errors
    /// As [`held`](Self::held), and [`RenderError::Io`] when it cannot be made or locked.
    pub fn lock(&self, files: Option<&[OutputFile]>, on_wait: &dyn Fn(&str)) -> Result<Option<LockedVendored<'_>>, RenderError> {
        let folder = &self.folder;
        loop {
            // Before anything is made in a folder that is not its own.
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
                // Another process has taken the folder away meanwhile.
                Err(error) if is_missing(&error) && !folder.exists() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What `look` finds while no other process writes there.
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

    /// What it holds, and what would change so that it holds `files`.
    fn changes(&self, files: &[OutputFile]) -> Result<(Held, Changes), RenderError> {
        let held = self.manifest(files)?.unwrap_or_default();
        let changes = Changes::to(&self.folder, &held, files)?;
        Ok((held, changes))
    }

    /// The manifest; `None` where there is no folder, an empty one, or one that holds nothing but `files`, which a
    /// killed run of an older kgen has left.
    fn manifest(&self, files: &[OutputFile]) -> Result<Option<Held>, RenderError> {
        let folder = &self.folder;
        match self.find()? {
            None if !self.beside_others && !is_left_over(folder, files)? => {
                Err(RenderError::NotVendored { folder: folder.clone() })
            }
            held => Ok(held),
        }
    }

    /// The manifest, if there is one, and it is of this layout.
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
    /// As [`Vendored::held`].
    ///
    /// # Errors
    /// As [`Vendored::held`].
    pub fn held(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        self.of.held_now()
    }

    /// Brings the folder to `files`, and says what that changed.
    ///
    /// # Errors
    /// As [`held`](Self::held), and [`RenderError::Edited`] where a person's change would be lost,
    /// [`RenderError::Outside`] where a link leads out of the folder: nothing has changed then. [`RenderError::Io`]
    /// where something cannot be written; what has been by then, the next run knows.
    pub fn bring(self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        self.bring_and(files, || Ok(()))
    }

    /// As [`bring`](Self::bring), and then does `more` before the lock is given back.
    ///
    /// # Errors
    /// As its, and those of `more`.
    pub(super) fn bring_and(
        self,
        files: &[OutputFile],
        more: impl FnOnce() -> Result<(), RenderError>,
    ) -> Result<Changes, RenderError> {
        self.change(files, |transition| transition.make().and_then(|()| more()))
    }

    /// What would be refused by [`take_away`](Self::take_away), and nothing else.
    ///
    /// # Errors
    /// As its.
    pub(super) fn may_be_taken_away(&self) -> Result<(), RenderError> {
        self.change(&[], |_| Ok(())).map(drop)
    }

    /// Removes what kgen wrote, and the folder where nothing else is left in it. Says what that changed.
    ///
    /// # Errors
    /// As [`bring`](Self::bring).
    pub fn take_away(mut self) -> Result<Changes, RenderError> {
        let folder = &self.of.folder;
        let done = self.change(&[], |transition| {
            // The manifest knows the others, so it goes last.
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

    /// The changes to `files`, made by `make` once nothing stands against them.
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
            // It stays where kernels are in it by now, or where a person put something into it.
            fs::remove_dir(&self.of.folder).ok();
        }
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
