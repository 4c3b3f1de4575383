//! Compiles one unit: cache, memory token, nvcc, and parsing of its output.

use super::{
    Artifact, BuildError, BuildFailure, Builder, FailureKind, Unit,
    cache::{Entry, Stored},
    diagnostics,
    key::KeyHasher,
    lines::{launcher_words, nvcc_words},
    memory::{Gate, Peaks},
    ptx, ptxas,
    report::{log_path, object_path},
    sass::MachineCode,
    workplace::OUTPUT,
};
use crate::{
    files::{object_flaw, write_atomic},
    plan::shell_words,
    toolchain::{
        Cancel,
        process::{self, Ending, Finished},
    },
};
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Outcome of one attempt.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The unit has an object.
    Built(Box<Artifact>),
    /// No object, and another attempt would fail the same way.
    Failed(BuildFailure),
    /// The compiler ran out of memory; it may succeed when run alone.
    OutOfMemory(BuildFailure),
    /// The user interrupted.
    Interrupted,
}

/// State shared by all units of a build.
pub(super) struct Shared<'a> {
    /// Hashes of compilers and headers.
    pub keys: &'a KeyHasher,
    /// Memory tokens.
    pub gate: &'a Gate,
    /// Peak memory of earlier compilations.
    pub peaks: &'a Peaks,
    /// Number of running compilers.
    pub running: &'a AtomicUsize,
}

