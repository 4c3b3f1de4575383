//! Finding what reads machine code: `cuobjdump` takes it out of an object, `nvdisasm` says it in words.

use super::{
    Cancel, Nvcc, Say, ToolchainError, is_executable,
    nvcc::{ask_version, parse_version, said},
    provision,
    wheels::DISASSEMBLER,
};
use std::path::{Path, PathBuf};

/// The two programs, and which release they are.
#[derive(Clone, Debug)]
pub struct Disassembler {
    /// Takes cubins out of objects.
    pub cuobjdump: PathBuf,
    /// Disassembles a cubin.
    pub nvdisasm: PathBuf,
    /// `13.5.37`.
    pub version: String,
}

/// Finds the disassembler: the one beside `nvcc`, which knows whatever that compiler makes, else kgen's own; where
/// there is none, installs kgen's own unless `offline`. `say` is told what takes long and where it goes.
///
/// # Errors
/// [`ToolchainError`], saying what is missing and what to run.
pub fn find_disassembler(nvcc: &Nvcc, offline: bool, cancel: &Cancel, say: &dyn Say) -> Result<Disassembler, ToolchainError> {
    // Through links: `/usr/bin/nvcc` may be one.
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
