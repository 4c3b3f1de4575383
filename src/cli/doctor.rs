//! `kgen doctor`: what this machine has, and how to get what it lacks.

use super::{CliError, Format, Global, config, escape::plain, ui};
use crate::{
    device::GpuInfo,
    toolchain::{self, Cancel, DISASSEMBLER, Nvcc, NvccRequest, Pip, ToolchainError},
};
use console::style;
use serde::Serialize;
use std::{
    io,
    path::{Path, PathBuf},
};

const EXAMPLES: &str = "\
Examples:
  kgen doctor                  what is found, and how to get what is not
  kgen doctor --format json    the same for scripts";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Look at this nvcc instead of searching for one.
    #[arg(long, value_name = "PATH")]
    nvcc: Option<PathBuf>,
}

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// It is there.
    Found,
    /// It is not there and not needed, or kgen will get it when it is needed.
    Absent,
    /// It is needed and kgen cannot get it.
    Missing,
}

/// One thing looked for.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    name: &'static str,
    state: State,
    /// What was found, or what to do.
    detail: String,
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Environment`] when something `kgen build` needs is missing and cannot be installed by kgen.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let pip = Pip::find(&Cancel::default());
    let found = toolchain::find_nvcc(&NvccRequest { flag: args.nvcc, offline: true, ..NvccRequest::default() }, &|_: &str| ());
    let disassembler = disassembler(found.as_ref().ok(), pip.is_ok())?;
    let findings = [nvcc(found, pip.is_ok()), disassembler, host_compiler(), pip_finding(pip), gpu(), cache(), settings()];
    match global.format {
        Format::Human => ui::print(&findings.iter().map(line).collect::<String>())?,
        Format::Json => ui::print_json(&findings)?,
    }
    let missing: Vec<&str> = findings.iter().filter(|f| f.state == State::Missing).map(|f| f.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::Environment(format!("needed for `kgen build` and not here: {}; see above", missing.join(", "))))
}

fn line(finding: &Finding) -> String {
    let mark = match finding.state {
        State::Found => style("found  ").green(),
        State::Absent => style("absent ").yellow(),
        State::Missing => style("missing").red(),
    };
    format!("{mark}  {:<14} {}\n", finding.name, plain(&finding.detail))
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

/// What reads machine code. Builds work without it, so its lack is never an error.
fn disassembler(nvcc: Option<&Nvcc>, can_install: bool) -> Result<Finding, CliError> {
    let found = match nvcc {
        Some(nvcc) => toolchain::find_disassembler(nvcc, true, &Cancel::default(), &|_: &str| ()).map(Some),
        // Its place is beside an nvcc that is not there either; what can be there is kgen's own.
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

fn host_compiler() -> Finding {
    let (state, detail) = match toolchain::host_compiler(&Cancel::default()) {
        Ok(host) => (State::Found, format!("{} at `{}`", host.version, host.path.display())),
        Err(error) => (State::Missing, error.to_string()),
    };
    Finding { name: "C++ compiler", state, detail }
}

/// pip is needed only to install nvcc; whether its lack matters is said there.
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

fn cache() -> Finding {
    let (state, detail) = match toolchain::cache_dir() {
        Ok(folder) => match writable(&folder) {
            Ok(()) => {
                let size = toolchain::folder_size(&folder);
                (State::Found, format!("`{}`, {}; all of it can be removed and made again", folder.display(), ui::size(size)))
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

/// Where defaults of flags come from, and which they are.
fn settings() -> Finding {
    let (state, detail) = match config::settings() {
        Some(settings) => (State::Found, format!("`{}`: {}", settings.path.display(), settings.summary)),
        None => (State::Absent, "no defaults of flags, here or in a folder above".into()),
    };
    Finding { name: "kgen.toml", state, detail }
}

/// Whether files can be made in `folder`, or where it would be made. Leaves nothing behind.
fn writable(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    tempfile::tempfile_in(there).map(drop)
}
