//! Libraries for the emulator: the chosen kernels and their dispatcher, compiled for this machine.

use super::{CliError, Format, ui::Progress, workshop::Workshop};
use crate::{
    device::{EmulatorKit, KitError},
    jobs,
    kernel::Variant,
    toolchain::{Cancel, cache_dir, host_compiler},
};
use rayon::ThreadPoolBuilder;
use std::path::PathBuf;

/// Compiles `variants` and their dispatcher, `jobs` at a time, and links them; what was compiled before is taken from
/// the cache, where the library lies too. As long as the kit lives that comes with it, no `kgen cache prune` removes
/// it.
///
/// # Errors
/// [`CliError::Usage`] where a variant has no plan, [`CliError::Environment`] where the compiler or the cache fails.
pub(super) fn library(
    workshop: &Workshop,
    variants: &[Variant],
    jobs: usize,
    format: Format,
    cancel: &Cancel,
) -> Result<(PathBuf, EmulatorKit), CliError> {
    let plans = workshop.plan_all(variants, None)?;
    let dispatcher = workshop.renderer.dispatcher(&plans)?;
    let kernel = |plan| workshop.renderer.kernel(plan).map(|source| (source.name, source.text));
    let kernels: Vec<(String, String)> = plans.iter().map(kernel).collect::<Result<_, _>>()?;
    let host = host_compiler(cancel)?;
    let made = |error| match error {
        KitError::Interrupted => CliError::INTERRUPTED,
        other => CliError::Environment(other.to_string()),
    };
    let (include, emulator) = (workshop.templates.include_files(), workshop.templates.emulator_files());
    let kit = EmulatorKit::new(&cache_dir()?, include, emulator, &host, cancel).map_err(made)?;
    let progress = Progress::new(format, "compiling for the emulator");
    progress.expect(kernels.len() + 1, 0);
    let compiled = |name: &str| progress.finish(name, None, false);
    let pool = ThreadPoolBuilder::new()
        .num_threads(jobs::useful(jobs, kernels.len() + 1))
        .build()
        .map_err(|e| CliError::Environment(e.to_string()))?;
    let library = pool.install(|| kit.whole_library(&kernels, &dispatcher, &compiled)).map_err(made)?;
    Ok((library, kit))
}
