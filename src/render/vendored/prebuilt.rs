//! Replaces the attention modules of an installed vLLM with prebuilt ones. The originals are kept beside them.
//!
//! The replacement can be undone byte for byte, even after an interruption: all files are first written under temporary
//! names, the record is written before a file is moved, and an original is renamed, never copied.

use super::changes::{Action, Change, Changes};
use crate::{
    files::{self, FolderLock, Staging, content_hash, library_flaw, sweep},
    render::{RenderError, Restoration, folder::lock},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A file to install.
struct Part {
    name: &'static str,
    /// Symbols that the library must define.
    defines: &'static [&'static str],
    /// True if vLLM has a file with this name.
    replaces: bool,
}

/// The library of kernels is installed first and removed last, because the modules need it.
const PARTS: [Part; 3] = [
    Part { name: "libkgen_vllm.so", defines: &["kgen_fwd", "kgen_fwd_metadata", "kgen_last_error"], replaces: false },
    Part { name: "_vllm_fa2_C.abi3.so", defines: &["PyInit__vllm_fa2_C"], replaces: true },
    Part { name: "_vllm_fa3_C.abi3.so", defines: &["PyInit__vllm_fa3_C"], replaces: true },
];

/// Suffix of a kept original.
const KEPT: &str = ".kgen-original";

/// File name of the record, beside the modules.
const RECORD: &str = "kgen-prebuilt.json";

/// Folder of the modules relative to the folder that the user names: `vllm_flash_attn`, `vllm` or `site-packages`.
const BELOW: [&str; 3] = ["", "vllm_flash_attn", "vllm/vllm_flash_attn"];

/// The file that calls the modules, and the calls that it must contain.
const INTERFACE: &str = "flash_attn_interface.py";
const CALLS: [&str; 2] = ["_vllm_fa2_C.varlen_fwd", "_vllm_fa3_C.fwd"];

/// The replaced files, by name.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    kgen: String,
    files: BTreeMap<String, Written>,
}

impl Record {
    fn of(files: BTreeMap<String, Written>) -> Self {
        Self { kgen: env!("CARGO_PKG_VERSION").to_owned(), files }
    }
}

/// A replaced file; hashes are BLAKE3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    /// Hash of kgen's file; during a replacement, also the hash of kgen's previous file.
    written: Vec<String>,
    /// Hash of vLLM's original, now kept beside it; `None` if there was none.
    original: Option<String>,
}

/// The three built files, in the order of [`PARTS`].
#[derive(Debug)]
pub struct Prebuilt([Vec<u8>; 3]);

impl Prebuilt {
    /// Reads the files from `folder`, the output of `scripts/torch_ops.sh`.
    ///
    /// # Errors
    /// [`RenderError::NotPrebuilt`] when a file is missing or does not define the expected symbols.
    pub fn read(folder: &Path) -> Result<Self, RenderError> {
        let read = |part: &Part| {
            let unfit = |reason| RenderError::NotPrebuilt { file: folder.join(part.name), reason };
            let bytes = files::read(&folder.join(part.name)).map_err(|error| unfit(error.to_string()))?;
            library_flaw(&bytes, part.defines).map_or(Ok(bytes), |flaw| Err(unfit(format!("it {flaw}"))))
        };
        Ok(Self([read(&PARTS[0])?, read(&PARTS[1])?, read(&PARTS[2])?]))
    }
}

/// The folder with the attention modules of an installed vLLM.
#[derive(Debug)]
pub struct InstalledVllm {
    folder: PathBuf,
    record: Option<Record>,
    _lock: Option<FolderLock>,
}

/// Current state of a file.
struct Found {
    /// The file's entry in the record, if any.
    known: Option<Written>,
    current: Option<String>,
    kept: Option<String>,
}

impl Found {
    fn is_ours(&self) -> bool {
        matches!((&self.known, &self.current), (Some(known), Some(current)) if known.written.contains(current))
    }

    /// True if vLLM's own file is in place.
    fn is_original(&self) -> bool {
        match &self.known {
            None => self.kept.is_none(),
            Some(known) => self.kept.is_none() && self.current == known.original,
        }
    }

    /// True if the original was moved and kgen's file not yet put in its place (an interrupted run).
    fn is_between(&self) -> bool {
        self.current.is_none() && self.known.as_ref().is_some_and(|known| known.original.is_some() && self.kept == known.original)
    }

    /// True if replacing the file destroys neither vLLM's original nor a user's file.
    fn may_be_replaced(&self, part: &Part) -> bool {
        match &self.known {
            None => self.kept.is_none() && (part.replaces || self.current.is_none()),
            Some(_) => {
                self.is_kept_well() && (self.is_ours() || self.is_original() || self.is_between() || self.current.is_none())
            }
        }
    }

