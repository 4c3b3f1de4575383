//! `kgen build`: render, compile, link. What `kgen build-all` does too, before it checks.

pub(super) mod made;
mod totals;

use super::{
    CliError, Format, Global,
    helpers::HelperArgs,
    select::SelectionArgs,
    target::{TargetParser, TargetWord},
    ui::{self, ByteSize, Installing, Progress},
};
use crate::{
    build::{BuildError, BuildOptions},
    jobs,
    kernel::Target,
    toolchain::{Cancel, HostCompiler, Nvcc, NvccRequest, cache_dir, find_nvcc, host_compiler},
};
use made::{Extra, Made};
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  kgen build                     the whole grid
  kgen build --head-dim 128 --dtype bf16 --target ampere
                                 a slice of it
  kgen build flash_fwd_hdim128_bf16_causal_sm80
                                 one kernel
  kgen build --filter 'hdim >= 128 and dtype == bf16' -j 8
  kgen build --target native     for the GPU of this machine
  kgen build --target sm120 --run-as sm90
                                 sm120's kernels, as a Hopper GPU can run them
  kgen build --launcher ccache   with a compiler cache in front of nvcc
  kgen build --nvcc /usr/local/cuda/bin/nvcc --offline
                                 with this nvcc, and no network

The library keeps the kernels it holds: those selected are added, and all are
brought up to date. When the selection is the whole grid, or with `--only`, the
library becomes exactly that.";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    build: BuildArgs,
}

/// How to build; shared with `build-all`.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
#[command(next_help_heading = "Build")]
pub(super) struct BuildArgs {
    #[command(flatten)]
    pub helpers: HelperArgs,

    /// Link only the selected kernels; drop others that an earlier build put into the library.
    #[arg(long)]
    pub only: bool,

    /// Number of parallel compilers [default: one per core]. At most one per core, unless there is a `--launcher`.
    #[arg(short, long, value_name = "N", value_parser = ui::at_least_one)]
    jobs: Option<NonZeroUsize>,

    /// The nvcc to use [default: the one of `KGEN_NVCC`, `CUDA_HOME` or `PATH`, else kgen's own, installed when
    /// needed].
    #[arg(long, value_name = "PATH")]
    nvcc: Option<PathBuf>,

    /// Never use the network: fail if nvcc would have to be installed, and do without a disassembler.
    #[arg(long)]
    offline: bool,

    /// A compiler launcher in front of nvcc, such as ccache or sccache.
    #[arg(long, value_name = "PROGRAM")]
    launcher: Option<String>,

    /// Embed no PTX: smaller objects, but GPUs newer than the target cannot run them.
    #[arg(long)]
    no_ptx: bool,

    /// Build kernels whose machine code uses local memory, which is slow, instead of refusing them.
    #[arg(long)]
    allow_spills: bool,

    /// Memory limit for all compilers together, for example 8G [default: what is available].
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,

    /// Compile with portable instructions for the GPUs of this target, to try kernels of other targets there. Output
    /// goes to run-as-TARGET in the build folder.
    #[arg(long, value_name = "TARGET", conflicts_with = "generated", ignore_case = true, hide_possible_values = true)]
    #[arg(value_parser = TargetParser)]
    run_as: Option<TargetWord>,

    /// Where kernels are written.
    #[arg(long, value_name = "DIR", default_value = "generated")]
    generated: PathBuf,

    /// Where objects, logs and the library are written.
    #[arg(long, value_name = "DIR", default_value = "build")]
    build_dir: PathBuf,

    /// Time limit per compiler, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=ui::LONGEST_LIMIT))]
    time_limit: u64,
}

/// Where a build puts what it makes: a place of its own for what is to run as another target.
pub(super) fn output_folder(build_dir: &Path, run_as: Option<Target>) -> PathBuf {
    run_as.map_or_else(|| build_dir.to_owned(), |target| build_dir.join(format!("run-as-{target}")))
}

/// The compilers a build uses.
pub(super) struct Tools {
    /// CUDA's.
    pub nvcc: Nvcc,
    /// The one beneath it.
    pub host: HostCompiler,
}

impl BuildArgs {
    /// The same build, of the selected kernels alone and with an output folder of its own below the build folder: the
    /// library that others build there keeps its kernels.
    pub fn apart(mut self, folder: &str) -> Self {
        self.build_dir = self.build_dir.join(folder);
        self.only = true;
        self
    }

