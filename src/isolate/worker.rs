//! The worker's side: what it is asked, how it answers past everything that a kernel prints, and its end when it is
//! forgotten.

use super::{Envelope, strays};
use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Signal, getpgrp, getpid, kill_current_process_group},
    stdio,
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    env,
    fs::File,
    io::{self, BufRead, Write},
    process,
    sync::mpsc,
    thread,
    time::Duration,
};

/// Seconds that a worker outlives its time limit by before it ends itself: the parent comes first, if it still lives.
const GRACE_SECONDS: f64 = 10.0;

/// Lowest numbers that the answer's descriptor may get: above those a kernel's own files get, below the usual limit of
/// 1024.
const DESCRIPTORS: std::ops::Range<i32> = 100..900;

/// The pipe to the parent, moved away from standard output to a descriptor that is closed on exec, with a number that
/// nobody knows. From here on what is printed to standard output goes where standard error goes: the parent quotes it.
///
/// # Errors
/// The system has no descriptor left.
pub fn private_output() -> io::Result<File> {
    let moved = |lowest| fcntl_dupfd_cloexec(stdio::stdout(), lowest);
    // Where the limit of descriptors is lower, any number serves.
    let pipe = moved(rand::random_range(DESCRIPTORS)).or_else(|_| moved(stdio::raw_stderr() + 1))?;
    stdio::dup2_stdout(stdio::stderr())?;
    Ok(File::from(pipe))
}

/// What a worker answers with.
pub struct Reply<W> {
    output: W,
    token: String,
    /// The worker; a kernel may make copies of it by forking.
    process: u32,
}

/// Reads the one line of a request. Gives it and what to answer with on `output`.
///
/// # Errors
/// A message for the parent's log.
pub fn request<T: DeserializeOwned, W: Write>(input: &mut impl BufRead, output: W) -> Result<(T, Reply<W>), String> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| format!("cannot read the request: {e}"))?;
    let Envelope { token, request } = serde_json::from_str(&line).map_err(|e| format!("cannot understand the request: {e}"))?;
    Ok((request, Reply { output, token, process: process::id() }))
}

impl<W: Write> Reply<W> {
    /// Says one thing to the parent.
    ///
    /// # Errors
    /// The parent is gone, or this process is a copy of the worker, made by a kernel that forked: it has no say.
    pub fn say(&mut self, event: &impl Serialize) -> io::Result<()> {
        if process::id() != self.process {
            return Err(io::Error::other("the kernel has forked, and this is the copy"));
        }
        let mut line = format!("{} ", self.token).into_bytes();
        serde_json::to_writer(&mut line, event)?;
        line.push(b'\n');
        self.output.write_all(&line)?;
        self.output.flush()
    }
}

/// What keeps a worker from outliving its parent; dropped, it lets go.
#[must_use]
pub struct Watch {
    _held: mpsc::Sender<()>,
}

/// Ends this process, and what it started, some time after its limit, so that a hanging kernel whose parent was killed
/// does not spin forever; unless the watch is dropped before, for then the request was served.
pub fn end_when_forgotten(time_limit_seconds: f64) -> Watch {
    let (held, let_go) = mpsc::channel();
    if let Ok(limit) = Duration::try_from_secs_f64(time_limit_seconds + GRACE_SECONDS) {
        thread::spawn(move || {
            if let_go.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Ok(mark) = env::var(strays::VARIABLE) {
                    strays::kill(&mark);
                }
                // A worker leads its group, unless a person has started it by hand.
                if getpgrp() == getpid() {
                    let _ = kill_current_process_group(Signal::KILL);
                }
                process::exit(1);
            }
        });
    }
    Watch { _held: held }
}

/// A request as a parent would send it, with the token `token`.
#[cfg(test)]
pub(crate) fn test_line(request: &impl Serialize) -> String {
    serde_json::to_string(&Envelope { token: "token".to_owned(), request }).expect("it serialises")
}
