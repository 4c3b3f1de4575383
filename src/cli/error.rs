//! Errors as exit codes, and their output.

use super::{Format, escape::plain, interrupt, ui};
use crate::command::CommandError;
use serde::Serialize;
use std::process::ExitCode;

/// The exit code, which scripts rely on: 1 if some variant failed, 2 for bad usage or input, 3 for something missing on
/// the machine, 128 plus the signal's number after an interruption, which is 130 after Ctrl-C.
pub(super) fn code(error: &CommandError) -> u8 {
    match error {
        CommandError::Failed(_) => 1,
        CommandError::Usage(_) => 2,
        CommandError::Environment(_) => 3,
        CommandError::Interrupted(_) => interrupt::exit_code(),
    }
}

/// Prints the message to standard error and returns the exit code. With [`Format::Json`] the message is also printed as
/// a document on standard output, unless one has been printed already.
pub fn report(error: &CommandError, format: Format) -> ExitCode {
    let label = console::style("error").red().bold().for_stderr();
    ui::tell(format_args!("{label}: {}", plain(&error.to_string())));
    if format == Format::Json && ui::no_json_yet() {
        // If standard output cannot be written, the message above is sufficient.
        ui::print_json(&ErrorDocument::of(error)).ok();
    }
    ExitCode::from(code(error))
}

/// The document printed instead of a result: `{ "error": { "exit_code": 2, "kind": "usage", "message": "…" } }`.
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
    /// The document for an error.
    pub(super) fn of(error: &CommandError) -> Self {
        Self { error: Facts { exit_code: code(error), kind: error.kind(), message: error.to_string() } }
    }
}
