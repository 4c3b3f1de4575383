//! A vLLM checkout with kgen's folder, and the edit of vLLM's CMake file that includes the folder in the build.

use super::{
    changes::{Action, Change, Changes},
    folder::{LockedVendored, Vendored},
    hook,
};
use crate::{
    files::{self, committed_text, sweep, write_atomic},
    kernel::Variant,
    render::{Layout, OutputFile, RenderError, VendoredAs, inside::all_inside},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Name of kgen's folder in the checkout.
const FOLDER: &str = "kgen";

/// A checkout whose folder of kernels is locked.
#[derive(Debug)]
pub struct LockedVllm<'a> {
    /// State of the checkout, read under the lock.
    tree: VllmTree,
    folder: LockedVendored<'a>,
}

/// Files that a checkout must have, and the text each must contain: the names of the replaced modules and their calls.
const KNOWN: [(&str, &[&str]); 3] = [
    ("CMakeLists.txt", &["vllm_flash_attn.cmake"]),
    ("setup.py", &["_vllm_fa2_C", "_vllm_fa3_C"]),
    ("vllm/vllm_flash_attn/flash_attn_interface.py", &["_vllm_fa2_C.varlen_fwd", "_vllm_fa3_C.fwd"]),
];

/// A checkout of a supported version of vLLM.
#[derive(Clone, Debug)]
pub struct VllmTree {
    root: PathBuf,
    folder: Vendored,
    /// The text of [`hook::FILE`], and the same without kgen's lines.
    text: String,
    bare: String,
}

impl VllmTree {
    /// Reads the checkout at `root`.
    ///
    /// # Errors
    /// [`RenderError::NotVllm`] when a file is not as expected, or is a symbolic link, which could lead to
    /// another checkout.
    pub fn open(root: &Path) -> Result<Self, RenderError> {
        let unknown = |reason: String| RenderError::NotVllm { folder: root.to_owned(), reason };
        for (path, words) in KNOWN {
            let text = read(root, path)?;
            if let Some(word) = words.iter().find(|word| !text.contains(**word)) {
                return Err(unknown(format!("`{path}` does not name `{word}`")));
            }
        }
        for path in [FOLDER, hook::FILE] {
            if fs::symlink_metadata(root.join(path)).is_ok_and(|found| found.is_symlink()) {
                return Err(unknown(format!("`{path}` in it is a link, which kgen does not follow there")));
            }
        }
        all_inside(root, [hook::FILE].into_iter()).map_err(|error| unknown(error.to_string()))?;
        let text = read(root, hook::FILE)?;
        let bare = hook::without(&text).map_err(unknown)?;
        // Checks that kgen's lines can be inserted, even if the file already contains them.
        hook::with(&bare).map_err(unknown)?;
        Ok(Self { root: root.to_owned(), folder: Vendored::new(&root.join(FOLDER), Layout::Vllm), text, bare })
    }

    /// True if its folder may contain other files; see [`Vendored::beside_others`].
    #[must_use]
    pub fn beside_others(self, beside_others: bool) -> Self {
        Self { folder: self.folder.beside_others(beside_others), ..self }
    }

    /// The folder of kernels.
    pub fn folder(&self) -> &Vendored {
        &self.folder
    }

    /// The changes that put `files` into the folder and edit vLLM's CMake file; without files, that undo both. Paths
    /// are below the checkout. Writes nothing.
    ///
    /// # Errors
    /// The errors of [`Vendored::compare`].
    pub fn compare(&self, files: &[OutputFile], on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        let changes = self.folder.compare(files, on_wait)?;
        // Read the checkout again after the wait.
        Self::open(&self.root)?.with_hook(changes, !files.is_empty())
    }

