//! Kernels vendored into another project: the files of the folder, updates of it, and its removal. A user's edits are
//! never overwritten.

mod changes;
mod contents;
mod folder;
mod headers;
mod hook;
mod prebuilt;
mod vllm;

pub use changes::{Action, Change, Changes};
pub use contents::vendored_tree;
pub use folder::{LockedVendored, Vendored};
pub(super) use headers::used_headers;
pub use prebuilt::{InstalledVllm, Prebuilt};
pub use vllm::{LockedVllm, VllmTree};
