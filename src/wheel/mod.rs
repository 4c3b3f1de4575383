//! A built library and the Python package around it, or the kgen program alone, as a wheel that `pip install` takes:
//! the package's files, which are built into kgen, names and tags, metadata, record and archive. Knows nothing of
//! kernels, compilers or terminals.

mod archive;
mod metadata;
mod package;
mod platform;
mod program;

pub use program::program;

use crate::files::{FieldHasher, library_flaw};

/// Name of the distribution and of the package in it.
pub const NAME: &str = "kgen_attn";

/// Where the library lies in the package.
const LIBRARY: &str = "lib/libkgen.so";

/// What every library with a dispatcher defines, and the package calls.
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

/// Digits of a hash in a version.
const VERSION_DIGITS: usize = 8;

/// What a library runs on, which its wheel's version says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunsOn {
    /// GPUs.
    Gpu,
    /// The emulator, on the host: for tests of what calls the library.
    Emulator,
}

/// A wheel.
#[derive(Debug)]
pub struct Wheel {
    /// Its file name, which pip reads.
    pub file_name: String,
    /// Version of the distribution, for example `0.1.0+k3f9c2a1b`: other contents have another one.
    pub version: String,
    /// Which systems it installs on, for example `manylinux_2_28_x86_64`.
    pub platform: String,
    /// The file. The same content gives the same bytes.
    pub bytes: Vec<u8>,
}

/// Why there is no wheel.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// It is no library that the package can load.
    #[error("the library {0}")]
    Library(String),
    /// It is no program.
    #[error("it is no executable of Linux")]
    Program,
    /// No tag says where the library or the program runs.
    #[error("no wheel can hold it: {0}")]
    Platform(String),
    /// The archive could not be written.
    #[error("cannot write the archive: {0}")]
    Archive(#[from] zip::result::ZipError),
}

/// Packs `library`, the content of a libkgen.so.
///
/// # Errors
/// [`WheelError::Library`] where it lacks what the package calls, [`WheelError::Platform`] where it needs libraries
/// that a wheel may not rely on.
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

/// The version of a wheel with these files: kgen's own, and a local segment from all that the wheel holds. pip takes
/// two wheels of one version for the same and keeps the one that it has. The letter before the digits of the hash is
/// there because pip would read digits alone as a number, without the zeros in front.
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