impl Builder<'_> {
    /// Compiles `unit` or takes it from the cache. With `alone`, it takes all memory tokens.
    pub(super) fn attempt(&self, unit: &Unit, shared: &Shared<'_>, alone: bool) -> Attempt {
        let result = self.try_attempt(unit, shared, alone);
        result.unwrap_or_else(|error| match error {
            BuildError::Cancelled => Attempt::Interrupted,
            // A log, if one exists, belongs to another attempt.
            error => Attempt::Failed(BuildFailure { log: None, ..failure(unit, FailureKind::Io, error.to_string()) }),
        })
    }

    fn try_attempt(&self, unit: &Unit, shared: &Shared<'_>, alone: bool) -> Result<Attempt, BuildError> {
        let key = shared.keys.unit(unit);
        if let Some(mut stored) = self.cache.lookup(&key) {
            if unit.promised.is_some() && stored.entry.machine_code.is_none() {
                self.inspect_stored(&key, &mut stored)?;
            }
            return self.publish(unit, key, &stored, true);
        }
        let need = if alone { u64::MAX } else { shared.peaks.estimate(&unit.name) };
        let Some(permit) = shared.gate.acquire(need, &self.cancel) else { return Ok(Attempt::Interrupted) };
        if unit.kind.is_some() {
            self.observer.started(&unit.name);
        }

        let scratch = self.cache.scratch()?;
        let object = scratch.path().join(OUTPUT);
        let log_file = scratch.path().join("log");
        let mut command = self.compile_command(unit, scratch.path())?;
        let (words, source) = (shell_words(&unit.flags), unit.path.display());
        let header = format!("# nvcc {words} -c {source} -o {}\n", object_path(&unit.name).display());
        // A running compiler represents minutes of work: the first Ctrl-C lets it finish, so that its object is kept.
        shared.running.fetch_add(1, Ordering::SeqCst);
        let done = self.run_logged(&mut command, &log_file, &header, &self.cancel.when_insisted());
        shared.running.fetch_sub(1, Ordering::SeqCst);
        let done = done?;
        let log = fs::read(&log_file).map_err(BuildError::cache("read", &log_file))?;
        if !done.ending.is_success() {
            return self.explain(unit, done.ending, &log);
        }
        // A launcher may have answered from its own cache; its memory use is then not that of the compiler.
        if self.options.launcher.is_none() {
            shared.peaks.learn(&unit.name, done.usage.peak_memory_bytes);
        }
        let Ok(output) = fs::read(&object) else {
            let message = "nvcc reported success but wrote no object".to_owned();
            self.write_log(unit, &log)?;
            return Ok(Attempt::Failed(failure(unit, FailureKind::Compiler, message)));
        };
        // The disassembler needs little memory, so the next compiler may start.
        drop(permit);
        let resources = ptxas::parse(&String::from_utf8_lossy(&log));
        let mut entry = Entry::new(&output, resources, &done.usage);
        if unit.promised.is_some() {
            entry.machine_code = self.inspect(&output);
        }
        let stored = Stored { entry, output, log };
        // Permanently wrong results never enter the cache.
        if let Some(failure) = flaw(unit, &stored).or_else(|| unkept_by_ptx(unit, &stored.entry, scratch.path())) {
            self.write_log(unit, &stored.log)?;
            return Ok(Attempt::Failed(failure));
        }
        self.cache.store(&key, &stored)?;
        self.publish(unit, key, &stored, false)
    }

    /// Copies an entry's files into the output folder if the machine code is as promised.
    fn publish(&self, unit: &Unit, key: String, stored: &Stored, cached: bool) -> Result<Attempt, BuildError> {
        self.write_log(unit, &stored.log)?;
        if let Some(failure) = flaw(unit, stored) {
            return Ok(Attempt::Failed(failure));
        }
        let spills_allowed = self.options.allow_spills;
        if let Some(message) = stored.entry.machine_code.as_ref().filter(|_| !spills_allowed).and_then(MachineCode::slow_memory) {
            return Ok(Attempt::Failed(failure(unit, FailureKind::MachineCode, message)));
        }
        if let Some(reason) = ptxas::serialised(&String::from_utf8_lossy(&stored.log)).filter(|_| !spills_allowed) {
            let message = format!(
                "ptxas serialises its `wgmma` products ({reason}), which is slow; change its tile, or accept it with `--allow-spills`"
            );
            return Ok(Attempt::Failed(failure(unit, FailureKind::MachineCode, message)));
        }
        let object = object_path(&unit.name);
        let path = self.options.out_dir.join(&object);
        write_atomic(&path, &stored.output).map_err(BuildError::output("write", &path))?;
        let entry = &stored.entry;
        Ok(Attempt::Built(Box::new(Artifact {
            name: unit.name.clone(),
            target: unit.target,
            compiled_for: unit.compiled_for,
            kind: unit.kind,
            object,
            flags: unit.flags.clone(),
            source: unit.source.clone(),
            key,
            object_hash: entry.output_hash.clone(),
            resources: entry.resources.clone(),
            machine_code: entry.machine_code.clone(),
            cpu_seconds: entry.cpu_seconds,
            wall_seconds: entry.wall_seconds,
            peak_memory_bytes: entry.peak_memory_bytes,
            cached,
            log: log_path(&unit.name),
            size_bytes: stored.output.len() as u64,
        })))
    }

    /// Describes the failure of a compiler and keeps its log.
    fn explain(&self, unit: &Unit, ending: Ending, log: &[u8]) -> Result<Attempt, BuildError> {
        self.write_log(unit, log)?;
        let text = String::from_utf8_lossy(log);
        let starved = diagnostics::ran_out_of_memory(&text);
        Ok(match ending {
            Ending::Cancelled => Attempt::Interrupted,
            Ending::TimeLimit => {
                let limit = self.options.time_limit.as_secs();
                let message = format!("stopped after {limit} s; `--time-limit` allows more");
                Attempt::Failed(failure(unit, FailureKind::TimeLimit, message))
            }
            // A shell, and so a launcher, reports 137 for a child killed by signal 9.
            Ending::Signalled(9) | Ending::Exited(137) => Attempt::OutOfMemory(out_of_memory(unit)),
            Ending::Exited(_) if starved => Attempt::OutOfMemory(out_of_memory(unit)),
            Ending::Signalled(signal) => {
                Attempt::Failed(failure(unit, FailureKind::Died, format!("nvcc died of signal {signal}")))
            }
            Ending::Exited(code) => {
                let error = diagnostics::first_error(&text);
                let message = error.unwrap_or_else(|| format!("nvcc failed with exit code {code} and said nothing"));
                Attempt::Failed(failure(unit, FailureKind::Compiler, message))
            }
        })
    }

    fn write_log(&self, unit: &Unit, log: &[u8]) -> Result<(), BuildError> {
        let path = self.options.out_dir.join(log_path(&unit.name));
        write_atomic(&path, log).map(drop).map_err(BuildError::output("write", &path))
    }

    /// `[launcher] nvcc flags`, with temporary files in the folder it runs in, so that a kill leaves none.
    pub(super) fn nvcc_command(&self, flags: &[String]) -> Command {
        let launcher = launcher_words(self.options.launcher.as_deref());
        let mut words = launcher.chain(nvcc_words(self.nvcc, self.host, flags));
        // The words include nvcc.
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).env("LC_ALL", "C");
        if self.options.launcher.is_none() {
            // Not with a launcher: sccache's server would keep using this folder.
            command.env("TMPDIR", ".");
        }
        command
    }

    /// Runs `command` until the time limit or `cancel`; `log` receives `header` and then both output streams.
    pub(super) fn run_logged(
        &self,
        command: &mut Command,
        log: &Path,
        header: &str,
        cancel: &Cancel,
    ) -> Result<Finished, BuildError> {
        let mut file = File::create(log).map_err(BuildError::cache("write", log))?;
        file.write_all(header.as_bytes()).map_err(BuildError::cache("write", log))?;
        let both = file.try_clone().map_err(BuildError::cache("write", log))?;
        command.stdin(Stdio::null()).stdout(file).stderr(both);
        process::run(command, self.options.time_limit, cancel)
            .map_err(|source| BuildError::Start { program: command.get_program().to_string_lossy().into_owned(), source })
    }
}

