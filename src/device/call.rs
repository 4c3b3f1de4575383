//! A call of a launcher, with tensors instead of pointers, and its results.

use super::{Field, Fields, Image, Params};
use std::{ffi::c_void, ptr};

/// Default number of multiprocessors of an emulated device: fewer than most calls have tiles.
pub const DEFAULT_MULTIPROCESSORS: usize = 5;

/// One call of a launcher: it owns the tensors, so that each run starts from the same memory.
#[derive(Debug, Clone)]
pub struct Call {
    /// Tensors that the kernel reads, by their names in `kgen.h`; an absent one is NULL.
    pub inputs: Vec<(&'static str, Image)>,
    /// Tensors that it writes, poisoned, by their names in `kgen.h`; an absent one is NULL.
    pub outputs: Vec<(&'static str, Image)>,
    /// True if the device calls `<name>_workspace` for the required size and passes memory of that size. Otherwise the
    /// workspace is one of the outputs or NULL.
    pub scratch: bool,
    /// Multiprocessors of an emulated device; [`DEFAULT_MULTIPROCESSORS`] if `None`. Ignored on a GPU.
    pub multiprocessors: Option<usize>,
    /// Parameters other than tensors.
    pub params: Params,
}

impl Call {
    /// A mutable field of the structure; `path` is its name in C.
    ///
    /// # Panics
    /// If the parameters have another type, or the structure has no such field: the caller built the call itself.
    pub(crate) fn field(&mut self, path: &str) -> &mut Field {
        let fields: &mut Fields = self.params.get_mut().expect("a call by fields");
        fields.at(path)
    }

    /// A pointer that must not be dereferenced, NULL if the call has no such tensor: for queries of the workspace size.
    pub(super) fn stand_in(&self, name: &str) -> *mut c_void {
        let held = self.inputs.iter().chain(&self.outputs).any(|(known, _)| *known == name);
        if held { ptr::without_provenance_mut(STAND_IN) } else { ptr::null_mut() }
    }

    /// Size in bytes of the workspace among the tensors; 0 if there is none.
    pub(super) fn workspace_bytes(&self) -> usize {
        let mut tensors = self.outputs.iter().chain(&self.inputs);
        tensors.find(|(name, _)| *name == "workspace").map_or(0, |(_, image)| image.span_bytes())
    }
}

/// Aligned like device memory, and in a page that is never mapped.
const STAND_IN: usize = 256;

/// The output tensors after a launch, including gaps and guard zones, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs(pub Vec<(&'static str, Image)>);

impl Outputs {
    /// The output called `name`, if the call has it.
    pub fn get(&self, name: &str) -> Option<&Image> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, image)| image)
    }

    /// The mutable output called `name`, if the call has it, so that a test can corrupt it.
    #[cfg(test)]
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Image> {
        self.0.iter_mut().find(|(known, _)| *known == name).map(|(_, image)| image)
    }
}
