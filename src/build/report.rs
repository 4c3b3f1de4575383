//! The result of a build, as values that serialise to JSON. Paths are relative to the output folder, so that the folder
//! may be moved.

use super::MachineCode;
use crate::{
    files,
    kernel::{Kind, Target},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// File name of the report in the output folder.
pub(super) const FILE: &str = "report.json";

/// Version of `report.json`; raised when a field changes its meaning or is removed.
pub const REPORT_VERSION: u32 = 2;

/// ptxas's report for one kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelResources {
    /// Mangled symbol, as in the machine code.
    pub kernel: String,
    /// Registers (32-bit) per thread.
    pub registers: u32,
    /// Bytes of spill stores.
    pub spill_store_bytes: u32,
    /// Bytes of spill loads.
    pub spill_load_bytes: u32,
    /// Local memory per thread (bytes).
    pub stack_bytes: u32,
    /// Static shared memory of a block (bytes); dynamic shared memory of a launch comes on top.
    pub shared_bytes: u32,
}

/// One compiled unit.
#[derive(Clone, Debug, Serialize)]
pub struct Artifact {
    /// Variant name.
    pub name: String,
    /// Target of a kernel; `None` for host code.
    pub target: Option<Target>,
    /// The target whose flags compiled it: its own, or the target of `--run-as`; `None` for host code.
    pub compiled_for: Option<Target>,
    /// Kind of a kernel; `None` for host code.
    pub kind: Option<Kind>,
    /// The object: `obj/<name>.o`.
    pub object: PathBuf,
    /// nvcc's flags that affect the object.
    pub flags: Vec<String>,
    /// Hash of a kernel's text and its headers (BLAKE3, hexadecimal); `None` for host code.
    pub source: Option<String>,
    /// Cache key (BLAKE3, hexadecimal).
    pub key: String,
    /// BLAKE3 of the object, hexadecimal.
    pub object_hash: String,
    /// ptxas's report, one entry per kernel; empty for host code.
    pub resources: Vec<KernelResources>,
    /// Summary of the machine code; `None` for host code, and if it was not inspected.
    pub machine_code: Option<MachineCode>,
    /// CPU time of the compiler (seconds); of the earlier compilation if the object came from the cache.
    pub cpu_seconds: f64,
    /// Time from start to end of the compiler (seconds), likewise.
    pub wall_seconds: f64,
    /// Largest resident set of any single process of the compiler (bytes), likewise.
    pub peak_memory_bytes: u64,
    /// True if it came from the cache.
    pub cached: bool,
    /// Compiler output: `log/<name>.log`.
    pub log: PathBuf,
    /// Size of the object (bytes).
    pub size_bytes: u64,
}

impl Artifact {
    /// Largest number of registers per thread among the kernels of the artifact.
    pub fn registers(&self) -> u32 {
        self.most(|r| r.registers)
    }

    /// Largest number of spilled bytes (stores and loads) among the kernels of the artifact.
    pub fn spill_bytes(&self) -> u32 {
        self.most(|r| r.spill_store_bytes + r.spill_load_bytes)
    }

    /// Largest local memory among its kernels (bytes per thread).
    pub fn stack_bytes(&self) -> u32 {
        self.most(|r| r.stack_bytes)
    }

    /// Largest static shared memory among its kernels (bytes).
    pub fn shared_bytes(&self) -> u32 {
        self.most(|r| r.shared_bytes)
    }

    fn most(&self, of: impl Fn(&KernelResources) -> u32) -> u32 {
        self.resources.iter().map(of).max().unwrap_or(0)
    }
}

/// Kinds of failure of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The variant has no plan: it does not fit its target, or has no template yet.
    Plan,
    /// The compiler rejected the unit.
    Compiler,
    /// The compiler died of a signal.
    Died,
    /// The machine code is not what the plan promised.
    MachineCode,
    /// The compiler ran out of memory, even when it ran alone.
    Memory,
    /// The compiler exceeded the time limit.
    TimeLimit,
    /// A file could not be read or written.
    Io,
}

/// One unit that did not compile.
#[derive(Clone, Debug, Serialize)]
pub struct BuildFailure {
    /// Variant name.
    pub name: String,
    /// Kind of failure.
    pub kind: FailureKind,
    /// The first real error line, or a description of what happened instead.
    pub message: String,
    /// Compiler output: `log/<name>.log`; `None` if there is none.
    pub log: Option<PathBuf>,
}

