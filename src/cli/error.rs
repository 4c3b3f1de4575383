//! What a command can fail with: a message for a person, and the exit code scripts rely on.

use super::{Format, escape::plain, ui};
use serde::Serialize;
use std::{fmt, process::ExitCode};

/// Why a command did not do what was asked. The variants are the exit codes.
#[derive(Debug)]
pub enum CliError {
    /// Exit code 1: some variant failed. The report has been printed already; the message sums it up.
    VariantFailed(String),
    /// Exit code 2: bad usage or bad input.
    Usage(String),
    /// Exit code 3: something the machine lacks; the message holds the command that mends it.
    Environment(String),
    /// Exit code 128 and the signal's number, 130 after Ctrl-C: interrupted. What of the work is kept, where there is
    /// something to say of it.
    Interrupted(String),
}

impl CliError {
    /// Interrupted, with nothing to say of what is kept.
    pub const INTERRUPTED: Self = Self::Interrupted(String::new());

    /// The process exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::VariantFailed(_) => 1,
            Self::Usage(_) => 2,
            Self::Environment(_) => 3,
            Self::Interrupted(_) => ui::interrupted_code(),
        }
    }

    /// What scripts know it by.
    fn kind(&self) -> &'static str {
        match self {
            Self::VariantFailed(_) => "failed",
            Self::Usage(_) => "usage",
            Self::Environment(_) => "environment",
            Self::Interrupted(_) => "interrupted",
        }
    }

    /// Prints the message to standard error and gives the exit code. With [`Format::Json`], where no document has been
    /// printed, the message is one too, on standard output.
    pub fn report(&self, format: Format) -> ExitCode {
        let label = console::style("error").red().bold().for_stderr();
        ui::tell(format_args!("{label}: {}", plain(&self.to_string())));
        if format == Format::Json && ui::no_json_yet() {
            // Where standard output cannot be written, the message above has to do.
            ui::print_json(&ErrorDocument::of(self)).ok();
        }
        ExitCode::from(self.code())
    }
}

/// What stands on standard output in place of a result: `{ "error": { "exit_code": 2, "kind": "usage", "message": "…" }
/// }`.
#[derive(Debug, Serialize)]
pub(super) struct ErrorDocument {
    error: Facts,
}

#[derive(Debug, Serialize)]
struct Facts {
    exit_code: u8,
    kind: &'static str,
    message: String,
}

impl ErrorDocument {
    /// The document of an error.
    pub(super) fn of(error: &CliError) -> Self {
        Self { error: Facts { exit_code: error.code(), kind: error.kind(), message: error.to_string() } }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VariantFailed(m) | Self::Usage(m) | Self::Environment(m) => f.write_str(m.trim_end()),
            Self::Interrupted(kept) if kept.is_empty() => f.write_str("interrupted"),
            Self::Interrupted(kept) => write!(f, "interrupted; {kept}"),
        }
    }
}

impl std::error::Error for CliError {}
