//! The part of `kgen.toml` that concerns the command line: defaults of flags. The command line and the environment take
//! precedence. The target is not a default of a flag: it applies only if a selection leaves targets open.

use crate::command::{
    CommandError,
    config::{self, Config, Keys, Nearest},
};
use clap::Command;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Environment variable with the path of another file.
pub(super) const VARIABLE: &str = "KGEN_CONFIG";

/// The file named on the command line or in the environment, or the nearest one; and a file that was skipped because it
/// belongs to another user.
///
/// # Errors
/// The errors of [`Config::load`].
pub(super) fn find(line: &[OsString]) -> Result<(Option<Config>, Option<PathBuf>), CommandError> {
    let variable = || std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let found = named(line).or_else(variable).map_or_else(config::nearest, |path| Nearest::Found(path.into()));
    Ok(match found {
        Nearest::Absent => (None, None),
        Nearest::Found(path) => (Some(Config::load(path)?), None),
        Nearest::OfAnotherUser(path) => (None, Some(path)),
    })
}

/// Sets the defaults of `config` on the arguments of `command`.
pub(super) fn apply(command: Command, config: &Config) -> Command {
    with_defaults(command, &defaults(&config.keys, config.path.parent().unwrap_or(Path::new(""))))
}

/// The value of `--config`, needed before the command line is parsed because the file changes the parsing.
fn named(line: &[OsString]) -> Option<OsString> {
    let line: Vec<&OsString> = line.iter().skip(1).take_while(|argument| *argument != "--").collect();
    let joined = line.iter().find_map(|argument| argument.to_str()?.strip_prefix("--config=").map(OsString::from));
    joined.or_else(|| line.windows(2).find(|pair| pair[0] == "--config").map(|pair| pair[1].clone()))
}

/// Ids of arguments and their values. Paths are relative to `folder`.
fn defaults(keys: &Keys, folder: &Path) -> Vec<(&'static str, OsString)> {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| folder.join(path).into_os_string());
    let text = |text: &Option<String>| text.as_ref().map(OsString::from);
    let all = [
        ("variants", path(&keys.variants)),
        ("templates", path(&keys.templates)),
        ("color", text(&keys.color)),
        ("jobs", keys.jobs.map(|jobs| jobs.to_string().into())),
        ("memory", text(&keys.memory)),
        ("nvcc", path(&keys.nvcc)),
        ("launcher", text(&keys.launcher)),
        ("offline", keys.offline.map(|offline| offline.to_string().into())),
        ("generated", path(&keys.generated)),
        ("output", path(&keys.generated)),
        ("build_dir", path(&keys.build_dir)),
        ("device", text(&keys.device)),
    ];
    all.into_iter().filter_map(|(id, value)| Some((id, value?))).collect()
}

/// Sets default values of arguments. `generate` calls `output` what other commands call `generated`.
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
        let keys: Keys = toml::from_str(text).expect("a configuration");
        let command = with_defaults(Cli::command(), &defaults(&keys, Path::new("/project")));
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
    fn the_file_is_found_on_the_line_wherever_it_stands() {
        let named = |line: &[&str]| named(&line.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(named(&["kgen", "build", "--config", "a.toml"]), Some("a.toml".into()));
        assert_eq!(named(&["kgen", "--config=b.toml", "list"]), Some("b.toml".into()));
        assert_eq!(named(&["kgen", "list", "--", "--config=b.toml"]), None);
    }
}
