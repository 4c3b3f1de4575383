//! File operations shared by several modules: atomic writes, folder locks, content hashes, sealed cache values, and
//! checks of ELF files. Independent of kernels, compilers and terminals.

mod elf;
mod git;
mod hash;
mod lock;
pub mod path;
mod presence;
mod prune;
mod read;
#[cfg(test)]
mod script;
mod seal;
mod write;

pub use elf::{is_cut_off, library_flaw, object_flaw};
pub use git::committed_text;
pub use hash::{FieldHasher, content_hash};
pub use lock::FolderLock;
pub use presence::{Presence, Workers};
pub use prune::{Pruned, prune, touch};
pub use read::{make_folder, open, read, read_if_there, read_to_string, refuse_others};
#[cfg(test)]
pub(crate) use script::write_script;
pub use seal::{seal, unseal};
pub use write::{Staging, probe_named, sweep, write_atomic, write_named};
