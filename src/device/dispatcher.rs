//! The generated dispatcher as a program of this machine, which answers for a card that is only described: launchers do
//! nothing, and CUDA's runtime is a dozen lines. Kept in the cache by its text.

use super::{
    cache_dir,
    emulator_kit::{KitError, UNFINISHED, short, write},
};
use crate::{
    files::{FieldHasher, Presence},
    toolchain::{
        Cancel, HostCompiler,
        process::{self, Ending},
    },
};
use serde::Deserialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The program's own files; they replace the headers of the same names.
const OWN: [(&str, &str); 3] = [
    ("ask.cpp", include_str!("dispatcher/ask.cpp")),
    ("cuda_runtime_api.h", include_str!("dispatcher/cuda_runtime_api.h")),
    ("kgen/launch.cuh", include_str!("dispatcher/launch.cuh")),
];

/// Flags after the user's, none of which may make arithmetic inexact.
const FLAGS: [&str; 5] = ["-std=c++17", "-O1", "-fno-fast-math", "-ffp-contract=off", "-w"];

/// Folder of the headers that the dispatcher includes.
const INCLUDE: &str = "include";

/// Folder of the sources while they are compiled.
const SOURCE: &str = "source";

/// The program in its folder, and as the compiler sees it from the sources.
const PROGRAM: &str = "ask";
const OUTPUT: &str = "../ask";

/// Time limit of the compilation, which takes seconds.
const COMPILING_LIMIT: Duration = Duration::from_secs(300);

/// Time limit of an answer, which takes milliseconds.
const ASKING_LIMIT: Duration = Duration::from_secs(20);

/// A dispatcher that can be asked.
#[derive(Debug)]
pub struct Dispatcher {
    program: PathBuf,
    cancel: Cancel,
    _presence: Presence,
}

/// The answer of `kgen_explain_choice`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Index of the candidate that `kgen_fwd` takes; negative if it fails.
    pub chosen: i32,
    /// The reason if it fails.
    pub error: Option<String>,
    /// The candidates in the dispatcher's order.
    pub candidates: Vec<Candidate>,
}

/// `kgen_candidate` of `kgen.h`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// `KGEN_PATH_*`.
    pub path: i32,
    /// Most splits of a sequence; 1: not split.
    pub num_splits: u32,
    /// The kernel that computes attention; `None` if the library holds none for the card.
    pub variant: Option<String>,
    /// The reason why the path cannot be taken.
    pub excluded: Option<String>,
    /// Bytes of workspace.
    pub workspace_bytes: u64,
    /// Nanoseconds of all kernels of the path.
    pub predicted_ns: f64,
    /// Launching the kernel that computes attention.
    pub launch_ns: f64,
    /// Its query tiles, without their steps over the keys.
    pub tile_ns: f64,
    /// The steps of one resident block, in sequence.
    pub chain_ns: f64,
    /// The units of a multiprocessor, with the steps of all its blocks.
    pub step_ns: f64,
    /// Device memory or L2, with all bytes.
    pub memory_ns: f64,
    /// Merging partial results.
    pub combine_ns: f64,
    /// `prepare_scheduler`.
    pub scheduler_ns: f64,
    /// True if the last block of each row tile merges partial results.
    pub by_last_block: bool,
}

impl Dispatcher {
    /// The dispatcher with this text, compiled with `host` unless the cache has it. `include` are the headers that it
    /// includes, by their paths.
    ///
    /// The key has no compiler in it: every compiler makes a program with the same answers, and to find one takes
    /// longer than an answer.
    ///
    /// # Errors
    /// [`KitError`], or an error of `host`.
    pub fn compiled<'a, E: From<KitError>>(
        cache: &Path,
        include: impl Iterator<Item = (&'a str, &'a str)>,
        text: &str,
        host: impl FnOnce() -> Result<HostCompiler, E>,
        cancel: &Cancel,
    ) -> Result<Self, E> {
        let headers = include.map(|(path, text)| (format!("{INCLUDE}/{path}"), text));
        let own = OWN.iter().map(|(path, text)| ((*path).to_owned(), *text));
        let files: Vec<(String, &str)> = headers.chain(own).chain([("dispatch.cpp".to_owned(), text)]).collect();
        let mut key = FieldHasher::default();
        key.field("processor", std::env::consts::ARCH);
        for flag in FLAGS {
            key.field("flag", flag);
        }
        for (path, text) in &files {
            key.field("file", path);
            key.field("text", text);
        }
        let (root, key) = (cache.join("emulator"), key.finish());
        let folder = root.join(short(&key));
        let failed = |source| KitError::Io { path: root.clone(), source };
        fs::create_dir_all(&root).map_err(failed)?;
        let presence = Presence::announce(&root, UNFINISHED).map_err(failed)?;
        let made = Self { program: folder.join(PROGRAM), cancel: cancel.clone(), _presence: presence };
        if cache_dir::is_whole(&folder, &key) {
            return Ok(made);
        }
        let host = host()?;
        cache_dir::made(&root, &folder, &key, |folder| {
            let source = folder.join(SOURCE);
            files.iter().try_for_each(|(path, text)| write(&source.join(path), text))?;
            compile(&source, &root, &host, cancel)?;
            fs::remove_dir_all(&source).map_err(|error| KitError::Io { path: source.clone(), source: error })
        })?;
        Ok(made)
    }

    /// The answer to a call on a card, both as the numbers that `ask.cpp` lists.
    ///
    /// # Errors
    /// The system's reason if the program does not run, or is stopped.
    pub fn ask(&self, numbers: &[(&str, i32)]) -> io::Result<Choice> {
        let answer = tempfile::NamedTempFile::new()?;
        let mut command = Command::new(&self.program);
        command.args(numbers.iter().map(|(name, number)| format!("{name}={number}")));
        command.stdin(Stdio::null()).stdout(answer.reopen()?).stderr(Stdio::null());
        match process::run(&mut command, ASKING_LIMIT, &self.cancel)?.ending {
            Ending::Exited(0) => Ok(serde_json::from_slice(&fs::read(answer.path())?)?),
            Ending::Cancelled => Err(io::ErrorKind::Interrupted.into()),
            other => Err(io::Error::other(format!("it ended with {other:?}"))),
        }
    }
}

fn compile(folder: &Path, root: &Path, host: &HostCompiler, cancel: &Cancel) -> Result<(), KitError> {
    let no_compiler = |source| KitError::NoCompiler { compiler: host.path.clone(), source };
    let complaints = tempfile::NamedTempFile::new().map_err(no_compiler)?;
    let mut command = Command::new(&host.path);
    command.current_dir(folder).args(&host.flags).args(FLAGS).args(["-I.", "-I", INCLUDE, "ask.cpp", "-o", OUTPUT]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints.reopen().map_err(no_compiler)?);
    match process::run(&mut command, COMPILING_LIMIT, cancel).map_err(no_compiler)?.ending {
        Ending::Cancelled => Err(KitError::Interrupted),
        ending if ending.is_success() => Ok(()),
        ending => {
            let said = String::from_utf8_lossy(&fs::read(complaints.path()).unwrap_or_default()).into_owned();
            let log = root.join("dispatcher.log");
            write(&log, &said)?;
            let first_error = said.lines().find(|line| line.contains("error")).map(str::to_owned);
            let first_error = first_error.unwrap_or_else(|| format!("it ended with {ending:?}"));
            Err(KitError::RefusedDispatcher { first_error, log })
        }
    }
}
