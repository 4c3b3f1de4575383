//! Runs one child process to its end under a time limit, measures it, and kills it with all its descendants when the
//! limit passes or the user interrupts. The only `unsafe` code outside `device/`: `wait4`, the only call that reports
//! one child's memory, and `killpg` have no safe form in the standard library.
#![allow(unsafe_code)]

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};
use std::{
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Two flags shared by all threads of one command. The first means "begin nothing more", the second "end running work".
/// Work that is cheap to lose ends at the first.
#[derive(Clone, Debug, Default)]
pub struct Cancel {
    requested: Arc<AtomicBool>,
    insisted: Arc<AtomicBool>,
}

impl Cancel {
    /// Requests a stop. Cannot be undone.
    pub fn request(&self) {
        self.requested.store(true, Ordering::SeqCst);
    }

    /// Requests an immediate stop, including work that would otherwise be finished.
    pub fn insist(&self) {
        self.insisted.store(true, Ordering::SeqCst);
        self.request();
    }

    /// True after [`request`](Self::request).
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst)
    }

    /// True after [`insist`](Self::insist).
    pub fn insisted(&self) -> bool {
        self.insisted.load(Ordering::SeqCst)
    }

    /// The flag for work that must be finished once it has begun: it is requested when this one is insisted on.
    #[must_use]
    pub fn when_insisted(&self) -> Self {
        Self { requested: Arc::clone(&self.insisted), insisted: Arc::clone(&self.insisted) }
    }
}

/// Ways in which a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The child exited with this code.
    Exited(i32),
    /// Another process killed the child with this signal; Linux's out-of-memory killer uses 9.
    Signalled(i32),
    /// The child exceeded its time limit and was killed by kgen.
    TimeLimit,
    /// [`Cancel`] was requested and it was killed here.
    Cancelled,
}

impl Ending {
    /// True if the child exited with code 0.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}

/// Resource usage of a child, including its own waited-for children.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time of the whole tree (seconds).
    pub cpu_seconds: f64,
    /// Time from start to end (seconds).
    pub wall_seconds: f64,
    /// Largest resident set of any single process of the tree (bytes).
    pub peak_memory_bytes: u64,
}

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// How the child ended.
    pub ending: Ending,
    /// Resources that the child used.
    pub usage: Usage,
}

/// Longest interval between two looks at the limit and the user's wish while a child runs.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Runs `command` in a separate process group, so that a terminal's Ctrl-C reaches kgen first and a kill reaches every
/// descendant. Returns when it has ended, has run for `limit`, or `cancel` is requested.
///
/// # Errors
/// The system's reason if the command cannot be started or waited for.
pub fn run(command: &mut Command, limit: Duration, cancel: &Cancel) -> io::Result<Finished> {
    let start = Instant::now();
    let child = command.process_group(0).spawn()?;
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    // Ready for reading when the child has ended. Before Linux 5.3 there is none, and the child is polled.
    let end = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some((status, usage)) = wait4(pid, libc::WNOHANG)? {
            return Ok(Finished { ending: ending_of(status), usage: usage_of(&usage, start) });
        }
        let ending = if cancel.requested() {
            Some(Ending::Cancelled)
        } else if start.elapsed() >= limit {
            Some(Ending::TimeLimit)
        } else {
            None
        };
        if let Some(ending) = ending {
            kill_group(pid);
            let usage = wait4(pid, 0)?.map(|(_, usage)| usage);
            let usage = usage.ok_or_else(|| io::Error::other("a killed child was not reaped"))?;
            return Ok(Finished { ending, usage: usage_of(&usage, start) });
        }
        wait(end.as_ref(), pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until the child has ended, or `pause` is over.
fn wait(end: Option<&OwnedFd>, pause: Duration) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
    match end {
        // A signal that interrupts it may be the user's: the caller looks at once.
        Some(end) => _ = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&timeout)),
        None => thread::sleep(pause),
    }
}

/// Reaps `pid` if it has ended (always, without `WNOHANG`): returns its raw status and resource usage.
fn wait4(pid: libc::pid_t, options: libc::c_int) -> io::Result<Option<(ExitStatus, libc::rusage)>> {
    use std::os::unix::process::ExitStatusExt;
    let mut status = 0;
    // SAFETY: `rusage` consists of plain integers, for which all zeros is valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers point to live locals of the types wait4(2) writes; `pid` is our own unreaped child.
        let reaped = unsafe { libc::wait4(pid, &raw mut status, options, &raw mut usage) };
        match reaped {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(Some((ExitStatus::from_raw(status), usage))),
        }
    }
}

/// Kills every process in the group of `pid`, which is unreaped, so its id cannot have been reused.
fn kill_group(pid: libc::pid_t) {
    // SAFETY: killpg(2) takes integers only; failure means that the group is gone, which is the goal.
    unsafe { libc::killpg(pid, libc::SIGKILL) };
}

fn ending_of(status: ExitStatus) -> Ending {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Ending::Exited(code),
        (None, signal) => Ending::Signalled(signal.unwrap_or_default()),
    }
}

fn usage_of(usage: &libc::rusage, start: Instant) -> Usage {
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    // Linux counts kibibytes, macOS bytes (getrusage(2) of each).
    let unit = if cfg!(target_os = "linux") { 1024 } else { 1 };
    Usage {
        cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        wall_seconds: start.elapsed().as_secs_f64(),
        peak_memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * unit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_exit_code_and_a_signal_are_told_apart() {
        let limit = Duration::from_secs(20);
        let code = run(&mut shell("exit 3"), limit, &Cancel::default()).unwrap();
        assert_eq!(code.ending, Ending::Exited(3));
        let signal = run(&mut shell("kill -9 $$"), limit, &Cancel::default()).unwrap();
        assert_eq!(signal.ending, Ending::Signalled(9));
    }

    #[test]
    fn a_child_beyond_its_time_limit_is_killed() {
        let done = run(&mut shell("sleep 600"), Duration::from_millis(50), &Cancel::default()).unwrap();
        assert_eq!(done.ending, Ending::TimeLimit);
    }

    #[test]
    fn a_cancelled_child_is_killed_with_its_own_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}; wait", file.display());
        let cancel = Cancel::default();
        let grandchild = thread::scope(|scope| {
            let child = scope.spawn(|| run(&mut shell(&script), Duration::from_secs(60), &cancel).unwrap().ending);
            let pid = loop {
                match std::fs::read_to_string(&file) {
                    Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
                    _ => thread::sleep(Duration::from_millis(1)),
                }
            };
            cancel.request();
            assert_eq!(child.join().unwrap(), Ending::Cancelled);
            pid
        });
        // A signal takes a moment to arrive; a dead process that is not yet reaped counts as gone.
        let stat = || std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        let gone = || stat().rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']));
        let until = Instant::now() + Duration::from_secs(30);
        while !gone() {
            assert!(Instant::now() < until, "a grandchild outlived the kill: {}", stat());
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn work_that_has_begun_ends_when_somebody_insists() {
        let cancel = Cancel::default();
        let begun = cancel.when_insisted();
        cancel.request();
        assert!(cancel.requested() && !cancel.insisted() && !begun.requested());
        cancel.insist();
        assert!(begun.requested());
    }

    #[test]
    fn cpu_time_and_memory_of_children_are_counted() {
        let script = "sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; exit 0'; true";
        let done = run(&mut shell(script), Duration::from_secs(60), &Cancel::default()).unwrap();
        assert!(done.ending.is_success());
        assert!(done.usage.cpu_seconds > 0.005, "{:?}", done.usage);
        assert!(done.usage.peak_memory_bytes > 200_000, "{:?}", done.usage);
    }
}
