//! `kgen.toml`: defaults of flags for a folder, and the targets of selections that leave them open.

use super::{CommandError, target::TargetWord};
use crate::{files, text::Finding};
use serde::Deserialize;
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use toml::Spanned;

/// Name of the file, in the current folder or the nearest above it.
const FILE: &str = "kgen.toml";

/// All keys. Paths are relative to the folder of the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Keys {
    pub variants: Option<PathBuf>,
    pub templates: Option<PathBuf>,
    pub color: Option<String>,
    pub jobs: Option<u32>,
    pub memory: Option<String>,
    pub nvcc: Option<PathBuf>,
    pub launcher: Option<String>,
    pub offline: Option<bool>,
    pub generated: Option<PathBuf>,
    pub build_dir: Option<PathBuf>,
    pub device: Option<String>,
    target: Option<Spanned<String>>,
}

/// Content of a `kgen.toml`.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file.
    pub path: PathBuf,
    /// Keys and values of the file, in one line.
    pub summary: String,
    /// The targets for a selection that names none.
    pub(super) target: Option<DefaultTarget>,
    /// Keys of the file.
    pub(crate) keys: Keys,
}

/// The targets of a selection that has other conditions and no targets.
#[derive(Debug, Clone)]
pub(super) struct DefaultTarget {
    /// The targets as a request names them.
    pub words: Vec<TargetWord>,
    /// Origin of the targets, for messages: the key `target` and the file.
    pub place: String,
}

/// The file that is used if none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nearest {
    /// There is none.
    Absent,
    /// The file in the current folder or in the nearest folder above it that has one.
    Found(PathBuf),
    /// The nearest one above the current folder, which belongs to another user and is not used: it may name programs,
    /// and anyone who can write into a folder above, such as `/tmp`, could have put it there.
    OfAnotherUser(PathBuf),
}

/// Looks for a file in the current folder and those above it.
pub fn nearest() -> Nearest {
    if Path::new(FILE).exists() {
        return Nearest::Found(FILE.into());
    }
    let Ok(folder) = std::env::current_dir() else { return Nearest::Absent };
    match folder.ancestors().skip(1).map(|folder| folder.join(FILE)).find(|path| path.is_file()) {
        None => Nearest::Absent,
        Some(path) if is_of_another_user(&path) => Nearest::OfAnotherUser(path),
        Some(path) => Nearest::Found(path),
    }
}

/// True if the file belongs to a user other than this one and root.
fn is_of_another_user(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(path).is_ok_and(|metadata| ![0, user].contains(&metadata.uid()))
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if it cannot be read, or holds an unknown key, a value of the wrong type or an unknown
    /// target.
    pub fn load(path: PathBuf) -> Result<Self, CommandError> {
        let text = files::read_to_string(&path);
        let text = text.map_err(|error| CommandError::Usage(format!("cannot read `{}`: {error}", path.display())))?;
        Self::parse(path, &text)
    }

    fn parse(path: PathBuf, text: &str) -> Result<Self, CommandError> {
        let keys: Keys = toml::from_str(text).map_err(|error| {
            let (name, flaw) = (path.display(), error.to_string());
            CommandError::Usage(format!("`{name}`: {}\nhelp: all keys are at {}", flaw.trim_end(), page!("config.md")))
        })?;
        let target = keys.target.as_ref().map(|written| default_target(&path, text, written)).transpose()?;
        Ok(Self { path, summary: summary(text), target, keys })
    }
}

/// Parses the value of `target`: one or several, separated by commas, as `--target` takes them.
fn default_target(path: &Path, text: &str, written: &Spanned<String>) -> Result<DefaultTarget, CommandError> {
    let words = written.get_ref().split(',').map(str::parse).collect::<Result<Vec<_>, String>>();
    let words = words.map_err(|flaw| {
        let help = "write it as for `--target`; `kgen list --help` names the targets";
        let finding = Finding::new(flaw, written.span(), "not a target", help);
        CommandError::Usage(finding.render(&path.display().to_string(), text))
    })?;
    Ok(DefaultTarget { words, place: format!("`target` in `{}`", path.display()) })
}

/// The keys of a file that has been read, with their values.
fn summary(text: &str) -> String {
    let table: toml::Table = text.parse().unwrap_or_default();
    table.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        Config::parse("a/kgen.toml".into(), text).map_err(|error| error.to_string())
    }

    #[test]
    fn targets_are_read_as_the_flag_takes_them_and_an_unknown_one_is_shown_with_its_line() {
        let several = read("jobs = 2\ntarget = 'hopper, sm80'\n").expect("a file").target.expect("two targets");
        assert_eq!((several.words.len(), several.place.as_str()), (2, "`target` in `a/kgen.toml`"));
        let error = read("jobs = 2\ntarget = 'ampre'\n").expect_err("no such target");
        for part in ["unknown target `ampre`", "did you mean `ampere`?", "a/kgen.toml:2:", "target = 'ampre'"] {
            assert!(error.contains(part), "`{part}` is missing from\n{error}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let error = read("job = 3\n").expect_err("no such key");
        assert!(error.contains("unknown field `job`") && error.contains("`jobs`"), "{error}");
    }
}
