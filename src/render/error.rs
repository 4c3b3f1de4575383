//! What rendering and writing can fail with.

use std::{io, path::PathBuf};

/// Why text was not rendered or a folder not written. Nothing already in the folder has changed.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A template does not parse; Tera's report names the file and shows the line.
    #[error("a template does not parse: {report}")]
    Syntax {
        /// Tera's report, several lines.
        report: String,
    },
    /// A template is wrong, or uses a word the plan does not have; Tera's report shows the line.
    #[error("template `{template}`: {report}")]
    Template {
        /// Path below the templates folder.
        template: String,
        /// Tera's report, several lines.
        report: String,
    },
    /// A folder given as templates lacks a file.
    #[error("`{}` is not a folder of kgen templates: it has no `{missing}`", folder.display())]
    NotTemplates {
        /// The folder given.
        folder: PathBuf,
        /// The first file that is missing.
        missing: String,
    },
    /// A library of no variants was asked for.
    #[error("no variant was selected, so there is nothing to render")]
    Empty,
    /// Files in the way that differ from what would be written and that no earlier run wrote.
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
    /// Files of a vendored folder that a person has changed, or put there, and that would be replaced or removed.
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
        /// How they are brought back.
        remedy: Restoration,
    },
    /// A folder to vendor into that holds something else.
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
    /// A folder that another command looks after.
    #[error("`{}` was made by `{command}`, which keeps other files there; choose another folder", folder.display())]
    MadeBy {
        /// The folder.
        folder: PathBuf,
        /// `kgen generate`, `kgen vendor` or `kgen vendor vllm`.
        command: &'static str,
    },
    /// A folder that is no checkout of vLLM, or one that kgen does not know its way about.
    #[error("`{}` is not a checkout of vLLM that kgen knows: {reason}; nothing was changed", folder.display())]
    NotVllm {
        /// The folder.
        folder: PathBuf,
        /// What is missing there, or not as expected.
        reason: String,
    },
    /// A folder that is no installed vLLM, or one that kgen does not know its way about.
    #[error("`{}` is not an installed vLLM that kgen knows: {reason}; nothing was changed", folder.display())]
    NotInstalledVllm {
        /// The folder.
        folder: PathBuf,
        /// What is missing there, or not as expected.
        reason: String,
    },
    /// A file that is to replace one of vLLM's, and is not what its name says.
    #[error("`{}` cannot take the place of vLLM's: {reason}; `scripts/torch_ops.sh` makes it; nothing was changed", file.display())]
    NotPrebuilt {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A source that includes what there is not.
    #[error("`{file}` includes `{header}`, which the templates' `include` folder does not have; add it there")]
    Include {
        /// The source.
        file: String,
        /// What it includes.
        header: String,
    },
    /// A link in an output folder leads out of it, or nowhere: what is written or removed there would not be kgen's.
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
        /// Where it leads.
        leads_to: PathBuf,
    },
    /// The manifest of an output folder cannot be read as one.
    #[error("`{}` is not a manifest this kgen can read: {reason}; restore it, or delete it together with the files it names", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Stopped while it waited for another process.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// `read`, `write`, `create`, `lock`, `remove`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl RenderError {
    /// For `map_err`: the error of `action` on `path`.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// The first few names in back-ticks, and how many more there are.
/// How files that a person has changed become kgen's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restoration {
    /// A file that is not there is written.
    Delete,
    /// Only its owner can bring it back.
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

fn listed(files: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = files.iter().take(SHOWN).map(|file| format!("`{file}`")).collect();
    match files.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
