//! Finds the tools that read machine code: `cuobjdump` extracts it from an object, `nvdisasm` disassembles it.

use super::{
    Cancel, Nvcc, Say, ToolchainError, is_executable,
    nvcc::{ask_version, parse_version, said},
    provision,
    wheels::DISASSEMBLER,
};
use std::path::{Path, PathBuf};

/// The two programs, and their release.
#[derive(Clone, Debug)]
pub struct Disassembler {
    /// Extracts cubins from objects.
    pub cuobjdump: PathBuf,
    /// Disassembles a cubin.
    pub nvdisasm: PathBuf,
    /// `13.5.37`.
    pub version: String,
}

/// Finds the disassembler: the one beside `nvcc`, which supports all of that compiler's output, else kgen's own; if
/// there is none, installs kgen's own unless `offline`. `say` receives messages about long operations.
///
/// # Errors
/// [`ToolchainError`] with the missing program and the command to run.
pub fn find_disassembler(nvcc: &Nvcc, offline: bool, cancel: &Cancel, say: &dyn Say) -> Result<Disassembler, ToolchainError> {
    // Links are resolved: `/usr/bin/nvcc` may be one.
    let real = nvcc.path.canonicalize().unwrap_or_else(|_| nvcc.path.clone());
    let beside = real.parent().unwrap_or(Path::new("/"));
    if ["cuobjdump", "nvdisasm"].iter().all(|name| is_executable(&beside.join(name))) {
        return describe(beside, cancel);
    }
    let own = match provision::provisioned(&DISASSEMBLER)? {
        Some(own) => own,
        None if offline => return Err(ToolchainError::NoDisassembler { beside: beside.to_owned() }),
        None => {
            say.say("no `cuobjdump` and `nvdisasm` next to nvcc: installing CUDA's disassembler for kgen alone");
            provision::install(&DISASSEMBLER, cancel, say)?
        }
    };
    describe(&own.folder.join("bin"), cancel)
}

fn describe(folder: &Path, cancel: &Cancel) -> Result<Disassembler, ToolchainError> {
    let (cuobjdump, nvdisasm) = (folder.join("cuobjdump"), folder.join("nvdisasm"));
    let bad = |said| ToolchainError::NotDisassembler { path: nvdisasm.clone(), said };
    let Some(answer) = ask_version(&nvdisasm, cancel).map_err(bad)? else { return Err(ToolchainError::Cancelled) };
    let Some((version, _)) = parse_version(&answer) else {
        return Err(bad(answer.lines().map(str::trim).find(|l| !l.is_empty()).map_or_else(|| "said nothing".into(), said)));
    };
    Ok(Disassembler { cuobjdump, nvdisasm, version })
}
