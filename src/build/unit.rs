//! One translation unit, and its compiler flags.

use crate::{
    kernel::{Kind, Target},
    plan::{self, Plan, TensorCore},
};
use std::path::{Path, PathBuf};

/// A translation unit for nvcc.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Variant name; names the object, the log and the launcher.
    pub name: String,
    /// Path relative to the generated folder, or absolute for files elsewhere.
    pub path: PathBuf,
    /// Text of the file, as rendered.
    pub text: String,
    /// Target of a kernel; `None` for host code such as the dispatcher.
    pub target: Option<Target>,
    /// The target whose flags compile it: its own, or the target of `--run-as`.
    pub compiled_for: Option<Target>,
    /// Kind of a kernel; `None` for host code.
    pub kind: Option<Kind>,
    /// Tensor-core instructions that the kernel's machine code must consist of; `None` for host code.
    pub promised: Option<TensorCore>,
    /// Hash of the kernel's text and headers; `None` for host code.
    pub source: Option<String>,
    /// nvcc's flags without input, output and launcher: the same on every machine, and so part of the cache key.
    pub flags: Vec<String>,
}

/// Flags of every unit: headers are in `include` in the folder where nvcc runs, and objects go into a shared library.
const COMMON_FLAGS: [&str; 3] = ["-Iinclude", "-Xcompiler", "-fPIC"];

impl Unit {
    /// The kernel of `plan` with the plan's flags; `ptx` embeds PTX beside machine code if the target allows it. ptxas
    /// prints its resource report. `source` is the hash of the text and its headers.
    pub fn kernel(plan: &Plan, path: &Path, text: &str, source: String, ptx: bool) -> Self {
        let mut flags = plan::nvcc_flags(plan.compiled_for(), ptx);
        // As one word: ccache drops a `-v` of its own from the line that it preprocesses with.
        flags.extend(["-Xptxas=-v"].into_iter().chain(COMMON_FLAGS).map(String::from));
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

    /// A program that is no variant of the grid, compiled for the GPUs of `target`. ptxas prints its resource report;
    /// its machine code is not inspected.
    pub fn program(name: &str, path: &Path, text: &str, target: Target) -> Self {
        let mut flags = plan::nvcc_flags(target, true);
        flags.extend(["-Xptxas=-v"].into_iter().chain(COMMON_FLAGS).map(String::from));
        Self {
            name: name.into(),
            path: path.into(),
            text: text.into(),
            target: Some(target),
            compiled_for: Some(target),
            kind: None,
            promised: None,
            source: None,
            flags,
        }
    }

    /// The dispatcher, which is host code; `ptx` states that the kernels of its library carry PTX.
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
