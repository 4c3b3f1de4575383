//! `kgen man`.

use super::{Cli, CliError, Global, ui};
use clap::{Command, CommandFactory};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use std::{fs, io, path::Path, path::PathBuf};

const EXAMPLES: &str = "\
Examples:
  kgen man | man -l -                       the page of kgen
  kgen man build | man -l -                 the page of `kgen build`
  kgen man --output ~/.local/share/man/man1
                                            all pages, as files";

/// Sections that every page ends with: a heading, and terms with what they mean.
const COMMON: [(&str, &[(&str, &str)]); 3] = [
    (
        "EXIT STATUS",
        &[
            ("0", "Done."),
            ("1", "A variant failed: it did not compile, did not pass its check, or is not as generated."),
            ("2", "Bad usage or bad input."),
            ("3", "Something is missing on this machine; the message says how to get it."),
            ("130", "Interrupted by Ctrl-C."),
            ("143, 129", "Ended by SIGTERM, by SIGHUP."),
        ],
    ),
    (
        "ENVIRONMENT",
        &[
            ("KGEN_VARIANTS", "Default of --variants."),
            ("KGEN_TEMPLATES", "Default of --templates."),
            ("KGEN_CONFIG", "Default of --config."),
            ("KGEN_NVCC", "The nvcc to use if there is no --nvcc."),
            ("CUDA_HOME", "If KGEN_NVCC is not set and this folder has bin/nvcc, that nvcc is used; else the one in PATH."),
            ("CXX, HOST_CXX, NVCC_CCBIN", "The C++ compiler that nvcc and the emulator use."),
            ("CXXFLAGS", "Flags for what the emulator compiles."),
            (
                "NVCC_PREPEND_FLAGS, NVCC_APPEND_FLAGS",
                "Flags that nvcc adds by itself; they are part of the key of a cached object.",
            ),
            ("XDG_CACHE_HOME", "Folder of kgen's cache; without it, ~/.cache."),
            ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "Whether output is coloured if --color is auto."),
        ],
    ),
    (
        "FILES",
        &[
            ("kgen.toml", "Defaults of flags, in the current folder or the nearest above it."),
            ("~/.cache/kgen", "Compiled objects, passed checks, emulator libraries, and the nvcc that kgen installed."),
            ("generated/", "Rendered kernels, the dispatcher, headers and manifest.json."),
            ("build/", "Objects in obj/, logs in log/, the library in lib/, report.json, and compile_commands.json."),
        ],
    ),
];

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
    let mut root = without_help_commands(Cli::command());
    root.build();
    if let Some(folder) = args.output {
        let written = fs::create_dir_all(&folder).and_then(|()| write_pages(&root, &folder));
        return written.map_err(|error| {
            let folder = folder.display();
            CliError::Usage(format!("cannot write man pages into `{folder}`: {error}; choose another place with `--output`"))
        });
    }
    let command = match args.command {
        None => root,
        Some(name) => {
            let found = root.get_subcommands().find(|command| command.get_name() == name && !command.is_hide_set());
            let unknown = || CliError::Usage(format!("kgen has no command `{name}`; `kgen --help` lists them"));
            found.ok_or_else(unknown)?.clone()
        }
    };
    let page = page(&Man::new(command));
    let page = page.map_err(|error| CliError::Environment(format!("cannot make the page: {error}")))?;
    ui::print_verbatim(&String::from_utf8_lossy(&page))
}

/// `command` without `help` commands, which need no pages: every command has `--help`.
fn without_help_commands(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_commands)
}

/// Writes a page for `command` and for each command below it that help shows.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    fs::write(folder.join(man.get_filename()), page(&man)?)?;
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| write_pages(below, folder))
}

/// The page of a command: what clap knows of it, and [`COMMON`].
fn page(man: &Man) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    let mut common = Roff::new();
    for (heading, entries) in COMMON {
        common.control("SH", [heading]);
        for (term, meaning) in entries {
            common.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
        }
    }
    page.extend(common.to_roff().into_bytes());
    Ok(page)
}
