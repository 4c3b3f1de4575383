//! Atomic file writes, and removal of unfinished files of killed processes.

use std::{
    fs,
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

/// Prefix of temporary files, before they are complete.
const UNFINISHED: &str = ".kgen-unfinished-";

/// Prefix of folders with files that wait to be renamed into place.
const STAGING: &str = ".kgen-staging-";

/// A temporary file in `folder` with the permissions of an ordinary new file.
fn temporary_in(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    // The process's umask still applies.
    let mode = fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(UNFINISHED).permissions(mode).tempfile_in(folder)
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes `bytes` to `path` by renaming a complete temporary file of the same folder; an interrupted write leaves the
/// old content. A file that already contains `bytes` is left unchanged, including its time. Returns true if it wrote.
///
/// # Errors
/// The system's reason; the old file is then untouched.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    if fs::metadata(path).is_ok_and(|m| m.len() == bytes.len() as u64) && super::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let mut file = temporary_in(folder_of(path))?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(true)
}

/// Writes `bytes` to the file that a user names, as [`write_atomic`] does. A link stays a link, and its file is
/// written; a device, a pipe or a folder is not replaced.
///
/// # Errors
/// The system's reason, or that the path is no file.
pub fn write_named(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    write_atomic(&named(path)?, bytes)
}

/// The file that a path names, through links.
///
/// # Errors
/// That it is no file, or that there is no folder for it.
fn named(path: &Path) -> io::Result<PathBuf> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::other("it exists and is no file"));
    }
    if fs::metadata(folder_of(path)).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(io::Error::new(ErrorKind::NotFound, format!("the folder `{}` does not exist", folder_of(path).display())));
    }
    Ok(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
}

/// Whether [`write_named`] can write a file of this name now. Changes nothing.
///
/// # Errors
/// The system's reason, or that the path is no file.
pub fn probe_named(path: &Path) -> io::Result<()> {
    let path = named(path)?;
    temporary_in(folder_of(&path)).map(drop)
}

/// Files staged in a folder until all of them are on disk, so that only renames remain. Files not yet renamed are
/// removed when this is dropped.
#[derive(Debug)]
pub struct Staging(tempfile::TempDir);

impl Staging {
    /// A staging folder in `folder`, which must exist.
    ///
    /// # Errors
    /// The system's reason.
    pub fn new(folder: &Path) -> io::Result<Self> {
        tempfile::Builder::new().prefix(STAGING).tempdir_in(folder).map(Self)
    }

    /// Writes staged file `number`.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, number: usize, bytes: &[u8]) -> io::Result<()> {
        fs::write(self.path(number), bytes)
    }

    /// Renames it to `path`, on the same file system.
    ///
    /// # Errors
    /// The system's reason; `path` is then untouched.
    pub fn place(&self, number: usize, path: &Path) -> io::Result<()> {
        fs::rename(self.path(number), path)
    }

    fn path(&self, number: usize) -> PathBuf {
        self.0.path().join(number.to_string())
    }
}

/// Removes leftovers of [`write_atomic`] and [`Staging`] by killed processes in `folder`. The caller must hold a lock
/// that excludes other writers. Files that cannot be removed stay, and do no harm.
pub fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let begins = |prefix: &str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
        match entry.file_type() {
            Ok(what) if what.is_dir() && begins(STAGING) => fs::remove_dir_all(path).ok(),
            Ok(what) if what.is_file() && begins(UNFINISHED) => fs::remove_file(path).ok(),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        assert!(write_atomic(&path, b"one").unwrap());
        assert!(!write_atomic(&path, b"one").unwrap());
        assert!(write_atomic(&path, b"two").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file was left");
    }

    #[test]
    fn a_named_file_is_written_through_its_link_and_nothing_else_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        probe_named(&path("link")).unwrap();
        assert!(write_named(&path("link"), b"new").unwrap());
        assert_eq!(fs::read(path("file")).unwrap(), b"new");
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        assert!(write_named(&path("fresh"), b"new").unwrap());
        fs::create_dir(path("folder")).unwrap();
        for taken in [path("folder"), "/dev/null".into()] {
            assert!(write_named(&taken, b"new").unwrap_err().to_string().contains("no file"));
        }
    }

    #[test]
    fn what_killed_processes_left_is_swept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let file = temporary_in(dir.path()).unwrap().keep().unwrap().1;
        let staging = Staging::new(dir.path()).unwrap();
        staging.write(0, b"half").unwrap();
        let staged = staging.0.keep();
        fs::create_dir(path(".kgen-unfinished-folder")).unwrap();
        std::os::unix::fs::symlink("nowhere", path(".kgen-staging-link")).unwrap();
        fs::write(path(".kgen-config"), "mine").unwrap();
        sweep(dir.path());
        assert!(!file.exists() && !staged.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
