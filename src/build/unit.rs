//! One translation unit to compile, and the flags it is compiled with.

use crate::{grid::Target, plan};
use std::path::{Path, PathBuf};

/// What nvcc is asked to compile.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Variant name; names the object, the log and the launcher.
    pub name: String,
    /// The file, relative to the generated folder (compilers run there), or absolute for files that lie elsewhere.
    pub path: PathBuf,
    /// The file's text, as it was rendered.
    pub text: String,
    /// Target of a kernel; `None` for host code such as the dispatcher.
    pub target: Option<Target>,
    /// nvcc's flags without input, output and launcher: the same on every machine, and so part of the cache key.
    pub flags: Vec<String>,
}

/// Of every unit: headers lie in `include` below the generated folder, and objects go into a shared library.
const COMMON_FLAGS: [&str; 3] = ["-Iinclude", "-Xcompiler", "-fPIC"];

impl Unit {
    /// A kernel for `target` with the plan's flags; `ptx` keeps PTX beside machine code where the target allows it.
    /// ptxas is asked for its resource report.
    pub fn kernel(name: &str, path: &Path, text: &str, target: Target, ptx: bool) -> Self {
        let mut flags = plan::nvcc_flags(target, ptx);
        flags.extend(["-Xptxas", "-v"].into_iter().chain(COMMON_FLAGS).map(String::from));
        Self { name: name.into(), path: path.into(), text: text.into(), target: Some(target), flags }
    }

    /// The dispatcher, which is host code; `ptx` says whether the kernels of its library carry PTX.
    pub fn dispatcher(name: &str, path: &Path, text: &str, ptx: bool) -> Self {
        let no_ptx = (!ptx).then_some("-DKGEN_NO_PTX");
        let flags = ["-O2", "-std=c++17"].into_iter().chain(COMMON_FLAGS).chain(no_ptx).map(String::from).collect();
        Self { name: name.into(), path: path.into(), text: text.into(), target: None, flags }
    }
}
