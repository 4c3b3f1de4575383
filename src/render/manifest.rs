//! `manifest.json`: the contents of a generated folder, for tools that use it and for kgen's next run.

use super::{OutputFile, RenderError, Source};
use crate::{
    files::{self, content_hash},
    kernel::Variant,
    plan::{self, Tile},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path},
};

/// File name of the manifest.
pub(super) const FILE: &str = "manifest.json";

/// Format version. Increment it when readers of the old format would misread the new one.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Manifest<'a> {
    format: u32,
    kgen: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    vendored: Option<VendoredAs>,
    variants: Vec<Entry<'a>>,
    /// BLAKE3 of every other file of the folder, by path.
    files: BTreeMap<&'a str, String>,
}

/// Marks a folder of `kgen vendor`, with the options chosen besides its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendoredAs {
    /// Consumer of the folder.
    pub layout: Layout,
    /// True if the dispatcher is included.
    pub dispatcher: bool,
}

/// Consumer of a vendored folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Any project.
    Plain,
    /// A vLLM checkout, with the sources of its attention modules beside the kernels.
    Vllm,
}

impl Layout {
    /// The command that manages such a folder.
    pub fn command(self) -> &'static str {
        match self {
            Self::Plain => "kgen vendor",
            Self::Vllm => "kgen vendor vllm",
        }
    }
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    #[serde(flatten)]
    variant: Variant,
    file: String,
    blake3: &'a str,
    tile: &'a dyn Tile,
    threads: u32,
    shared_memory_bytes: u32,
    nvcc_flags: Vec<String>,
    /// Compute capabilities that run its machine code.
    runs_on: Vec<String>,
    /// True if newer ones can run it through its PTX.
    newer_by_ptx: bool,
}

/// The manifest of `sources` and the folder's other `files`.
pub(super) fn render(sources: &[Source], files: &[OutputFile], vendored: Option<VendoredAs>) -> OutputFile {
    let manifest = Manifest {
        format: FORMAT,
        kgen: env!("CARGO_PKG_VERSION"),
        vendored,
        variants: sources.iter().map(entry).collect(),
        files: files.iter().map(|file| (file.path.as_str(), content_hash(&file.text))).collect(),
    };
    // Structures of strings and numbers always serialise.
    let text = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
    OutputFile { path: FILE.to_owned(), text }
}

fn entry(source: &Source) -> Entry<'_> {
    Entry {
        name: &source.name,
        variant: source.plan.variant,
        file: source.name.clone() + ".cu",
        blake3: &source.hash,
        tile: source.plan.tile(),
        threads: source.plan.threads,
        shared_memory_bytes: source.plan.shared_memory_bytes,
        nvcc_flags: plan::nvcc_flags(source.plan.compiled_for(), true),
        runs_on: plan::capabilities_of_machine_code(source.plan.compiled_for()),
        newer_by_ptx: source.plan.compiled_for().carries_ptx(),
    }
}

/// Contents of a folder according to the manifest of an earlier run.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Held {
    format: u32,
    #[serde(default)]
    pub(super) vendored: Option<VendoredAs>,
    pub(super) variants: Vec<Variant>,
    /// BLAKE3 of each file that kgen wrote, by path.
    files: BTreeMap<String, String>,
    /// BLAKE3 of files that earlier runs wrote, by path. Such files may still exist if the run that wrote this manifest
    /// was interrupted.
    #[serde(default)]
    unfinished: BTreeMap<String, BTreeSet<String>>,
}

impl Held {
    /// Reads the manifest of a generated `folder`; empty if there is no manifest.
    pub(super) fn read(folder: &Path) -> Result<Self, RenderError> {
        let held = Self::find(folder)?.unwrap_or_default();
        match held.vendored {
            Some(how) => Err(RenderError::MadeBy { folder: folder.to_owned(), command: how.layout.command() }),
            None => Ok(held),
        }
    }

    /// Reads the manifest of `folder`, if there is one.
    pub(super) fn find(folder: &Path) -> Result<Option<Self>, RenderError> {
        let path = folder.join(FILE);
        let Some(text) = files::read_if_there(&path).map_err(RenderError::io("read", &path))? else {
            return Ok(None);
        };
        let held: Self = serde_json::from_slice(&text)
            .map_err(|error| RenderError::Manifest { path: path.clone(), reason: error.to_string() })?;
        if held.format > FORMAT {
            let reason = format!("its format is {} and this kgen knows {FORMAT}; a newer kgen wrote it", held.format);
            return Err(RenderError::Manifest { path, reason });
        }
        Ok(Some(held))
    }

    /// Paths of all files that kgen wrote. The manifest is untrusted input: paths that lead out of the folder are left
    /// out.
    pub(super) fn paths(&self) -> BTreeSet<&str> {
        let plain = |path: &&str| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        self.files.keys().chain(self.unfinished.keys()).map(String::as_str).filter(plain).collect()
    }

    /// True if kgen wrote a file with this hash at `path`.
    pub(super) fn wrote(&self, path: &str, hash: &str) -> bool {
        self.files.get(path).is_some_and(|written| written == hash)
            || self.unfinished.get(path).is_some_and(|written| written.contains(hash))
    }

    /// The intermediate manifest while a run replaces these files with those of the manifest `new`. It lists both as
    /// written by kgen, and is on disk before the first file changes, so that after an interruption every file is still
    /// recognised as kgen's.
    pub(super) fn until(&self, new: &OutputFile) -> OutputFile {
        let mut unfinished = self.unfinished.clone();
        for (path, hash) in &self.files {
            unfinished.entry(path.clone()).or_default().insert(hash.clone());
        }
        let mut text = new.text.clone();
        if let Ok(serde_json::Value::Object(mut manifest)) = serde_json::from_str(&new.text) {
            manifest.insert("unfinished".to_owned(), serde_json::json!(unfinished));
            text = format!("{:#}\n", serde_json::Value::Object(manifest));
        }
        OutputFile { path: FILE.to_owned(), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_a_run_has_ended_the_manifest_knows_what_was_there_and_what_will_be() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let new = |files: &str| OutputFile {
            path: FILE.to_owned(),
            text: format!("{{\"format\": 1, \"variants\": [], \"files\": {{{files}}}}}"),
        };
        let held = |file: OutputFile| {
            std::fs::write(folder.path().join(FILE), file.text).expect("written");
            Held::read(folder.path()).expect("it is one")
        };
        let first = held(Held::default().until(&new("\"a\": \"1\", \"../b\": \"1\"")));
        let second = held(first.until(&new("\"a\": \"2\"")));
        let third = held(second.until(&new("\"c\": \"3\"")));
        assert!(third.wrote("a", "1") && third.wrote("a", "2") && third.wrote("c", "3") && !third.wrote("a", "3"));
        assert_eq!(third.paths().into_iter().collect::<Vec<_>>(), ["a", "c"]);
        assert!(!held(new("\"c\": \"3\"")).wrote("a", "2"), "it has ended");
    }
}
