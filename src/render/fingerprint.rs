//! Names for what a kernel is compiled from: its text, and all headers beside it.

use super::{Templates, library::include_tree};
use crate::files::FieldHasher;

/// Names kernels whose headers are those of one set of templates.
#[derive(Clone, Debug)]
pub struct Fingerprints(FieldHasher);

impl Fingerprints {
    /// Those with the headers of `templates`.
    pub fn of(templates: &Templates) -> Self {
        let mut hasher = FieldHasher::default();
        for header in include_tree(templates) {
            hasher.field("header", header.path);
            hasher.field("text", header.text);
        }
        Self(hasher)
    }

    /// The name of a kernel's `text`: the same only where the text and every header are.
    pub fn kernel(&self, text: &str) -> String {
        let mut hasher = self.0.clone();
        hasher.field("kernel", text);
        hasher.finish()
    }
}
