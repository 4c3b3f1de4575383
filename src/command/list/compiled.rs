//! Registers of kernels from the last build, if their sources are unchanged.

use crate::{
    build,
    command::{CommandError, Context, session::Session},
    plan::Plan,
    render::Fingerprints,
};
use std::{collections::BTreeMap, path::Path};

/// Registers of the kernels of a build, by name.
pub(super) struct Compiled {
    session: Session,
    fingerprints: Fingerprints,
    kernels: BTreeMap<String, build::Record>,
}

impl Compiled {
    /// Reads the report in `build_dir`; `None` if there is none.
    ///
    /// # Errors
    /// The errors of [`Session::open`].
    pub fn read(context: &Context, build_dir: &Path) -> Result<Option<Self>, CommandError> {
        let Some(kernels) = build::records(build_dir) else { return Ok(None) };
        let session = Session::open(context)?;
        Ok(Some(Self { fingerprints: Fingerprints::of(&session.templates), session, kernels }))
    }

    /// Registers that the compiler used for the kernel of `plan`, if it compiled the source that would be rendered now.
    pub fn registers(&self, plan: &Plan) -> Option<u32> {
        let record = self.kernels.get(&plan.variant.name())?;
        let source = self.session.renderer.kernel(plan).ok()?;
        (record.source == self.fingerprints.kernel(&source.text)).then_some(record.registers)
    }
}
