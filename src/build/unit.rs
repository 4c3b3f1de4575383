//! One translation unit to compile, and the flags it is compiled with.

use crate::{
    kernel::{Kind, Target},
    plan::{self, Plan, TensorCore},
};
use std::path::{Path, PathBuf};

/// What nvcc is asked to compile.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Variant name; names the object, the log and the launcher.
    pub name: String,
    /// The file, relative to the generated folder, or absolute for files that lie elsewhere.
    pub path: PathBuf,
    /// The file's text, as it was rendered.
    pub text: String,
    /// Target of a kernel; `None` for host code such as the dispatcher.
    pub target: Option<Target>,
    /// The target whose flags it is compiled with: its own, or the one it is to run as.
    pub compiled_for: Option<Target>,
    /// Kind of a kernel; `None` for host code.
    pub kind: Option<Kind>,
    /// What a kernel's machine code has to be made of; `None` for host code, which has none.
    pub promised: Option<TensorCore>,
    /// The name of what a kernel is compiled from; `None` for host code.
    pub source: Option<String>,
    /// nvcc's flags without input, output and launcher: the same on every machine, and so part of the cache key.
    pub flags: Vec<String>,
}

/// Of every unit: headers lie in `include` where nvcc runs, and objects go into a shared library.
const COMMON_FLAGS: [&str; 3] = ["-Iinclude", "-Xcompiler", "-fPIC"];

impl Unit {
    /// The kernel of `plan` with the plan's flags; `ptx` keeps PTX beside machine code where the target allows it.
    /// ptxas is asked for its resource report. `source` names the text and its headers.
    pub fn kernel(plan: &Plan, path: &Path, text: &str, source: String, ptx: bool) -> Self {
        let mut flags = plan::nvcc_flags(plan.compiled_for(), ptx);
        flags.extend(["-Xptxas", "-v"].into_iter().chain(COMMON_FLAGS).map(String::from));
        Self {
            name: plan.variant.name(),
            path: path.into(),
            text: text.into(),
            target: Some(plan.variant.target()),
            compiled_for: Some(plan.compiled_for()),
            kind: Some(plan.variant.kind()),
            promised: Some(plan.tensor_core),
            source: Some(source),
            flags,
        }
    }

    /// The dispatcher, which is host code; `ptx` says whether the kernels of its library carry PTX.
    pub fn dispatcher(name: &str, path: &Path, text: &str, ptx: bool) -> Self {
        let no_ptx = (!ptx).then_some("-DKGEN_NO_PTX");
        let flags = ["-O2", "-std=c++17"].into_iter().chain(COMMON_FLAGS).chain(no_ptx).map(String::from).collect();
        Self {
            name: name.into(),
            path: path.into(),
            text: text.into(),
            target: None,
            compiled_for: None,
            kind: None,
            promised: None,
            source: None,
            flags,
        }
    }
}
