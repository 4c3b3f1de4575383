//! A built library and the Python package around it, or the kgen program alone, as a wheel for `pip install`: the
//! package's files, which are embedded in kgen, names and tags, metadata, record and archive. Independent of kernels,
//! compilers and terminals.

mod archive;
mod metadata;
mod package;
mod platform;
mod program;

pub use program::program;

use crate::files::{FieldHasher, library_flaw};

/// Name of the distribution and of the package in it.
pub const NAME: &str = "kgen_attn";

/// Path of the library in the package.
const LIBRARY: &str = "lib/libkgen.so";

/// Functions that every library with a dispatcher defines, and the package calls.
const FUNCTIONS: [&str; 8] = [
    "kgen_abi_version",
    "kgen_append_kv",
    "kgen_bwd",
    "kgen_bwd_workspace",
    "kgen_fwd",
    "kgen_fwd_workspace",
    "kgen_last_error",
    "kgen_variants",
];

/// Digits of the hash in a version.
const VERSION_DIGITS: usize = 8;

/// Device that a library runs on; part of its wheel's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsOn {
    /// GPUs.
    Gpu,
    /// The emulator, on the host: for tests of programs that call the library.
    Emulator,
}

/// A wheel.
#[derive(Debug)]
pub struct Wheel {
    /// File name of the wheel, which pip parses.
    pub file_name: String,
    /// Version of the distribution, for example `0.1.0+k3f9c2a1b`: different contents have different versions.
    pub version: String,
    /// The systems it installs on, for example `manylinux_2_28_x86_64`.
    pub platform: String,
    /// The file. The same contents give the same bytes.
    pub bytes: Vec<u8>,
}

/// Reasons why there is no wheel.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// The file is not a library that the package can load.
    #[error("the library {0}")]
    Library(String),
    /// The file is not a program.
    #[error("it is no executable of Linux")]
    Program,
    /// No tag describes the systems that run the library or the program.
    #[error("no wheel can hold it: {0}")]
    Platform(String),
    /// The archive could not be written.
    #[error("cannot write the archive: {0}")]
    Archive(#[from] zip::result::ZipError),
}

/// Packs `library`, the content of a libkgen.so.
///
/// # Errors
/// [`WheelError::Library`] if it lacks a function that the package calls, [`WheelError::Platform`] if it needs
/// libraries that a wheel may not rely on.
pub fn wheel(library: &[u8], runs_on: RunsOn) -> Result<Wheel, WheelError> {
    if let Some(flaw) = library_flaw(library, &FUNCTIONS) {
        return Err(WheelError::Library(flaw));
    }
    let platform = platform::tag(library).map_err(WheelError::Platform)?;
    let tag = format!("py3-none-{platform}");
    let mut entries: Vec<archive::Entry> =
        package::files().into_iter().map(|(path, text)| archive::Entry::text(format!("{NAME}/{path}"), text)).collect();
    entries.push(archive::Entry::binary(format!("{NAME}/{LIBRARY}"), library));
    let version = version(&entries, &tag, runs_on);
    let information = format!("{NAME}-{version}.dist-info");
    for (name, text) in metadata::files(&version, &tag) {
        entries.push(archive::Entry::text(format!("{information}/{name}"), text));
    }
    let bytes = archive::write(entries, &format!("{information}/RECORD"))?;
    Ok(Wheel { file_name: format!("{NAME}-{version}-{tag}.whl"), version, platform, bytes })
}

/// The version of a wheel with these files: kgen's own, and a local segment derived from all of the wheel's contents.
/// pip treats two wheels of one version as equal and keeps the installed one. The letter before the hash's digits is
/// needed because pip would read digits alone as a number, without leading zeros.
fn version(entries: &[archive::Entry], tag: &str, runs_on: RunsOn) -> String {
    let own = env!("CARGO_PKG_VERSION");
    let mut hasher = FieldHasher::default();
    for entry in entries {
        hasher.field(entry.path(), entry.content());
    }
    for (name, text) in metadata::files(own, tag) {
        hasher.field(name, text);
    }
    let hash = hasher.finish();
    let word = if runs_on == RunsOn::Emulator { "emulator." } else { "" };
    format!("{own}+{word}k{}", &hash[..VERSION_DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_libkgen_is_refused() {
        for (bytes, expected) in [(&b""[..], "is empty"), (b"text", "is no ELF file")] {
            let error = wheel(bytes, RunsOn::Gpu).expect_err("no library").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
