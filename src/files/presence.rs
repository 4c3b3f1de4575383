//! Who works in a folder, so that what died there is cleared away and what lives is left alone.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::SystemTime,
};

/// The file whose shared lock every process at work in a folder holds. The system frees it when the process dies,
/// however it dies.
const IN_USE: &str = ".in-use";

/// Says that this process works in a folder, as long as it lives.
#[derive(Debug)]
pub struct Presence {
    _file: File,
}

impl Presence {
    /// Begins to work in `folder`, which exists. If no other process does, entries whose names begin with one of
    /// `unfinished` are first removed: whoever was making them has died.
    ///
    /// # Errors
    /// The system's reason for which the lock file cannot be made or locked. What cannot be removed stays.
    pub fn announce(folder: &Path, unfinished: &[&str]) -> io::Result<Self> {
        let file = open(folder)?;
        match file.try_lock() {
            Ok(()) => {
                remove(folder, unfinished);
                // Since when somebody has been at work here, for [`Workers`].
                file.set_modified(SystemTime::now())?;
                file.unlock()?;
            }
            Err(TryLockError::WouldBlock) => {}
            // Some network folders have no locks: nothing is removed there, and files appear whole all the same.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => return Ok(Self { _file: file }),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Waits only while another process removes what is left.
        file.lock_shared()?;
        Ok(Self { _file: file })
    }
}

/// Who is at work in a folder whose entries are to be removed.
#[derive(Debug)]
pub enum Workers {
    /// Nobody, and whoever comes waits until this is dropped.
    None(File),
    /// At least one process, and no gap since then: what any of them uses has been used since.
    Since(SystemTime),
    /// The folder has no locks, so processes cannot announce themselves.
    Unknown,
}

impl Workers {
    /// Asks for those in `folder`, which exists.
    ///
    /// # Errors
    /// As [`Presence::announce`].
    pub fn of(folder: &Path) -> io::Result<Self> {
        let file = open(folder)?;
        match file.try_lock() {
            Ok(()) => Ok(Self::None(file)),
            Err(TryLockError::WouldBlock) => Ok(Self::Since(file.metadata()?.modified()?)),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(Self::Unknown),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether it is certain that there is none, so that whoever made what is unfinished has died.
    pub fn are_none(&self) -> bool {
        matches!(self, Self::None(_))
    }

    /// Whether one of them may use what was last used at `time`.
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
        // A compiler that outlived its parent may still write there; the next run has another try.
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
