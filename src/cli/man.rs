//! `kgen man`.

use super::{Cli, CliError, Global, ui};
use clap::CommandFactory;
use clap_mangen::Man;
use std::{fs, io, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen man | man -l -                       the page of kgen
  kgen man build | man -l -                 the page of `kgen build`
  kgen man --output ~/.local/share/man/man1
                                            all pages, as files";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The command to print the page of [default: kgen itself].
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    command: Option<String>,

    /// Write the pages of all commands into this folder instead.
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Usage`] for a command that is not there or a folder that cannot be written.
pub fn run(_global: &Global, args: Args) -> Result<(), CliError> {
    let mut root = Cli::command();
    root.build();
    if let Some(folder) = args.output {
        let failed = |error: io::Error| {
            CliError::Usage(format!(
                "cannot write man pages into `{}`: {error}; choose another place with `--output`",
                folder.display()
            ))
        };
        fs::create_dir_all(&folder).map_err(failed)?;
        return clap_mangen::generate_to(root, &folder).map_err(failed);
    }
    let command = match args.command {
        None => root,
        Some(name) => {
            let found = root.get_subcommands().find(|command| command.get_name() == name && !command.is_hide_set());
            let unknown = || CliError::Usage(format!("kgen has no command `{name}`; `kgen --help` lists them"));
            found.ok_or_else(unknown)?.clone()
        }
    };
    let mut page = Vec::new();
    let rendered = Man::new(command).render(&mut page);
    rendered.map_err(|error| CliError::Environment(format!("cannot make the page: {error}")))?;
    ui::print(&String::from_utf8_lossy(&page))
}
