//! A checkout of vLLM: kgen's folder in it, and the one file of its build that leads there.

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

/// The folder in the checkout.
const FOLDER: &str = "kgen";

/// The same, locked as its folder of kernels is.
#[derive(Debug)]
pub struct LockedVllm<'a> {
    /// As it is under the lock.
    tree: VllmTree,
    folder: LockedVendored<'a>,
}

/// Files that a checkout has, and what each of them says: the modules that are replaced and how they are called.
const KNOWN: [(&str, &[&str]); 3] = [
    ("CMakeLists.txt", &["vllm_flash_attn.cmake"]),
    ("setup.py", &["_vllm_fa2_C", "_vllm_fa3_C"]),
    ("vllm/vllm_flash_attn/flash_attn_interface.py", &["_vllm_fa2_C.varlen_fwd", "_vllm_fa3_C.fwd"]),
];

/// A checkout that kgen knows its way about.
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
    /// [`RenderError::NotVllm`] with what is not as it is known, or is a link, which could lead to another checkout's.
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
        // Whether the lines can be put there, also where they are.
        hook::with(&bare).map_err(unknown)?;
        Ok(Self { root: root.to_owned(), folder: Vendored::new(&root.join(FOLDER), Layout::Vllm), text, bare })
    }

    /// Whether its folder may hold other files, as [`Vendored::beside_others`].
    #[must_use]
    pub fn beside_others(self, beside_others: bool) -> Self {
        Self { folder: self.folder.beside_others(beside_others), ..self }
    }

    /// Its folder of kernels.
    pub fn folder(&self) -> &Vendored {
        &self.folder
    }

    /// What would change so that the folder holds `files` and vLLM's build leads there; without files, if both were
    /// taken away. Paths are those below the checkout. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Vendored::compare`].
    pub fn compare(&self, files: &[OutputFile], on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        let changes = self.folder.compare(files, on_wait)?;
        // As it is after the wait.
        Self::open(&self.root)?.with_hook(changes, !files.is_empty())
    }

    /// Takes the lock of its folder, which is made if need be; `None` where neither the folder nor kgen's lines are
    /// there and no `files` are to be. `on_wait` receives one sentence if another process is at work there.
    ///
    /// # Errors
    /// Those of [`Vendored::lock`] and of [`open`](Self::open); [`RenderError::NotVllm`] where the file to edit has
    /// changes that are not committed.
    pub fn lock(&self, files: Option<&[OutputFile]>, on_wait: &dyn Fn(&str)) -> Result<Option<LockedVllm<'_>>, RenderError> {
        let is_hooked = self.text != self.bare;
        let Some(folder) = self.folder.lock(files.or(is_hooked.then_some(&[][..])), on_wait)? else { return Ok(None) };
        if let Some(folder) = self.root.join(hook::FILE).parent() {
            sweep(folder);
        }
        Ok(Some(LockedVllm { tree: Self::open(&self.root)?, folder }))
    }

    /// The text that vLLM's file is to have, with kgen's lines or without.
    fn wanted(&self, hooked: bool) -> Result<String, RenderError> {
        let unknown = |reason| RenderError::NotVllm { folder: self.root.clone(), reason };
        if hooked { hook::with(&self.bare).map_err(unknown) } else { Ok(self.bare.clone()) }
    }

    /// The changes of the folder, with paths below the checkout, and that of vLLM's file.
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

    /// Refuses to edit vLLM's file where, kgen's lines aside, it is not as git has it. A tree without git is taken as
    /// it is.
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
    /// What its folder holds, as [`Vendored::held`].
    ///
    /// # Errors
    /// As its.
    pub fn held(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        self.folder.held()
    }

    /// Brings its folder to `files`. Edits vLLM's file last: its build never leads to what is not there.
    ///
    /// # Errors
    /// Those of [`LockedVendored::bring`], and [`RenderError::NotVllm`] where the file to edit has changes that are not
    /// committed: nothing has changed then.
    pub fn bring(self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        self.tree.refuse_uncommitted(true)?;
        let changes = self.folder.bring_and(files, || self.tree.set_hook(true))?;
        self.tree.with_hook(changes, true)
    }

    /// Takes both away, vLLM's edit first.
    ///
    /// # Errors
    /// As [`bring`](Self::bring).
    pub fn take_away(self) -> Result<Changes, RenderError> {
        self.tree.refuse_uncommitted(false)?;
        self.folder.may_be_taken_away()?;
        self.tree.set_hook(false)?;
        let changes = self.folder.take_away()?;
        self.tree.with_hook(changes, false)
    }
}

/// The text of a file that a checkout has.
fn read(root: &Path, path: &str) -> Result<String, RenderError> {
    files::read_to_string(&root.join(path)).map_err(|error| {
        let reason = format!("cannot read `{path}`: {error}");
        RenderError::NotVllm { folder: root.to_owned(), reason }
    })
}