    /// Locks the folder, and creates it if it is missing. `None` if neither the folder nor kgen's lines exist and there
    /// are no `files`. `on_wait` receives one sentence if another process has the lock.
    ///
    /// # Errors
    /// The errors of [`Vendored::lock`] and of [`open`](Self::open); [`RenderError::NotVllm`] when the file to edit has
    /// uncommitted changes.
    pub fn lock(&self, files: Option<&[OutputFile]>, on_wait: &dyn Fn(&str)) -> Result<Option<LockedVllm<'_>>, RenderError> {
        let is_hooked = self.text != self.bare;
        let Some(folder) = self.folder.lock(files.or(is_hooked.then_some(&[][..])), on_wait)? else { return Ok(None) };
        if let Some(folder) = self.root.join(hook::FILE).parent() {
            sweep(folder);
        }
        Ok(Some(LockedVllm { tree: Self::open(&self.root)?, folder }))
    }

    /// The new text of vLLM's CMake file, with or without kgen's lines.
    fn wanted(&self, hooked: bool) -> Result<String, RenderError> {
        let unknown = |reason| RenderError::NotVllm { folder: self.root.clone(), reason };
        if hooked { hook::with(&self.bare).map_err(unknown) } else { Ok(self.bare.clone()) }
    }

    /// The changes of the folder and of vLLM's CMake file, with paths below the checkout.
    fn with_hook(&self, mut changes: Changes, hooked: bool) -> Result<Changes, RenderError> {
        for change in &mut changes.changes {
            change.path = format!("{FOLDER}/{}", change.path);
        }
        if self.wanted(hooked)? == self.text {
            changes.unchanged += usize::from(hooked);
        } else {
            changes.changes.push(Change { path: hook::FILE.to_owned(), action: Action::Update, edited: false });
        }
        Ok(changes)
    }

    fn set_hook(&self, hooked: bool) -> Result<(), RenderError> {
        let (path, wanted) = (self.root.join(hook::FILE), self.wanted(hooked)?);
        if wanted == self.text {
            return Ok(());
        }
        write_atomic(&path, wanted.as_bytes()).map(|_| ()).map_err(RenderError::io("write", &path))
    }

    /// Fails if vLLM's CMake file, apart from kgen's lines, differs from the committed version. Without git there is no
    /// check.
    ///
    /// # Errors
    /// [`RenderError::NotVllm`].
    pub fn refuse_uncommitted(&self, hooked: bool) -> Result<(), RenderError> {
        let committed = committed_text(&self.root, hook::FILE).and_then(|text| hook::without(&text).ok());
        if self.wanted(hooked)? == self.text || committed.is_none_or(|text| text == self.bare) {
            return Ok(());
        }
        let reason = format!("`{}` has changes that are not committed; commit or restore them first", hook::FILE);
        Err(RenderError::NotVllm { folder: self.root.clone(), reason })
    }
}

impl LockedVllm<'_> {
    /// Contents of the folder; see [`Vendored::held`].
    ///
    /// # Errors
    /// The errors of [`LockedVendored::held`].
    pub fn held(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        self.folder.held()
    }

    /// Updates the folder to `files`. Edits vLLM's CMake file last, so that the build never refers to missing files.
    ///
    /// # Errors
    /// The errors of [`LockedVendored::bring`], and [`RenderError::NotVllm`] when the file to edit has uncommitted
    /// changes: nothing has changed then.
    pub fn bring(self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        self.tree.refuse_uncommitted(true)?;
        let changes = self.folder.bring_and(files, || self.tree.set_hook(true))?;
        self.tree.with_hook(changes, true)
    }

    /// Undoes the edit of vLLM's CMake file, then removes the folder's files.
    ///
    /// # Errors
    /// The errors of [`bring`](Self::bring).
    pub fn take_away(self) -> Result<Changes, RenderError> {
        self.tree.refuse_uncommitted(false)?;
        self.folder.may_be_taken_away()?;
        self.tree.set_hook(false)?;
        let changes = self.folder.take_away()?;
        self.tree.with_hook(changes, false)
    }
}

/// The text of a file of the checkout.
fn read(root: &Path, path: &str) -> Result<String, RenderError> {
    files::read_to_string(&root.join(path)).map_err(|error| {
        let reason = format!("cannot read `{path}`: {error}");
        RenderError::NotVllm { folder: root.to_owned(), reason }
    })
}
