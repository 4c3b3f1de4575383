//! Work in a separate process, which may hang, crash, fork or print without bringing down or misleading kgen: `kgen
//! __worker TASK`, which reads one line of JSON on standard input and answers with lines of JSON on a pipe that no
//! other code in that process has access to. `worker` implements that process's side.
//!
//! This is not a sandbox: a kernel runs with the user's rights and could find the pipe. It prevents output and
//! accidental actions of a kernel from passing for a verdict.

mod session;
mod strays;
mod streams;
mod worker;

pub use session::{Heard, Session};
pub use worker::{Reply, Watch, end_when_forgotten, private_output, request};

#[cfg(test)]
pub(crate) use worker::test_line;

use rustix::{
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, waitid},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

/// Interval at which a waiting parent polls for interruption.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Polling interval for a worker that has closed its pipes and so is about to end.
const NEAR_THE_END: Duration = Duration::from_millis(2);

/// Start and end conditions of a worker.
pub struct Worker<'a> {
    /// The kgen executable.
    pub program: &'a Path,
    /// Argument after `__worker` on its command line.
    pub task: &'a str,
    /// Time limit, after which the worker is killed.
    pub limit: Duration,
    /// Polled ten times a second; true kills it.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// Ways in which a worker ended.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// The worker ended without being killed by kgen, with any status.
    Exited(ExitStatus),
    /// Killed at its time limit.
    TimedOut,
    /// Killed because kgen was interrupted.
    Interrupted,
}

/// The request line of a worker.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    /// Prefix of each answer line: random for each worker, so that neither output of another worker nor anything a
    /// kernel was written to print counts as an answer.
    token: String,
    request: T,
}

impl End {
    /// The signal that killed the worker, or its exit code, as the beginning of a sentence that continues with its
    /// position.
    pub fn words(self, limit: Duration) -> String {
        match self {
            Self::TimedOut => format!("no result within {} s, stuck", limit.as_secs_f64()),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Exited(exit) => match exit.signal() {
                Some(signal) => format!("died of {}", signal_name(signal)),
                None => format!("the worker ended without a verdict ({exit})"),
            },
        }
    }
}

impl Worker<'_> {
    /// Passes `request` to a worker, calls `hear` with each line of its answer, and waits for its end. Returns the end
    /// and the tail of its printed output. Processes that a kernel started are killed with the worker, even if they
    /// have left its process group or session; nothing waits for them.
    ///
    /// # Errors
    /// The worker cannot be started or waited for.
    pub fn run(&self, request: &impl Serialize, hear: impl FnMut(&[u8])) -> io::Result<(End, String)> {
        self.run_behind(&[], request, hear)
    }

    /// [`run`](Self::run) with the worker's command line as the last arguments of another one, `prefix`, such as that
    /// of a profiler.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_behind(
        &self,
        prefix: &[OsString],
        request: &impl Serialize,
        mut hear: impl FnMut(&[u8]),
    ) -> io::Result<(End, String)> {
        let mut line = prefix.iter().map(OsString::as_os_str).chain([self.program.as_os_str()]);
        let mut command = Command::new(line.next().unwrap_or_default());
        command.args(line).args(["__worker", self.task]);
        let mut session = Session::start(command, request)?;
        session.dismiss();
        let deadline = Instant::now() + self.limit;
        loop {
            match session.hear(deadline.saturating_duration_since(Instant::now()), self.interrupted)? {
                Heard::Line(line) => hear(&line),
                Heard::Ended(end, said) => return Ok((end, said)),
            }
        }
    }
}

/// True if `child` has ended; it stays unreaped.
fn has_ended(child: &Child) -> io::Result<bool> {
    loop {
        let looked =
            waitid(WaitId::Pid(Pid::from_child(child)), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT);
        match looked {
            Err(Errno::INTR) => {}
            other => return Ok(other?.is_some()),
        }
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGSEGV => "SIGSEGV, an access to memory that is not there",
        libc::SIGBUS => "SIGBUS, a misaligned or impossible access",
        libc::SIGABRT => "SIGABRT, it gave up",
        libc::SIGFPE => "SIGFPE, an impossible integer division",
        libc::SIGILL => "SIGILL, an unknown instruction",
        libc::SIGKILL => "SIGKILL, perhaps for want of memory",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}
