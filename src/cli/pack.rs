//! `kgen __pack`, for scripts/release.sh.

use super::{Global, show};
use crate::{
    command::{
        CommandError,
        pack::{self, Request},
    },
    text::size,
};
use std::path::PathBuf;

/// Arguments.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The binary, which must be of this version.
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,

    /// Folder to write the wheel into.
    #[arg(long, short, value_name = "DIR", default_value = "dist")]
    output: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`pack::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { binary, output } = args;
    let packed = pack::run(&Request { binary, output }, &global.context(), &global.console())?;
    show(global, &packed, || format!("{}: {}\n", packed.wheel.display(), size(packed.bytes as u64)))
}
