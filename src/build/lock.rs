//! Two kgen processes on one output folder wait for each other.

use super::{BuildError, Observer};
use crate::toolchain::Cancel;
use std::{
    fs::{self, File},
    io::{Read, Seek, Write},
    path::Path,
    thread,
    time::Duration,
};

/// Holds the lock of an output folder. Freed when dropped, and by the system when the process dies however it dies.
#[derive(Debug)]
pub(super) struct OutputLock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl OutputLock {
    /// Waits for the lock of `folder`, telling `observer` once who holds it.
    ///
    /// # Errors
    /// [`BuildError::Output`] when the lock file cannot be made, [`BuildError::Cancelled`].
    pub fn acquire(folder: &Path, cancel: &Cancel, observer: &dyn Observer) -> Result<Self, BuildError> {
        let path = folder.join(".lock");
        let open = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = open.map_err(BuildError::output("lock", &path))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(fs::TryLockError::Error(e)) => return Err(BuildError::output("lock", &path)(e)),
                Err(fs::TryLockError::WouldBlock) if cancel.requested() => return Err(BuildError::Cancelled),
                Err(fs::TryLockError::WouldBlock) => {
                    if !told {
                        let mut holder = String::new();
                        // Only words for the user: an unreadable holder is an unknown one.
                        file.read_to_string(&mut holder).ok();
                        let who = if holder.is_empty() { "another kgen".into() } else { format!("kgen process {holder}") };
                        observer.note(&format!("{who} is building in `{}`; waiting for it", folder.display()));
                        told = true;
                    }
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
        let write_pid = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "{}", std::process::id())
        };
        write_pid(&mut file).map_err(BuildError::output("write", &path))?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);
    impl Observer for Notes {
        fn note(&self, message: &str) {
            self.0.lock().unwrap().push(message.into());
        }
    }

    #[test]
    fn a_second_holder_waits_and_is_told_who_it_waits_for() {
        let dir = tempfile::tempdir().unwrap();
        let (cancel, notes) = (Cancel::default(), Notes::default());
        let first = OutputLock::acquire(dir.path(), &cancel, &notes).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| OutputLock::acquire(dir.path(), &cancel, &notes).is_ok());
            while notes.0.lock().unwrap().is_empty() {
                thread::sleep(Duration::from_millis(5));
            }
            assert!(!second.is_finished());
            drop(first);
            assert!(second.join().unwrap());
        });
        let told = notes.0.lock().unwrap().clone();
        assert_eq!(told.len(), 1);
        assert!(told[0].contains(&format!("kgen process {} ", std::process::id())), "{told:?}");
    }
}
