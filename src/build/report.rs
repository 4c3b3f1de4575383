//! What a build has made, as values that can be printed as JSON. Paths are relative to the output folder, so that the
//! folder may be moved.

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

/// The report's name in the output folder.
pub(super) const FILE: &str = "report.json";

/// Version of `report.json`; grows when a field changes its meaning or goes away.
pub const REPORT_VERSION: u32 = 2;

/// What ptxas reports about one kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelResources {
    /// Symbol, as the machine code has it (mangled).
    pub kernel: String,
    /// 32-bit registers of a thread.
    pub registers: u32,
    /// Bytes of registers stored to local memory for want of room.
    pub spill_store_bytes: u32,
    /// Bytes of registers loaded back.
    pub spill_load_bytes: u32,
    /// Local memory of a thread (bytes).
    pub stack_bytes: u32,
    /// Static shared memory of a block (bytes); what a launch asks for dynamically comes on top.
    pub shared_bytes: u32,
}

/// One compiled unit.
#[derive(Clone, Debug, Serialize)]
pub struct Artifact {
    /// Variant name.
    pub name: String,
    /// Target of a kernel; `None` for host code.
    pub target: Option<Target>,
    /// The target whose flags it was compiled with: its own, or the one it is to run as; `None` for host code.
    pub compiled_for: Option<Target>,
    /// Kind of a kernel; `None` for host code.
    pub kind: Option<Kind>,
    /// The object: `obj/<name>.o`.
    pub object: PathBuf,
    /// nvcc's flags that decide what it is.
    pub flags: Vec<String>,
    /// Hash of a kernel's text and its headers (BLAKE3, hexadecimal); `None` for host code.
    pub source: Option<String>,
    /// Cache key (BLAKE3, hexadecimal).
    pub key: String,
    /// BLAKE3 of the object, hexadecimal.
    pub object_hash: String,
    /// ptxas's report, one entry a kernel; empty for host code.
    pub resources: Vec<KernelResources>,
    /// What its machine code is made of; `None` for host code, and where it was not inspected.
    pub machine_code: Option<MachineCode>,
    /// CPU time of the compiler (seconds), when it was compiled.
    pub cpu_seconds: f64,
    /// Time from start to end of the compiler (seconds), when it was compiled.
    pub wall_seconds: f64,
    /// Largest resident set of any one process of the compiler (bytes), when it was compiled.
    pub peak_memory_bytes: u64,
    /// Whether it was found in the cache.
    pub cached: bool,
    /// The compiler's words: `log/<name>.log`.
    pub log: PathBuf,
    /// Size of the object (bytes).
    pub size_bytes: u64,
}

impl Artifact {
    /// Most registers of any of its kernels.
    pub fn registers(&self) -> u32 {
        self.most(|r| r.registers)
    }

    /// Most bytes spilled (stores and loads) by any of its kernels.
    pub fn spill_bytes(&self) -> u32 {
        self.most(|r| r.spill_store_bytes + r.spill_load_bytes)
    }

    /// Most local memory of any of its kernels (bytes a thread).
    pub fn stack_bytes(&self) -> u32 {
        self.most(|r| r.stack_bytes)
    }

    /// Most static shared memory of any of its kernels (bytes).
    pub fn shared_bytes(&self) -> u32 {
        self.most(|r| r.shared_bytes)
    }

    fn most(&self, of: impl Fn(&KernelResources) -> u32) -> u32 {
        self.resources.iter().map(of).max().unwrap_or(0)
    }
}

/// What kind of end a failed unit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It has no plan: the variant does not fit its target, or nothing is written for it yet.
    Plan,
    /// The compiler refused it.
    Compiler,
    /// The compiler died of a signal.
    Died,
    /// Its machine code is not what its plan promised.
    MachineCode,
    /// The compiler ran out of memory, also when it ran alone.
    Memory,
    /// The compiler ran past the time limit.
    TimeLimit,
    /// A file could not be read or written.
    Io,
}

/// One unit that did not compile.
#[derive(Clone, Debug, Serialize)]
pub struct BuildFailure {
    /// Variant name.
    pub name: String,
    /// What kind of end.
    pub kind: FailureKind,
    /// The first real error line, or what happened instead.
    pub message: String,
    /// The compiler's words: `log/<name>.log`; `None` where there are none.
    pub log: Option<PathBuf>,
}

/// What some of the artifacts take together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// How many there are.
    pub variants: usize,
    /// Size of their objects (bytes).
    pub object_bytes: u64,
    /// CPU time of the compiler for one of them, in the mean (seconds), when they were compiled.
    pub mean_cpu_seconds: f64,
    /// CPU time of the compiler for the slowest of them (seconds).
    pub most_cpu_seconds: f64,
}

impl Share {
    /// Sums up `artifacts` by what `name` says of each; `None` counts as `host`.
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
    /// Its size (bytes).
    pub size_bytes: u64,
    /// Whether it was found in the cache.
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
    /// What compiled, in the order of the units.
    pub artifacts: Vec<Artifact>,
    /// What did not, in the order of the units.
    pub failures: Vec<BuildFailure>,
    /// What the kernels of each target take; host code counts as `host`.
    pub by_target: BTreeMap<String, Share>,
    /// What the kernels of each kind take; host code counts as `host`.
    pub by_kind: BTreeMap<String, Share>,
    /// The library, once linked.
    pub library: Option<Library>,
    /// Why machine code was not inspected; `None` where all of it was.
    pub not_inspected: Option<String>,
    /// Whether the user interrupted; units not begun are then in neither list.
    #[serde(skip)]
    pub interrupted: bool,
    /// Time from start to end (seconds). Not in `report.json`, which says of a build found in the cache what it says of
    /// the one that filled it, `cached` aside.
    #[serde(skip)]
    pub wall_seconds: f64,
}

impl BuildReport {
    /// The artifact of one variant.
    pub fn artifact(&self, name: &str) -> Option<&Artifact> {
        self.artifacts.iter().find(|a| a.name == name)
    }

    /// CPU seconds of what was compiled now, cache hits not counted.
    pub fn cpu_seconds(&self) -> f64 {
        self.artifacts.iter().filter(|a| !a.cached).map(|a| a.cpu_seconds).sum()
    }
}

/// What a report says of one kernel, for those who look at it later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// As [`Artifact::source`].
    pub source: String,
    /// As [`Artifact::registers`].
    pub registers: u32,
}

/// The kernels of the report in `folder`, by name; `None` where there is no report that this kgen can read.
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
