//! Hashes of a kernel's compile inputs: its text and all headers beside it.

use super::{Templates, library::include_tree};
use crate::files::FieldHasher;

/// Hashes kernels together with the headers of one set of templates.
#[derive(Clone, Debug)]
pub struct Fingerprints(FieldHasher);

impl Fingerprints {
    /// Fingerprints with the headers of `templates`.
    pub fn of(templates: &Templates) -> Self {
        let mut hasher = FieldHasher::default();
        for header in include_tree(templates) {
            hasher.field("header", header.path);
            hasher.field("text", header.text);
        }
        Self(hasher)
    }

    /// The fingerprint of a kernel with this `text`; it changes if the text or any header changes.
    pub fn kernel(&self, text: &str) -> String {
        let mut hasher = self.0.clone();
        hasher.field("kernel", text);
        hasher.finish()
    }
}
