//! Tools of this machine, and remedies for missing ones.

use super::{CommandError, Context, Observer, config::Config};
use crate::{
    device::GpuInfo,
    text::size,
    toolchain::{self, Cancel, DISASSEMBLER, Nvcc, NvccRequest, Pip, ToolchainError},
};
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Request to inspect this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The nvcc to inspect; `None` to search for one.
    pub nvcc: Option<PathBuf>,
}

/// Outcome of the inspection.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Outcome {
    /// One finding per tool.
    pub findings: Vec<Finding>,
}

/// State of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The tool is present.
    Found,
    /// The tool is absent and not needed, or kgen will install it when needed.
    Absent,
    /// The tool is needed and kgen cannot install it.
    Missing,
}

/// A tool that was searched for.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Name of the tool.
    pub name: &'static str,
    /// State of the tool.
    pub state: State,
    /// Description of the finding, or the remedy.
    pub detail: String,
}

/// Searches for everything that kgen uses.
///
/// # Errors
/// [`CommandError::Environment`] if there is no folder for the cache.
pub fn run(request: &Request, context: &Context, _observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let pip = Pip::find(&Cancel::default());
    let nvcc_request = NvccRequest { flag: request.nvcc.clone(), offline: true, ..NvccRequest::default() };
    let found = toolchain::find_nvcc(&nvcc_request, &|_: &str| ());
    let disassembler = disassembler(found.as_ref().ok(), pip.is_ok())?;
    let nvcc = nvcc(found, pip.is_ok());
    let (host, settings) = (host_compiler(context), settings(context.config.as_ref()));
    Ok(Outcome { findings: vec![nvcc, disassembler, host, pip_finding(pip), gpu(), cache(context), settings] })
}

impl Outcome {
    /// Fails if something is missing that a build needs and kgen cannot install.
    ///
    /// # Errors
    /// [`CommandError::Environment`] with its names.
    pub fn verdict(&self) -> Result<(), CommandError> {
        let missing: Vec<&str> = self.findings.iter().filter(|f| f.state == State::Missing).map(|f| f.name).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        Err(CommandError::Environment(format!("needed for `kgen build` and not here: {missing}; see above")))
    }
}

fn nvcc(found: Result<Nvcc, ToolchainError>, can_install: bool) -> Finding {
    let (state, detail) = match found {
        Ok(Nvcc { path, version, origin, .. }) => (State::Found, format!("{version} at `{}` ({origin})", path.display())),
        Err(ToolchainError::Offline { destination }) if can_install => (
            State::Absent,
            format!(
                "`kgen build` will install CUDA's compiler into `{}`, or run `kgen toolchain install` now",
                destination.display()
            ),
        ),
        Err(ToolchainError::Offline { .. }) => {
            (State::Missing, "no nvcc, and no pip to install one with: see `pip` below, or install CUDA 13.0 or newer".into())
        }
        Err(other) => (State::Missing, other.to_string()),
    };
    Finding { name: "nvcc", state, detail }
}

/// The disassembler. Builds work without it, so its absence is never an error.
fn disassembler(nvcc: Option<&Nvcc>, can_install: bool) -> Result<Finding, CommandError> {
    let found = match nvcc {
        Some(nvcc) => toolchain::find_disassembler(nvcc, true, &Cancel::default(), &|_: &str| ()).map(Some),
        // It should be next to an nvcc, which is missing too; kgen's own may still exist.
        None => Ok(None),
    };
    let own = || toolchain::provisioned(&DISASSEMBLER);
    let (state, detail) = match found {
        Ok(Some(found)) => (State::Found, format!("{} at `{}`", found.version, found.nvdisasm.display())),
        Ok(None) | Err(ToolchainError::NoDisassembler { .. }) => match own()? {
            Some(own) => (State::Found, format!("`{}`", own.program(DISASSEMBLER.program).display())),
            None if can_install => {
                (State::Absent, "`kgen build` will install it; it reads the machine code of each kernel".into())
            }
            None => (State::Absent, "machine code is not inspected without it, and there is no pip to install it with".into()),
        },
        Err(other) => (State::Absent, other.to_string()),
    };
    Ok(Finding { name: "disassembler", state, detail })
}

fn host_compiler(context: &Context) -> Finding {
    let (state, detail) = match context.host_compiler() {
        Ok(host) => (State::Found, format!("{} at `{}`", host.version, host.path.display())),
        Err(error) => (State::Missing, error.to_string()),
    };
    Finding { name: "C++ compiler", state, detail }
}

/// pip is needed only to install nvcc; the finding on nvcc decides whether a missing pip matters.
fn pip_finding(pip: Result<Pip, ToolchainError>) -> Finding {
    let (state, detail) = match pip {
        Ok(pip) => (State::Found, format!("`{pip}`")),
        Err(error) => (State::Absent, error.to_string()),
    };
    Finding { name: "pip", state, detail }
}

fn gpu() -> Finding {
    let (state, detail) = match GpuInfo::probe() {
        Ok(gpu) => (State::Found, gpu.to_string()),
        Err(error) => (State::Absent, format!("{error}; kernels are checked on the emulator")),
    };
    Finding { name: "GPU", state, detail }
}

fn cache(context: &Context) -> Finding {
    let (state, detail) = match context.cache_dir() {
        Ok(folder) => match writable(&folder) {
            Ok(()) => {
                let size = size(toolchain::folder_size(&folder));
                (State::Found, format!("`{}`, {size}; all of it can be removed and made again", folder.display()))
            }
            Err(error) => (
                State::Missing,
                format!(
                    "`{}` cannot be written ({error}); see to its space and permissions, or set `XDG_CACHE_HOME` to another",
                    folder.display()
                ),
            ),
        },
        Err(error) => (State::Missing, error.to_string()),
    };
    Finding { name: "cache", state, detail }
}

/// The file with the defaults of flags, and its content.
fn settings(config: Option<&Config>) -> Finding {
    let (state, detail) = match config {
        Some(config) => (State::Found, format!("`{}`: {}", config.path.display(), config.summary)),
        None => (State::Absent, "no defaults of flags, here or in a folder above".into()),
    };
    Finding { name: "kgen.toml", state, detail }
}

/// Checks that files can be created in `folder` or, if it does not exist yet, above it. Leaves nothing behind.
fn writable(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    tempfile::tempfile_in(there).map(drop)
}
