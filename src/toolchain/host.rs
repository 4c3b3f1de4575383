//! The host C++ compiler, for nvcc and for the emulator: the one that the environment names, found with the `cc` crate
//! as build scripts of Rust packages do.

use super::{Cancel, ToolchainError, find_in_path, is_executable, nvcc::ask_version, process};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// Names searched for in `PATH` if no compiler is named.
const USUAL: [&str; 3] = ["c++", "g++", "clang++"];

/// Time limit of the `cc` crate, which starts the compiler to learn its family.
const ASKING_LIMIT: Duration = Duration::from_secs(20);

/// Arguments of kgen's own process that answers with [`named_by_environment`] as JSON.
const ASK: [&str; 2] = ["__worker", "host-compiler"];

/// A working C++ compiler. It is passed to nvcc (`-ccbin`), so that a build uses a single host compiler.
#[derive(Clone, Debug, Serialize)]
pub struct HostCompiler {
    /// The program, as an absolute path if it was found through `PATH`.
    pub path: PathBuf,
    /// First line of its `--version`.
    pub version: String,
    /// Flags from `CXX` (after the command) and from `CXXFLAGS`, for code that runs on this machine, such as the
    /// emulator.
    pub flags: Vec<String>,
}

/// A compiler that has not been tested.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Named {
    path: PathBuf,
    flags: Vec<String>,
}

/// The C++ compiler of `CXX`, of `HOST_CXX`, of nvcc's own `NVCC_CCBIN`, or the system's.
///
/// The `cc` crate starts compilers without a time limit, so it runs in a separate process, which can be killed:
/// `program`, a kgen executable.
///
/// # Errors
/// [`ToolchainError::NoHostCompiler`] if there is none, or it does not run, or does not answer in time;
/// [`ToolchainError::Cancelled`].
pub fn host_compiler(program: &Path, cancel: &Cancel) -> Result<HostCompiler, ToolchainError> {
    let asking = |detail: String| ToolchainError::NoHostCompiler { tried: tried(), detail };
    let failed = |error: std::io::Error| asking(format!("could not be queried ({error})"));
    let answer = tempfile::NamedTempFile::new().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(ASK).stdin(Stdio::null()).stdout(answer.reopen().map_err(failed)?).stderr(Stdio::null());
    match process::run(&mut command, ASKING_LIMIT, cancel).map_err(failed)?.ending {
        process::Ending::Exited(0) => {}
        process::Ending::Cancelled => return Err(ToolchainError::Cancelled),
        process::Ending::TimeLimit => return Err(asking(format!("gave no answer in {} s", ASKING_LIMIT.as_secs()))),
        other => return Err(asking(format!("could not be queried ({other:?})"))),
    }
    let answer = std::fs::read(answer.path()).map_err(failed)?;
    let named: Result<Named, String> = serde_json::from_slice(&answer).map_err(|error| failed(error.into()))?;
    tried_out(named.map_err(asking)?, cancel)
}

/// The compiler that the environment names, or the reason why there is none. Starts the compiler without a time limit:
/// for [`host_compiler`]'s separate process.
///
/// # Errors
/// A fragment to follow the name of the compiler.
pub fn named_by_environment() -> Result<Named, String> {
    let scratch = tempfile::tempdir().map_err(|error| format!("could not be queried ({error})"))?;
    let mut build = cc::Build::new();
    build.cpp(true).target(env!("KGEN_TARGET")).host(env!("KGEN_TARGET")).opt_level(2).out_dir(scratch.path());
    build
        .no_default_flags(true)
        .warnings(false)
        .extra_warnings(false)
        .cargo_metadata(false)
        .cargo_warnings(false)
        .cargo_debug(false);
    // The crate `cc` supports neither nvcc's variable nor a machine with `g++` but without `c++`.
    if !["CXX", "HOST_CXX"].iter().any(|name| variable(name).is_some()) {
        let usual = || USUAL.iter().find_map(|name| find_in_path(name)).ok_or_else(|| "is not in `PATH`".to_owned());
        build.compiler(variable("NVCC_CCBIN").map_or_else(usual, |named| Ok(PathBuf::from(named)))?);
    }
    let tool = build.try_get_compiler().map_err(|error| format!("could not be queried ({error})"))?;
    // The command contains the flags of `CXX` too. A launcher (ccache) would come before the compiler; kgen's cache
    // does not need one.
    let command = tool.to_command();
    let launched = usize::from(command.get_program() != tool.path());
    let flags = command.get_args().skip(launched).map(|flag| flag.to_string_lossy().into_owned()).collect();
    Ok(Named { path: resolve(tool.path()), flags })
}

/// `named`, after it has reported its version.
fn tried_out(named: Named, cancel: &Cancel) -> Result<HostCompiler, ToolchainError> {
    // Compilers run in other folders than this one.
    let path = std::path::absolute(&named.path).map_err(ToolchainError::io("resolve", &named.path))?;
    let version = version_of(&path, cancel)?;
    Ok(HostCompiler { path, version, flags: named.flags })
}

/// [`host_compiler`] for programs other than kgen itself, such as its tests: without a separate process, and without a
/// time limit for compilers that the `cc` crate starts.
///
/// # Errors
/// The reason why there is none.
pub fn host_compiler_in_process() -> Result<HostCompiler, String> {
    tried_out(named_by_environment()?, &Cancel::default()).map_err(|error| error.to_string())
}

/// A nonblank environment variable.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The compiler's name in the user's configuration, for a message.
fn tried() -> String {
    ["CXX", "HOST_CXX", "NVCC_CCBIN"].iter().find_map(|name| variable(name)).unwrap_or_else(|| USUAL[0].into())
}

/// `NVCC_CCBIN` may name a folder with a `g++`; a bare name is searched for in `PATH`.
fn resolve(named: &Path) -> PathBuf {
    if named.is_dir() {
        return named.join("g++");
    }
    if named.components().count() == 1 && !is_executable(named) {
        return find_in_path(&named.to_string_lossy()).unwrap_or_else(|| named.to_owned());
    }
    named.to_owned()
}

fn version_of(path: &Path, cancel: &Cancel) -> Result<String, ToolchainError> {
    let missing = |detail: String| ToolchainError::NoHostCompiler { tried: path.display().to_string(), detail };
    let Some(answer) = ask_version(path, cancel).map_err(missing)? else { return Err(ToolchainError::Cancelled) };
    let line = answer.lines().map(str::trim).find(|l| !l.is_empty());
    line.map(str::to_owned).ok_or_else(|| missing("says no version".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_host_compiler_names_the_package_that_mends_it() {
        let message = version_of(Path::new("no-such-compiler"), &Cancel::default()).unwrap_err().to_string();
        assert!(message.contains("no-such-compiler") && message.contains("apt-get install g++"), "{message}");
    }

    #[test]
    fn nvccs_variable_may_name_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(resolve(folder.path()), folder.path().join("g++"));
    }
}
