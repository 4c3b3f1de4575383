//! The words of the command lines that compile and link: what [`Builder`](super::Builder) runs, and what
//! [`emit`](super::emit) writes for other programs to run.

use super::Unit;
use crate::toolchain::{HostCompiler, Nvcc};
use std::ffi::{OsStr, OsString};

/// Link flags, the same on every machine. `--no-undefined` makes a missing launcher fail here instead of at load time.
/// There is no device code to link, and nvcc's empty device link would write the path of its own folder into the
/// library.
pub(super) const LINK_FLAGS: [&str; 10] = [
    "-shared",
    "-nodlink",
    "-cudart",
    "static",
    "-Xlinker",
    "--version-script=exports.map",
    "-Xlinker",
    "-soname=libkgen.so",
    "-Xlinker",
    "--no-undefined",
];

/// The words of a launcher and its own flags.
pub(super) fn launcher_words(launcher: Option<&str>) -> impl Iterator<Item = OsString> {
    launcher.into_iter().flat_map(str::split_whitespace).map(OsString::from)
}

/// `nvcc flags`, as words.
pub(super) fn nvcc_words(nvcc: &Nvcc, host: &HostCompiler, flags: &[String]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![nvcc.path.clone().into()];
    words.extend(flags.iter().map(OsString::from));
    // Always passed, so that the compiler whose version is in the key is the one that runs.
    words.extend(["-ccbin".into(), host.path.clone().into()]);
    words
}

/// `nvcc flags -c source -o object` for `unit`, without a launcher.
pub(super) fn compile_words(nvcc: &Nvcc, host: &HostCompiler, unit: &Unit, source: &OsStr, object: &OsStr) -> Vec<OsString> {
    let mut words = nvcc_words(nvcc, host, &unit.flags);
    words.extend(compile_ends(source, object));
    words
}

/// The end of a line that compiles.
pub(super) fn compile_ends(source: &OsStr, object: &OsStr) -> [OsString; 4] {
    ["-c".into(), source.to_owned(), "-o".into(), object.to_owned()]
}

/// The end of the line that links, after [`LINK_FLAGS`], without the objects; `cudart` is the folder of CUDA's runtime.
pub(super) fn link_ends(cudart: &OsStr, library: &OsStr) -> [OsString; 4] {
    ["-L".into(), cudart.to_owned(), "-o".into(), library.to_owned()]
}
