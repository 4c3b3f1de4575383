//! Locks that serialise the access of kgen processes to a folder.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Longest interval between two polls of a lock that another process holds.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Name of the lock file in every folder.
const NAME: &str = ".kgen.lock";

/// Prefix of the lock file's text; the id of the process that holds the lock follows.
const MARK: &str = "kgen ";

/// Maximum length of kgen's lock file text (bytes), far more than the prefix, a number and a line end.
const LONGEST_TEXT: u64 = 64;

/// The lock of a folder. Released, and its file removed, when dropped; the system releases it when the process dies.
#[derive(Debug)]
pub struct FolderLock {
    path: PathBuf,
    file: File,
}

impl FolderLock {
    /// Path of the lock file of `folder`.
    pub fn file_of(folder: &Path) -> PathBuf {
        folder.join(NAME)
    }

    /// Takes the lock of `folder`, which must exist. `on_wait` is called once with the holder, as the subject of a
    /// sentence: `another kgen` or `kgen process 4711`. Returns `None` if `stop` became true while waiting.
    ///
    /// # Errors
    /// The system's reason why [`file_of`](Self::file_of) cannot be created or locked;
    /// [`InvalidData`](io::ErrorKind::InvalidData) if the path holds something that kgen did not write, which is left
    /// unchanged.
    pub fn acquire(folder: &Path, on_wait: &dyn Fn(&str), stop: &dyn Fn() -> bool) -> io::Result<Option<Self>> {
        let path = Self::file_of(folder);
        let mut reported = false;
        let mut pause = Duration::from_millis(1);
        loop {
            let mut file = open(&path)?;
            match file.try_lock() {
                // The process that had the lock has removed the file; the file locked here may no longer have a name.
                Ok(()) if !is_named(&file, &path)? => continue,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if stop() => return Ok(None),
                Err(TryLockError::WouldBlock) => {
                    if !reported {
                        on_wait(&holder(&mut file));
                        reported = true;
                    }
                    thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
                // Some network file systems have no locks; a single process is still safe there, due to atomic renames.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if text(&mut file)?.is_none() {
                return Err(foreign("is a file that kgen did not write"));
            }
            let mut lock = Self { path, file };
            // The text only informs people; a full disk must not prevent a user from freeing space.
            lock.sign().ok();
            return Ok(Some(lock));
        }
    }

    /// Waits, without creating anything, until no process holds the lock of `folder`, which need not exist. `on_wait`
    /// is called with the holder, as in [`acquire`](Self::acquire). A lock that cannot be read counts as free.
    pub fn wait(folder: &Path, on_wait: &dyn Fn(&str)) {
        let mut reported = false;
        let mut pause = Duration::from_millis(1);
        while let Some(mut file) = held(folder) {
            if !reported {
                on_wait(&holder(&mut file));
                reported = true;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// True if a process holds the lock of `folder`.
    pub fn is_held(folder: &Path) -> bool {
        held(folder).is_some()
    }

    /// Writes this process's id into the file.
    fn sign(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(format!("{MARK}{}\n", std::process::id()).as_bytes())
    }
}

/// The lock file of `folder`, if a process has locked it.
fn held(folder: &Path) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags).open(FolderLock::file_of(folder)).ok()?;
    let is_held = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    is_held.then_some(file)
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // The file is removed while still locked, and only if it is still ours. A leftover file does no harm.
        if is_named(&self.file, &self.path).unwrap_or(false) {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Opens or creates the file. Links are not followed: one could point to a file of the user's.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => foreign("is a symbolic link, which kgen does not follow"),
        _ => error,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(foreign("is not a regular file")) }
}

fn foreign(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it {what}; move it away"))
}

/// True if `path` itself, not the target of a link, is still `file`.
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let locked = file.metadata().map(id)?;
    Ok(fs::symlink_metadata(path).is_ok_and(|named| id(named) == locked))
}

/// The text of the file if kgen wrote it: a process id, or nothing if a process died before writing it.
fn text(file: &mut File) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LONGEST_TEXT).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let process = text.strip_prefix(MARK).map_or(&*text, |rest| rest.trim_end());
    Ok(process.bytes().all(|byte| byte.is_ascii_digit()).then(|| process.to_owned()))
}