    /// True if the kept original, if any, has the recorded hash.
    fn is_kept_well(&self) -> bool {
        self.known.as_ref().is_none_or(|known| self.kept.is_none() || self.kept == known.original)
    }
}

impl InstalledVllm {
    /// Finds the folder at or below `path`, and waits until no other process writes it. `on_wait` receives one sentence
    /// if there is such a process.
    ///
    /// # Errors
    /// [`RenderError::NotInstalledVllm`] when there is no such folder, or its files are not as expected.
    pub fn open(path: &Path, on_wait: &dyn Fn(&str)) -> Result<Self, RenderError> {
        let unknown = |reason: String| RenderError::NotInstalledVllm { folder: path.to_owned(), reason };
        let folder = BELOW.iter().map(|below| path.join(below)).find(|folder| folder.join(INTERFACE).is_file());
        let folder = folder.ok_or_else(|| unknown(format!("neither it nor `vllm/vllm_flash_attn` in it has `{INTERFACE}`")))?;
        FolderLock::wait(&folder, &|who| on_wait(&format!("{who} is writing `{}`; waiting for it", folder.display())));
        Self::as_it_is(folder, unknown)
    }

    /// Reads the current state of the folder.
    fn as_it_is(folder: PathBuf, unknown: impl Fn(String) -> RenderError) -> Result<Self, RenderError> {
        let text = files::read_to_string(&folder.join(INTERFACE)).map_err(|error| unknown(error.to_string()))?;
        if let Some(call) = CALLS.iter().find(|call| !text.contains(**call)) {
            return Err(unknown(format!("`{INTERFACE}` does not call `{call}`")));
        }
        let record = files::read_if_there(&folder.join(RECORD)).map_err(|error| unknown(format!("`{RECORD}`: {error}")))?;
        let record = record.map(|text| serde_json::from_slice(&text)).transpose();
        let record = record.map_err(|error| unknown(format!("`{RECORD}`: {error}")))?;
        let built = |part: &Part| part.replaces && (folder.join(part.name).exists() || folder.join(kept(part.name)).exists());
        if !PARTS.iter().any(built) {
            return Err(unknown(
                "it has neither `_vllm_fa2_C.abi3.so` nor `_vllm_fa3_C.abi3.so`: vLLM is not installed there".into(),
            ));
        }
        Ok(Self { folder, record, _lock: None })
    }

    /// Locks the folder, removes temporary files of killed processes, and reads the state again.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and [`RenderError::Io`] when the folder cannot be locked.
    pub fn lock(self, on_wait: &dyn Fn(&str)) -> Result<Self, RenderError> {
        let lock = lock(&self.folder, on_wait, &|| false)?;
        sweep(&self.folder);
        let unknown = |reason| self.unknown(reason);
        Ok(Self { _lock: Some(lock), ..Self::as_it_is(self.folder.clone(), unknown)? })
    }

    /// Path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// True if kgen's files are installed.
    pub fn is_replaced(&self) -> bool {
        self.record.is_some()
    }

    /// The changes that install `built`; without `built`, the files that differ from the record. Writes nothing.
    ///
    /// # Errors
    /// [`RenderError::Io`]; [`RenderError::NotInstalledVllm`] without `built` when no file of kgen is installed.
    pub fn compare(&self, built: Option<&Prebuilt>) -> Result<Changes, RenderError> {
        if built.is_none() && self.record.is_none() {
            return Err(self.unknown("nothing of kgen's is there".into()));
        }
        let mut changes = Changes::default();
        for (place, part) in PARTS.iter().enumerate() {
            let found = self.found(part)?;
            let wanted = built.map(|built| content_hash(&built.0[place]));
            let is_right = if wanted.is_some() { found.is_ours() && found.current == wanted } else { found.is_ours() };
            if is_right {
                changes.unchanged += 1;
            } else {
                let action = if found.current.is_some() { Action::Update } else { Action::Add };
                changes.changes.push(Change { path: part.name.to_owned(), action, edited: !found.may_be_replaced(part) });
            }
            let original_is_lost =
                found.known.as_ref().is_some_and(|known| known.original.is_some()) && found.is_ours() && found.kept.is_none();
            if original_is_lost || !found.is_kept_well() {
                changes.changes.push(Change { path: kept(part.name), action: Action::Update, edited: true });
            }
        }
        Ok(changes)
    }

