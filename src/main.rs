//! Parses the command line, runs one command, maps its result to an exit code.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = kgen::cli::Cli::parse();
    match kgen::cli::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
