//! `kgen wheel`: what `kgen build` does, and a Python package around the library.

use super::{
    CliError, Format, Global,
    build::{
        BuildArgs, made,
        made::{Extra, Made},
        verdict,
    },
    emulated,
    select::SelectionArgs,
    ui::{self, Progress},
    workshop::Workshop,
};
use crate::{
    files::{path::lossy, write_atomic},
    toolchain::Cancel,
    wheel::{self, RunsOn, Wheel},
};
use clap::ValueEnum;
use serde::Serialize;
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

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

/// Folder of the library below the build folder.
const FOLDER: &str = "wheel";

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

    /// What the library runs on. With `emulator` it takes CPU tensors, for tests of programs that call it.
    #[arg(long = "device", value_name = "DEVICE", value_enum, default_value_t = Device::Gpu, hide = true)]
    runs_on: Device,
}

/// What a library runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Device {
    Gpu,
    Emulator,
}

/// What was made, for `--format json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(serialize_with = "lossy")]
    wheel: &'a Path,
    version: &'a str,
    platform: &'a str,
    bytes: usize,
    #[serde(serialize_with = "lossy")]
    library: &'a Path,
    library_bytes: usize,
    kernels: &'a [String],
}

/// Runs the command.
///
/// # Errors
/// As `kgen build`; [`CliError::VariantFailed`] where the library that came of it cannot be packed,
/// [`CliError::Usage`] where the wheel cannot be written.
pub fn run(global: &Global, args: Args) -> Result<(), CliError> {
    let Args { selection, build, output, runs_on } = args;
    let build = build.apart(FOLDER);
    let cancel = ui::cancel_on_ctrl_c();
    let Library { path: library, content, kernels } = match runs_on {
        Device::Gpu => for_gpus(global, &selection, &build, &cancel)?,
        Device::Emulator => for_the_emulator(global, &selection, &build, &cancel)?,
    };
    let runs_on = if runs_on == Device::Gpu { RunsOn::Gpu } else { RunsOn::Emulator };
    let wheel = wheel::wheel(&content, runs_on)
        .map_err(|error| CliError::VariantFailed(format!("`{}` was built, but {error}", library.display())))?;
    let path = output.join(&wheel.file_name);
    write(&path, &wheel.bytes, "--output")?;
    let others = others_beside(&path);
    if others > 0 {
        let (folder, count) = (output.display(), ui::count(others, "other kgen_attn wheel"));
        ui::note(&format!("`{folder}` also holds {count}; pip installs one of them, so name it in full"));
    }
    report(global, &path, &wheel, &library, content.len(), &kernels)
}

/// A library to pack. Another kgen may replace the file at any time, so its content is what this run has made.
struct Library {
    path: PathBuf,
    content: Vec<u8>,
    kernels: Vec<String>,
}

/// The library for GPUs, read while no other build may change it.
fn for_gpus(global: &Global, selection: &SelectionArgs, build: &BuildArgs, cancel: &Cancel) -> Result<Library, CliError> {
    let progress = Progress::new(global.format, "compiling");
    let made: Made = made::make(global, selection, build, cancel, &progress)?;
    progress.clear();
    if let Err(error) = verdict(&made) {
        if global.format == Format::Human {
            ui::print(&made.describe(&Extra::default()))?;
        }
        return Err(error);
    }
    let library = made.report.library.as_ref().map(|library| made.out_dir.join(&library.path));
    let path = library.ok_or_else(|| CliError::VariantFailed("no library was linked".to_owned()))?;
    let content = fs::read(&path).map_err(|error| CliError::Usage(format!("cannot read `{}`: {error}", path.display())))?;
    Ok(Library { path, content, kernels: made.artifacts().map(|artifact| artifact.name.clone()).collect() })
}

/// The library for the emulator, copied to where one for GPUs would be.
fn for_the_emulator(global: &Global, selection: &SelectionArgs, build: &BuildArgs, cancel: &Cancel) -> Result<Library, CliError> {
    let workshop = Workshop::new(global)?;
    let variants = selection.resolve(&workshop.grid)?;
    selection.tell_notes(&workshop.grid, &variants);
    let variants = build.helpers.complete(&workshop.grid, variants);
    let (kept, _kit) = emulated::library(&workshop, &variants, build.jobs(), global.format, cancel)?;
    let path = build.options()?.out_dir.join("lib").join("libkgen.so");
    let content = fs::read(&kept).map_err(|error| CliError::Environment(format!("cannot read `{}`: {error}", kept.display())))?;
    write(&path, &content, "--build-dir")?;
    Ok(Library { path, content, kernels: variants.iter().map(ToString::to_string).collect() })
}

/// How many wheels of the package lie beside the one at `path`: those of other selections.
fn others_beside(path: &Path) -> usize {
    let is_one = |name: &OsStr| {
        let name = name.to_string_lossy();
        name.starts_with(wheel::NAME) && Path::new(&*name).extension().is_some_and(|extension| extension == "whl")
    };
    let entries = path.parent().and_then(|folder| fs::read_dir(folder).ok());
    let names = entries.into_iter().flatten().filter_map(Result::ok).map(|entry| entry.file_name());
    names.filter(|name| Some(&**name) != path.file_name() && is_one(name)).count()
}

/// Writes a file and the folder it is in, which `flag` names.
fn write(path: &Path, content: &[u8], flag: &str) -> Result<(), CliError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).and_then(|()| write_atomic(path, content)).map(drop).map_err(|error| {
        CliError::Usage(format!("cannot write `{}`: {error}; choose another place with `{flag}`", path.display()))
    })
}

fn report(
    global: &Global,
    path: &Path,
    wheel: &Wheel,
    library: &Path,
    library_bytes: usize,
    kernels: &[String],
) -> Result<(), CliError> {
    if global.format == Format::Json {
        let (version, platform, bytes) = (&wheel.version, &wheel.platform, wheel.bytes.len());
        return ui::print_json(&Report { wheel: path, version, platform, bytes, library, library_bytes, kernels });
    }
    let (count, packed, whole) =
        (ui::count(kernels.len(), "kernel"), ui::size(wheel.bytes.len() as u64), ui::size(library_bytes as u64));
    ui::print(&format!("{}: {count}, {packed}, installed {whole}\n", path.display()))
}
