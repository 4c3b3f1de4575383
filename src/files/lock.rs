//! kgen processes that work on one folder take turns.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Longest pause between two looks at a lock that another process holds.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The lock of a folder. Freed, and its file removed, when dropped; the system frees it when the process dies.
#[derive(Debug)]
pub struct FolderLock {
    path: PathBuf,
    _file: File,
}

impl FolderLock {
    /// Takes the lock that is the file `path`, in a folder that exists. `on_wait` hears once who holds it, as the subject
    /// of a sentence: `another kgen` or `kgen process 4711`. `None` where `stop` became true while waiting.
    ///
    /// # Errors
    /// The system's reason for which the file cannot be made or locked.
    pub fn acquire(path: &Path, on_wait: &dyn Fn(&str), stop: &dyn Fn() -> bool) -> io::Result<Option<Self>> {
        let mut told = false;
        let mut pause = Duration::from_millis(1);
        loop {
            let mut file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
            match file.try_lock() {
                // The process that had the lock has removed the file; what was locked here may be one without a name.
                Ok(()) if !is_named(&file, path)? => continue,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if stop() => return Ok(None),
                Err(TryLockError::WouldBlock) => {
                    if !told {
                        on_wait(&holder(&mut file));
                        told = true;
                    }
                    thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
                // Some network folders have no locks; one process alone is still safe there, by atomic renames.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "{}", std::process::id())?;
            return Ok(Some(Self { path: path.to_owned(), _file: file }));
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Removed while still locked, so nobody else's file is. A file that stays behind does no harm.
        fs::remove_file(&self.path).ok();
    }
}

/// Whether `path` still leads to `file`.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let locked = file.metadata().map(id)?;
    Ok(fs::metadata(path).is_ok_and(|named| id(named) == locked))
}

/// Who holds the lock, from the file's content: only words for a person, so an unreadable one is `another kgen`.
fn holder(file: &mut File) -> String {
    let mut process = String::new();
    match file.read_to_string(&mut process) {
        Ok(_) if !process.is_empty() => format!("kgen process {process}"),
        _ => "another kgen".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    };

    fn locked(path: &Path) -> FolderLock {
        FolderLock::acquire(path, &|_| (), &|| false).expect("the folder is writable").expect("nobody stops it")
    }

    #[test]
    fn one_holder_at_a_time_and_no_lock_file_left() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(".lock");
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let _lock = locked(&path);
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
    fn a_second_holder_waits_and_is_told_once_who_it_waits_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(".lock");
        let told = Mutex::new(Vec::new());
        let said = || told.lock().expect("no panic").clone();
        let first = locked(&path);
        let hear = |who: &str| told.lock().expect("no panic").push(who.to_owned());
        thread::scope(|scope| {
            let second = scope.spawn(|| FolderLock::acquire(&path, &hear, &|| false).expect("locked").is_some());
            while said().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().expect("no panic"));
        });
        assert_eq!(said(), [format!("kgen process {}", std::process::id())]);
    }

    #[test]
    fn whoever_waits_can_be_stopped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(".lock");
        let _first = locked(&path);
        let stop = AtomicBool::new(false);
        let waited = FolderLock::acquire(&path, &|_| stop.store(true, Ordering::SeqCst), &|| stop.load(Ordering::SeqCst));
        assert!(waited.expect("no error").is_none());
    }
}
