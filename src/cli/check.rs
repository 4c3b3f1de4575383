//! `kgen check`.

use super::{CliError, Global};

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the command.
///
/// # Errors
/// [`CliError`].
pub fn run(_global: &Global, _args: Args) -> Result<(), CliError> {
    Ok(())
}
