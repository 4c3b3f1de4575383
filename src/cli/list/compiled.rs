//! What the last build found out about kernels: their registers, where they would be compiled from the same sources
//! again.

use crate::{
    build,
    cli::{CliError, Global, workshop::Workshop},
    plan::Plan,
    render::Fingerprints,
};
use std::{collections::BTreeMap, path::Path};

/// Registers of the kernels of a build, by name.
pub(super) struct Compiled {
    workshop: Workshop,
    fingerprints: Fingerprints,
    kernels: BTreeMap<String, build::Record>,
}

impl Compiled {
    /// Takes the report in `build_dir`; `None` where there is none.
    ///
    /// # Errors
    /// As [`Workshop::new`].
    pub fn read(global: &Global, build_dir: &Path) -> Result<Option<Self>, CliError> {
        let Some(kernels) = build::records(build_dir) else { return Ok(None) };
        let workshop = Workshop::new(global)?;
        Ok(Some(Self { fingerprints: Fingerprints::of(&workshop.templates), workshop, kernels }))
    }

    /// Registers that the compiler gave the kernel of `plan`, if it was compiled from what would be rendered now.
    pub fn registers(&self, plan: &Plan) -> Option<u32> {
        let record = self.kernels.get(&plan.variant.name())?;
        let source = self.workshop.renderer.kernel(plan).ok()?;
        (record.source == self.fingerprints.kernel(&source.text)).then_some(record.registers)
    }
}
