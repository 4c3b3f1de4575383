//! Rendering, compilation and linking of kernels. `build-all` does the same before its checks.

pub(super) mod made;

use super::{CommandError, Context, Observer, SelectionRequest, TargetWord, limits, observer::Relay};
use crate::{
    build::{Artifact, BuildOptions, BuildReport},
    jobs,
    kernel::Target,
    text::count,
    toolchain::{HostCompiler, Nvcc, NvccRequest, find_nvcc},
};
use made::DISPATCHER;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

/// Request of a build. The default is the whole grid into `generated` and `build`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants.
    pub selection: SelectionRequest,
    /// Add the helper kernels that selected split-KV kernels need.
    pub helpers: bool,
    /// Link only the selected kernels, and drop those of earlier builds.
    pub only: bool,
    /// Parallel compilers; `None` for one per core. At most one per core without a `launcher`.
    pub jobs: Option<NonZeroUsize>,
    /// The nvcc to use; `None` for the one in the environment, else kgen's own, which is installed when needed.
    pub nvcc: Option<PathBuf>,
    /// Never use the network.
    pub offline: bool,
    /// Compiler launcher in front of nvcc, such as `ccache`.
    pub launcher: Option<String>,
    /// Embed PTX, which GPUs newer than the target need.
    pub ptx: bool,
    /// Build kernels whose machine code uses local memory.
    pub allow_spills: bool,
    /// Memory limit of all compilers together, in bytes; `None` for the available memory.
    pub memory_bytes: Option<u64>,
    /// Target to compile for instead of the kernels' own. Output goes to `run-as-TARGET` in the build folder, and
    /// `generated` is not used.
    pub run_as: Option<TargetWord>,
    /// Folder for rendered kernels.
    pub generated: PathBuf,
    /// Folder for objects, logs and the library.
    pub build_dir: PathBuf,
    /// Time limit per compiler, in seconds.
    pub time_limit_s: u64,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            selection: SelectionRequest::default(),
            helpers: true,
            only: false,
            jobs: None,
            nvcc: None,
            offline: false,
            launcher: None,
            ptx: true,
            allow_spills: false,
            memory_bytes: None,
            run_as: None,
            generated: "generated".into(),
            build_dir: "build".into(),
            time_limit_s: 600,
        }
    }
}

/// Outcome of a build. Its JSON is the report.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Outcome {
    /// Artifacts and failures; variants without a plan are among the failures.
    pub report: BuildReport,
    /// The reason why nothing was linked although everything compiled.
    #[serde(skip)]
    pub link_error: Option<String>,
    /// The output folder.
    #[serde(skip)]
    pub out_dir: PathBuf,
    /// Maximum number of parallel compilers.
    #[serde(skip)]
    pub jobs: usize,
    /// Shared memory of each kernel's launch, in bytes, by kernel name.
    #[serde(skip)]
    pub launch_shared_bytes: BTreeMap<String, u32>,
}

/// Renders the selection into the generated folder, compiles it, links it and writes `report.json` and
/// `compile_commands.json`. Failed variants are in the report; the others are built.
///
/// # Errors
/// [`CommandError`] if the whole build stops: bad input, no compiler, an unwritable folder, an interruption.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    made::make(request, context, observer).map(|made| made.outcome)
}

impl Outcome {
    /// The artifacts that are kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &Artifact> {
        self.report.artifacts.iter().filter(|artifact| artifact.target.is_some())
    }

    /// Number of variants to build.
    pub fn variants(&self) -> usize {
        self.kernels().count() + self.failed_variants()
    }

    /// Number of variants that did not build.
    pub fn failed_variants(&self) -> usize {
        self.report.failures.iter().filter(|failure| failure.name != DISPATCHER).count()
    }

    /// Fails if something did not compile or nothing was linked.
    ///
    /// # Errors
    /// [`CommandError::Failed`] with a summary.
    pub fn verdict(&self) -> Result<(), CommandError> {
        if let Some(error) = &self.link_error {
            return Err(CommandError::Failed(error.clone()));
        }
        if self.report.failures.is_empty() {
            return Ok(());
        }
        let of = count(self.variants(), "variant");
        // The dispatcher is not a variant.
        let dispatcher_failed = self.report.failures.iter().any(|failure| failure.name == DISPATCHER);
        let what = match (self.failed_variants(), dispatcher_failed) {
            (0, _) => "the dispatcher".to_owned(),
            (failed, false) => format!("{failed} of {of}"),
            (failed, true) => format!("{failed} of {of} and the dispatcher"),
        };
        Err(CommandError::Failed(format!("{what} did not build, so `libkgen.so` was not linked")))
    }
}

