//! `kgen man`.

use super::{Cli, Global, ui};
use crate::{bench, command::CommandError};
use clap::{Command, CommandFactory};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  kgen man | man -l -                       the page of kgen
  kgen man build | man -l -                 the page of `kgen build`
  kgen man toolchain show | man -l -        that of `kgen toolchain show`
  kgen man --output ~/.local/share/man/man1
                                            all pages, as files";

/// Sections at the end of every page: a heading, and terms with their meanings.
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
            ("SOURCE_DATE_EPOCH", "Seconds after 1970 whose day `kgen man` gives as the date of its pages."),
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
            ("emitted/", "What `kgen emit` writes: sources, and the command lines that build them."),
        ],
    ),
];

/// Release date of this version, for the pages; empty before the release. CHANGELOG.md has it too.
const RELEASED: &str = "";

/// Environment variable that overrides that date, in seconds since 1970, as <https://reproducible-builds.org>
/// specifies.
const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The command whose page is printed, as typed or as the page's name [default: kgen itself].
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    command: Vec<String>,

    /// Write the pages of all commands into this folder instead.
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// [`CommandError::Usage`] for an unknown command, a folder that cannot be written or a malformed time.
pub fn run(_global: &Global, args: Args) -> Result<(), CommandError> {
    let mut root = without_help_commands(Cli::command());
    root.build();
    let date = date(env::var_os(EPOCH_VARIABLE).as_deref())?;
    if let Some(folder) = args.output {
        let written = fs::create_dir_all(&folder).and_then(|()| write_pages(&root, &date, &folder));
        return written.map_err(|error| {
            let folder = folder.display();
            CommandError::Usage(format!("cannot write man pages into `{folder}`: {error}; choose another place with `--output`"))
        });
    }
    let name = args.command.join(" ");
    let unknown = || CommandError::Usage(format!("kgen has no command `{name}`; `kgen --help` lists them"));
    let command = find(&root, &page_name(&name)).ok_or_else(unknown)?;
    let page = page(&titled(command, &date));
    let page = page.map_err(|error| CommandError::Environment(format!("cannot make the page: {error}")))?;
    ui::print_verbatim(&String::from_utf8_lossy(&page))
}

/// The date of the pages: the day of `epoch`, seconds after 1970 in UTC, or of the release.
fn date(epoch: Option<&OsStr>) -> Result<String, CommandError> {
    let Some(epoch) = epoch.filter(|epoch| !epoch.is_empty()) else { return Ok(RELEASED.to_owned()) };
    let seconds: Option<u32> = epoch.to_str().and_then(|epoch| epoch.parse().ok());
    let seconds = seconds.ok_or_else(|| {
        let epoch = epoch.to_string_lossy();
        CommandError::Usage(format!(
            "`{EPOCH_VARIABLE}` is `{epoch}`, which is no number of seconds after 1970; correct or unset it"
        ))
    })?;
    Ok(bench::day(seconds.into()))
}

/// Name of a command's page: `kgen-toolchain-show` for `toolchain show`, `kgen` for kgen itself.
fn page_name(command: &str) -> String {
    let words = command.split_whitespace().collect::<Vec<_>>().join("-");
    match words.as_str() {
        "" => "kgen".to_owned(),
        name if name == "kgen" || name.starts_with("kgen-") => words,
        _ => format!("kgen-{words}"),
    }
}

/// The command with this page: `command`, or a visible subcommand.
fn find<'a>(command: &'a Command, page: &str) -> Option<&'a Command> {
    if command.get_display_name().unwrap_or_else(|| command.get_name()) == page {
        return Some(command);
    }
    command.get_subcommands().filter(|below| !below.is_hide_set()).find_map(|below| find(below, page))
}

/// `command` without `help` subcommands, which need no pages: every command has `--help`.
fn without_help_commands(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_commands)
}

/// Writes a page for `command` and for each of its visible subcommands.
fn write_pages(command: &Command, date: &str, folder: &Path) -> io::Result<()> {
    let man = titled(command, date);
    fs::write(folder.join(man.get_filename()), page(&man)?)?;
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| write_pages(below, date, folder))
}

/// A page with a complete title. An empty argument would make the next one the date.
fn titled(command: &Command, date: &str) -> Man {
    let date = if date.is_empty() { "\"\"" } else { date };
    Man::new(command.clone()).date(date).source(concat!("kgen ", env!("CARGO_PKG_VERSION")))
}

/// The page of a command: clap's part, and [`COMMON`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_that_of_the_changelog_or_of_the_variable() {
        let changelog = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/CHANGELOG.md")).expect("readable");
        let heading = concat!("## [", env!("CARGO_PKG_VERSION"), "] - ");
        let released = changelog.lines().find_map(|line| line.strip_prefix(heading)).unwrap_or_default();
        assert_eq!(RELEASED, released, "the day of this version's release");
        assert_eq!(date(None).expect("no variable"), RELEASED);
        assert_eq!(date(Some(OsStr::new("1000000000"))).expect("a time"), "2001-09-09");
        assert!(date(Some(OsStr::new("yesterday"))).is_err_and(|error| error.kind() == "usage"));
    }
}
