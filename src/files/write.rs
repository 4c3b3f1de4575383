//! Files that appear whole or not at all.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

/// A temporary file in `folder` that gets the permissions an ordinary new file would have.
fn temporary_in(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    // The process's umask still applies.
    let mode = fs::Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(".kgen-").permissions(mode).tempfile_in(folder)
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
}
