//! What several rooms do with files: write them whole or not at all, lock a folder, and name content by its hash.
//! Knows nothing of kernels, compilers or terminals.

mod hash;
mod lock;
mod write;

pub use hash::{FieldHasher, content_hash};
pub use lock::FolderLock;
pub use write::write_atomic;