    /// Finds both compilers, installing nvcc where there is none and it is allowed.
    pub fn tools(&self, cancel: &Cancel) -> Result<Tools, CliError> {
        let host = host_compiler(cancel)?;
        let request = NvccRequest { flag: self.nvcc.clone(), offline: self.offline, cancel: cancel.clone() };
        Ok(Tools { nvcc: find_nvcc(&request, &Installing::default())?, host })
    }

    /// Whether objects carry PTX.
    pub fn ptx(&self) -> bool {
        !self.no_ptx
    }

    /// The target whose GPUs the kernels are to run on instead of their own.
    pub fn run_as(&self) -> Result<Option<Target>, CliError> {
        self.run_as.as_ref().map(TargetWord::target).transpose()
    }

    /// The number of things to do at once on this machine.
    pub fn jobs(&self) -> usize {
        jobs::busy(self.jobs)
    }

    /// The number of compilers at once. A launcher may send them to other machines, so it gets all that were asked for.
    fn compilers(&self) -> usize {
        let asked = self.jobs.filter(|_| self.launcher.is_some());
        asked.map_or_else(|| self.jobs(), NonZeroUsize::get)
    }

    /// A sentence if fewer compilers run at once than were asked for.
    pub fn note(&self) -> Option<String> {
        let (asked, most) = (self.jobs?.get(), self.compilers());
        let (compilers, cores) = (ui::count(most, "compiler"), ui::count(most, "core"));
        (asked > most).then(|| format!("{compilers} at once, not {asked}: on {cores} more would only make each slower"))
    }

    /// The options of the build room.
    pub fn options(&self) -> Result<BuildOptions, CliError> {
        let run_as = self.run_as()?;
        let out_dir = output_folder(&self.build_dir, run_as);
        Ok(BuildOptions {
            jobs: self.compilers(),
            memory_limit: self.memory.map(|m| m.0),
            launcher: self.launcher.clone(),
            generated_dir: if run_as.is_some() { out_dir.join("generated") } else { self.generated.clone() },
            out_dir,
            cache_dir: cache_dir()?,
            time_limit: Duration::from_secs(self.time_limit),
            offline: self.offline,
            // Tiles are chosen for a kernel's own target; what is tried on another need not be its best.
            allow_spills: self.allow_spills || run_as.is_some(),
        })
    }
}

impl From<BuildError> for CliError {
    fn from(error: BuildError) -> Self {
        let message = error.to_string();
        match error {
            BuildError::Cancelled => Self::INTERRUPTED,
            BuildError::Output { .. } | BuildError::Generated { .. } | BuildError::Manifest { .. } => Self::Usage(message),
            BuildError::Link { .. } => Self::VariantFailed(message),
            BuildError::Cache { .. }
            | BuildError::NoLauncher { .. }
            | BuildError::Obeyed { .. }
            | BuildError::Start { .. }
            | BuildError::Threads { .. } => Self::Environment(message),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError::VariantFailed`] when a variant did not compile, after the report; what [`made::make`] gives otherwise.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let Args { selection, build } = args;
    let cancel = ui::cancel_on_ctrl_c();
    let progress = Progress::new(global.format, "compiling");
    let made = made::make(global, &selection, &build, &cancel, &progress)?;
    progress.clear();
    match global.format {
        Format::Human => ui::print(&made.describe(&Extra::default()))?,
        Format::Json => ui::print_json(&made.report)?,
    }
    verdict(&made)
}

/// The error that stands for a build in which something failed.
pub(super) fn verdict(made: &Made) -> Result<(), CliError> {
    if let Some(error) = &made.link_error {
        return Err(CliError::VariantFailed(error.clone()));
    }
    if made.report.failures.is_empty() {
        return Ok(());
    }
    let of = ui::count(made.rows(), "variant");
    let what = match (made.failed_variants(), made.dispatcher_failed()) {
        (0, _) => "the dispatcher".to_owned(),
        (failed, false) => format!("{failed} of {of}"),
        (failed, true) => format!("{failed} of {of} and the dispatcher"),
    };
    Err(CliError::VariantFailed(format!("{what} did not build, so `libkgen.so` was not linked")))
}
