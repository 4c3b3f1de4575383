//! The command lines of a build as a file for ninja, make, or a reader of compilation databases, so that another
//! scheduler runs them. The lines are those of a build with a launcher: plain paths, relative to the file's folder.

use super::{
    BuildError, Unit, database,
    lines::{LINK_FLAGS, compile_words, launcher_words, link_ends, nvcc_words},
    link::exports,
    report::object_path,
    workplace::refuse_obeyed,
};
use crate::{
    plan::shell_words,
    toolchain::{HostCompiler, Nvcc},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fmt::Write,
    io,
    path::{Path, PathBuf, absolute},
};

/// Form of an emitted build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// `build.ninja`.
    Ninja,
    /// `Makefile`.
    Make,
    /// `compile_commands.json`, which cannot say how the library is linked.
    CompileCommands,
}

impl Form {
    /// Name of the file.
    pub fn file(self) -> &'static str {
        match self {
            Self::Ninja => "build.ninja",
            Self::Make => "Makefile",
            Self::CompileCommands => database::FILE,
        }
    }
}

/// Symbols that the linker exports; [`LINK_FLAGS`] name the file.
const EXPORTS: &str = "exports.map";

/// The library.
const LIBRARY: &str = "lib/libkgen.so";

/// A build to emit.
struct Emitted<'a> {
    units: &'a [Unit],
    headers: &'a [String],
    nvcc: &'a Nvcc,
    host: &'a HostCompiler,
    launcher: Option<&'a str>,
}

/// The files, as (path in the folder, text), that build `units` in the folder `folder`, which has their
/// sources and `headers`.
///
/// # Errors
/// [`BuildError`]: a path that a shell would obey, or a folder that cannot be resolved.
pub fn emit(
    form: Form,
    units: &[Unit],
    headers: &[String],
    nvcc: &Nvcc,
    host: &HostCompiler,
    launcher: Option<&str>,
    folder: &Path,
) -> Result<Vec<(&'static str, String)>, BuildError> {
    // nvcc gets the real path of its source, whatever the lines say.
    refuse_obeyed(nvcc, host, &[("the output folder", folder, "choose one with `--output` whose path is")])?;
    let emitted = Emitted { units, headers, nvcc, host, launcher };
    let text = match form {
        Form::Ninja => emitted.ninja(),
        Form::Make => emitted.make(),
        Form::CompileCommands => return Ok(vec![(form.file(), emitted.database(folder)?)]),
    };
    Ok(vec![(form.file(), text), (EXPORTS, exports())])
}

impl Emitted<'_> {
    /// The line that compiles `unit`, without the launcher.
    fn compile(&self, unit: &Unit) -> String {
        let object = object_path(&unit.name);
        shell(&compile_words(self.nvcc, self.host, unit, unit.path.as_ref(), object.as_ref()))
    }

    /// The line that links, without the launcher and the objects.
    fn link(&self) -> String {
        let mut words = nvcc_words(self.nvcc, self.host, &LINK_FLAGS.map(String::from));
        words.extend(link_ends(self.nvcc.library_dir.as_ref(), LIBRARY.as_ref()));
        shell(&words)
    }

    fn launcher(&self) -> String {
        shell(&launcher_words(self.launcher).collect::<Vec<_>>())
    }

    fn objects(&self) -> impl Iterator<Item = String> {
        self.units.iter().map(|unit| object_path(&unit.name).display().to_string())
    }

    fn ninja(&self) -> String {
        let escaped = |line: &str| line.replace('$', "$$");
        let mut text = format!(
            "# Made by kgen {}: the command lines of `kgen build`. `ninja -C` this folder makes {LIBRARY}.\n\
             ninja_required_version = 1.3\n\nlauncher = {}\n\n\
             rule compile\n  command = $launcher $line\n  description = $out\n\n\
             rule link\n  command = $launcher $line $in\n  description = $out\n\nbuild headers: phony",
            env!("CARGO_PKG_VERSION"),
            escaped(&self.launcher())
        );
        for header in self.headers {
            text = text + " $\n    " + &ninja_path(header);
        }
        text += "\n";
        // Writing into a string cannot fail.
        for (unit, object) in self.units.iter().zip(self.objects()) {
            let source = ninja_path(&unit.path.to_string_lossy());
            writeln!(text, "\nbuild {object}: compile {source} | headers\n  line = {}", escaped(&self.compile(unit))).ok();
        }
        write!(text, "\nbuild {LIBRARY}: link").ok();
        self.objects().for_each(|object| text = std::mem::take(&mut text) + " $\n    " + &object);
        write!(text, " $\n    | {EXPORTS}\n  line = {}\n\ndefault {LIBRARY}\n", escaped(&self.link())).ok();
        text
    }

    fn make(&self) -> String {
        let escaped = |line: &str| line.replace('$', "$$");
        let mut text = format!(
            "# Made by kgen {}: the command lines of `kgen build`. `make -C` this folder makes {LIBRARY}.\n\
             LAUNCHER = {}\nLIBRARY = {LIBRARY}\n\nHEADERS =",
            env!("CARGO_PKG_VERSION"),
            escaped(&self.launcher()).replace('#', "\\#")
        );
        for header in self.headers {
            text = text + " \\\n    " + header;
        }
        text += "\nOBJECTS =";
        for object in self.objects() {
            text = text + " \\\n    " + &object;
        }
        // Writing into a string cannot fail.
        write!(
            text,
            "\n\n.PHONY: all clean\nall: $(LIBRARY)\n\n$(LIBRARY): $(OBJECTS) {EXPORTS} | lib\n\
             \t$(LAUNCHER) {} $(OBJECTS)\n\nobj lib:\n\tmkdir -p $@\n\nclean:\n\trm -rf obj lib\n",
            escaped(&self.link())
        )
        .ok();
        for (unit, object) in self.units.iter().zip(self.objects()) {
            let (source, line) = (unit.path.display(), escaped(&self.compile(unit)));
            writeln!(text, "\n{object}: {source} $(HEADERS) | obj\n\t$(LAUNCHER) {line}").ok();
        }
        text
    }

    fn database(&self, folder: &Path) -> Result<String, BuildError> {
        let folder: PathBuf = absolute(folder).map_err(BuildError::output("resolve", folder))?;
        let entry = |unit| database::entry(self.nvcc, self.host, unit, &folder, &folder.join(object_path(&unit.name)));
        let text = serde_json::to_string_pretty(&self.units.iter().map(entry).collect::<Vec<_>>()).map_err(io::Error::from);
        text.map(|text| text + "\n").map_err(BuildError::output("write", &folder.join(database::FILE)))
    }
}

/// The words as a shell reads them.
fn shell(words: &[OsString]) -> String {
    shell_words(&words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>())
}

/// A path in a build statement of ninja.
fn ninja_path(path: &str) -> String {
    path.replace('$', "$$").replace(' ', "$ ").replace(':', "$:")
}
