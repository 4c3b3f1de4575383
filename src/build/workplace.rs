//! The folder in which nvcc runs, which hides this machine's paths from it.
//!
//! nvcc passes every step to a shell, with the paths in double quotes: a folder called `$(command)` would run the
//! command. It also writes the source's absolute path (hashed) and the names of its temporary files into objects, so
//! that no two builds would give the same bytes. It therefore runs in a new folder of the cache that holds a copy of
//! the source and a link to the headers, and sees only relative names, which are the same everywhere.

use super::{BuildError, BuildOptions, Builder, Unit, lines::compile_ends};
use crate::toolchain::{HostCompiler, Nvcc};
use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Folder of the headers in a generated folder, and in a workplace.
const INCLUDE: &str = "include";

/// Characters that a shell expands between double quotes.
const OBEYED: [char; 4] = ['$', '`', '"', '\\'];

/// The first character of `path` that a shell would expand in double quotes, or that no path needs.
fn obeyed_by_a_shell(path: &Path) -> Option<char> {
    path.to_string_lossy().chars().find(|c| OBEYED.contains(c) || c.is_control())
}

/// Refuses paths that a shell would expand, among all that nvcc sees: its own, the host compiler's, the cache folder's,
/// and with a launcher the generated folder's.
///
/// # Errors
/// [`BuildError::Obeyed`], which names the path and the remedy.
pub(super) fn refuse_obeyed_paths(nvcc: &Nvcc, host: &HostCompiler, options: &BuildOptions) -> Result<(), BuildError> {
    let mut folders = vec![("kgen's cache folder", options.cache_dir.as_path(), "set `XDG_CACHE_HOME` to a folder")];
    if options.launcher.is_some() {
        let remedy = "do without `--launcher`, or choose a folder with `--generated` that is";
        folders.push(("the generated folder", &options.generated_dir, remedy));
    }
    refuse_obeyed(nvcc, host, &folders)
}

/// Refuses paths that a shell would expand, among those of the compilers and `folders`: (what it is, path, remedy).
///
/// # Errors
/// [`BuildError::Obeyed`].
pub(super) fn refuse_obeyed(
    nvcc: &Nvcc,
    host: &HostCompiler,
    folders: &[(&'static str, &Path, &'static str)],
) -> Result<(), BuildError> {
    let compilers = [
        ("nvcc", nvcc.path.as_path(), "name one with `--nvcc` whose path is"),
        ("nvcc's folder of libraries", &nvcc.library_dir, "name an nvcc with `--nvcc` whose path is"),
        ("the C++ compiler", &host.path, "name one with `CXX` whose path is"),
    ];
    for (what, path, remedy) in folders.iter().copied().chain(compilers) {
        // nvcc resolves the links in its arguments, so the resolved path is checked too. If the path does not exist
        // yet, its longest existing ancestor is resolved.
        let given = std::path::absolute(path).map_err(BuildError::output("resolve", path))?;
        let real = given.ancestors().find_map(|path| path.canonicalize().ok()).unwrap_or_default();
        for path in [given, real] {
            // nvcc puts its own folder into `PATH`, which has no quotes.
            let in_path = || (what == "nvcc" && path.to_string_lossy().contains(':')).then_some(':');
            if let Some(character) = obeyed_by_a_shell(&path).or_else(in_path) {
                return Err(BuildError::Obeyed { what, path, character, remedy });
            }
        }
    }
    Ok(())
}

impl Builder<'_> {
    /// The command that compiles `unit` into `folder/output`. `folder` is new and empty.
    ///
    /// # Errors
    /// [`BuildError`]: the folder cannot be filled.
    pub(super) fn compile_command(&self, unit: &Unit, folder: &Path) -> Result<Command, BuildError> {
        let mut command = self.nvcc_command(&unit.flags);
        if self.options.launcher.is_some() {
            // A launcher identifies its cached results by paths and flags, so it gets plain ones, and objects differ
            // from build to build.
            command.args(compile_ends(unit.path.as_ref(), folder.join(OUTPUT).as_ref()));
            command.current_dir(&self.options.generated_dir);
            return Ok(command);
        }
        let name = unit.path.file_name().unwrap_or_default();
        let (source, include) = (folder.join(name), folder.join(INCLUDE));
        fs::write(&source, &unit.text).map_err(BuildError::cache("write", &source))?;
        link(&self.options.generated_dir.join(INCLUDE), &include)?;
        command.args(PLAIN_NAMES).arg(path_in_symbols(name)).args(compile_ends(name, OUTPUT.as_ref())).current_dir(folder);
        Ok(command)
    }
}

/// The object's name in a workplace.
pub(super) const OUTPUT: &str = "output";

/// Names temporary files after the source instead of process ids, and puts them into nvcc's working folder. The flag
/// for the front end follows.
const PLAIN_NAMES: [&str; 4] = ["-keep", "-keep-dir", ".", "-Xcudafe"];

/// Derives symbol names from a path that is the same everywhere. nvcc passes its front end this option with the
/// source's real path; the last one counts.
fn path_in_symbols(name: &OsStr) -> String {
    format!("--orig_src_path_name=/kgen/{}", name.to_string_lossy())
}

/// Creates the symbolic link `name` to `target`, through which a workplace reaches a file or folder elsewhere.
pub(super) fn link(target: &Path, name: &Path) -> Result<(), BuildError> {
    let target: PathBuf = std::path::absolute(target).map_err(BuildError::output("resolve", target))?;
    symlink(target, name).map_err(BuildError::cache("create", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_shell_obeys_between_double_quotes_is_refused() {
        for (path, found) in
            [("/a$b", Some('$')), ("/a`b", Some('`')), ("/a\"b", Some('"')), ("/a\\b", Some('\\')), ("/a\nb", Some('\n'))]
        {
            assert_eq!(obeyed_by_a_shell(Path::new(path)), found);
        }
        assert_eq!(obeyed_by_a_shell(Path::new("/a b,c;d&e'f(g)*~#%:=[x]@{y}|<z>!?ü")), None);
    }
}
