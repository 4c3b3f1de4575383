//! Removes entries that have not been used for a long time from a folder whose entries can all be rebuilt.
//!
//! Processes that use the folder announce themselves ([`Presence`](super::Presence)) and [`touch`] an entry before they
//! use it; a lock excludes a concurrent prune of that entry. So entries in use are recognised by their time, and stay.
//! Unfinished entries stay while any process uses the folder.

use super::Workers;
use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
    time::{Duration, SystemTime},
};

/// Prefix of the folders that entries are moved to before they are removed.
const DOOMED: &str = ".doomed-";

/// Entries that a prune has removed, or would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    /// Entries, each a file or a folder, finished or not.
    pub entries: usize,
    /// Total size of the entries in bytes.
    pub bytes: u64,
    /// Entries that were old enough but stay, because a running process may use them.
    pub in_use: usize,
}

/// Marks an entry as used now, by its modification time; must be called before it is read. If the time cannot be
/// written, the entry is merely pruned sooner.
pub fn touch(entry: &Path) {
    let Ok(file) = File::open(entry) else { return };
    // Waits for a prune that examines the entry; an entry removed by it is then missing. File systems without locks
    // keep the old race.
    file.lock_shared().ok();
    file.set_modified(SystemTime::now()).ok();
}

/// Removes the entries of `folder` that were last used at least `unused` ago and are not in use. Hidden entries are
/// included only if their names begin with one of `unfinished` (the same list as for [`Presence`](super::Presence)) or
/// a killed prune left them; they count as in use while any process uses the folder. With `dry_run`, entries are only
/// counted. `size` returns the bytes of each. A missing folder counts as empty.
///
/// # Errors
/// The system's reason, with the entry; what was removed before stays removed.
pub fn prune(
    folder: &Path,
    unfinished: &[&str],
    unused: Duration,
    dry_run: bool,
    size: &dyn Fn(&Path) -> u64,
) -> io::Result<Pruned> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pruned::default()),
        entries => entries?,
    };
    let workers = Workers::of(folder)?;
    let now = SystemTime::now();
    let mut pruned = Pruned::default();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_unfinished = unfinished.iter().chain([&DOOMED]).any(|prefix| name.starts_with(prefix));
        if name.starts_with('.') && !is_unfinished {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        // Held until the entry is gone, so that no process starts to use it meanwhile.
        let taken = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        let used = file.metadata().and_then(|metadata| metadata.modified())?;
        // A time in the future, which results from clocks that were set back, counts as new.
        if now.duration_since(used).unwrap_or_default() < unused {
            continue;
        }
        let in_use = if is_unfinished { !workers.are_none() } else { workers.may_use(used) };
        if taken || in_use {
            pruned.in_use += 1;
            continue;
        }
        let bytes = size(&path);
        if dry_run {
            // Counted below.
        } else if path.is_dir() {
            // It is moved out by a rename, so that no process ever sees half of it.
            let doomed = tempfile::Builder::new().prefix(DOOMED).tempdir_in(folder)?;
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
        for name in ["old", "used", "new", ".unfinished-1", ".other"] {
            fs::create_dir(path(name)).expect("made");
            fs::write(path(name).join("output"), "object").expect("written");
            aged(&path(name), if name == "new" { 0 } else { 40 });
        }
        fs::write(path("verdict.json"), "pass").expect("written");
        aged(&path("verdict.json"), 40);
        touch(&path("used"));
        let pruned = prune(folder.path(), &[], Duration::from_secs(30 * 24 * 3600), false, &|_| 7).expect("pruned");
        assert_eq!(pruned, Pruned { entries: 2, bytes: 14, in_use: 0 });
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .expect("there")
            .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, [".in-use", ".other", ".unfinished-1", "new", "used"]);
        assert_eq!(prune(&path("nowhere"), &[], Duration::ZERO, false, &|_| 7).expect("nothing"), Pruned::default());
    }

    #[test]
    fn what_is_unfinished_goes_when_nobody_is_at_work_and_never_before() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        for (name, days) in [(".unfinished-1", 40), (".unfinished-2", 0), (".doomed-1", 40), (".other", 40)] {
            fs::create_dir(path(name)).expect("made");
            aged(&path(name), days);
        }
        let pruned = |days: u64, dry_run| {
            let unused = Duration::from_secs(days * 24 * 3600);
            prune(folder.path(), &[".unfinished-"], unused, dry_run, &|_| 5).expect("pruned")
        };
        let running = Presence::announce(folder.path(), &[]).expect("announced");
        for dry_run in [true, false] {
            assert_eq!(pruned(0, dry_run), Pruned { entries: 0, bytes: 0, in_use: 3 });
        }
        drop(running);
        for dry_run in [true, false] {
            assert_eq!(pruned(30, dry_run), Pruned { entries: 2, bytes: 10, in_use: 0 });
        }
        for dry_run in [true, false] {
            assert_eq!(pruned(0, dry_run), Pruned { entries: 1, bytes: 5, in_use: 0 });
        }
        let mut left: Vec<_> = fs::read_dir(folder.path()).expect("there").map(|e| e.expect("an entry").file_name()).collect();
        left.sort();
        assert_eq!(left, [".in-use", ".other"]);
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
        let all = || prune(folder.path(), &[], Duration::ZERO, false, &|_| 1).expect("pruned");
        assert_eq!(all(), Pruned { entries: 1, bytes: 1, in_use: 2 });
        assert!(!path("before").exists() && path("used").exists() && path("made").exists());
        drop(later);
        assert_eq!(all(), Pruned { entries: 2, bytes: 2, in_use: 0 });
    }
}
