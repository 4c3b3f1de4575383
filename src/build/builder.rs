//! Schedules a build: rayon under a jobs limit, memory tokens, and a second attempt, running alone, for units that ran
//! out of memory.

use super::{
    BuildError, BuildReport, Observer, Outcome, REPORT_VERSION, Share, Unit,
    cache::Cache,
    compile::{Attempt, Shared},
    inspect::Inspector,
    key::KeyHasher,
    memory::{self, Gate, Peaks},
    report,
    workplace::refuse_obeyed_paths,
};
use crate::{
    files::{FolderLock, make_folder, sweep, write_atomic},
    jobs,
    toolchain::{Cancel, HostCompiler, Nvcc, find_in_path},
};
use rayon::prelude::*;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// Folders that every output folder contains.
const FOLDERS: [&str; 3] = ["obj", "log", "lib"];

/// Options of a build.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Maximum number of parallel compilers.
    pub jobs: usize,
    /// Memory limit of all compilers together (bytes); `None` for the available memory.
    pub memory_limit: Option<u64>,
    /// A compiler launcher in front of nvcc, such as `ccache` or `sccache`, followed by its own flags.
    pub launcher: Option<String>,
    /// Folder for objects, logs, the library and the report.
    pub out_dir: PathBuf,
    /// Folder with the sources and `include`.
    pub generated_dir: PathBuf,
    /// kgen's cache folder.
    pub cache_dir: PathBuf,
    /// Time limit of one compiler.
    pub time_limit: Duration,
    /// Never use the network; machine code is not inspected if that would require installing a disassembler.
    pub offline: bool,
    /// Build kernels that use local memory instead of refusing them.
    pub allow_spills: bool,
}

/// A build of one output folder; holds the folder's lock until dropped.
pub struct Builder<'a> {
    pub(super) nvcc: &'a Nvcc,
    pub(super) host: &'a HostCompiler,
    pub(super) options: BuildOptions,
    pub(super) cancel: Cancel,
    pub(super) observer: &'a dyn Observer,
    pub(super) cache: Cache,
    pub(super) inspector: Inspector,
    lock: FolderLock,
}

impl<'a> Builder<'a> {
    /// Creates the folders, checks the launcher, and waits for the lock of the output folder. Open a builder before
    /// writing into the generated folder, so that two processes that share the folders run one after the other.
    ///
    /// # Errors
    /// [`BuildError`]: a folder that cannot be written, a path that nvcc's shell would obey, a missing launcher, or
    /// cancellation while waiting.
    pub fn open(
        nvcc: &'a Nvcc,
        host: &'a HostCompiler,
        options: BuildOptions,
        cancel: Cancel,
        observer: &'a dyn Observer,
    ) -> Result<Self, BuildError> {
        let options = BuildOptions { launcher: options.launcher.as_deref().map(resolve_launcher).transpose()?, ..options };
        refuse_obeyed_paths(nvcc, host, &options)?;
        for folder in FOLDERS.map(|f| options.out_dir.join(f)) {
            make_folder(&folder).map_err(BuildError::output("create", &folder))?;
        }
        let cache = Cache::open(&options.cache_dir)?;
        let waiting = |who: &str| observer.note(&format!("{who} is building in `{}`; waiting for it", options.out_dir.display()));
        let lock = FolderLock::acquire(&options.out_dir, &waiting, &|| cancel.requested());
        let lock =
            lock.map_err(BuildError::output("lock", FolderLock::file_of(&options.out_dir)))?.ok_or(BuildError::Cancelled)?;
        // Leftovers of killed builds, now that no other process builds here.
        for folder in FOLDERS.iter().chain(&["gen", ""]) {
            sweep(&options.out_dir.join(folder));
        }
        Ok(Self { nvcc, host, options, cancel, observer, cache, inspector: Inspector::default(), lock })
    }

    /// The options of this builder.
    pub fn options(&self) -> &BuildOptions {
        &self.options
    }

    /// Ends the build and returns the lock of the output folder, for a caller that goes on to read the folder.
    pub fn close(self) -> FolderLock {
        self.lock
    }

