//! The compilers that kgen runs: finding nvcc and its disassembler, installing them if there are none, finding the host
//! compiler, and running any child process under a time limit. Independent of kernels, object caches and terminals;
//! progress is reported through a callback.

mod disassembler;
mod error;
mod host;
mod nvcc;
mod pip;
pub mod process;
mod provision;
mod wheels;

pub use disassembler::{Disassembler, find_disassembler};
pub use error::ToolchainError;
pub use host::{HostCompiler, host_compiler, host_compiler_in_process, named_by_environment};
pub use nvcc::{MINIMUM_NVCC, Nvcc, NvccOrigin, NvccRequest, find_nvcc};
pub use pip::Pip;
pub use process::Cancel;
pub use provision::{Provisioned, folder_size, install, provisioned, remove};
pub use wheels::{Bundle, COMPILER, DISASSEMBLER};

use std::path::{Path, PathBuf};

/// Receives messages about long operations. Called from several threads.
pub trait Say: Sync {
    /// Reports `message`, a complete sentence.
    fn say(&self, message: &str);
    /// Download progress: bytes received of the expected total.
    fn downloaded(&self, _bytes: u64, _of: u64) {}
    /// The download has ended.
    fn download_ended(&self) {}
}

impl<F: Fn(&str) + Sync> Say for F {
    fn say(&self, message: &str) {
        self(message);
    }
}

/// Folder for everything that kgen can regenerate: `$XDG_CACHE_HOME/kgen`, or `~/.cache/kgen`. Not created here.
///
/// # Errors
/// [`ToolchainError::NoHome`] if neither is set.
pub fn cache_dir() -> Result<PathBuf, ToolchainError> {
    use etcetera::BaseStrategy;
    let base = etcetera::choose_base_strategy().map_err(|_| ToolchainError::NoHome)?;
    Ok(base.cache_dir().join("kgen"))
}

/// The first executable file called `name` in the folders of `PATH`.
pub fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

/// True if `file` is a regular file (or a link to one) with an execute permission.
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
