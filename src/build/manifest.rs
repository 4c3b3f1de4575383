//! `lib/manifest.json`: the contents of the library beside it, for people who ship it. It is identical for two builds
//! of the same sources by the same compilers; build costs are in `report.json`.

use super::{BuildError, BuildReport, Builder, Share};
use crate::{
    files::{self, write_atomic},
    kernel::{Kind, Target},
};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fs, io, path::Path};

/// Version of the file's format: raised if a reader of the old format would misread the new one.
const FORMAT: u32 = 2;

#[derive(Serialize)]
struct Manifest<'a> {
    format: u32,
    kgen: &'static str,
    nvcc: &'a str,
    host_compiler: &'a str,
    /// Size of the library (bytes).
    library_bytes: u64,
    /// Groups by target; `host` for the dispatcher.
    targets: BTreeMap<&'a str, Group<'a>>,
    /// Sizes by kind of kernel; `host` for the dispatcher.
    kinds: BTreeMap<&'a str, Size>,
    variants: Vec<Entry<'a>>,
}

/// Number of kernels, and size of their objects.
#[derive(Serialize)]
struct Size {
    variants: usize,
    object_bytes: u64,
}

impl From<&Share> for Size {
    fn from(share: &Share) -> Self {
        Self { variants: share.variants, object_bytes: share.object_bytes }
    }
}

/// The kernels of one target.
#[derive(Serialize)]
struct Group<'a> {
    #[serde(flatten)]
    size: Size,
    flags: &'a [String],
    /// Families of tensor-core instructions in its machine code; `null` if it was not inspected.
    tensor_cores: Option<Vec<&'a str>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    kind: Option<Kind>,
    target: Option<Target>,
    compiled_for: Option<Target>,
    object_bytes: u64,
    registers: u32,
    spill_bytes: u32,
    /// Tensor-core instructions in its machine code, by name; `null` if it was not inspected.
    tensor_cores: Option<&'a BTreeMap<String, u32>>,
    /// BLAKE3 of its machine code; `null` if it was not inspected.
    sass: Option<&'a str>,
}

/// The fields read from the manifest of an earlier build.
#[derive(Deserialize)]
struct Earlier {
    format: u32,
    variants: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Builder<'_> {
    /// Names of the kernels in the library in the output folder; empty if there is no library.
    ///
    /// # Errors
    /// [`BuildError::Manifest`] if a library exists and its manifest cannot be read.
    pub fn held(&self) -> Result<Vec<String>, BuildError> {
        let folder = self.options.out_dir.join("lib");
        if !folder.join("libkgen.so").exists() {
            return Ok(Vec::new());
        }
        let path = folder.join("manifest.json");
        let error = |reason: String| BuildError::Manifest { path: path.clone(), reason };
        let text = files::read(&path).map_err(|e| error(e.to_string()))?;
        let earlier: Earlier = serde_json::from_slice(&text).map_err(|e| error(e.to_string()))?;
        if earlier.format > FORMAT {
            return Err(error(format!("its format is {} and this kgen knows {FORMAT}; a newer kgen wrote it", earlier.format)));
        }
        Ok(earlier.variants.into_iter().map(|variant| variant.name).collect())
    }

    /// Writes the manifest of the library in `report`. Does nothing if no library was linked.
    ///
    /// # Errors
    /// [`BuildError::Output`].
    pub fn write_manifest(&self, report: &BuildReport) -> Result<(), BuildError> {
        let Some(library) = &report.library else { return Ok(()) };
        let path = self.options.out_dir.join(library.path.with_file_name("manifest.json"));
        let manifest = Manifest {
            format: FORMAT,
            kgen: env!("CARGO_PKG_VERSION"),
            nvcc: &report.nvcc,
            host_compiler: &report.host_compiler,
            library_bytes: library.size_bytes,
            targets: report.by_target.iter().map(|(name, share)| (name.as_str(), group(report, name, share))).collect(),
            kinds: report.by_kind.iter().map(|(name, share)| (name.as_str(), share.into())).collect(),
            variants: report.artifacts.iter().filter(|artifact| artifact.target.is_some()).map(entry).collect(),
        };
        let text = serde_json::to_string_pretty(&manifest).map_err(io::Error::from);
        let written = text.and_then(|text| write_atomic(&path, format!("{text}\n").as_bytes()));
        written.map(drop).map_err(BuildError::output("write", &path))
    }
}

/// The manifest entry of each variant of a library, by name: registers, spills, machine code, compiler and flags. Empty
/// if there is no manifest, or another program wrote it.
pub fn built(library: &Path) -> BTreeMap<String, Map<String, Value>> {
    let text = fs::read(library.with_file_name("manifest.json")).unwrap_or_default();
    let manifest: Value = serde_json::from_slice(&text).unwrap_or_default();
    let entry = |entry: &Value| {
        let mut facts = entry.as_object()?.clone();
        let name = facts.get("name")?.as_str()?.to_owned();
        for axis in ["name", "kind", "target"] {
            facts.remove(axis);
        }
        for of_all in ["nvcc", "host_compiler"] {
            facts.insert(of_all.to_owned(), manifest.get(of_all).cloned().unwrap_or_default());
        }
        let target = entry.get("target")?.as_str()?;
        facts.insert("flags".to_owned(), manifest.get("targets")?.get(target)?.get("flags").cloned().unwrap_or_default());
        Some((name, facts))
    };
    manifest.get("variants").and_then(Value::as_array).into_iter().flatten().filter_map(entry).collect()
}

fn group<'a>(report: &'a BuildReport, name: &str, share: &'a Share) -> Group<'a> {
    let of = || report.artifacts.iter().filter(|a| a.target.map_or("host", Target::name) == name);
    let families: Option<Vec<_>> =
        of().map(|a| a.machine_code.as_ref().map(|code| code.families().into_keys().collect::<Vec<_>>())).collect();
    Group {
        size: share.into(),
        flags: of().next().map_or(&[], |artifact| &artifact.flags),
        tensor_cores: families.map(|families| families.into_iter().flatten().sorted_unstable().dedup().collect()),
    }
}

fn entry(artifact: &super::Artifact) -> Entry<'_> {
    Entry {
        name: &artifact.name,
        kind: artifact.kind,
        target: artifact.target,
        compiled_for: artifact.compiled_for,
        object_bytes: artifact.size_bytes,
        registers: artifact.registers(),
        spill_bytes: artifact.spill_bytes(),
        tensor_cores: artifact.machine_code.as_ref().map(|code| &code.tensor_cores),
        sass: artifact.machine_code.as_ref().map(|code| code.sass.as_str()),
    }
}
