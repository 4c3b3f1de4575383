//! A Python package around a library: `build`, and a wheel with the result.

use super::{
    CommandError, Context, Observer,
    build::{
        self,
        made::{self, Made},
    },
    emulated, helpers,
    selection::resolve_with_notes,
    session::Session,
};
use crate::{
    files::{path::lossy, write_atomic},
    text::count,
    wheel::{self, RunsOn},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// Subfolder of the build folder for this library, so that the library of other builds keeps its kernels.
const FOLDER: &str = "wheel";

/// Request of a package. The default is the whole grid for GPUs, into `dist`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// Request of the build. The library contains only the selected kernels and is in a separate folder in the build
    /// folder.
    pub build: build::Request,
    /// Folder for the wheel.
    pub output: PathBuf,
    /// Device that the library runs on.
    pub device: Device,
}

impl Default for Request {
    fn default() -> Self {
        Self { build: build::Request::default(), output: "dist".into(), device: Device::Gpu }
    }
}

/// Devices that a library can run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// GPUs.
    Gpu,
    /// The emulator: it takes CPU tensors, for tests of programs that call it.
    Emulator,
}

/// Outcome of a request.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The package.
    Packed(Packed),
    /// The failed build of a library; nothing was packed.
    NotBuilt(Box<build::Outcome>),
}

/// A package.
#[derive(Debug, Serialize)]
pub struct Packed {
    /// The file.
    #[serde(serialize_with = "lossy")]
    pub wheel: PathBuf,
    /// Version of the package, which ends in a hash of its contents.
    pub version: String,
    /// Platform tag of the package.
    pub platform: String,
    /// Size of the file.
    pub bytes: usize,
    /// The library that was packed.
    #[serde(serialize_with = "lossy")]
    pub library: PathBuf,
    /// Size of the library.
    pub library_bytes: usize,
    /// Names of its kernels.
    pub kernels: Vec<String>,
}

/// Builds the library and packs it.
///
/// # Errors
/// The errors of [`build::run`], [`CommandError::Failed`] if the resulting library cannot be packed, and
/// [`CommandError::Usage`] if the wheel cannot be written.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let Request { build, output, device } = request;
    let build = &build::Request { build_dir: build.build_dir.join(FOLDER), only: true, ..build.clone() };
    let (library, runs_on) = match device {
        Device::Emulator => (for_the_emulator(build, context, observer)?, RunsOn::Emulator),
        Device::Gpu => {
            let made = made::make(build, context, observer)?;
            if made.outcome.verdict().is_err() {
                return Ok(Outcome::NotBuilt(Box::new(made.outcome)));
            }
            (for_gpus(&made)?, RunsOn::Gpu)
        }
    };
    let Library { path: library, content, kernels } = library;
    let wheel = wheel::wheel(&content, runs_on)
        .map_err(|error| CommandError::Failed(format!("`{}` was built, but {error}", library.display())))?;
    let path = output.join(&wheel.file_name);
    write(&path, &wheel.bytes, "--output")?;
    let others = others_beside(&path);
    if others > 0 {
        let (folder, count) = (output.display(), count(others, "other kgen_attn wheel"));
        observer.note(&format!("`{folder}` also holds {count}; pip installs one of them, so name it in full"));
    }
    Ok(Outcome::Packed(Packed {
        wheel: path,
        version: wheel.version,
        platform: wheel.platform,
        bytes: wheel.bytes.len(),
        library,
        library_bytes: content.len(),
        kernels,
    }))
}

impl Outcome {
    /// Fails if there is no package.
    ///
    /// # Errors
    /// The errors of [`build::Outcome::verdict`].
    pub fn verdict(&self) -> Result<(), CommandError> {
        match self {
            Self::Packed(_) => Ok(()),
            Self::NotBuilt(build) => build.verdict(),
        }
    }
}

/// A library to pack. Another kgen may replace the file at any time, so the content is that of this run.
struct Library {
    path: PathBuf,
    content: Vec<u8>,
    kernels: Vec<String>,
}

/// The library for GPUs, read under the lock that excludes other builds.
fn for_gpus(made: &Made) -> Result<Library, CommandError> {
    let built = &made.outcome;
    let library = built.report.library.as_ref().map(|library| built.out_dir.join(&library.path));
    let path = library.ok_or_else(|| CommandError::Failed("no library was linked".to_owned()))?;
    let content = fs::read(&path).map_err(|error| CommandError::Usage(format!("cannot read `{}`: {error}", path.display())))?;
    Ok(Library { path, content, kernels: built.kernels().map(|artifact| artifact.name.clone()).collect() })
}

/// The library for the emulator, copied to the path of the one for GPUs.
fn for_the_emulator(build: &build::Request, context: &Context, observer: &dyn Observer) -> Result<Library, CommandError> {
    if build.run_as.is_some() {
        return Err(CommandError::Usage("`run_as` is for GPUs: the emulator runs each kernel as its own target".to_owned()));
    }
    let options = build.options(context)?; // before anything is compiled
    let session = Session::open(context)?;
    let variants = resolve_with_notes(&build.selection, context, &session.grid, observer)?;
    let variants = if build.helpers { helpers::complete(&session.grid, variants, observer) } else { variants };
    let (cached, _kit) = emulated::library(&session, &variants, build.busy_jobs(), context, observer)?;
    let path = options.out_dir.join("lib").join("libkgen.so");
    let unreadable = |error| CommandError::Environment(format!("cannot read `{}`: {error}", cached.display()));
    let library = fs::read(&cached).map_err(unreadable)?;
    write(&path, &library, "--build-dir")?;
    Ok(Library { path, content: library, kernels: variants.iter().map(ToString::to_string).collect() })
}

/// Number of other wheels of the package in the folder of `path`: those of other selections.
fn others_beside(path: &Path) -> usize {
    let is_one = |name: &OsStr| {
        let name = name.to_string_lossy();
        name.starts_with(wheel::NAME) && Path::new(&*name).extension().is_some_and(|extension| extension == "whl")
    };
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    let names = entries.into_iter().flatten().filter_map(Result::ok).map(|entry| entry.file_name());
    names.filter(|name| Some(&**name) != path.file_name() && is_one(name)).count()
}

/// Writes a file and creates its folder, which `flag` names.
fn write(path: &Path, content: &[u8], flag: &str) -> Result<(), CommandError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).and_then(|()| write_atomic(path, content)).map(drop).map_err(|error| {
        CommandError::Usage(format!("cannot write `{}`: {error}; choose another place with `{flag}`", path.display()))
    })
}
