//! `kgen.toml`: defaults of flags for whoever works in a folder. What is on the command line or in the environment
//! comes first. A target is no default of a flag: it counts only where a selection leaves targets open.

use super::{
    CliError,
    target::{TargetParser, TargetWord},
    ui,
};
use crate::{files, text::Finding};
use clap::Command;
use serde::Deserialize;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};
use toml::Spanned;

/// The file that is read: the one in the current folder, or the nearest above it.
const FILE: &str = "kgen.toml";

/// Names another one.
pub(super) const VARIABLE: &str = "KGEN_CONFIG";

/// Every key. Paths count from the folder of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    variants: Option<PathBuf>,
    templates: Option<PathBuf>,
    color: Option<String>,
    jobs: Option<u32>,
    memory: Option<String>,
    nvcc: Option<PathBuf>,
    launcher: Option<String>,
    offline: Option<bool>,
    generated: Option<PathBuf>,
    build_dir: Option<PathBuf>,
    device: Option<String>,
    target: Option<Spanned<String>>,
}

/// What was read, for the rest of the process.
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// A file that was found above the current folder and belongs to somebody else.
static LEFT_OUT: OnceLock<PathBuf> = OnceLock::new();

/// What a file says.
#[derive(Debug)]
pub(super) struct Settings {
    /// The file.
    pub path: PathBuf,
    /// Its keys and values, in one line.
    pub summary: String,
    /// The targets of a selection that names none.
    pub target: Option<DefaultTarget>,
}

/// The targets that a selection gets which is made by flags and names none.
#[derive(Debug)]
pub(super) struct DefaultTarget {
    /// As the command line takes them.
    pub words: Vec<TargetWord>,
    /// Where they were written, for messages: `target` of which file.
    pub place: String,
}

/// The settings of this process; `None` where there is no file.
pub(super) fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Notes that a file was found and left out.
pub(super) fn tell_left_out() {
    if let Some(path) = LEFT_OUT.get() {
        ui::note(&format!("`{}` belongs to another user and is left out; `--config` takes it all the same", path.display()));
    }
}

/// Gives the arguments of `command` the defaults of the file that `line` or the environment names, or of the nearest
/// `kgen.toml`, and keeps what else it says as [`settings`].
///
/// # Errors
/// [`CliError::Usage`] where the file cannot be read, or holds a key that is not known or of another type, or a target
/// that is none.
pub(super) fn apply(command: Command, line: &[OsString]) -> Result<Command, CliError> {
    let variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let named = named(line).or_else(variable).map(PathBuf::from);
    let Some(path) = named.or_else(nearest) else { return Ok(command) };
    let text =
        files::read_to_string(&path).map_err(|error| CliError::Usage(format!("cannot read `{}`: {error}", path.display())))?;
    let config: Config = toml::from_str(&text).map_err(|error| {
        let (name, flaw) = (path.display(), error.to_string());
        CliError::Usage(format!("`{name}`: {}\nhelp: all keys are at {}", flaw.trim_end(), page!("config.md")))
    })?;
    let target = config.target.as_ref().map(|written| default_target(&path, &text, written)).transpose()?;
    let summary = summary(&text);
    let command = with_defaults(command, &config.defaults(path.parent().unwrap_or(Path::new(""))));
    // Called once a process.
    SETTINGS.set(Settings { path, summary, target }).ok();
    Ok(command)
}

/// The file in the current folder, or the nearest above it.
fn nearest() -> Option<PathBuf> {
    if Path::new(FILE).exists() {
        return Some(FILE.into());
    }
    let folder = std::env::current_dir().ok()?;
    let path = folder.ancestors().skip(1).map(|folder| folder.join(FILE)).find(|path| path.is_file())?;
    if is_of_a_stranger(&path) {
        // It may name programs, and whoever can write into a folder above, such as /tmp, could put one there.
        LEFT_OUT.set(path).ok();
        return None;
    }
    Some(path)
}

/// Whether a file belongs to somebody other than the user and the administrator.
fn is_of_a_stranger(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(path).is_ok_and(|metadata| ![0, user].contains(&metadata.uid()))
}

/// Reads the value of `target`, one or several with commas as `--target` takes them.
fn default_target(path: &Path, text: &str, written: &Spanned<String>) -> Result<DefaultTarget, CliError> {
    let words = written.get_ref().split(',').map(TargetParser::read).collect::<Result<Vec<_>, _>>();
    let words = words.map_err(|flaw| {
        let help = "write it as for `--target`; `kgen list --help` names the targets";
        let finding = Finding::new(flaw, written.span(), "not a target", help);
        CliError::Usage(finding.render(&path.display().to_string(), text))
    })?;
    Ok(DefaultTarget { words, place: format!("`target` in `{}`", path.display()) })
}

/// The keys of a file that has been read, with their values.
fn summary(text: &str) -> String {
    let table: toml::Table = text.parse().unwrap_or_default();
    table.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}

/// The value of `--config`, found before the line is read: what the file says takes part in reading it.
fn named(line: &[OsString]) -> Option<OsString> {
    let line: Vec<&OsString> = line.iter().skip(1).take_while(|argument| *argument != "--").collect();
    let joined = line.iter().find_map(|argument| argument.to_str()?.strip_prefix("--config=").map(OsString::from));
    joined.or_else(|| line.windows(2).find(|pair| pair[0] == "--config").map(|pair| pair[1].clone()))
}

