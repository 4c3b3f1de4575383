//! `manifest.json`: what a generated folder holds, for tools that use it and for kgen's next run on it.

use super::{OutputFile, RenderError, Source};
use crate::{
    family::Tile,
    files::{self, content_hash},
    grid::Variant,
    plan,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, path::Path};

/// Its name in the folder.
pub(super) const FILE: &str = "manifest.json";

/// Version of the file's format: raised when a reader of the old one would misread the new one.
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

/// Says that a folder is `kgen vendor`'s, and what was chosen for it besides its kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendoredAs {
    /// What the folder is for.
    pub layout: Layout,
    /// Whether the dispatcher lies beside the kernels.
    pub dispatcher: bool,
}

/// What a vendored folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Any project.
    Plain,
    /// A checkout of vLLM: the sources of its attention modules lie beside the kernels.
    Vllm,
}

impl Layout {
    /// The command that looks after such a folder.
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
    tile: Tile<'a>,
    threads: u32,
    shared_memory_bytes: u32,
    nvcc_flags: Vec<String>,
    /// Compute capabilities that run its machine code.
    runs_on: Vec<String>,
    /// Whether newer ones run it too, by compiling its PTX.
    newer_by_ptx: bool,
}

/// The manifest of `sources` and of the folder's other `files`.
pub(super) fn render(sources: &[Source], files: &[OutputFile], vendored: Option<VendoredAs>) -> OutputFile {
    let manifest = Manifest {
        format: FORMAT,
        kgen: env!("CARGO_PKG_VERSION"),
        vendored,
        variants: sources.iter().map(entry).collect(),
        files: files.iter().map(|file| (file.path.as_str(), content_hash(&file.text))).collect(),
    };
    // Plain structures of strings and numbers always serialise.
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

/// What an earlier run left in a folder.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Held {
    format: u32,
    #[serde(default)]
    pub(super) vendored: Option<VendoredAs>,
    pub(super) variants: Vec<Variant>,
    /// BLAKE3 of what kgen wrote, by path.
    pub(super) files: BTreeMap<String, String>,
}

impl Held {
    /// Reads the manifest of a generated `folder`; nothing is held where there is none.
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
        let text = match files::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(RenderError::io("read", path)(error)),
        };
        let held: Self = serde_json::from_str(&text)
            .map_err(|error| RenderError::Manifest { path: path.clone(), reason: error.to_string() })?;
        if held.format > FORMAT {
            let reason = format!("its format is {} and this kgen knows {FORMAT}; a newer kgen wrote it", held.format);
            return Err(RenderError::Manifest { path, reason });
        }
        Ok(Some(held))
    }
}
