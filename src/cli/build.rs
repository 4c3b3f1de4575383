//! `kgen build`, and the flags that `kgen build-all` and `kgen wheel` share with it.

pub(super) mod table;
mod totals;

use super::{
    Global,
    select::{HelperArgs, SelectionArgs, TargetParser},
    show,
    values::{ByteSize, at_least_one, whole},
};
use crate::command::{self, CommandError, TargetWord, build::Request, limits};
use std::{num::NonZeroUsize, path::PathBuf};
use table::Extra;

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

/// Build flags, shared with `build-all`.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own on the command line")]
#[command(next_help_heading = "Build")]
pub(super) struct BuildArgs {
    #[command(flatten)]
    helpers: HelperArgs,

    /// Link only the selected kernels; drop others that an earlier build put into the library.
    #[arg(long)]
    only: bool,

    /// Number of parallel compilers [default: one per core]. At most one per core, unless there is a `--launcher`.
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
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

    /// Memory limit for all compilers together, for example 8G [default: the available memory].
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,

    /// Compile with portable instructions for the GPUs of this target, to test kernels of other targets there. Output
    /// goes to run-as-TARGET in the build folder.
    #[arg(long, value_name = "TARGET", conflicts_with = "generated", ignore_case = true, hide_possible_values = true)]
    #[arg(value_parser = TargetParser)]
    run_as: Option<TargetWord>,

    /// Folder for the rendered kernels.
    #[arg(long, value_name = "DIR", default_value = "generated")]
    generated: PathBuf,

    /// Folder for objects, logs and the library.
    #[arg(long, value_name = "DIR", default_value = "build")]
    build_dir: PathBuf,

    /// Time limit per compiler, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = whole::<u64>(limits::SECONDS))]
    time_limit: u64,
}

impl BuildArgs {
    /// The build request for `selection` with these flags.
    pub fn request(self, selection: SelectionArgs) -> Request {
        Request {
            selection: selection.into(),
            helpers: self.helpers.wanted(),
            only: self.only,
            jobs: self.jobs,
            nvcc: self.nvcc,
            offline: self.offline,
            launcher: self.launcher,
            ptx: !self.no_ptx,
            allow_spills: self.allow_spills,
            memory_bytes: self.memory.map(|memory| memory.0),
            run_as: self.run_as,
            generated: self.generated,
            build_dir: self.build_dir,
            time_limit_s: self.time_limit,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::build::run`], and [`CommandError::Failed`] after the report.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let request = args.build.request(args.selection);
    let outcome = command::build::run(&request, &global.interruptible(), &global.console())?;
    show(global, &outcome, || table::describe(&outcome, &Extra::default()))?;
    outcome.verdict()
}