    /// The changes of a removal.
    ///
    /// # Errors
    /// [`RenderError::Io`].
    pub fn compare_without(&self) -> Result<Changes, RenderError> {
        let mut changes = Changes::default();
        for part in
            PARTS.iter().rev().filter(|part| self.record.as_ref().is_some_and(|record| record.files.contains_key(part.name)))
        {
            let found = self.found(part)?;
            let had_one = found.known.as_ref().is_some_and(|known| known.original.is_some());
            let (action, edited) = match (&found.kept, &found.current) {
                (Some(_), None) => (Action::Add, !found.is_kept_well()),
                (Some(_), Some(_)) => (Action::Update, !found.is_kept_well() || !found.is_ours()),
                (None, Some(_)) if !had_one => (Action::Remove, !found.is_ours()),
                (None, _) if had_one && !found.is_original() => (Action::Update, true), // its original is lost
                (None, _) => continue,
            };
            changes.changes.push(Change { path: part.name.to_owned(), action, edited });
        }
        if self.is_replaced() {
            changes.changes.push(Change { path: RECORD.to_owned(), action: Action::Remove, edited: false });
        }
        Ok(changes)
    }

    /// Installs `built` and keeps vLLM's originals.
    ///
    /// # Errors
    /// [`RenderError::Edited`] when a file is neither vLLM's original nor kgen's: nothing has changed then.
    pub fn bring(&mut self, built: &Prebuilt) -> Result<Changes, RenderError> {
        let changes = self.compare(Some(built))?;
        changes.refuse_edited(&self.folder, Restoration::Restore)?;
        let (mut during, mut after) = (BTreeMap::new(), BTreeMap::new());
        let mut moves = Vec::new();
        for (part, bytes) in PARTS.iter().zip(&built.0) {
            let found = self.found(part)?;
            if found.current.as_deref() != Some(&*content_hash(bytes)) || !found.is_ours() {
                let keep = found.current.is_some() && !found.is_ours();
                moves.push((part.name, keep, bytes.as_slice()));
            }
            let before = found.known.unwrap_or(Written { written: Vec::new(), original: found.current });
            let new = content_hash(bytes);
            after.insert(part.name.to_owned(), Written { written: vec![new.clone()], original: before.original.clone() });
            during.insert(part.name.to_owned(), Written { written: [before.written, vec![new]].concat(), ..before });
        }
        let [during, after] = [during, after].map(Record::of);
        if moves.is_empty() && self.record.as_ref() == Some(&after) {
            return Ok(changes);
        }
        let records = [self.text_of(&during)?, self.text_of(&after)?];
        let staging = Staging::new(&self.folder).map_err(RenderError::io("write", &self.folder))?;
        let records = records.iter().map(|text| (RECORD, text.as_bytes()));
        let files: Vec<(&str, &[u8])> = records.chain(moves.iter().map(|(name, _, bytes)| (*name, *bytes))).collect();
        let path = |number: usize| self.folder.join(files[number].0);
        for (number, (_, bytes)) in files.iter().enumerate() {
            staging.write(number, bytes).map_err(RenderError::io("write", path(number)))?;
        }
        let place = |number: usize| staging.place(number, &path(number)).map_err(RenderError::io("write", path(number)));
        place(0)?;
        for (number, (name, keep, _)) in moves.iter().enumerate() {
            let path = self.folder.join(name);
            if *keep {
                fs::rename(&path, self.folder.join(kept(name))).map_err(RenderError::io("write", &path))?;
            }
            place(number + 2)?;
        }
        place(1)?;
        self.record = Some(after);
        Ok(changes)
    }

    /// Restores vLLM's originals.
    ///
    /// # Errors
    /// The errors of [`bring`](Self::bring).
    pub fn take_away(&mut self) -> Result<Changes, RenderError> {
        let changes = self.compare_without()?;
        changes.refuse_edited(&self.folder, Restoration::Restore)?;
        for change in &changes.changes {
            let path = self.folder.join(&change.path);
            if change.action == Action::Remove {
                fs::remove_file(&path).map_err(RenderError::io("remove", &path))?;
            } else {
                fs::rename(self.folder.join(kept(&change.path)), &path).map_err(RenderError::io("write", &path))?;
            }
        }
        self.record = None;
        Ok(changes)
    }

    fn found(&self, part: &Part) -> Result<Found, RenderError> {
        Ok(Found {
            known: self.record.as_ref().and_then(|record| record.files.get(part.name).cloned()),
            current: self.hash_of(part.name)?,
            kept: self.hash_of(&kept(part.name))?,
        })
    }

    fn hash_of(&self, name: &str) -> Result<Option<String>, RenderError> {
        let path = self.folder.join(name);
        let bytes = files::read_if_there(&path).map_err(RenderError::io("read", path))?;
        Ok(bytes.map(content_hash))
    }

    fn text_of(&self, record: &Record) -> Result<String, RenderError> {
        let text = serde_json::to_string_pretty(record).map_err(|error| self.unknown(error.to_string()))?;
        Ok(text + "\n")
    }

    fn unknown(&self, reason: String) -> RenderError {
        RenderError::NotInstalledVllm { folder: self.folder.clone(), reason }
    }
}

/// File name of a kept original.
fn kept(name: &str) -> String {
    format!("{name}{KEPT}")
}
