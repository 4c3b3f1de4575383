//! The files of the selected kernels, marked new, changed or unchanged.

use crate::{cli::verbosity, command::generate::Selected};
use std::{fmt::Write, path::Path};

/// Maximum number of kernels listed line by line; for more, only their number is shown.
const FEW: usize = 20;

/// A line for each file; above [`FEW`], without `--verbose`, one line for all.
pub(super) fn describe(folder: &Path, selected: &[Selected]) -> String {
    if selected.len() > FEW && !verbosity::verbose() {
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
