//! The host C++ compiler nvcc works with, and the emulator is built with.

use super::{ToolchainError, find_in_path};
use serde::Serialize;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// A working C++ compiler.
#[derive(Clone, Debug, Serialize)]
pub struct HostCompiler {
    /// The program, as an absolute path where it was found through `PATH`.
    pub path: PathBuf,
    /// First line of its `--version`.
    pub version: String,
    /// Whether the user named it with `CXX`; only then is nvcc told to use it (`-ccbin`).
    pub named: bool,
}

/// The C++ compiler the `cc` crate finds: `CXX` where it is set, else the system's.
///
/// # Errors
/// [`ToolchainError::NoHostCompiler`] when there is none or it does not run.
pub fn host_compiler() -> Result<HostCompiler, ToolchainError> {
    let named = ["CXX", "HOST_CXX"].iter().any(|v| std::env::var_os(v).is_some_and(|v| !v.is_empty()));
    let found = locate()?;
    let path = if found.components().count() == 1 {
        find_in_path(&found.to_string_lossy()).unwrap_or_else(|| found.clone())
    } else {
        found
    };
    let version = version_of(&path)?;
    Ok(HostCompiler { path, version, named })
}

/// Asks `cc`, outside of a build script: everything cargo would tell it is said here.
fn locate() -> Result<PathBuf, ToolchainError> {
    let scratch = tempfile::tempdir().map_err(ToolchainError::io("create a folder in", std::env::temp_dir()))?;
    let system = match std::env::consts::OS {
        "macos" => "apple-darwin",
        _ => "unknown-linux-gnu",
    };
    let triple = format!("{}-{system}", std::env::consts::ARCH);
    let tool = cc::Build::new()
        .cpp(true)
        .cargo_metadata(false)
        .cargo_warnings(false)
        .cargo_output(false)
        .cargo_debug(false)
        .target(&triple)
        .host(&triple)
        .opt_level(0)
        .out_dir(scratch.path())
        .try_get_compiler()
        .map_err(|e| ToolchainError::NoHostCompiler { tried: "c++".into(), detail: format!("was not found ({e})") })?;
    Ok(tool.path().to_owned())
}

fn version_of(path: &Path) -> Result<String, ToolchainError> {
    let missing = |detail: String| ToolchainError::NoHostCompiler { tried: path.display().to_string(), detail };
    let output = Command::new(path).arg("--version").output().map_err(|e| missing(format!("cannot be run ({e})")))?;
    if !output.status.success() {
        return Err(missing(format!("`--version` failed ({})", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().map(str::trim).find(|l| !l.is_empty());
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
}
