//! Removes entries that have not been used for a long time from a folder whose entries can all be rebuilt.

use std::{
    fs::{self, File},
    io,
    path::Path,
    time::{Duration, SystemTime},
};

/// A use is written down when the last one is this long ago: often enough for ages of days.
const RESOLUTION: Duration = Duration::from_secs(24 * 3600);

/// What a prune has removed, or would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    /// Entries, each a file or a folder.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// Notes that an entry is in use, as its time of change. Where that cannot be written, the entry is only pruned sooner.
pub fn touch(entry: &Path) {
    let now = SystemTime::now();
    let Ok(file) = File::open(entry) else { return };
    if age(&file, now).is_some_and(|age| age > RESOLUTION) {
        file.set_modified(now).ok();
    }
}

/// Removes the entries of `folder` that were last used at least `unused` ago; hidden ones belong to running processes
/// and stay. Counts `sizes` of each. A folder that is not there has none.
///
/// # Errors
/// The system's reason, with the entry; what was removed before stays removed.
pub fn prune(folder: &Path, unused: Duration, size: &dyn Fn(&Path) -> u64) -> io::Result<Pruned> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Pruned::default()),
        entries => entries?,
    };
    let now = SystemTime::now();
    let mut pruned = Pruned::default();
    for entry in entries {
        let path = entry?.path();
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        let old = File::open(&path).ok().and_then(|file| age(&file, now)).is_some_and(|age| age >= unused);
        if hidden || !old {
            continue;
        }
        let bytes = size(&path);
        if path.is_dir() {
            // It leaves by a rename, so that no process ever sees half of it.
            let doomed = tempfile::Builder::new().prefix(".doomed-").tempdir_in(folder)?;
            fs::rename(&path, doomed.path().join("entry"))?;
        } else {
            fs::remove_file(&path)?;
        }
        pruned = Pruned { entries: pruned.entries + 1, bytes: pruned.bytes + bytes };
    }
    Ok(pruned)
}

/// How long ago a file or folder was last changed; `None` where its time lies in the future.
fn age(file: &File, now: SystemTime) -> Option<Duration> {
    now.duration_since(file.metadata().ok()?.modified().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let pruned = prune(folder.path(), Duration::from_secs(30 * 24 * 3600), &|_| 7).expect("pruned");
        assert_eq!(pruned, Pruned { entries: 2, bytes: 14 });
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .expect("there")
            .map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, [".unfinished-1", "new", "used"]);
        assert_eq!(prune(&path("nowhere"), Duration::ZERO, &|_| 7).expect("nothing"), Pruned::default());
    }
}
