//! Work in a process of its own, which may hang, crash, fork or print without taking kgen with it or deceiving it:
//! `kgen __worker TASK`, which reads one line of JSON on standard input and answers with lines of JSON on a pipe that
//! nothing else in that process knows of. See `worker` for its side.
//!
//! This is no sandbox: a kernel runs with the user's rights and could look the pipe up. It keeps what a kernel does by
//! accident, or prints, from passing for a verdict.

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
    io::{self, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};
use streams::Streams;

/// How often a waiting parent looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Pause between two looks at a worker that has closed its pipes, so is about to end.
const NEAR_THE_END: Duration = Duration::from_millis(2);

/// How a worker is started and ended.
pub struct Worker<'a> {
    /// The kgen executable.
    pub program: &'a Path,
    /// What follows `__worker` on its command line.
    pub task: &'a str,
    /// It is killed after this.
    pub limit: Duration,
    /// Asked ten times a second: true kills it.
    pub interrupted: &'a dyn Fn() -> bool,
}

/// How a worker ended.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// By itself, in whatever way.
    Exited(ExitStatus),
    /// Killed, its time being up.
    TimedOut,
    /// Killed, kgen being interrupted.
    Interrupted,
}

/// The one line a worker reads.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    /// What each line of the answer begins with: drawn for this worker, so that no output of an earlier or another one,
    /// and nothing that a kernel can have been written to print, counts as an answer.
    token: String,
    request: T,
}

impl End {
    /// What killed it, or its exit code, as the beginning of a sentence that goes on with where it was.
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
    /// Hands `request` to a worker, passes each line of its answer to `hear`, and waits for its end. Gives that and the
    /// last of what was printed in it. Whatever a kernel has started is killed with the worker, also what has left its
    /// process group or session; nothing waits for that.
    ///
    /// # Errors
    /// The worker cannot be started or waited for.
    pub fn run(&self, request: &impl Serialize, mut hear: impl FnMut(&[u8])) -> io::Result<(End, String)> {
        let token = format!("{:032x}", rand::random::<u128>());
        // Not the token, which a kernel must not get to know.
        let mark = format!("{:032x}", rand::random::<u128>());
        let mut child = self.start(&Envelope { token: token.clone(), request }, &mark)?;
        let mut streams = Streams::of(&mut child, token)?;
        let ended = self.watch(&child, &mut streams, &mut hear);
        // Not reaped yet, so its id cannot have passed to another group; one that is gone is what is wanted.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let status = child.wait()?;
        strays::kill(&mark);
        streams.drain(&mut hear);
        Ok((ended?.unwrap_or(End::Exited(status)), streams.last_words()))
    }

    fn start(&self, envelope: &impl Serialize, mark: &str) -> io::Result<Child> {
        // A group of its own: a terminal's Ctrl-C then reaches kgen first, which ends its workers itself.
        let mut command = Command::new(self.program);
        command.args(["__worker", self.task]).env(strays::VARIABLE, mark).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut line = serde_json::to_string(envelope)?;
        line.push('\n');
        if let Some(mut stdin) = child.stdin.take() {
            // A worker that is gone already is found out about by waiting for it.
            let _ = stdin.write_all(line.as_bytes());
        }
        Ok(child)
    }

    /// Listens until the worker has ended, which is `None`, or has to be ended. It is not reaped.
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

/// Whether `child` has ended; it stays unreaped.
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
