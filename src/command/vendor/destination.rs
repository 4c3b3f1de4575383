//! The folder or checkout that receives kernels.

use crate::{
    kernel::Variant,
    render::{Changes, Layout, LockedVendored, LockedVllm, OutputFile, RenderError, Restoration, Vendored, VendoredAs, VllmTree},
};
use std::path::Path;

/// The folder or checkout that receives kernels.
pub(super) enum Destination {
    Folder(Vendored),
    Vllm(VllmTree),
}

/// A destination that is locked against other kgen processes.
pub(super) enum LockedDestination<'a> {
    Folder(LockedVendored<'a>),
    Vllm(LockedVllm<'a>),
}

impl LockedDestination<'_> {
    pub fn held(&self) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        match self {
            Self::Folder(folder) => folder.held(),
            Self::Vllm(tree) => tree.held(),
        }
    }

    pub fn bring(self, files: &[OutputFile]) -> Result<Changes, RenderError> {
        match self {
            Self::Folder(folder) => folder.bring(files),
            Self::Vllm(tree) => tree.bring(files),
        }
    }

    pub fn take_away(self) -> Result<Changes, RenderError> {
        match self {
            Self::Folder(folder) => folder.take_away(),
            Self::Vllm(tree) => tree.take_away(),
        }
    }
}

impl Destination {
    pub fn layout(&self) -> Layout {
        match self {
            Self::Folder(_) => Layout::Plain,
            Self::Vllm(_) => Layout::Vllm,
        }
    }

    pub fn held(&self, note: &dyn Fn(&str)) -> Result<Option<(Vec<Variant>, VendoredAs)>, RenderError> {
        match self {
            Self::Folder(folder) => folder.held(note),
            Self::Vllm(tree) => tree.folder().held(note),
        }
    }

    /// Locks it in order to write `files`; without `files`, only if something is there.
    pub fn lock(&self, files: Option<&[OutputFile]>, note: &dyn Fn(&str)) -> Result<Option<LockedDestination<'_>>, RenderError> {
        Ok(match self {
            Self::Folder(folder) => folder.lock(files, note)?.map(LockedDestination::Folder),
            Self::Vllm(tree) => tree.lock(files, note)?.map(LockedDestination::Vllm),
        })
    }

    /// The changes that writing `files` would make; without `files`, those of removing everything.
    pub fn compare(&self, files: &[OutputFile], note: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        match self {
            Self::Folder(folder) => folder.compare(files, note),
            Self::Vllm(tree) => tree.compare(files, note),
        }
    }

    /// The changes of [`compare`](Self::compare), with the errors that the real changes would return.
    pub fn rehearse(&self, root: &Path, files: &[OutputFile], note: &dyn Fn(&str)) -> Result<Changes, RenderError> {
        if let Self::Vllm(tree) = self {
            tree.refuse_uncommitted(!files.is_empty())?;
        }
        let changes = self.compare(files, note)?;
        changes.refuse_edited(root, Restoration::Delete)?;
        Ok(changes)
    }
}
