//! `kgen emit`.

use super::{
    Global,
    select::{HelperArgs, SelectionArgs},
    show,
};
use crate::{
    build::EmitForm,
    command::{
        self, CommandError,
        emit::{Outcome, Request},
    },
    text::count,
};
use clap::ValueEnum;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kgen emit ninja --head-dim 128 --dtype bf16 --target sm90
                                 emitted/build.ninja, beside the sources
  kgen emit make --launcher sccache flash_fwd_hdim64_bf16_sm80
                                 with a launcher that spreads the work
  kgen emit compile-commands --target sm80 --output lines
                                 lines/compile_commands.json

The command lines are those of `kgen build --launcher`, with the same compilers
and flags. What `kgen build` finds out about the results it does not check:
spills, promised instructions and complete objects.";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Form of the file.
    #[arg(value_enum)]
    form: Form,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    helpers: HelperArgs,

    /// The nvcc to name [default: the one of `KGEN_NVCC`, `CUDA_HOME` or `PATH`, else kgen's own, installed when
    /// needed].
    #[arg(long, value_name = "PATH")]
    nvcc: Option<PathBuf>,

    /// Never use the network: fail if nvcc would have to be installed.
    #[arg(long)]
    offline: bool,

    /// A compiler launcher in front of nvcc, such as ccache or sccache. It need not be installed on this machine.
    #[arg(long, value_name = "PROGRAM")]
    launcher: Option<String>,

    /// Embed no PTX: smaller objects, but GPUs newer than the target cannot run them.
    #[arg(long)]
    no_ptx: bool,

    /// Folder for the file, the sources and what is built of them; it becomes exactly the selection.
    #[arg(long, short, value_name = "DIR", default_value = "emitted")]
    output: PathBuf,
}

/// Form of the file.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    /// build.ninja.
    Ninja,
    /// Makefile.
    Make,
    /// `compile_commands.json`, which has no link.
    CompileCommands,
}

impl From<Form> for EmitForm {
    fn from(form: Form) -> Self {
        match form {
            Form::Ninja => Self::Ninja,
            Form::Make => Self::Make,
            Form::CompileCommands => Self::CompileCommands,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Those of [`command::emit::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { form, selection, helpers, nvcc, offline, launcher, no_ptx, output } = args;
    let (form, selection, helpers) = (form.into(), selection.into(), helpers.wanted());
    let request = Request { form, selection, helpers, nvcc, offline, launcher, ptx: !no_ptx, output };
    let outcome = command::emit::run(&request, &global.interruptible(), &global.console())?;
    show(global, &outcome, || describe(&outcome))
}

fn describe(Outcome { file, kernels, summary }: &Outcome) -> String {
    let (file, kernels, written) = (file.display(), count(kernels.len(), "kernel"), count(summary.written.len(), "file"));
    format!("{file}: {kernels}; {written} written, {} unchanged\n", summary.unchanged.len())
}
