//! `kgen completions`.

use super::{Cli, Global, ui};
use crate::command::CommandError;
use clap::CommandFactory;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  kgen completions bash > ~/.local/share/bash-completion/completions/kgen
  kgen completions zsh > \"${fpath[1]}/_kgen\"
  kgen completions fish > ~/.config/fish/completions/kgen.fish";

/// Arguments.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell the script is for.
    shell: Shell,
}

/// Runs the command.
///
/// # Errors
/// [`CommandError`] if standard output cannot be written.
pub fn run(_global: &Global, args: Args) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kgen", &mut script);
    ui::print_verbatim(&String::from_utf8_lossy(&script))
}
