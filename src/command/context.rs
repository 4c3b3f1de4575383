//! The settings that the commands of one caller share.

use super::{CommandError, config::Config};
use crate::{
    grid::Grid,
    render::Templates,
    toolchain::{self, Cancel, HostCompiler},
};
use std::path::PathBuf;

/// Settings that the commands of one caller share. The default has the built-in grid and templates, and no `kgen.toml`.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// File of the grid; `None` for the built-in one.
    pub variants: Option<PathBuf>,
    /// Folder of templates; `None` for the built-in ones.
    pub templates: Option<PathBuf>,
    /// The caller's `kgen.toml`, if there is one. Commands read the default target from it; the caller fills in the
    /// defaults of requests.
    pub config: Option<Config>,
    /// Folder of the cache; `None` for the user's. The compiler that kgen installs is always in the user's.
    pub cache_dir: Option<PathBuf>,
    /// The kgen executable that workers are started from; `None` for this process's own.
    pub program: Option<PathBuf>,
    /// Stops a command that compiles, checks, times or downloads; others take seconds and finish first.
    pub cancel: Cancel,
}

impl Context {
    /// The grid.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if the file cannot be read or its content is wrong.
    pub(super) fn grid(&self) -> Result<Grid, CommandError> {
        match &self.variants {
            None => Ok(Grid::builtin()),
            Some(path) => Grid::load(path).map_err(|error| CommandError::Usage(error.to_string())),
        }
    }

    /// The templates.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if the folder cannot be read or its content is wrong.
    pub(super) fn templates(&self) -> Result<Templates, CommandError> {
        Ok(match &self.templates {
            None => Templates::embedded(),
            Some(folder) => Templates::from_dir(folder)?,
        })
    }

    /// The folder of the cache, which may not exist yet.
    ///
    /// # Errors
    /// [`CommandError::Environment`] if the user has none.
    pub(super) fn cache_dir(&self) -> Result<PathBuf, CommandError> {
        self.cache_dir.clone().map_or_else(|| Ok(toolchain::cache_dir()?), Ok)
    }

    /// The kgen executable.
    ///
    /// # Errors
    /// [`CommandError::Environment`] if it cannot be found.
    pub(super) fn program(&self) -> Result<PathBuf, CommandError> {
        let own = || std::env::current_exe();
        let program = self.program.clone().map_or_else(own, Ok);
        program.map_err(|error| CommandError::Environment(format!("cannot find kgen's own executable: {error}")))
    }

    /// The C++ compiler of this machine.
    ///
    /// # Errors
    /// [`CommandError::Environment`] if there is none, [`CommandError::Interrupted`].
    pub(super) fn host_compiler(&self) -> Result<HostCompiler, CommandError> {
        Ok(toolchain::host_compiler(&self.program()?, &self.cancel)?)
    }
}
