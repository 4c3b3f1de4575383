//! Files that appear whole or not at all, and clearing away what a killed process has not made whole.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// How the names of temporary files begin, until they are whole.
const UNFINISHED: &str = ".kgen-unfinished-";

/// How the names of folders begin in which files wait to take their places.
const STAGING: &str = ".kgen-staging-";

/// A temporary file in `folder` that gets the permissions an ordinary new file would have.
fn temporary_in(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    // The process's umask still applies.
    let mode = fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(UNFINISHED).permissions(mode).tempfile_in(folder)
}

/// Writes `bytes` to `path` by renaming a complete temporary file of the same folder; an interrupted write leaves the
/// old content. A file that already holds `bytes` is left as it is, its time included. Returns whether it wrote.
///
/// # Errors
/// The system's reason; the old file is then untouched.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    if fs::metadata(path).is_ok_and(|m| m.len() == bytes.len() as u64) && super::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = temporary_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(true)
}

/// Files that wait beside a folder's others until all of them are on the disk, so that only renames are left to do.
/// What has not taken its place is removed when this is dropped.
#[derive(Debug)]
pub struct Staging(tempfile::TempDir);

impl Staging {
    /// A place for them in `folder`, which exists.
    ///
    /// # Errors
    /// The system's reason.
    pub fn new(folder: &Path) -> io::Result<Self> {
        tempfile::Builder::new().prefix(STAGING).tempdir_in(folder).map(Self)
    }

    /// Writes the file that is `number` here.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, number: usize, bytes: &[u8]) -> io::Result<()> {
        fs::write(self.path(number), bytes)
    }

    /// Puts it at `path`, on the same file system.
    ///
    /// # Errors
    /// The system's reason; what is at `path` is then untouched.
    pub fn place(&self, number: usize, path: &Path) -> io::Result<()> {
        fs::rename(self.path(number), path)
    }

    fn path(&self, number: usize) -> PathBuf {
        self.0.path().join(number.to_string())
    }
}

/// Removes what killed processes have left in `folder` by [`write_atomic`] and [`Staging`]. The caller holds a lock by
/// which nobody else writes there. What cannot be removed stays, and does no harm.
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