/// The holder of the lock, from the file's text: only for people, so an unreadable text gives `another kgen`.
fn holder(file: &mut File) -> String {
    match text(file) {
        Ok(Some(process)) if !process.is_empty() => format!("kgen process {process}"),
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

    fn locked(folder: &Path) -> FolderLock {
        FolderLock::acquire(folder, &|_| (), &|| false).expect("the folder is writable").expect("nobody stops it")
    }

    #[test]
    fn one_holder_at_a_time_and_no_lock_file_left() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let _lock = locked(folder.path());
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
    fn a_second_caller_waits_and_gets_the_holder_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let reported = Mutex::new(Vec::new());
        let reports = || reported.lock().expect("no panic").clone();
        let first = locked(folder.path());
        let record = |who: &str| reported.lock().expect("no panic").push(who.to_owned());
        thread::scope(|scope| {
            let second = scope.spawn(|| FolderLock::acquire(folder.path(), &record, &|| false).expect("locked").is_some());
            while reports().is_empty() {
                thread::sleep(Duration::from_millis(1));
            }
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().expect("no panic"));
        });
        assert_eq!(reports(), [format!("kgen process {}", std::process::id())]);
    }

    #[test]
    fn a_reader_waits_for_the_holder_and_makes_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        FolderLock::wait(folder.path(), &|_| unreachable!("the lock is free"));
        assert!(!FolderLock::is_held(folder.path()) && !FolderLock::file_of(folder.path()).exists());
        fs::write(FolderLock::file_of(folder.path()), "kgen 1\n").expect("what a killed run left");
        FolderLock::wait(folder.path(), &|_| unreachable!("its holder is dead"));
        let first = Mutex::new(Some(locked(folder.path())));
        assert!(FolderLock::is_held(folder.path()));
        let release = |who: &str| {
            assert_eq!(who, format!("kgen process {}", std::process::id()));
            drop(first.lock().expect("no panic").take());
        };
        FolderLock::wait(folder.path(), &release);
        assert!(!FolderLock::is_held(folder.path()));
    }

    #[test]
    fn a_wait_can_be_interrupted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let _first = locked(folder.path());
        let stop = AtomicBool::new(false);
        let waited = FolderLock::acquire(folder.path(), &|_| stop.store(true, Ordering::SeqCst), &|| stop.load(Ordering::SeqCst));
        assert!(waited.expect("no error").is_none());
    }

    fn refusal(folder: &Path) -> String {
        let error = FolderLock::acquire(folder, &|_| (), &|| false).expect_err("it is not kgen's");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        error.to_string()
    }

    #[test]
    fn a_lock_that_is_a_link_is_refused_and_its_target_keeps_its_text() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (target, lock) = (folder.path().join("diary"), FolderLock::file_of(folder.path()));
        fs::write(&target, "dear diary").expect("written");
        std::os::unix::fs::symlink(&target, &lock).expect("linked");
        assert!(refusal(folder.path()).contains("symbolic link"));
        assert_eq!(fs::read_to_string(&target).expect("still there"), "dear diary");
        assert!(lock.is_symlink());
    }

    #[test]
    fn a_file_of_somebody_else_at_the_locks_place_is_neither_truncated_nor_deleted() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = FolderLock::file_of(folder.path());
        for foreign in ["precious", "kgen is fine", "kgen 12 and more", "12 \n34\n"] {
            fs::write(&path, foreign).expect("written");
            assert!(refusal(folder.path()).contains("kgen did not write"), "{foreign}");
            assert_eq!(fs::read_to_string(&path).expect("still there"), foreign);
        }
    }

    #[test]
    fn what_a_killed_run_left_at_the_locks_place_is_taken_over() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for left in ["", "4711", "kgen 4711\n"] {
            fs::write(FolderLock::file_of(folder.path()), left).expect("written");
            drop(locked(folder.path()));
            assert!(!FolderLock::file_of(folder.path()).exists());
        }
    }

    #[test]
    fn a_pipe_at_the_locks_place_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let made = std::process::Command::new("mkfifo").arg(FolderLock::file_of(folder.path())).status();
        assert!(made.expect("mkfifo runs").success());
        assert!(refusal(folder.path()).contains("not a regular file"));
    }

    #[test]
    fn a_file_that_took_the_locks_place_meanwhile_is_not_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lock = locked(folder.path());
        fs::remove_file(FolderLock::file_of(folder.path())).expect("removed");
        fs::write(FolderLock::file_of(folder.path()), "precious").expect("written");
        drop(lock);
        assert!(FolderLock::file_of(folder.path()).exists());
    }
}