/// The output folder of a build; a separate one if it compiles for another target.
pub(super) fn output_folder(build_dir: &Path, run_as: Option<Target>) -> PathBuf {
    run_as.map_or_else(|| build_dir.to_owned(), |target| build_dir.join(format!("run-as-{target}")))
}

/// The library for a GPU: `named`, or the library of a build into `build`.
pub(super) fn library(named: Option<&Path>, run_as: Option<Target>) -> PathBuf {
    named.map_or_else(|| output_folder(Path::new("build"), run_as).join("lib").join("libkgen.so"), Path::to_owned)
}

/// The message for a missing `library`, with the command that builds it.
pub(super) fn missing_library(library: &Path, run_as: Option<Target>) -> String {
    let flag = run_as.map_or_else(String::new, |target| format!(" --run-as {target}"));
    format!("there is no `{}` to run on the GPU; `kgen build{flag}` makes it", library.display())
}

/// The target that kernels run as instead of their own.
///
/// # Errors
/// The errors of [`TargetWord::target`].
pub(super) fn run_as(word: Option<&TargetWord>) -> Result<Option<Target>, CommandError> {
    word.map(TargetWord::target).transpose()
}

/// The compilers that a build uses.
pub(super) struct Tools {
    /// CUDA's compiler.
    pub nvcc: Nvcc,
    /// The host compiler that nvcc calls.
    pub host: HostCompiler,
}

impl Request {
    /// Finds both compilers; installs nvcc if it is missing and installation is allowed.
    pub(super) fn tools(&self, context: &Context, observer: &dyn Observer) -> Result<Tools, CommandError> {
        let host = context.host_compiler()?;
        let cancel = &context.cancel;
        let request = NvccRequest { flag: self.nvcc.clone(), offline: self.offline, cancel: cancel.clone() };
        Ok(Tools { nvcc: find_nvcc(&request, &Relay { observer, cancel })?, host })
    }

    /// Number of parallel tasks on this machine.
    pub(super) fn busy_jobs(&self) -> usize {
        jobs::busy(self.jobs)
    }

    /// Number of compilers at once. A launcher may send them to other machines, so with one the number is not reduced.
    fn compilers(&self) -> usize {
        let requested = self.jobs.filter(|_| self.launcher.is_some());
        requested.map_or_else(|| self.busy_jobs(), NonZeroUsize::get)
    }

    /// A sentence if fewer compilers run at once than requested.
    fn note_on_jobs(&self) -> Option<String> {
        let (requested, most) = (self.jobs?.get(), self.compilers());
        let (compilers, cores) = (count(most, "compiler"), count(most, "core"));
        (requested > most).then(|| format!("{compilers} at once, not {requested}: on {cores} more would only make each slower"))
    }

    /// The options of the module `build`.
    pub(super) fn options(&self, context: &Context) -> Result<BuildOptions, CommandError> {
        limits::within("time_limit_s", self.time_limit_s, &limits::SECONDS)?;
        let run_as = run_as(self.run_as.as_ref())?;
        let out_dir = output_folder(&self.build_dir, run_as);
        Ok(BuildOptions {
            jobs: self.compilers(),
            memory_limit: self.memory_bytes,
            launcher: self.launcher.clone(),
            generated_dir: if run_as.is_some() { out_dir.join("generated") } else { self.generated.clone() },
            out_dir,
            cache_dir: context.cache_dir()?,
            time_limit: Duration::from_secs(self.time_limit_s),
            offline: self.offline,
            // Tiles are chosen for a kernel's own target and need not fit another one.
            allow_spills: self.allow_spills || run_as.is_some(),
        })
    }
}
