//! Errors of reading a grid.

use crate::text::Finding;
use std::{io, path::PathBuf};

/// The reason why `variants.toml` gives no grid. `Display` is the complete message, with several lines if a line is
/// quoted.
#[derive(Debug, thiserror::Error)]
pub enum GridError {
    /// The file cannot be read.
    #[error("cannot read the grid `{}`: {source}\nhelp: {}", path.display(), remedy(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not UTF-8 text.
    #[error("the grid `{}` is not UTF-8 text: line {line} holds other bytes\nhelp: save it as UTF-8", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// First line that is not UTF-8, counted from 1.
        line: usize,
    },
    /// The file is too long to be a grid.
    #[error("`{}` is longer than 8 MiB, so it is no grid\nhelp: give `--variants` a file such as kgen's own `variants.toml`", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A declaration is invalid.
    #[error("{message}")]
    Invalid {
        /// File name shown in messages.
        origin: String,
        /// Line of the error, counted from 1.
        line: usize,
        /// The problem, the line with a caret, and the remedy.
        message: String,
    },
}

impl GridError {
    pub(super) fn invalid(finding: &Finding, origin: &str, text: &str) -> Self {
        Self::Invalid { origin: origin.to_owned(), line: finding.line(text), message: finding.render(origin, text) }
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "check the path after `--variants`, or leave the flag out to use the built-in grid",
        io::ErrorKind::PermissionDenied => "make the file readable for this user",
        io::ErrorKind::IsADirectory => "give the file itself, not its folder",
        _ => "give `--variants` a readable file, or leave the flag out to use the built-in grid",
    }
}
