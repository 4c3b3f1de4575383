//! Work in a separate process, which may hang, crash, fork or print without bringing down or misleading kgen: `kgen
//! __worker TASK`, which reads one line of JSON on standard input and answers with lines of JSON on a pipe that no
//! other code in that process has access to. `worker` implements that process's side.
//!
//! This is not a sandbox: a kernel runs with the user's rights and could find the pipe. It prevents output and
//! accidental actions of a kernel from passing for a verdict.

mod strays;
mod streams;
mod worker;

pub use worker::{Reply, Watch, end_when_forgotten, private_output, request};

#[cfg(test)]
pub(crate) use worker::test_line;

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};
use streams::Streams;

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
        let token = format!("{:032x}", rand::random::<u128>());
        // The mark differs from the token, which a kernel must not be able to read.
        let mark = format!("{:032x}", rand::random::<u128>());
        let mut child = self.start(prefix, &Envelope { token: token.clone(), request }, &mark)?;
        let mut streams = Streams::of(&mut child, token)?;
        let ended = self.watch(&child, &mut streams, &mut hear);
        // It is not reaped yet, so its id cannot belong to another group; if the group is gone, that is the goal.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let status = child.wait()?;
        strays::kill(&mark);
        streams.drain(&mut hear);
        Ok((ended?.unwrap_or(End::Exited(status)), streams.last_words()))
    }

    fn start(&self, prefix: &[OsString], envelope: &impl Serialize, mark: &str) -> io::Result<Child> {
        // A separate group: a terminal's Ctrl-C then reaches kgen first, which ends its workers itself.
        let mut line = prefix.iter().map(OsString::as_os_str).chain([self.program.as_os_str()]);
        let mut command = Command::new(line.next().unwrap_or_default());
        command.args(line).args(["__worker", self.task]).env(strays::VARIABLE, mark).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut line = serde_json::to_string(envelope)?;
        line.push('\n');
        if let Some(mut stdin) = child.stdin.take() {
            // If the worker is gone already, waiting for it reports that.
            let _ = stdin.write_all(line.as_bytes());
        }
        Ok(child)
    }

    /// Reads until the worker has ended (`None`), or must be killed. It is not reaped.
    fn watch(&self, child: &Child, streams: &mut Streams, hear: &mut impl FnMut(&[u8])) -> io::Result<Option<End>> {
        let deadline = Instant::now() + self.limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            streams.wait(left.min(if streams.are_open() { LOOK_EVERY } else { NEAR_THE_END }))?;
            streams.read(hear);
            if has_ended(child)? {
                return Ok(None);
            }
            if (self.interrupted)() {
                return Ok(Some(End::Interrupted));
            }
            if left.is_zero() {
                return Ok(Some(End::TimedOut));
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
