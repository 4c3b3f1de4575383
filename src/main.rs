//! Parses the command line, runs one command, maps its result to an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    match kgen::cli::run(kgen::cli::Cli::from_environment()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