impl Config {
    /// Ids of arguments and their values.
    fn defaults(self, folder: &Path) -> Vec<(&'static str, OsString)> {
        let path = |path: Option<PathBuf>| path.map(|path| folder.join(path).into_os_string());
        let text = |text: Option<String>| text.map(OsString::from);
        let all = [
            ("variants", path(self.variants)),
            ("templates", path(self.templates)),
            ("color", text(self.color)),
            ("jobs", text(self.jobs.map(|jobs| jobs.to_string()))),
            ("memory", text(self.memory)),
            ("nvcc", path(self.nvcc)),
            ("launcher", text(self.launcher)),
            ("offline", text(self.offline.map(|offline| offline.to_string()))),
            ("generated", path(self.generated.clone())),
            ("output", path(self.generated)),
            ("build_dir", path(self.build_dir)),
            ("device", text(self.device)),
        ];
        all.into_iter().filter_map(|(id, value)| Some((id, value?))).collect()
    }
}

/// `output` is where `generate` puts what other commands call `generated`.
fn with_defaults(mut command: Command, defaults: &[(&'static str, OsString)]) -> Command {
    let has = |command: &Command, id: &str| command.get_arguments().any(|argument| argument.get_id() == id);
    for (id, value) in defaults {
        if has(&command, id) {
            command = command.mut_arg(id, |argument| argument.default_value(value.clone()));
        }
    }
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        let of_it = |id: &&(&'static str, OsString)| id.0 != "output" || name == "generate";
        let own: Vec<(&'static str, OsString)> = defaults.iter().filter(of_it).cloned().collect();
        command = command.mut_subcommand(name, |subcommand| with_defaults(subcommand, &own));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn read(text: &str, line: &[&str]) -> clap::ArgMatches {
        let config: Config = toml::from_str(text).expect("a configuration");
        let command = with_defaults(Cli::command(), &config.defaults(Path::new("/project")));
        command.try_get_matches_from(line).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_key_is_the_default_of_a_flag() {
        let text = "variants = 'v.toml'\ntemplates = 't'\ncolor = 'never'\njobs = 3\nmemory = '8G'\nnvcc = 'bin/nvcc'\n\
            launcher = 'ccache'\noffline = true\ngenerated = 'gen'\nbuild_dir = 'out'\ndevice = 'emulator'\n";
        let matches = read(text, &["kgen", "build-all"]);
        let (_, build) = matches.subcommand().expect("a command");
        let path = |id: &str| build.get_one::<PathBuf>(id).expect("it has a default").display().to_string();
        assert_eq!([path("generated"), path("build_dir"), path("nvcc")], ["/project/gen", "/project/out", "/project/bin/nvcc"]);
        assert!(build.get_flag("offline"));
        assert_eq!(build.get_one::<std::num::NonZeroUsize>("jobs").map(|jobs| jobs.get()), Some(3));
        assert_eq!(build.get_one::<PathBuf>("variants").expect("global"), Path::new("/project/v.toml"));
        let matches = read(text, &["kgen", "generate"]);
        let (_, generate) = matches.subcommand().expect("a command");
        assert_eq!(generate.get_one::<PathBuf>("output").expect("it has a default"), Path::new("/project/gen"));
    }

    #[test]
    fn the_command_line_comes_first() {
        let matches = read("jobs = 3\n", &["kgen", "build", "-j", "5"]);
        let (_, build) = matches.subcommand().expect("a command");
        assert_eq!(build.get_one::<std::num::NonZeroUsize>("jobs").map(|jobs| jobs.get()), Some(5));
    }

    #[test]
    fn targets_are_read_as_the_flag_takes_them_and_an_unknown_one_is_shown_with_its_line() {
        let read = |text: &str| {
            let config: Config = toml::from_str(text).expect("a configuration");
            default_target(Path::new("a/kgen.toml"), text, &config.target.expect("it has one"))
        };
        let several = read("jobs = 2\ntarget = 'hopper, sm80'\n").expect("two targets");
        assert_eq!((several.words.len(), several.place.as_str()), (2, "`target` in `a/kgen.toml`"));
        let error = read("jobs = 2\ntarget = 'ampre'\n").expect_err("no such target").to_string();
        for part in ["unknown target `ampre`", "did you mean `ampere`?", "a/kgen.toml:2:", "target = 'ampre'"] {
            assert!(error.contains(part), "`{part}` is missing from\n{error}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = toml::from_str::<Config>("job = 3\n").expect_err("no such key").to_string();
        assert!(error.contains("unknown field `job`") && error.contains("`jobs`"), "{error}");
    }

    #[test]
    fn the_file_is_found_on_the_line_wherever_it_stands() {
        let named = |line: &[&str]| named(&line.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named(&["kgen", "build", "--config", "a.toml"]), Some("a.toml".into()));
        assert_eq!(named(&["kgen", "--config=b.toml", "list"]), Some("b.toml".into()));
        assert_eq!(named(&["kgen", "list", "--", "--config=b.toml"]), None);
    }
}
