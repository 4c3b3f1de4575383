//! `compile_commands.json` in the output folder: the command of every kernel, for clangd and other tools that read
//! sources. nvcc itself works on a copy; the commands here use the original paths and give the same code.

use super::{BuildError, Builder, Unit, lines::compile_words, report::object_path};
use crate::{
    files::{self, write_atomic},
    toolchain::{HostCompiler, Nvcc},
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    ffi::OsStr,
    io::{self, ErrorKind},
    path::{Path, absolute},
};

/// The file name that tools search for.
pub(super) const FILE: &str = "compile_commands.json";

/// The key with the path of an entry's source.
const SOURCE: &str = "file";

/// nvcc-only flags whose values follow as separate words.
const NVCC_FLAGS: [&str; 4] = ["-gencode", "-Xptxas", "-Xcompiler", "-ccbin"];

impl Builder<'_> {
    /// Writes the commands of `kernels` into the database. Entries of other sources stay, unless their kernels are gone
    /// from the generated folder. A file that is not such a database is left alone, and the observer is notified.
    ///
    /// # Errors
    /// [`BuildError::Output`].
    pub fn write_database(&self, kernels: &[Unit]) -> Result<(), BuildError> {
        let path = self.options.out_dir.join(FILE);
        let folder = &self.options.generated_dir;
        let folder = absolute(folder).map_err(BuildError::output("resolve", folder))?;
        let mut entries: Vec<Value> = kernels.iter().map(|unit| self.entry(unit, &folder)).collect::<Result<_, _>>()?;
        let current: HashSet<String> = entries.iter().filter_map(source).map(str::to_owned).collect();
        let earlier = match read(&path) {
            Ok(earlier) => earlier,
            Err(reason) => {
                self.observer.note(&format!("`{}` is left as it is: {reason}", path.display()));
                return Ok(());
            }
        };
        let is_gone = |file: &str| Path::new(file).starts_with(&folder) && !Path::new(file).exists();
        entries.extend(
            earlier.into_iter().filter(|entry| source(entry).is_none_or(|file| !current.contains(file) && !is_gone(file))),
        );
        entries.sort_by(|a, b| source(a).cmp(&source(b)));
        let text = serde_json::to_string_pretty(&entries).map_err(io::Error::from);
        let written = text.and_then(|text| write_atomic(&path, format!("{text}\n").as_bytes()));
        written.map(drop).map_err(BuildError::output("write", &path))
    }

    /// The database entry of one unit; its relative path is resolved against `folder`.
    fn entry(&self, unit: &Unit, folder: &Path) -> Result<Value, BuildError> {
        let object = self.options.out_dir.join(object_path(&unit.name));
        let object = absolute(&object).map_err(BuildError::output("resolve", &object))?;
        Ok(entry(self.nvcc, self.host, unit, folder, &object))
    }
}

/// The database entry of one unit. Its relative path is resolved against `folder`, which is absolute, as `object` is.
pub(super) fn entry(nvcc: &Nvcc, host: &HostCompiler, unit: &Unit, folder: &Path, object: &Path) -> Value {
    let source = folder.join(&unit.path);
    let words = compile_words(nvcc, host, unit, source.as_ref(), object.as_ref());
    json!({
        "directory": text(folder.as_ref()),
        SOURCE: text(source.as_ref()),
        "arguments": joined(words.iter().map(|word| text(word))),
        "output": text(object.as_ref()),
    })
}

/// `words` with each of [`NVCC_FLAGS`] and its value joined, so that tools that support only clang's flags can drop
/// both.
fn joined(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(flag) if NVCC_FLAGS.contains(&flag.as_str()) => *flag = format!("{flag}={word}"),
            _ => joined.push(word),
        }
    }
    joined
}

/// JSON strings are Unicode only.
fn text(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}

/// The source of an entry.
fn source(entry: &Value) -> Option<&str> {
    entry.get(SOURCE)?.as_str()
}

/// The entries of a database; empty if the file does not exist.
fn read(path: &Path) -> Result<Vec<Value>, String> {
    match files::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| format!("it is no compilation database ({error})")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}
