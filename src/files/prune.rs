//! Removes entries that have not been used for a long time from a folder whose entries can all be rebuilt.
//!
//! Processes at work there announce themselves ([`Presence`](super::Presence)) and [`touch`] an entry before they use
//! it, which takes turns with a prune that looks at it. So what a running process uses is known by its time, and stays.

use super::Workers;
use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
    time::{Duration, SystemTime},
};

/// What a prune has removed, or would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    /// Entries, each a file or a folder.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Entries that were old enough and stay, because a running process may use them.
    pub in_use: usize,
}

/// Notes that an entry is used now, as its time of change; to be called before it is read. Where that cannot be
/// written, the entry is only pruned sooner.
pub fn touch(entry: &Path) {
    let Ok(file) = File::open(entry) else { return };
    // Waits for a prune that looks at it; what that has then removed is not there to be read. Folders without locks
    // have the risk that they had before.
    file.lock_shared().ok();
    file.set_modified(SystemTime::now()).ok();
}

/// Removes the entries of `folder` that were last used at least `unused` ago and are not in use; hidden ones belong to
/// running processes and stay. With `dry_run` it only counts them. `size` gives the bytes of each. A folder that is not
/// there has none.
///
/// # Errors
/// The system's reason, with the entry; what was removed before stays removed.
pub fn prune(folder: &Path, unused: Duration, dry_run: bool, size: &dyn Fn(&Path) -> u64) -> io::Result<Pruned> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pruned::default()),
        entries => entries?,
    };
    let workers = Workers::of(folder)?;
    let now = SystemTime::now();
    let mut pruned = Pruned::default();
    for entry in entries {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        let Some(file) = File::open(&path).ok().filter(|_| !hidden) else { continue };
        // Held until it is gone: nobody begins to use it meanwhile.
        let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        let used = file.metadata().and_then(|metadata| metadata.modified())?;
        // A time that lies in the future, which clocks that were set make, is as young as can be.
        if now.duration_since(used).unwrap_or_default() < unused {
            continue;
        }
        if taken || workers.may_use(used) {
            pruned.in_use += 1;
            continue;
        }
        let bytes = size(&path);
        if dry_run {
            // Counted below.
        } else if path.is_dir() {
            // It leaves by a rename, so that no process ever sees half of it.
            let doomed = tempfile::Builder::new().prefix(".doomed-").tempdir_in(folder)?;
            fs::rename(&path, doomed.path().join("entry"))?;
        } else {
            fs::remove_file(&path)?;
        }
        pruned.entries += 1;
        pruned.bytes += bytes;
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Presence;

    fn aged(path: &Path, days: u64) {
        let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        File::open(path).and_then(|file| file.set_modified(then)).expect("times can be set");
    }

    #[test]
    fn what_nobody_used_for_long_goes_and_what_is_used_stays() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["old", "used", "new", ".unfinished-1"] {
            fs::create_dir(path(name)).expect("made");
            fs::write(path(name).join("output"), "object").expect("written");
            aged(&path(name), if name == "new" { 0 } else { 40 });
        }
        fs::write(path("verdict.json"), "pass").expect("written");
        aged(&path("verdict.json"), 40);
        touch(&path("used"));
        let pruned = prune(folder.path(), Duration::from_secs(30 * 24 * 3600), false, &|_| 7).expect("pruned");
        assert_eq!(pruned, Pruned { entries: 2, bytes: 14, in_use: 0 });
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .expect("there")
            .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, [".in-use", ".unfinished-1", "new", "used"]);
        assert_eq!(prune(&path("nowhere"), Duration::ZERO, false, &|_| 7).expect("nothing"), Pruned::default());
    }

    #[test]
    fn what_a_running_process_has_used_stays_however_little_age_is_asked_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["before", "used", "made"] {
            fs::create_dir(path(name)).expect("made");
            aged(&path(name), 1);
        }
        let running = Presence::announce(folder.path(), &[]).expect("announced");
        let later = Presence::announce(folder.path(), &[]).expect("announced");
        touch(&path("used"));
        touch(&path("made"));
        drop(running);
        let all = || prune(folder.path(), Duration::ZERO, false, &|_| 1).expect("pruned");
        assert_eq!(all(), Pruned { entries: 1, bytes: 1, in_use: 2 });
        assert!(!path("before").exists() && path("used").exists() && path("made").exists());
        drop(later);
        assert_eq!(all(), Pruned { entries: 2, bytes: 2, in_use: 0 });
    }
}
