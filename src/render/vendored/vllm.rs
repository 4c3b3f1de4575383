//! A checkout of vLLM: kgen's folder in it, and the one file of its build that leads there.

use super::{
    changes::{Action, Change, Changes},
    folder::Vendored,
    hook,
};
use crate::{
    files::{self, committed_text, write_atomic},
    render::{Layout, OutputFile, RenderError},
};
use std::path::{Path, PathBuf};

/// The folder in the checkout.
const FOLDER: &str = "kgen";

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
    /// The text of [`hook::FILE`], and the same without kgen's lines.
    text: String,
    bare: String,
}

impl VllmTree {
    /// Reads the checkout at `root`.
    ///
    /// # Errors
    /// [`RenderError::NotVllm`] with what is not as it is known; [`RenderError::Io`].
    pub fn open(root: &Path) -> Result<Self, RenderError> {
        let unknown = |reason: String| RenderError::NotVllm { folder: root.to_owned(), reason };
        for (path, words) in KNOWN {
            let text = read(root, path)?;
            if let Some(word) = words.iter().find(|word| !text.contains(**word)) {
                return Err(unknown(format!("`{path}` does not name `{word}`")));
            }
        }
        let text = read(root, hook::FILE)?;
        let bare = hook::without(&text).map_err(unknown)?;
        // Whether the lines can be put there, also where they are.
        hook::with(&bare).map_err(unknown)?;
        Ok(Self { root: root.to_owned(), text, bare })
    }

    /// Its folder of kernels.
    pub fn folder(&self) -> Vendored {
        Vendored::new(&self.root.join(FOLDER), Layout::Vllm)
    }

    /// What would change so that the folder holds `files` and vLLM's build leads there; without files, if both were
    /// taken away. Paths are those below the checkout. Writes nothing.
    ///
    /// # Errors
    /// Those of [`Vendored::compare`].
    pub fn compare(&self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        let changes = self.folder().compare(files)?;
        self.with_hook(changes, !files.is_empty())
    }

    /// Makes those changes. Edits vLLM's file last: its build never leads to what is not there.
    ///
    /// # Errors
    /// Those of [`Vendored::bring`], and [`RenderError::NotVllm`] where the file to edit has changes that are not
    /// committed: nothing has changed then.
    pub fn bring(&self, files: &[OutputFile], on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        self.refuse_uncommitted(true)?;
        let changes = self.folder().bring(files, on_wait)?;
        self.set_hook(true)?;
        self.with_hook(changes, true)
    }

    /// Takes both away, vLLM's edit first.
    ///
    /// # Errors
    /// As [`bring`](Self::bring).
    pub fn take_away(&self, on_wait: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        self.refuse_uncommitted(false)?;
        self.compare(&[])?.refuse_edited(&self.root)?;
        self.set_hook(false)?;
        let changes = self.folder().take_away(on_wait)?;
        self.with_hook(changes, false)
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

/// The text of a file that a checkout has.
fn read(root: &Path, path: &str) -> Result<String, RenderError> {
    files::read_to_string(&root.join(path)).map_err(|error| {
        let reason = format!("cannot read `{path}`: {error}");
        RenderError::NotVllm { folder: root.to_owned(), reason }
    })
}
