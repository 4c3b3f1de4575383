//! Differences between a generated folder and what the templates would generate.

use super::{OutputFile, RenderError, manifest};
use crate::{family::FAMILIES, files};
use rayon::prelude::*;
use serde::Serialize;
use std::{collections::BTreeSet, fmt, fs, io, path::Path};

/// A file of a folder that differs from what would be generated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "drift", rename_all = "snake_case")]
pub enum Drift {
    /// The file is missing.
    Missing {
        /// Path below the folder.
        path: String,
    },
    /// The file's text differs.
    Differs {
        /// Path below the folder.
        path: String,
        /// The first line that differs, counted from 1.
        line: usize,
        /// That line as it would be generated; empty after the end.
        expected: String,
        /// That line in the folder; empty after the end.
        found: String,
        /// The text that ended before that line, if one did.
        #[serde(skip)]
        ended: Option<Side>,
    },
    /// A kernel, or a file of an earlier run, that would not be generated.
    Extra {
        /// Path below the folder.
        path: String,
        /// True if an earlier run wrote it. If so, the next run removes it unless it has been edited.
        written_by_kgen: bool,
    },
}

/// One of the two texts compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The text that would be generated.
    Expected,
    /// The text in the folder.
    Found,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { path } => write!(f, "`{path}` is missing"),
            Self::Differs { path, line, expected, found, .. } if expected.trim_end() == found.trim_end() => {
                write!(f, "`{path}` differs from line {line}, in white space or line ends")
            }
            Self::Differs { path, line, expected, found, ended } => {
                let text = |side, text| if *ended == Some(side) { "the end of the file".to_owned() } else { format!("`{text}`") };
                let (expected, found) = (text(Side::Expected, expected), text(Side::Found, found));
                write!(f, "`{path}` differs from line {line}: expected {expected}, found {found}")
            }
            Self::Extra { path, written_by_kgen: true } => write!(f, "`{path}` would not be generated"),
            Self::Extra { path, .. } => write!(f, "`{path}` would not be generated, and kgen did not write it"),
        }
    }
}

/// The differences of `folder` from `files`: missing, differing and extra files, in the order of `files`. Writes
/// nothing. Files that are neither kernels nor in the folder's manifest belong to the user and are ignored.
///
/// # Errors
/// [`RenderError::Io`] when a file is there but cannot be read.
pub fn drift(folder: &Path, files: &[OutputFile]) -> Result<Vec<Drift>, RenderError> {
    let mut drifts: Vec<Drift> =
        files.par_iter().map(|file| compare(folder, file)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();

    let wanted: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    // A damaged manifest was already reported as different above.
    let held = manifest::Held::read(folder).unwrap_or_default();
    let written = held.paths();
    let listed = written.iter().filter(|path| folder.join(path).exists()).map(|path| (*path).to_owned());
    let extra: BTreeSet<String> = kernels(folder).chain(listed).filter(|path| !wanted.contains(path.as_str())).collect();
    drifts.extend(extra.into_iter().map(|path| Drift::Extra { written_by_kgen: written.contains(&*path), path }));
    Ok(drifts)
}

fn compare(folder: &Path, file: &OutputFile) -> Result<Option<Drift>, RenderError> {
    let path = folder.join(&file.path);
    let found = match files::read(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(Drift::Missing { path: file.path.clone() }));
        }
        Err(error) => return Err(RenderError::io("read", path)(error)),
    };
    if found == file.text.as_bytes() {
        return Ok(None);
    }
    let found = String::from_utf8_lossy(&found);
    // `split`, not `lines`, so that a missing last newline or a carriage return counts as a difference.
    let (mut expected, mut found) = (file.text.split('\n'), found.split('\n'));
    let mut line = 1;
    loop {
        let pair = (expected.next(), found.next());
        if pair.0 != pair.1 || pair == (None, None) {
            let text = |line: Option<&str>| line.unwrap_or_default().to_owned();
            // `split` yields an empty string after the last newline.
            let has_ended = |line: Option<&str>, rest: Option<&str>| line.unwrap_or_default().is_empty() && rest.is_none();
            let ended = match (has_ended(pair.0, expected.next()), has_ended(pair.1, found.next())) {
                (true, _) => Some(Side::Expected),
                (_, true) => Some(Side::Found),
                _ => None,
            };
            let (expected, found) = (text(pair.0), text(pair.1));
            return Ok(Some(Drift::Differs { path: file.path.clone(), line, expected, found, ended }));
        }
        line += 1;
    }
}

