//! Libraries for the emulator: the chosen kernels and their dispatcher, compiled for this machine.

use super::{CommandError, Context, Event, Observer, StepResult, Work, session::Session};
use crate::{device::EmulatorKit, jobs, kernel::Variant};
use rayon::ThreadPoolBuilder;
use std::path::PathBuf;

/// Compiles `variants` and their dispatcher, `jobs` at a time, and links them; earlier results come from the cache,
/// which also holds the library. While the returned kit lives, `kgen cache prune` does not remove it.
///
/// # Errors
/// [`CommandError::Usage`] if a variant has no plan, [`CommandError::Environment`] if the compiler or the cache fails.
pub(super) fn library(
    session: &Session,
    variants: &[Variant],
    jobs: usize,
    context: &Context,
    observer: &dyn Observer,
) -> Result<(PathBuf, EmulatorKit), CommandError> {
    let plans = session.plan_all(variants, None)?;
    let dispatcher = session.renderer.dispatcher(&plans)?;
    let kernel = |plan| session.renderer.kernel(plan).map(|source| (source.name, source.text));
    let kernels: Vec<(String, String)> = plans.iter().map(kernel).collect::<Result<_, _>>()?;
    let host = context.host_compiler()?;
    let (include, emulator) = (session.templates.include_files(), session.templates.emulator_files());
    let kit = EmulatorKit::new(&context.cache_dir()?, include, emulator, &host, &context.cancel)?;
    let steps = kernels.len() + 1;
    observer.event(Event::Begun { work: Work::CompilingForEmulator, steps, known: 0 });
    let compiled = |name: &str| observer.event(Event::Finished { step: name, result: StepResult::Done });
    let pool = ThreadPoolBuilder::new()
        .num_threads(jobs::useful(jobs, steps))
        .build()
        .map_err(|e| CommandError::Environment(e.to_string()))?;
    let library = pool.install(|| kit.whole_library(&kernels, &dispatcher, &compiled));
    observer.event(Event::Ended);
    Ok((library?, kit))
}
