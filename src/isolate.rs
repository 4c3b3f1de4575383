//! Work in a process of its own, which may hang or crash without taking kgen with it: `kgen __worker TASK`, which reads
//! one line of JSON and answers with lines of JSON.

use serde::Serialize;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{self, Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use wait_timeout::ChildExt;

/// How often a waiting parent looks whether it was interrupted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Bytes of a worker's standard error that are kept.
const QUOTED_BYTES: usize = 2000;

/// Seconds that a worker outlives its time limit by before it ends itself: the parent comes first, if it still lives.
const GRACE_SECONDS: f64 = 10.0;

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
    /// Hands `request` to a worker, passes each line that it says to `hear`, and waits for its end. Gives that and the last
    /// of what it said on standard error.
    ///
    /// # Errors
    /// The worker cannot be started or waited for.
    pub fn run(&self, request: &impl Serialize, hear: impl FnMut(&[u8]) + Send) -> io::Result<(End, String)> {
        let mut child = self.start(request)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        thread::scope(|scope| {
            let listener = scope.spawn(|| listen(stdout, hear));
            let complaint = scope.spawn(|| last_words(stderr));
            let end = self.wait(&mut child);
            // A panic of `hear` is the caller's, and comes out where the scope ends.
            let _ = listener.join();
            end.map(|end| (end, complaint.join().unwrap_or_default()))
        })
    }

    fn start(&self, request: &impl Serialize) -> io::Result<Child> {
        // A group of its own: a terminal's Ctrl-C then reaches kgen first, which ends its workers itself.
        let mut command = Command::new(self.program);
        command.args(["__worker", self.task]).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        if let Some(mut stdin) = child.stdin.take() {
            // A worker that is gone already is found out about by waiting for it.
            let _ = stdin.write_all(line.as_bytes());
        }
        Ok(child)
    }

    /// Waits, and ends the worker where its time is up or kgen is interrupted.
    fn wait(&self, child: &mut Child) -> io::Result<End> {
        let deadline = Instant::now() + self.limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(status) = child.wait_timeout(left.min(LOOK_EVERY))? {
                return Ok(End::Exited(status));
            }
            let end = match ((self.interrupted)(), left.is_zero()) {
                (true, _) => End::Interrupted,
                (false, true) => End::TimedOut,
                (false, false) => continue,
            };
            child.kill()?;
            child.wait()?;
            return Ok(end);
        }
    }
}

/// Reads the one line of a request, in the worker.
///
/// # Errors
/// A message for the parent's log.
pub fn request<T: serde::de::DeserializeOwned>(input: &mut impl BufRead) -> Result<T, String> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| format!("cannot read the request: {e}"))?;
    serde_json::from_str(&line).map_err(|e| format!("cannot understand the request: {e}"))
}

/// Says one thing to the parent, in the worker: on a line of its own, even if a kernel has printed half a line before.
///
/// # Errors
/// The parent is gone.
pub fn say(output: &mut impl Write, event: &impl Serialize) -> io::Result<()> {
    let mut line = vec![b'\n'];
    serde_json::to_writer(&mut line, event)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// What keeps a worker from outliving its parent; dropped, it lets go.
#[must_use]
pub struct Watch {
    _held: mpsc::Sender<()>,
}

/// Ends this process some time after its limit, so that a hanging kernel whose parent was killed does not spin forever; unless the
/// watch is dropped before, for then the request was served.
pub fn end_when_forgotten(time_limit_seconds: f64) -> Watch {
    let (held, let_go) = mpsc::channel();
    if let Ok(limit) = Duration::try_from_secs_f64(time_limit_seconds + GRACE_SECONDS) {
        thread::spawn(move || {
            if let_go.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                process::exit(1);
            }
        });
    }
    Watch { _held: held }
}

/// Reads lines to the end.
fn listen(stdout: Option<impl Read>, mut hear: impl FnMut(&[u8])) {
    if let Some(stdout) = stdout {
        BufReader::new(stdout).split(b'\n').map_while(Result::ok).for_each(|line| hear(&line));
    }
}

/// The end of a worker's standard error.
fn last_words(stderr: Option<impl Read>) -> String {
    let mut text = Vec::new();
    if let Some(mut stderr) = stderr {
        // What was read before an error is still worth quoting.
        let _ = stderr.read_to_end(&mut text);
    }
    let text = &text[text.len().saturating_sub(QUOTED_BYTES)..];
    String::from_utf8_lossy(text).trim().to_owned()
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
