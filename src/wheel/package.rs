//! The Python package's own files, embedded in kgen.

use include_dir::{Dir, include_dir};
use std::path::Path;

static PACKAGE: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/python/kgen_attn");

/// Path within the package's folder and text of each file, sorted by path. Python's own files beside its modules, such
/// as `__pycache__`, are left out.
pub(super) fn files() -> Vec<(&'static str, &'static str)> {
    let wanted = |path: &Path| path.extension().is_some_and(|extension| extension == "py" || extension == "typed");
    let mut files: Vec<(&str, &str)> = PACKAGE
        .files()
        .filter(|file| wanted(file.path()))
        .filter_map(|file| Some((file.path().to_str()?, file.contents_utf8()?)))
        .collect();
    files.sort_unstable();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_of_the_folder_is_built_in_and_nothing_else() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/kgen_attn");
        let is_file = |entry: &std::fs::DirEntry| entry.path().is_file();
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .expect("the package")
            .filter_map(Result::ok)
            .filter(is_file)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        there.sort_unstable();
        assert_eq!(files().iter().map(|(path, _)| *path).collect::<Vec<_>>(), there);
        assert!(there.iter().any(|name| name == "py.typed"), "type checkers look for it");
    }
}
