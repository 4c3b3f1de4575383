//! The files of the kernels that were asked for, and which of them are new or changed.

use crate::{cli::manner, kernel::Variant, render::WriteSummary};
use serde::Serialize;
use std::{fmt::Write, path::Path};

/// Of so many kernels each has a line; of more, only their number is told.
const FEW: usize = 20;

/// The file of a kernel that was asked for.
#[derive(Debug, Serialize)]
pub(super) struct Selected {
    name: String,
    /// Below the output folder.
    file: String,
    /// Whether it is new or has changed.
    written: bool,
}

impl Selected {
    /// What `summary` says of `file`, which is the kernel's.
    pub fn new(variant: &Variant, file: String, summary: &WriteSummary) -> Self {
        Self { name: variant.name(), written: summary.written.contains(&file), file }
    }
}

/// A line for each file; of many, without `--verbose`, one line for all.
pub(super) fn describe(folder: &Path, selected: &[Selected]) -> String {
    if selected.len() > FEW && !manner::verbose() {
        let (all, written) = (selected.len(), selected.iter().filter(|kernel| kernel.written).count());
        let unchanged = all - written;
        return format!("selected: {all} kernels, {written} written, {unchanged} unchanged; `--verbose` lists their files\n");
    }
    let mut text = String::new();
    for Selected { file, written, .. } in selected {
        let state = if *written { "written" } else { "unchanged" };
        // Writing into a string cannot fail.
        writeln!(text, "{state:<9}  {}", folder.join(file).display()).ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_are_listed_and_many_counted() {
        let selected = |count: usize| -> Vec<Selected> {
            let kernel = |index: usize| Selected { name: format!("k{index}"), file: format!("k{index}.cu"), written: index == 0 };
            (0..count).map(kernel).collect()
        };
        assert_eq!(describe(Path::new("g"), &selected(2)), "written    g/k0.cu\nunchanged  g/k1.cu\n");
        assert_eq!(describe(Path::new("g"), &selected(FEW)).lines().count(), FEW);
        let many = describe(Path::new("g"), &selected(FEW + 1));
        assert_eq!(many, "selected: 21 kernels, 1 written, 20 unchanged; `--verbose` lists their files\n");
    }
}