/// Files at the top of the folder whose names are kernel names.
fn kernels(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| {
        FAMILIES.iter().any(|family| name.starts_with(family.prefix()))
            && Path::new(name).extension().is_some_and(|ext| ext == "cu")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Prune, write_tree};

    fn file(path: &str, text: &str) -> OutputFile {
        OutputFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_folder_just_written_has_not_drifted() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let files = [file("flash_a.cu", "a\n"), file("include/b.h", "b\n")];
        write_tree(folder.path(), &files, Prune::Yes).expect("written");
        assert_eq!(drift(folder.path(), &files).expect("readable"), []);
    }

    #[test]
    fn missing_differing_and_extra_files_are_named_with_the_first_line_that_differs() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let files = [file("flash_a.cu", "one\ntwo\n"), file("flash_b.cu", "b\n")];
        fs::write(folder.path().join("flash_a.cu"), "one\n2\n").expect("written");
        fs::write(folder.path().join("flash_old.cu"), "").expect("written");
        fs::write(folder.path().join("notes.txt"), "mine").expect("written");
        let found: Vec<String> = drift(folder.path(), &files).expect("readable").iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "`flash_a.cu` differs from line 2: expected `two`, found `2`",
                "`flash_b.cu` is missing",
                "`flash_old.cu` would not be generated, and kgen did not write it",
            ]
        );
    }

    #[test]
    fn where_one_text_has_ended_that_is_said() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for (text, said) in [
            ("one\ntwo\n// edit\n", "from line 3: expected the end of the file, found `// edit`"),
            ("one\ntwo\n// edit", "from line 3: expected the end of the file, found `// edit`"),
            ("one\n", "from line 2: expected `two`, found the end of the file"),
            ("one", "from line 2: expected `two`, found the end of the file"),
            ("", "from line 1: expected `one`, found the end of the file"),
            ("one\n\ntwo\n", "from line 2: expected `two`, found ``"),
        ] {
            fs::write(folder.path().join("a"), text).expect("written");
            let found = drift(folder.path(), &[file("a", "one\ntwo\n")]).expect("readable");
            assert_eq!(found[0].to_string(), format!("`a` differs {said}"));
        }
    }

    #[test]
    fn a_change_nobody_can_see_is_not_shown_as_two_equal_lines() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for (text, line) in [("one\n\n", 3), ("one\r\n", 1), ("one", 2)] {
            fs::write(folder.path().join("a"), text).expect("written");
            let found = drift(folder.path(), &[file("a", "one\n")]).expect("readable");
            assert_eq!(found[0].to_string(), format!("`a` differs from line {line}, in white space or line ends"));
        }
    }

    #[test]
    fn a_lost_last_newline_is_drift() {
        let folder = tempfile::tempdir().expect("temporary folder");
        fs::write(folder.path().join("a"), "one").expect("written");
        let found = drift(folder.path(), &[file("a", "one\n")]).expect("readable");
        assert!(matches!(&found[..], [Drift::Differs { line: 2, .. }]), "{found:?}");
    }

    #[test]
    fn a_folder_that_is_not_there_lacks_every_file() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let found = drift(&folder.path().join("none"), &[file("a", "a\n")]).expect("nothing to read");
        assert_eq!(found, [Drift::Missing { path: "a".to_owned() }]);
    }
}
