//! What several rooms do with files: write them whole or not at all, lock a folder, and name content by its hash.
//! Knows nothing of kernels, compilers or terminals.

mod hash;
mod lock;
pub mod path;
mod presence;
mod read;
mod write;

pub use hash::{FieldHasher, content_hash};
pub use lock::FolderLock;
pub use presence::Presence;
pub use read::{open, read, read_to_string, refuse_others};
pub use write::write_atomic;
