//! Renders plans to text and writes text to folders. Rendering is pure; only `folder` writes to disk, whole files only.
//! Independent of nvcc, GPUs and terminals.

mod companion;
mod drift;
mod engine;
mod error;
mod fingerprint;
mod folder;
mod hashes;
mod includes;
mod inside;
mod kernel;
mod layout;
mod library;
mod manifest;
mod templates;
mod transition;
mod vendored;

pub use companion::{emulator_tree, kernel_test};
pub use drift::{Drift, Side, drift};
pub use error::{RenderError, Restoration};
pub use fingerprint::Fingerprints;
pub use folder::{
    COMMENT_MARK, Edited, Folder, Prune, WriteSummary, held_variants, with_used_headers, write_kernel_file, write_tree,
};
pub use hashes::{HashDrift, are_hashes, hash_drift, hashes};
pub use kernel::{Renderer, Source, file_name};
use library::include_tree;
pub use library::{dispatcher, kernel_header, tree, tree_with};
pub use manifest::{Layout, VendoredAs};
pub use templates::Templates;
pub use vendored::{
    Action, Change, Changes, InstalledVllm, LockedVendored, LockedVllm, Prebuilt, Vendored, VllmTree, vendored_tree,
};

/// A file of a generated folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Path below the folder, with `/` between parts.
    pub path: String,
    /// The full text.
    pub text: String,
}
