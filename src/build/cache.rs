//! The content-addressed store: `objects/<key>/` in the cache folder holds `output`, `entry.json` and `log`. An entry
//! appears atomically, by a rename. On every read, the output is checked against the hash in `entry.json`, and that
//! file, with the log and the key, against its seal.

use super::{BuildError, KernelResources, MachineCode};
use crate::{
    files::{Presence, content_hash, seal, touch, unseal, write_atomic},
    toolchain::process::Usage,
};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Version of `entry.json`; entries of other versions are rebuilt.
const ENTRY_VERSION: u32 = 3;

/// Prefix of the names of unfinished entries.
const SCRATCH_PREFIX: &str = ".unfinished-";

/// Prefixes of the names of unfinished entries, for code that clears the store.
pub const UNFINISHED: &[&str] = &[SCRATCH_PREFIX];

/// Metadata of a stored output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    version: u32,
    /// BLAKE3 of the output, hexadecimal.
    pub output_hash: String,
    /// ptxas's report.
    pub resources: Vec<KernelResources>,
    /// Summary of the machine code; `None` for host code, and until a disassembler has been available.
    #[serde(default)]
    pub machine_code: Option<MachineCode>,
    /// CPU time it took (seconds).
    pub cpu_seconds: f64,
    /// Time it took (seconds).
    pub wall_seconds: f64,
    /// Largest resident set of any one process (bytes).
    pub peak_memory_bytes: u64,
}

impl Entry {
    /// Metadata of `output`.
    pub fn new(output: &[u8], resources: Vec<KernelResources>, usage: &Usage) -> Self {
        Self {
            version: ENTRY_VERSION,
            output_hash: content_hash(output),
            resources,
            machine_code: None,
            cpu_seconds: usage.cpu_seconds,
            wall_seconds: usage.wall_seconds,
            peak_memory_bytes: usage.peak_memory_bytes,
        }
    }
}

/// An entry with its files, read and verified.
#[derive(Debug)]
pub(super) struct Stored {
    /// Metadata.
    pub entry: Entry,
    /// The object or library.
    pub output: Vec<u8>,
    /// Output of the compiler.
    pub log: Vec<u8>,
}

/// The store.
#[derive(Debug)]
pub(super) struct Cache {
    objects: PathBuf,
    /// Keeps entries that this build found or stored from being pruned.
    _presence: Presence,
}

impl Cache {
    /// Opens or creates the store in the cache folder and removes leftovers of killed runs.
    ///
    /// # Errors
    /// [`BuildError::Cache`].
    pub fn open(cache: &Path) -> Result<Self, BuildError> {
        let objects = cache.join("objects");
        fs::create_dir_all(&objects).map_err(BuildError::cache("create", &objects))?;
        let presence = Presence::announce(&objects, UNFINISHED).map_err(BuildError::cache("lock", &objects))?;
        Ok(Self { objects, _presence: presence })
    }

    /// Checks for an entry of `key` without reading it.
    pub fn seems_to_hold(&self, key: &str) -> bool {
        self.objects.join(key).join("entry.json").is_file()
    }

    /// The entry of `key`; `None` if it is missing or damaged.
    pub fn lookup(&self, key: &str) -> Option<Stored> {
        let folder = self.objects.join(key);
        touch(&folder);
        let log = fs::read(folder.join("log")).ok()?;
        let entry: Entry = unseal(&fs::read(folder.join("entry.json")).ok()?, &[key.as_bytes(), &log])?;
        let output = fs::read(folder.join("output")).ok()?;
        let whole = entry.version == ENTRY_VERSION && content_hash(&output) == entry.output_hash;
        whole.then_some(Stored { entry, output, log })
    }

    /// An empty folder in which to build an entry; removed when dropped.
    ///
    /// # Errors
    /// [`BuildError::Cache`].
    pub fn scratch(&self) -> Result<tempfile::TempDir, BuildError> {
        let folder = tempfile::Builder::new().prefix(SCRATCH_PREFIX).tempdir_in(&self.objects);
        folder.map_err(BuildError::cache("create a folder in", &self.objects))
    }

