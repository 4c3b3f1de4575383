//! Errors of commands: a message for a person, and a kind for programs.

use crate::{build::BuildError, device::KitError, render::RenderError, toolchain::ToolchainError};
use std::fmt;

/// Reason for the failure of a command. Messages state the problem, its place and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// Some variant failed. The outcome of the command lists all failures; the message is a summary.
    Failed(String),
    /// Bad usage or bad input.
    Usage(String),
    /// Something missing on the machine; the message contains the command that provides it.
    Environment(String),
    /// The command was interrupted. The message describes the results that are kept; it is empty if there are none.
    Interrupted(String),
}

impl CommandError {
    /// An interruption without kept results.
    pub const INTERRUPTED: Self = Self::Interrupted(String::new());

    /// The kind as a word for programs: `failed`, `usage`, `environment` or `interrupted`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Failed(_) => "failed",
            Self::Usage(_) => "usage",
            Self::Environment(_) => "environment",
            Self::Interrupted(_) => "interrupted",
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(m) | Self::Usage(m) | Self::Environment(m) => f.write_str(m.trim_end()),
            Self::Interrupted(kept) if kept.is_empty() => f.write_str("interrupted"),
            Self::Interrupted(kept) => write!(f, "interrupted; {kept}"),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<ToolchainError> for CommandError {
    fn from(error: ToolchainError) -> Self {
        match error {
            ToolchainError::Cancelled => Self::INTERRUPTED,
            other => Self::Environment(other.to_string()),
        }
    }
}

/// Templates and folders are named by the user, who can correct them.
impl From<RenderError> for CommandError {
    fn from(error: RenderError) -> Self {
        match error {
            RenderError::Interrupted => Self::INTERRUPTED,
            other => Self::Usage(other.to_string()),
        }
    }
}

impl From<BuildError> for CommandError {
    fn from(error: BuildError) -> Self {
        let message = error.to_string();
        match error {
            BuildError::Cancelled => Self::INTERRUPTED,
            BuildError::Output { .. } | BuildError::Generated { .. } | BuildError::Manifest { .. } => Self::Usage(message),
            BuildError::Link { .. } => Self::Failed(message),
            BuildError::Cache { .. }
            | BuildError::NoLauncher { .. }
            | BuildError::Obeyed { .. }
            | BuildError::Start { .. }
            | BuildError::Threads { .. } => Self::Environment(message),
        }
    }
}

impl From<KitError> for CommandError {
    fn from(error: KitError) -> Self {
        match error {
            KitError::Interrupted => Self::INTERRUPTED,
            other => Self::Environment(other.to_string()),
        }
    }
}
