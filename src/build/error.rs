//! Errors that stop a whole build. An error of one variant is a [`BuildFailure`](super::BuildFailure).

use std::{io, path::PathBuf};

/// Reasons why nothing could be built or linked.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file operation in the output folder failed: read-only, full, or not a folder.
    #[error("cannot {action} `{}`: {source}; choose another folder with `--build-dir`, or see to its space and permissions", .path.display())]
    Output {
        /// The verb: `create`, `write`, `lock`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file operation in the cache folder failed.
    #[error("cannot {action} `{}`: {source}; see to the folder's space and permissions, or set `XDG_CACHE_HOME` to another", .path.display())]
    Cache {
        /// The verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A generated header cannot be read.
    #[error("cannot read `{}`: {source}; run `kgen generate` again", .path.display())]
    Generated {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// nvcc passes all its work through a shell, which would expand part of this path.
    #[error(
        "the path of {what}, `{}`, holds {}, which the shell behind nvcc would interpret; {remedy} without {} or control characters",
        .path.display().to_string().replace(char::is_control, "\u{fffd}"),
        shown(*.character),
        "`$`, `` ` ``, `\"`, `\\`, `:`"
    )]
    Obeyed {
        /// The file or folder, in words.
        what: &'static str,
        /// Path of the file or folder.
        path: PathBuf,
        /// The first such character.
        character: char,
        /// The remedy, as the beginning of a phrase that ends with the characters to avoid.
        remedy: &'static str,
    },
    /// The manifest of an earlier build's library cannot be read.
    #[error("cannot tell what the library next to `{}` holds: {reason}; `--only` links the selected kernels alone", .path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The linker failed.
    #[error("`libkgen.so` did not link: {message}; log: `{}`", .log.display())]
    Link {
        /// The first real error line.
        message: String,
        /// The linker's log.
        log: PathBuf,
    },
    /// `--launcher` names a program that does not exist.
    #[error("`--launcher` names `{launcher}`, which is not in `PATH`; install it, or leave the flag away")]
    NoLauncher {
        /// The launcher as passed.
        launcher: String,
    },
    /// The program to run could not be started.
    #[error("cannot run `{program}`: {source}; `kgen doctor` shows the compilers it finds")]
    Start {
        /// nvcc or the launcher.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Worker threads could not be started.
    #[error("cannot start {jobs} compile jobs: {reason}; try a smaller `-j`")]
    Threads {
        /// The number requested.
        jobs: usize,
        /// The system's reason.
        reason: String,
    },
    /// The user interrupted.
    #[error("interrupted")]
    Cancelled,
}

impl BuildError {
    /// A closure for `map_err` that wraps an I/O error of the output folder.
    pub(super) fn output(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Output { action, path, source }
    }

    /// A closure for `map_err` that wraps an I/O error of the cache folder.
    pub(super) fn cache(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Cache { action, path, source }
    }
}

/// A character as messages print it.
fn shown(character: char) -> String {
    match character {
        '`' => "`` ` ``".to_owned(),
        character if character.is_control() => "a control character".to_owned(),
        character => format!("`{character}`"),
    }
}
