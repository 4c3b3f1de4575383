//! `kgen wheel`.

use super::{
    Format, Global,
    build::{
        BuildArgs,
        table::{self, Extra},
    },
    select::SelectionArgs,
    show, ui,
};
use crate::{
    command::{
        self, CommandError,
        wheel::{Device, Outcome, Packed, Request},
    },
    text::{count, size},
};
use clap::ValueEnum;
use std::path::PathBuf;

const EXAMPLES: &str = concat!(
    "\
Examples:
  kgen wheel                     the whole grid, into ./dist
  kgen wheel --dtype bf16 --target hopper --kind fwd,bwd
                                 a slice of it
  kgen wheel --head-dim 72 --dtype bf16 --causal --target native
                                 one head dim, for the GPU of this machine
  kgen wheel --set standard-74 --output wheels

`pip install dist/kgen_attn-*.whl` installs the package, and `python -m
kgen_attn` prints what it holds. Nothing is compiled against PyTorch. The
package holds the selected kernels and no others, and its version ends in a hash
of its contents, so that pip installs one selection over another. It is
described at
",
    page!("python.md")
);

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    build: BuildArgs,

    /// Folder to write the wheel into.
    #[arg(long, short, value_name = "DIR", default_value = "dist")]
    output: PathBuf,

    /// Device that the library runs on. With `emulator` it takes CPU tensors, for tests of programs that call it.
    #[arg(long = "device", value_name = "DEVICE", value_enum, default_value_t = DeviceWord::Gpu, hide = true)]
    runs_on: DeviceWord,
}

/// Device that a library runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeviceWord {
    Gpu,
    Emulator,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::wheel::run`], and [`CommandError::Failed`] after a table if the library did not build.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, build, output, runs_on } = args;
    let device = if runs_on == DeviceWord::Gpu { Device::Gpu } else { Device::Emulator };
    let request = Request { build: build.request(selection), output, device };
    let outcome = command::wheel::run(&request, &global.interruptible(), &global.console())?;
    match &outcome {
        Outcome::Packed(packed) => show(global, packed, || describe(packed))?,
        Outcome::NotBuilt(build) if global.format == Format::Human => {
            ui::print(&table::describe(build, &Extra::default()))?;
        }
        // The error that follows is the document.
        Outcome::NotBuilt(_) => {}
    }
    outcome.verdict()
}

fn describe(packed: &Packed) -> String {
    let (kernels, bytes, whole) =
        (count(packed.kernels.len(), "kernel"), size(packed.bytes as u64), size(packed.library_bytes as u64));
    format!("{}: {kernels}, {bytes}, installed {whole}\n", packed.wheel.display())
}
