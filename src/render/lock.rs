//! Two kgen processes on one folder wait for each other.

use super::RenderError;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Name of the lock file; it is there only while a process writes the folder.
pub(super) const FILE: &str = ".kgen.lock";

/// Held while its folder is written; the system releases it if the process dies.
#[derive(Debug)]
pub(super) struct FolderLock {
    path: PathBuf,
    _file: Option<File>,
}

impl FolderLock {
    /// Takes the lock of `folder`, which must exist. `on_wait` hears once, in a sentence, when another process has it.
    pub(super) fn take(folder: &Path, on_wait: &dyn Fn(&str)) -> Result<Self, RenderError> {
        let path = folder.join(FILE);
        let mut said = false;
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(RenderError::io("write", folder))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    if !said {
                        on_wait(&format!("another kgen is writing `{}`; waiting for it", folder.display()));
                        said = true;
                    }
                    file.lock().map_err(RenderError::io("lock", &path))?;
                }
                // Some network folders have no locks; one process alone is still safe there, by atomic renames.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    return Ok(Self { path, _file: None });
                }
                Err(TryLockError::Error(error)) => return Err(RenderError::io("lock", path)(error)),
            }
            // The process that had the lock has removed the file; what was locked here may be a file without a name.
            let named = fs::metadata(&path).map(|m| m.ino()).ok();
            let locked = file.metadata().map(|m| m.ino()).map_err(RenderError::io("lock", &path))?;
            if named == Some(locked) {
                return Ok(Self { path, _file: Some(file) });
            }
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Removed while still locked, so nobody else's file is. A file that stays behind does no harm.
        fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
        time::Duration,
    };

    #[test]
    fn one_writer_at_a_time_and_no_lock_file_left() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let _lock = FolderLock::take(folder.path(), &|_| ()).expect("locked");
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(1));
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1);
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_process_that_waits_says_so() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let first = FolderLock::take(folder.path(), &|_| panic!("nobody else is here")).expect("locked");
        let waits = AtomicUsize::new(0);
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                FolderLock::take(folder.path(), &|said| {
                    assert!(said.starts_with("another kgen is writing `"), "{said}");
                    waits.fetch_add(1, Ordering::SeqCst);
                })
            });
            while waits.load(Ordering::SeqCst) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            drop(first);
            assert!(second.join().expect("no panic").is_ok());
        });
        assert_eq!(waits.load(Ordering::SeqCst), 1);
    }
}
