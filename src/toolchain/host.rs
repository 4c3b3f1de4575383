//! The host C++ compiler nvcc works with, and the emulator is built with.

use super::{Cancel, ToolchainError, find_in_path, is_executable, nvcc::ask_version};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Programs that may stand before the compiler in `CXX`.
const WRAPPERS: [&str; 3] = ["ccache", "sccache", "distcc"];

/// What is looked for in `PATH` if no compiler is named.
const USUAL: [&str; 3] = ["c++", "g++", "clang++"];

/// A working C++ compiler. nvcc is told to use it (`-ccbin`), so that there is one host compiler in a build.
#[derive(Clone, Debug, Serialize)]
pub struct HostCompiler {
    /// The program, as an absolute path where it was found through `PATH`.
    pub path: PathBuf,
    /// First line of its `--version`.
    pub version: String,
    /// Flags after the compiler in `CXX`, and those of `CXXFLAGS`, for code that is compiled for this machine: the
    /// emulator's.
    pub flags: Vec<String>,
}

/// The C++ compiler of `CXX`, of `HOST_CXX`, of nvcc's own `NVCC_CCBIN`, or the system's.
///
/// # Errors
/// [`ToolchainError::NoHostCompiler`] when there is none or it does not run.
pub fn host_compiler() -> Result<HostCompiler, ToolchainError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let named = ["CXX", "HOST_CXX", "NVCC_CCBIN"].iter().find_map(|name| variable(name));
    let path = match &named {
        Some(named) => resolve(Path::new(program(named))),
        None => USUAL
            .iter()
            .find_map(|name| find_in_path(name))
            .ok_or_else(|| ToolchainError::NoHostCompiler { tried: USUAL[0].into(), detail: "is not in `PATH`".into() })?,
    };
    // Compilers run in other folders than this one.
    let path = std::path::absolute(&path).map_err(ToolchainError::io("resolve", &path))?;
    let version = version_of(&path)?;
    let mut flags = named.as_deref().map(flags_behind).unwrap_or_default();
    flags.extend(variable("CXXFLAGS").iter().flat_map(|flags| flags.split_whitespace()).map(str::to_owned));
    Ok(HostCompiler { path, version, flags })
}

/// The compiler in a value of `CXX`: not the launcher before it, nor flags after it. A path may hold spaces.
fn program(named: &str) -> &str {
    let named = named.trim();
    if Path::new(named).exists() {
        return named;
    }
    let is_wrapper = |word: &&str| Path::new(word).file_name().is_some_and(|name| WRAPPERS.iter().any(|w| name == *w));
    named.split_whitespace().find(|word| !is_wrapper(word)).unwrap_or(named)
}

/// The words after the compiler in a value of `CXX`.
fn flags_behind(named: &str) -> Vec<String> {
    let named = named.trim();
    let compiler = program(named);
    let behind = named.find(compiler).map_or("", |start| &named[start + compiler.len()..]);
    behind.split_whitespace().map(str::to_owned).collect()
}

/// `NVCC_CCBIN` may name a folder, which holds a `g++`; a bare name is one in `PATH`.
fn resolve(named: &Path) -> PathBuf {
    if named.is_dir() {
        return named.join("g++");
    }
    if named.components().count() == 1 && !is_executable(named) {
        return find_in_path(&named.to_string_lossy()).unwrap_or_else(|| named.to_owned());
    }
    named.to_owned()
}

fn version_of(path: &Path) -> Result<String, ToolchainError> {
    let missing = |detail: String| ToolchainError::NoHostCompiler { tried: path.display().to_string(), detail };
    let answer = ask_version(path, &Cancel::default()).map_err(missing)?.unwrap_or_default();
    let line = answer.lines().map(str::trim).find(|l| !l.is_empty());
    line.map(str::to_owned).ok_or_else(|| missing("says no version".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_host_compiler_names_the_package_that_mends_it() {
        let message = version_of(Path::new("no-such-compiler")).unwrap_err().to_string();
        assert!(message.contains("no-such-compiler") && message.contains("apt-get install g++"), "{message}");
    }

    #[test]
    fn the_compiler_is_found_between_a_launcher_and_flags() {
        for (named, expected) in
            [("g++-12", "g++-12"), ("ccache g++ -m64", "g++"), ("/usr/bin/sccache /opt/clang++", "/opt/clang++")]
        {
            assert_eq!(program(named), expected);
        }
        assert_eq!(flags_behind("ccache g++ -m64 -g"), ["-m64", "-g"]);
        assert_eq!(flags_behind("/usr/bin/clang++"), Vec::<String>::new());
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(resolve(folder.path()), folder.path().join("g++"));
    }
}
