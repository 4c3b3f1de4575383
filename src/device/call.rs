//! A call of a launcher with tensors in place of pointers, and its results.

use super::{Field, Fields, Image, Params};
use std::{ffi::c_void, ptr};

/// Multiprocessors of an emulated device unless a call says otherwise: fewer than most calls have tiles.
pub const DEFAULT_MULTIPROCESSORS: usize = 5;

/// One call of a launcher: the tensors by value, so that each run starts from the same memory.
#[derive(Debug, Clone)]
pub struct Call {
    /// What the kernel reads, by its name in `kgen.h`; an absent one is NULL.
    pub inputs: Vec<(&'static str, Image)>,
    /// What it writes, poisoned, by its name in `kgen.h`; an absent one is NULL.
    pub outputs: Vec<(&'static str, Image)>,
    /// Whether the device asks the kernel (`<name>_workspace`) how much memory it needs and hands it that much.
    /// Without, a workspace is one of the outputs or NULL.
    pub scratch: bool,
    /// How many multiprocessors an emulated device has; [`DEFAULT_MULTIPROCESSORS`] where the call leaves it open. A
    /// GPU has its own.
    pub multiprocessors: Option<usize>,
    /// Everything that is no tensor.
    pub params: Params,
}

impl Call {
    /// The value of a field of the structure, to change it; `path` is its name in C.
    ///
    /// # Panics
    /// If the parameters are another type, or the structure has no such field: the caller has made the call.
    pub(crate) fn field(&mut self, path: &str) -> &mut Field {
        let fields: &mut Fields = self.params.get_mut().expect("a call by fields");
        fields.at(path)
    }

    /// A pointer that must not be followed, NULL where the call has no tensor of that name: what a workspace is asked
    /// for with.
    pub(super) fn stand_in(&self, name: &str) -> *mut c_void {
        let held = self.inputs.iter().chain(&self.outputs).any(|(known, _)| *known == name);
        if held { ptr::without_provenance_mut(STAND_IN) } else { ptr::null_mut() }
    }

    /// Bytes of the workspace among the tensors; 0 where there is none.
    pub(super) fn workspace_bytes(&self) -> usize {
        let mut tensors = self.outputs.iter().chain(&self.inputs);
        tensors.find(|(name, _)| *name == "workspace").map_or(0, |(_, image)| image.span_bytes())
    }
}

/// Aligned as device memory is, and in no page that a process has.
const STAND_IN: usize = 256;

/// What a launch left in the output tensors, gaps and guard zones included, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs(pub Vec<(&'static str, Image)>);

impl Outputs {
    /// The output of that name, where the call asked for it.
    pub fn get(&self, name: &str) -> Option<&Image> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, image)| image)
    }

    /// The same, to spoil it.
    #[cfg(test)]
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Image> {
        self.0.iter_mut().find(|(known, _)| *known == name).map(|(_, image)| image)
    }
}
