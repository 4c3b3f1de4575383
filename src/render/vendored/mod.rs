//! Kernels in a folder of somebody else's project: which files those are, what bringing the folder up to date changes,
//! and taking them away again. A change that a person made there is never overwritten.

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
