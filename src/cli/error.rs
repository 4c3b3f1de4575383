//! What a command can fail with: a message for a person, and the exit code scripts rely on.

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
    /// Exit code 130: interrupted.
    Interrupted,
}

impl CliError {
    /// The process exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::VariantFailed(_) => 1,
            Self::Usage(_) => 2,
            Self::Environment(_) => 3,
            Self::Interrupted => 130,
        }
    }

    /// Prints the message to standard error and gives the exit code.
    pub fn report(&self) -> ExitCode {
        let label = console::style("error").red().bold().for_stderr();
        super::ui::tell(format_args!("{label}: {self}"));
        ExitCode::from(self.code())
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VariantFailed(m) | Self::Usage(m) | Self::Environment(m) => f.write_str(m.trim_end()),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for CliError {}