/// The reason to reject nvcc's output, for any exit status: no object, or one without the promised instructions.
fn flaw(unit: &Unit, stored: &Stored) -> Option<BuildFailure> {
    // Host code has no launcher named after it, and no device code.
    let kernel = unit.promised.is_some();
    if let Some(flaw) = object_flaw(&stored.output, kernel.then_some(&*unit.name), kernel) {
        let message = format!("nvcc reported success, but its object {flaw}");
        return Some(failure(unit, FailureKind::Compiler, message));
    }
    let (code, promised) = stored.entry.machine_code.as_ref().zip(unit.promised)?;
    code.broken_promise(promised).map(|message| failure(unit, FailureKind::MachineCode, message))
}

/// The failure if the PTX that nvcc left in its workplace lacks the promised instructions, for kernels whose machine
/// code could not be read. A launcher has no PTX.
fn unkept_by_ptx(unit: &Unit, entry: &Entry, workplace: &Path) -> Option<BuildFailure> {
    let promised = unit.promised.filter(|_| entry.machine_code.is_none())?;
    let files = fs::read_dir(workplace).ok()?.filter_map(Result::ok).map(|file| file.path());
    let mut texts =
        files.filter(|path| path.extension().is_some_and(|e| e == "ptx")).filter_map(|path| fs::read_to_string(path).ok());
    let message = texts.find_map(|text| ptx::broken_promise(&text, promised))?;
    Some(failure(unit, FailureKind::MachineCode, message))
}

fn failure(unit: &Unit, kind: FailureKind, message: String) -> BuildFailure {
    BuildFailure { name: unit.name.clone(), kind, message, log: Some(log_path(&unit.name)) }
}

fn out_of_memory(unit: &Unit) -> BuildFailure {
    let message = "the compiler was killed for memory, also when it ran alone; free some, or use a machine with more".into();
    failure(unit, FailureKind::Memory, message)
}
