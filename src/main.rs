//! Parses the command line, runs one command, maps its result to an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = kgen::cli::Cli::from_environment();
    let format = cli.global.format;
    match kgen::cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => kgen::cli::report(&error, format),
    }
}
