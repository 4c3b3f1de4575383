//! Prevents writes and removals outside the output folder through symbolic links.

use super::RenderError;
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Component, Path, PathBuf},
};

/// Checks that the parent folders of `paths`, relative to `root`, are inside `root` after links are resolved. A folder
/// that does not exist yet passes, because kgen creates it.
///
/// # Errors
/// [`RenderError::Outside`] names the first link that leads outside or is dangling; [`RenderError::Io`].
pub(super) fn all_inside<'a>(root: &Path, paths: impl Iterator<Item = &'a str>) -> Result<(), RenderError> {
    let real_root = root.canonicalize().map_err(RenderError::io("read", root))?;
    let folders: BTreeSet<&Path> = paths.filter_map(|path| Path::new(path).parent()).collect();
    folders.into_iter().try_for_each(|folder| inside(root, &real_root, folder))
}

fn inside(root: &Path, real_root: &Path, folder: &Path) -> Result<(), RenderError> {
    let mut path = root.to_owned();
    for part in folder.components() {
        path.push(part);
        let outside = |leads_to: PathBuf| RenderError::Outside { folder: root.to_owned(), path: path.clone(), leads_to };
        if !matches!(part, Component::Normal(_)) {
            return Err(outside(path.clone()));
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {}
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(RenderError::io("read", path)(error)),
        }
        let leads_to = path.canonicalize().or_else(|_| fs::read_link(&path)).map_err(RenderError::io("read", &path))?;
        if !leads_to.starts_with(real_root) {
            return Err(outside(leads_to));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{OutputFile, Prune, write_tree};
    use std::os::unix::fs::symlink;

    fn file(path: &str, text: &str) -> OutputFile {
        OutputFile { path: path.to_owned(), text: text.to_owned() }
    }

    /// A folder written by kgen whose `include` was moved outside and replaced by a symbolic link.
    fn linked() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let outer = tempfile::tempdir().expect("temporary folder");
        let (root, elsewhere) = (outer.path().join("generated"), outer.path().join("elsewhere"));
        let files = [file("manifest.json", &manifest("include/old.h", "old\n")), file("include/old.h", "old\n")];
        write_tree(&root, &files, Prune::Yes).expect("written");
        fs::rename(root.join("include"), &elsewhere).expect("moved");
        symlink(&elsewhere, root.join("include")).expect("linked");
        (outer, root, elsewhere)
    }

    fn manifest(path: &str, text: &str) -> String {
        let hash = crate::files::content_hash(text);
        format!("{{\"format\": 1, \"variants\": [], \"files\": {{\"{path}\": \"{hash}\"}}}}")
    }

    #[test]
    fn pruning_does_not_follow_a_linked_folder_out_of_the_tree() {
        let (_outer, root, elsewhere) = linked();
        let error = write_tree(&root, &[file("manifest.json", "{}")], Prune::Yes).expect_err("it leads out").to_string();
        assert!(error.contains("generated/include` leads to") && error.contains("elsewhere`, outside of"), "{error}");
        assert_eq!(fs::read_to_string(elsewhere.join("old.h")).expect("still there"), "old\n");
        assert_ne!(fs::read_to_string(root.join("manifest.json")).expect("still there"), "{}", "written before the refusal");
    }

    #[test]
    fn nothing_is_written_through_a_linked_folder_out_of_the_tree() {
        let (_outer, root, elsewhere) = linked();
        let files = [file("manifest.json", "{}"), file("include/new.h", "new\n")];
        assert!(matches!(write_tree(&root, &files, Prune::No), Err(RenderError::Outside { .. })));
        assert!(!elsewhere.join("new.h").exists());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_refused() {
        let (_outer, root, elsewhere) = linked();
        fs::remove_dir_all(&elsewhere).expect("removed");
        assert!(matches!(write_tree(&root, &[file("include/new.h", "")], Prune::No), Err(RenderError::Outside { .. })));
        assert!(!elsewhere.exists());
    }

    #[test]
    fn a_linked_output_folder_and_links_inside_it_are_followed() {
        let outer = tempfile::tempdir().expect("temporary folder");
        let (real, link) = (outer.path().join("real"), outer.path().join("link"));
        fs::create_dir_all(real.join("headers")).expect("made");
        symlink(&real, &link).expect("linked");
        symlink("headers", real.join("include")).expect("linked");
        write_tree(&link, &[file("include/new.h", "new\n")], Prune::Yes).expect("written");
        assert_eq!(fs::read_to_string(real.join("headers/new.h")).expect("there"), "new\n");
    }
}
