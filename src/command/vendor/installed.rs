//! Replaces the modules of an installed vLLM by built ones, or restores them.

use super::{Mode, Outcome, Request, unwritable};
use crate::{
    command::{CommandError, Observer},
    render::{Changes, InstalledVllm, Prebuilt, Restoration},
};
use std::path::Path;

/// Replaces the modules of the vLLM at `path` by those in `prebuilt`, or restores the originals.
///
/// # Errors
/// The errors of [`run`](super::run).
pub(super) fn run(
    path: &Path,
    prebuilt: Option<&Path>,
    request: &Request,
    observer: &dyn Observer,
) -> Result<Outcome, CommandError> {
    let note = |message: &str| observer.note(message);
    let Request { selection, dispatcher, beside_others, mode, remove, .. } = request;
    if !selection.is_empty() || !dispatcher || *beside_others {
        let said = "`--prebuilt` takes the kernels of `libkgen_vllm.so`; leave out the selection and what goes with it";
        return Err(CommandError::Usage(said.to_owned()));
    }
    let mut vllm = InstalledVllm::open(path, &note)?;
    let built = match prebuilt {
        Some(folder) if !remove => Some(Prebuilt::read(folder)?),
        None if !remove && *mode != Mode::Check => {
            let said = "`--prebuilt` needs the folder with the built modules, which `scripts/torch_ops.sh` writes";
            return Err(CommandError::Usage(said.to_owned()));
        }
        _ => None,
    };
    if *mode == Mode::Write {
        vllm = vllm.lock(&note).map_err(unwritable)?;
    }
    let changes = match (mode, &built) {
        (Mode::Check, _) => vllm.compare(built.as_ref())?,
        (Mode::DryRun, Some(_)) => rehearsed(&vllm, vllm.compare(built.as_ref())?)?,
        (Mode::DryRun, None) => rehearsed(&vllm, vllm.compare_without()?)?,
        (Mode::Write, Some(built)) => vllm.bring(built).map_err(unwritable)?,
        (Mode::Write, None) => vllm.take_away().map_err(unwritable)?,
    };
    Ok(Outcome::new(vllm.folder().to_owned(), *mode, changes))
}

/// The changes, with the same refusals as when they are written.
fn rehearsed(vllm: &InstalledVllm, changes: Changes) -> Result<Changes, CommandError> {
    changes.refuse_edited(vllm.folder(), Restoration::Restore)?;
    Ok(changes)
}
