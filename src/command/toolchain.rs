//! The CUDA compiler and the disassembler that kgen installs for itself.

use super::{CommandError, Context, Observer, observer::Relay};
use crate::{
    files::path::{lossy, lossy_option},
    toolchain::{self, Bundle, COMPILER, DISASSEMBLER, Provisioned},
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Programs that kgen can install.
const BUNDLES: [&Bundle; 2] = [&COMPILER, &DISASSEMBLER];

/// Request to install, remove or show the compiler and the disassembler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Install both, unless they are installed (about 110 MB to download, 290 MB on disk).
    Install,
    /// Show the state of both.
    Show,
    /// Show the path of nvcc; fail if kgen has installed none.
    NvccPath,
    /// Remove both.
    Remove,
}

/// Outcome of a request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// State of both.
    Installed(Vec<Installed>),
    /// The path of nvcc.
    NvccPath {
        /// The program.
        #[serde(serialize_with = "lossy")]
        path: PathBuf,
    },
    /// Removal of both.
    Removed {
        /// Size of the removed files.
        freed_bytes: u64,
    },
}

/// A program that kgen can install.
#[derive(Debug, Serialize)]
pub struct Installed {
    /// Name of the program.
    pub name: &'static str,
    /// True if the program is installed.
    pub installed: bool,
    /// Folder of the installation.
    #[serde(serialize_with = "lossy_option")]
    pub folder: Option<PathBuf>,
    /// File of the program.
    #[serde(serialize_with = "lossy_option")]
    pub program: Option<PathBuf>,
    /// Size of its folder.
    pub size_bytes: Option<u64>,
}

/// Installs, shows or removes them.
///
/// # Errors
/// [`CommandError::Environment`] with the missing part of this machine.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let cancel = &context.cancel;
    match request {
        Request::Install => {
            for bundle in BUNDLES {
                toolchain::install(bundle, cancel, &Relay { observer, cancel })?;
            }
            installed()
        }
        Request::Show => installed(),
        Request::NvccPath => {
            let own = toolchain::provisioned(&COMPILER)?.ok_or_else(|| {
                CommandError::Environment("kgen has no nvcc of its own here; `kgen toolchain install` fetches one".to_owned())
            })?;
            Ok(Outcome::NvccPath { path: own.program(COMPILER.program) })
        }
        Request::Remove => {
            let freed_bytes = toolchain::remove(cancel, &|message: &str| observer.note(message))?;
            Ok(Outcome::Removed { freed_bytes })
        }
    }
}

fn installed() -> Result<Outcome, CommandError> {
    let one = |bundle: &Bundle| -> Result<Installed, CommandError> {
        let own = toolchain::provisioned(bundle)?;
        Ok(Installed {
            name: bundle.what,
            installed: own.is_some(),
            program: own.as_ref().map(|own| own.program(bundle.program)),
            size_bytes: own.as_ref().map(Provisioned::size_bytes),
            folder: own.map(|own| own.folder),
        })
    };
    BUNDLES.into_iter().map(one).collect::<Result<_, _>>().map(Outcome::Installed)
}