/// Totals over a group of artifacts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// Number of artifacts.
    pub variants: usize,
    /// Size of their objects (bytes).
    pub object_bytes: u64,
    /// Mean CPU time of the compiler (seconds), when they were compiled.
    pub mean_cpu_seconds: f64,
    /// CPU time of the compiler for the slowest one (seconds).
    pub most_cpu_seconds: f64,
}

impl Share {
    /// Totals of `artifacts`, grouped by `name`; `None` counts as `host`.
    pub(super) fn by<T: ToString>(artifacts: &[Artifact], name: impl Fn(&Artifact) -> Option<T>) -> BTreeMap<String, Self> {
        let mut shares: BTreeMap<String, Self> = BTreeMap::new();
        for artifact in artifacts {
            let share = shares.entry(name(artifact).map_or_else(|| "host".to_owned(), |n| n.to_string())).or_default();
            let sum = share.mean_cpu_seconds * share.variants as f64 + artifact.cpu_seconds;
            share.variants += 1;
            share.object_bytes += artifact.size_bytes;
            share.mean_cpu_seconds = sum / share.variants as f64;
            share.most_cpu_seconds = share.most_cpu_seconds.max(artifact.cpu_seconds);
        }
        shares
    }
}

/// The linked library.
#[derive(Clone, Debug, Serialize)]
pub struct Library {
    /// `lib/libkgen.so`.
    pub path: PathBuf,
    /// Size in bytes.
    pub size_bytes: u64,
    /// True if it came from the cache.
    pub cached: bool,
}

/// The result of a build; also the content of `report.json`.
#[derive(Clone, Debug, Serialize)]
pub struct BuildReport {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// nvcc's version and build.
    pub nvcc: String,
    /// The host compiler's version line.
    pub host_compiler: String,
    /// Units that compiled, in order.
    pub artifacts: Vec<Artifact>,
    /// Units that did not compile, in order.
    pub failures: Vec<BuildFailure>,
    /// Totals of each target's kernels; host code counts as `host`.
    pub by_target: BTreeMap<String, Share>,
    /// Totals of each kind of kernel; host code counts as `host`.
    pub by_kind: BTreeMap<String, Share>,
    /// The library, once linked.
    pub library: Option<Library>,
    /// The reason why some machine code was not inspected; `None` if all of it was.
    pub not_inspected: Option<String>,
    /// True if the user interrupted; units that had not begun are then in neither list.
    #[serde(skip)]
    pub interrupted: bool,
    /// Time from start to end (seconds). Omitted from `report.json`, so that the report of a cached build equals that
    /// of the build that filled the cache, except for `cached`.
    #[serde(skip)]
    pub wall_seconds: f64,
}

impl BuildReport {
    /// The artifact of one variant.
    pub fn artifact(&self, name: &str) -> Option<&Artifact> {
        self.artifacts.iter().find(|a| a.name == name)
    }

    /// CPU seconds of the units compiled in this run; cache hits do not count.
    pub fn cpu_seconds(&self) -> f64 {
        self.artifacts.iter().filter(|a| !a.cached).map(|a| a.cpu_seconds).sum()
    }
}

/// The fields of one kernel in a report, for later readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// See [`Artifact::source`].
    pub source: String,
    /// See [`Artifact::registers`].
    pub registers: u32,
}

/// The kernels of the report in `folder`, by name; `None` if there is no report that this kgen can read.
pub fn records(folder: &Path) -> Option<BTreeMap<String, Record>> {
    #[derive(Deserialize)]
    struct Report {
        version: u32,
        artifacts: Vec<Listed>,
    }
    #[derive(Deserialize)]
    struct Listed {
        name: String,
        source: Option<String>,
        resources: Vec<KernelResources>,
    }
    let report: Report = serde_json::from_slice(&files::read(&folder.join(FILE)).ok()?).ok()?;
    let record = |listed: Listed| {
        let registers = listed.resources.iter().map(|kernel| kernel.registers).max()?;
        Some((listed.name, Record { source: listed.source?, registers }))
    };
    (report.version == REPORT_VERSION).then(|| report.artifacts.into_iter().filter_map(record).collect())
}

/// `obj/<name>.o`.
pub(super) fn object_path(name: &str) -> PathBuf {
    Path::new("obj").join(format!("{name}.o"))
}

/// `log/<name>.log`.
pub(super) fn log_path(name: &str) -> PathBuf {
    Path::new("log").join(format!("{name}.log"))
}
