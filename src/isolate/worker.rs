//! The worker's side: its request, its answers on a channel separate from everything a kernel prints, and its end if
//! the parent is gone.

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

/// Seconds between a worker's time limit and its own exit, so that a living parent acts first.
const GRACE_SECONDS: f64 = 10.0;

/// Range of the answer's descriptor number: above those of a kernel's own files, below the usual limit of 1024.
const DESCRIPTORS: std::ops::Range<i32> = 100..900;

/// The pipe to the parent, moved from standard output to a close-on-exec descriptor with a random number. From here on
/// standard output goes to standard error's destination: the parent quotes it.
///
/// # Errors
/// The system has no descriptor left.
pub fn private_output() -> io::Result<File> {
    let moved = |lowest| fcntl_dupfd_cloexec(stdio::stdout(), lowest);
    // If the limit of descriptors is lower, any number will do.
    let pipe = moved(rand::random_range(DESCRIPTORS)).or_else(|_| moved(stdio::raw_stderr() + 1))?;
    stdio::dup2_stdout(stdio::stderr())?;
    Ok(File::from(pipe))
}

/// The channel for a worker's answers.
pub struct Reply<W> {
    output: W,
    token: String,
    /// The worker's process id; a kernel may copy the process by forking.
    process: u32,
}

/// Reads the one line of a request. Returns it and the reply channel on `output`.
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
    /// Sends one event to the parent.
    ///
    /// # Errors
    /// The parent is gone, or this process is a copy of the worker made by a kernel that forked, and must not answer.
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

/// Keeps a worker from outliving its parent, until it is dropped.
#[must_use]
pub struct Watch {
    _held: mpsc::Sender<()>,
}

/// Ends this process and its children some time after its limit, so that a hanging kernel whose parent was killed does
/// not spin forever; dropping the watch before, when the request was served, cancels this.
pub fn end_when_forgotten(time_limit_seconds: f64) -> Watch {
    let (held, let_go) = mpsc::channel();
    if let Ok(limit) = Duration::try_from_secs_f64(time_limit_seconds + GRACE_SECONDS) {
        thread::spawn(move || {
            if let_go.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                if let Ok(mark) = env::var(strays::VARIABLE) {
                    strays::kill(&mark);
                }
                // A worker leads its group, unless a user has started it by hand.
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
