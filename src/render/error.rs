//! Errors of rendering and writing.

use std::{io, path::PathBuf};

/// Error of rendering text or writing a folder. Existing files in the folder are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Syntax error in a template; Tera's report names the file and shows the line.
    #[error("a template does not parse: {report}")]
    Syntax {
        /// Tera's report, several lines.
        report: String,
    },
    /// Error while rendering a template, such as a variable that the context lacks; Tera's report shows the line.
    #[error("template `{template}`: {report}")]
    Template {
        /// Path below the templates folder.
        template: String,
        /// Tera's report, several lines.
        report: String,
    },
    /// A folder passed as templates lacks a required file.
    #[error("`{}` is not a folder of kgen templates: it has no `{missing}`", folder.display())]
    NotTemplates {
        /// The folder.
        folder: PathBuf,
        /// The first file that is missing.
        missing: String,
    },
    /// A library was requested for an empty selection of variants.
    #[error("no variant was selected, so there is nothing to render")]
    Empty,
    /// Existing files that no earlier run wrote and that would be overwritten with other text.
    #[error(
        "`{}` holds {} that this kgen did not write: {}; choose another folder, or move {} away",
        folder.display(),
        if files.len() == 1 { "a file" } else { "files" },
        listed(files),
        if files.len() == 1 { "it" } else { "them" },
    )]
    Foreign {
        /// The output folder.
        folder: PathBuf,
        /// Paths below it.
        files: Vec<String>,
    },
    /// Files of a vendored folder that a user edited or added, and that would be replaced or removed.
    #[error(
        "`{}` has local changes in {}, which would be lost; nothing was changed: keep them elsewhere, {}, then run this again",
        folder.display(),
        listed(files),
        remedy.words(files.len()),
    )]
    Edited {
        /// The vendored folder.
        folder: PathBuf,
        /// Paths below it.
        files: Vec<String>,
        /// How the user can restore them.
        remedy: Restoration,
    },
    /// A folder to vendor into that contains other files.
    #[error(
        "`{}` is not empty, and `kgen vendor` did not make it; name a folder of its own, such as `{}`, or add `--beside-others` \
         to put kernels beside what is there",
        folder.display(),
        folder.join("kgen").display()
    )]
    NotVendored {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder that another command manages.
    #[error("`{}` was made by `{command}`, which keeps other files there; choose another folder", folder.display())]
    MadeBy {
        /// The folder.
        folder: PathBuf,
        /// `kgen generate`, `kgen vendor` or `kgen vendor vllm`.
        command: &'static str,
    },
    /// A folder that is not a vLLM checkout, or a checkout of an unsupported version.
    #[error("`{}` is not a checkout of vLLM that kgen knows: {reason}; nothing was changed", folder.display())]
    NotVllm {
        /// The folder.
        folder: PathBuf,
        /// The missing or unexpected item.
        reason: String,
    },
    /// A folder that is not an installed vLLM, or one of an unsupported version.
    #[error("`{}` is not an installed vLLM that kgen knows: {reason}; nothing was changed", folder.display())]
    NotInstalledVllm {
        /// The folder.
        folder: PathBuf,
        /// The missing or unexpected item.
        reason: String,
    },
    /// A replacement for one of vLLM's files whose contents do not match its name.
    #[error("`{}` cannot take the place of vLLM's: {reason}; `scripts/torch_ops.sh` makes it; nothing was changed", file.display())]
    NotPrebuilt {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A source that includes a header that does not exist.
    #[error("`{file}` includes `{header}`, which the templates' `include` folder does not have; add it there")]
    Include {
        /// The source.
        file: String,
        /// The missing header.
        header: String,
    },
    /// A symbolic link in an output folder leads outside it or is dangling, so a write or removal would escape the
    /// folder.
    #[error(
        "`{}` leads to `{}`, outside of `{}`, where kgen writes and removes nothing; put a folder there instead of the link, or \
         choose another folder",
        path.display(),
        leads_to.display(),
        folder.display()
    )]
    Outside {
        /// The output folder.
        folder: PathBuf,
        /// The link.
        path: PathBuf,
        /// Target of the link.
        leads_to: PathBuf,
    },
    /// The manifest of an output folder is invalid.
    #[error("`{}` is not a manifest this kgen can read: {reason}; restore it, or delete it together with the files it names", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Interrupted while waiting for another process.
    #[error("interrupted")]
    Interrupted,
    /// An I/O error from the operating system.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// `read`, `write`, `create`, `lock`, `remove`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl RenderError {
    /// A closure for `map_err` that adds `action` and `path` to an I/O error.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// The way in which a user restores files that were edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoration {
    /// Delete the files; kgen writes missing files.
    Delete,
    /// The user restores the original text; kgen has no copy.
    Restore,
}

impl Restoration {
    fn words(self, files: usize) -> String {
        let files = if files == 1 { "the file" } else { "the files" };
        match self {
            Self::Delete => format!("delete {files} (kgen writes its own wherever one is needed and missing)"),
            Self::Restore => format!("restore {files}"),
        }
    }
}

/// The first few names in back-ticks, and the number of the others.
fn listed(files: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = files.iter().take(SHOWN).map(|file| format!("`{file}`")).collect();
    match files.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