    /// Compiles `units`, whose files must exist in the generated folder by now. A failed unit does not stop the others.
    ///
    /// # Errors
    /// [`BuildError`] only for problems that affect all units: unreadable headers, no threads, an unwritable cache.
    pub fn compile(&self, units: &[Unit]) -> Result<BuildReport, BuildError> {
        let start = Instant::now();
        let mut keys = KeyHasher::new(self.nvcc, self.host);
        keys.headers(&self.options.generated_dir.join("include"))?;
        let gate = Gate::new(self.options.memory_limit.unwrap_or_else(memory::available));
        let peaks = Peaks::load(&self.options.cache_dir);
        let running = AtomicUsize::new(0);
        let shared = Shared { keys: &keys, gate: &gate, peaks: &peaks, running: &running };

        let kernels = || units.iter().filter(|unit| unit.kind.is_some());
        let known = kernels().filter(|unit| self.cache.seems_to_hold(&shared.keys.unit(unit))).count();
        self.observer.planned(kernels().count(), known);
        let jobs = jobs::useful(self.options.jobs, units.len());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
        let pool = pool.map_err(|e| BuildError::Threads { jobs, reason: e.to_string() })?;
        let first: Vec<Attempt> = self.telling_of_interruption(&running, || {
            pool.install(|| {
                let attempts = units.par_iter().with_max_len(1).map(|unit| self.tell(unit, self.attempt(unit, &shared, false)));
                attempts.collect()
            })
        });
        let again = |(unit, attempt): (&Unit, Attempt)| match attempt {
            Attempt::OutOfMemory(_) => {
                self.observer.note(&format!("`{}` ran out of memory; compiling it again, alone", unit.name));
                match self.attempt(unit, &shared, true) {
                    Attempt::OutOfMemory(failure) => self.tell(unit, Attempt::Failed(failure)),
                    other => self.tell(unit, other),
                }
            }
            other => other,
        };
        let attempts = units.iter().zip(first).map(again).collect::<Vec<_>>();
        if let Err(error) = peaks.save() {
            // Failure only makes the next run's estimates worse.
            self.observer.note(&error.to_string());
        }

        let mut report = BuildReport {
            version: REPORT_VERSION,
            nvcc: format!("{} ({})", self.nvcc.version, self.nvcc.build_id),
            host_compiler: self.host.version.clone(),
            artifacts: Vec::new(),
            failures: Vec::new(),
            by_target: BTreeMap::new(),
            by_kind: BTreeMap::new(),
            library: None,
            not_inspected: self.inspector.not_inspected(),
            interrupted: self.cancel.requested(),
            wall_seconds: start.elapsed().as_secs_f64(),
        };
        for attempt in attempts {
            match attempt {
                Attempt::Built(artifact) => report.artifacts.push(*artifact),
                Attempt::Failed(failure) | Attempt::OutOfMemory(failure) => report.failures.push(failure),
                Attempt::Interrupted => report.interrupted = true,
            }
        }
        report.by_target = Share::by(&report.artifacts, |artifact| artifact.target);
        report.by_kind = Share::by(&report.artifacts, |artifact| artifact.kind);
        Ok(report)
    }

    /// Runs `work`; if the user interrupts while compilers are `running`, notifies the observer that they finish first.
    fn telling_of_interruption<T>(&self, running: &AtomicUsize, work: impl FnOnce() -> T) -> T {
        const LOOK: Duration = Duration::from_millis(100);
        let (ended, end) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    if self.cancel.requested() {
                        let begun = running.load(Ordering::SeqCst);
                        if begun > 0 && !self.cancel.insisted() {
                            let compilers =
                                if begun == 1 { "1 running compiler".into() } else { format!("{begun} running compilers") };
                            self.observer.note(&format!("finishing {compilers}; Ctrl-C again ends them, and their work is lost"));
                        }
                        return;
                    }
                }
            });
            let done = work();
            drop(ended);
            done
        })
    }

    /// Writes `report.json` into the output folder.
    ///
    /// # Errors
    /// [`BuildError::Output`].
    pub fn write_report(&self, report: &BuildReport) -> Result<PathBuf, BuildError> {
        let path = self.options.out_dir.join(report::FILE);
        let text = serde_json::to_string_pretty(report).map_err(io::Error::from);
        let written = text.and_then(|text| write_atomic(&path, format!("{text}\n").as_bytes()));
        written.map_err(BuildError::output("write", &path))?;
        Ok(path)
    }

    /// Writes `text` to `path` in the output folder, for a source that belongs to this build rather than to the
    /// generated folder. Returns the absolute path.
    ///
    /// # Errors
    /// [`BuildError::Output`].
    pub fn write_source(&self, path: &Path, text: &str) -> Result<PathBuf, BuildError> {
        let path = self.options.out_dir.join(path);
        let folder = path.parent().unwrap_or(&self.options.out_dir);
        fs::create_dir_all(folder).map_err(BuildError::output("create", folder))?;
        write_atomic(&path, text.as_bytes()).map_err(BuildError::output("write", &path))?;
        std::path::absolute(&path).map_err(BuildError::output("resolve", &path))
    }

    /// Notifies the observer of the end of a kernel's attempt; host code appears in the report only.
    fn tell(&self, unit: &Unit, attempt: Attempt) -> Attempt {
        match &attempt {
            _ if unit.kind.is_none() => {}
            Attempt::Built(artifact) => self.observer.finished(Outcome::Built(artifact)),
            Attempt::Failed(failure) => self.observer.finished(Outcome::Failed(failure)),
            Attempt::OutOfMemory(_) | Attempt::Interrupted => {}
        }
        attempt
    }
}

/// The launcher with its program as an absolute path, because compilers run in other folders.
fn resolve_launcher(launcher: &str) -> Result<String, BuildError> {
    let (program, flags) = launcher.trim().split_once(' ').unwrap_or((launcher.trim(), ""));
    let path =
        if program.contains('/') { std::path::absolute(program).ok().filter(|p| p.is_file()) } else { find_in_path(program) };
    let path = path.ok_or_else(|| BuildError::NoLauncher { launcher: launcher.to_owned() })?;
    Ok(format!("{} {flags}", path.display()).trim_end().to_owned())
}
