//! `kgen __worker`: one check in an isolated process; see `check/worker`.

use super::{CliError, Global};
use std::io;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Serves one request from standard input.
///
/// # Errors
/// [`CliError::Usage`] where the request cannot be understood, which says that something else than kgen sent it.
pub fn run(_global: &Global, _args: Args) -> Result<(), CliError> {
    crate::check::serve_worker(&mut io::stdin().lock(), &mut io::stdout().lock()).map_err(CliError::Usage)
}