    /// Replaces the metadata of an existing entry.
    ///
    /// # Errors
    /// [`BuildError::Cache`].
    pub fn update(&self, key: &str, stored: &Stored) -> Result<(), BuildError> {
        let path = self.objects.join(key).join("entry.json");
        write_atomic(&path, &sealed(key, stored)?).map(drop).map_err(BuildError::cache("write", &path))
    }

    /// Stores `stored` as the entry of `key`, replacing a damaged one. If another process was faster, its entry stays.
    ///
    /// # Errors
    /// [`BuildError::Cache`].
    pub fn store(&self, key: &str, stored: &Stored) -> Result<(), BuildError> {
        let scratch = self.scratch()?;
        let write = |name: &str, bytes: &[u8]| {
            let path = scratch.path().join(name);
            fs::write(&path, bytes).map_err(BuildError::cache("write", &path))
        };
        write("output", &stored.output)?;
        write("log", &stored.log)?;
        write("entry.json", &sealed(key, stored)?)?;
        touch(scratch.path());
        let folder = self.objects.join(key);
        if fs::rename(scratch.path(), &folder).is_ok() {
            return Ok(());
        }
        if self.lookup(key).is_some() {
            return Ok(());
        }
        // A damaged entry exists: it is moved away by a rename too, so that no process sees half of it.
        let doomed = self.scratch()?;
        fs::rename(&folder, doomed.path().join("damaged")).map_err(BuildError::cache("replace", &folder))?;
        fs::rename(scratch.path(), &folder).map_err(BuildError::cache("create", &folder))
    }
}

/// The text of `entry.json`.
fn sealed(key: &str, stored: &Stored) -> Result<Vec<u8>, BuildError> {
    let text = seal(&stored.entry, &[key.as_bytes(), &stored.log]);
    text.map_err(|error| BuildError::cache("write", key)(io::Error::from(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(output: &[u8]) -> Stored {
        let usage = Usage { cpu_seconds: 1.5, wall_seconds: 2.0, peak_memory_bytes: 7 };
        Stored { entry: Entry::new(output, Vec::new(), &usage), output: output.into(), log: b"words".into() }
    }

    #[test]
    fn what_is_stored_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        assert!(cache.lookup("k").is_none());
        cache.store("k", &stored(b"object")).unwrap();
        let found = cache.lookup("k").unwrap();
        assert_eq!((found.output.as_slice(), found.log.as_slice()), (&b"object"[..], &b"words"[..]));
        assert_eq!(found.entry.peak_memory_bytes, 7);
        let mut left: Vec<_> = fs::read_dir(dir.path().join("objects")).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".in-use", "k"], "scratch was left");
    }

    #[test]
    fn a_damaged_entry_is_a_miss_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        for damage in ["output", "entry.json", "log"] {
            cache.store("k", &stored(b"object")).unwrap();
            fs::write(dir.path().join("objects/k").join(damage), "obj").unwrap();
            assert!(cache.lookup("k").is_none(), "damaged `{damage}` was trusted");
            cache.store("k", &stored(b"object")).unwrap();
            assert_eq!(cache.lookup("k").unwrap().output, b"object");
        }
    }

    #[test]
    fn an_edited_number_in_an_entry_and_an_entry_under_another_key_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        cache.store("k", &stored(b"object")).unwrap();
        let objects = dir.path().join("objects");
        let text = fs::read_to_string(objects.join("k/entry.json")).unwrap();
        assert!(text.contains("\"peak_memory_bytes\":7"));
        fs::write(objects.join("k/entry.json"), text.replace(":7", ":8")).unwrap();
        assert!(cache.lookup("k").is_none());
        fs::write(objects.join("k/entry.json"), text).unwrap();
        assert!(cache.lookup("k").is_some());
        fs::rename(objects.join("k"), objects.join("other")).unwrap();
        assert!(cache.lookup("other").is_none());
    }

    #[test]
    fn what_is_said_later_of_an_output_is_sealed_too() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        cache.store("k", &stored(b"object")).unwrap();
        let mut more = cache.lookup("k").unwrap();
        more.entry.machine_code = Some(MachineCode { instructions: 3, ..MachineCode::default() });
        cache.update("k", &more).unwrap();
        assert_eq!(cache.lookup("k").unwrap().entry.machine_code.unwrap().instructions, 3);
    }
}
