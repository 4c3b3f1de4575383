//! Presence of processes in a folder, so that leftovers of dead processes are removed and files in use are kept.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::SystemTime,
};

/// The file on which every process that uses a folder holds a shared lock. The system releases it however the process
/// dies.
const IN_USE: &str = ".in-use";

/// Marks a folder as used by this process while it lives.
#[derive(Debug)]
pub struct Presence {
    _file: File,
}

impl Presence {
    /// Starts using `folder`, which must exist. If no other process uses it, entries whose names begin with one of
    /// `unfinished` are removed first: the process that was writing them has died.
    ///
    /// # Errors
    /// The system's reason why the lock file cannot be created or locked. Entries that cannot be removed stay.
    pub fn announce(folder: &Path, unfinished: &[&str]) -> io::Result<Self> {
        let file = open(folder)?;
        match file.try_lock() {
            Ok(()) => {
                remove(folder, unfinished);
                // Start of the continuous use of the folder, for [`Workers`].
                file.set_modified(SystemTime::now())?;
                file.unlock()?;
            }
            Err(TryLockError::WouldBlock) => {}
            // Some network file systems have no locks: nothing is removed there, and files still appear atomically.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(Self { _file: file }),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Waits only while another process removes leftovers.
        file.lock_shared()?;
        Ok(Self { _file: file })
    }
}

/// Processes that use a folder whose entries are to be removed.
#[derive(Debug)]
pub enum Workers {
    /// None; a process that starts using the folder waits until this is dropped.
    None(File),
    /// At least one process, continuously since then: every entry in use was last used after that.
    Since(SystemTime),
    /// The folder has no locks, so processes cannot announce themselves.
    Unknown,
}

impl Workers {
    /// The processes in `folder`, which must exist.
    ///
    /// # Errors
    /// The errors of [`Presence::announce`].
    pub fn of(folder: &Path) -> io::Result<Self> {
        let file = open(folder)?;
        match file.try_lock() {
            Ok(()) => Ok(Self::None(file)),
            Err(TryLockError::WouldBlock) => Ok(Self::Since(file.metadata()?.modified()?)),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(Self::Unknown),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// True if there are certainly none, so that the writers of unfinished entries have died.
    pub fn are_none(&self) -> bool {
        matches!(self, Self::None(_))
    }

    /// True if one of them may use an entry that was last used at `time`.
    pub fn may_use(&self, time: SystemTime) -> bool {
        matches!(self, Self::Since(since) if time >= *since)
    }
}

fn open(folder: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(folder.join(IN_USE))
}

fn remove(folder: &Path, unfinished: &[&str]) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !unfinished.iter().any(|prefix| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes())) {
            continue;
        }
        // A compiler that outlived its parent may still write there; the next run tries again.
        let is_folder = entry.file_type().is_ok_and(|what| what.is_dir());
        let _ = if is_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_is_removed_unless_somebody_is_at_work() {
        let folder = tempfile::tempdir().unwrap();
        let [half, whole] = [".new-1", "whole"].map(|name| folder.path().join(name));
        let leave = || [&half, &whole].map(|path| fs::create_dir_all(path.join("x")).unwrap());
        leave();
        let first = Presence::announce(folder.path(), &[".new-"]).unwrap();
        assert!(!half.exists() && whole.exists());
        leave();
        let second = Presence::announce(folder.path(), &[".new-"]).unwrap();
        assert!(half.exists(), "the first may be making it");
        drop((first, second));
        drop(Presence::announce(folder.path(), &[".new-"]).unwrap());
        assert!(!half.exists() && whole.exists());
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::os::unix::fs::symlink(&victim, folder.path().join(IN_USE)).unwrap();
        assert!(Presence::announce(folder.path(), &[]).is_err());
        assert!(!victim.exists());
    }
}
