//! Processes that a kernel has started and that have left the worker's process group, such as by `setsid`. They are
//! known by a variable in their environment, which a process passes on to its children whatever group, session or
//! parent they move to. One that is started with another environment is not found; this is no sandbox.

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::fs;

/// The variable whose value is the worker's mark.
pub(super) const VARIABLE: &str = "KGEN_WORKER";

/// Looks at the processes so often: each look may miss a child that was started during it. Ends before if a look finds
/// none.
const LOOKS: usize = 100;

/// Kills every process but this one that has `mark` in its environment. Those of other users cannot be looked at, and a
/// kernel's are not among them.
pub(super) fn kill(mark: &str) {
    let entry = format!("{VARIABLE}={mark}");
    for _ in 0..LOOKS {
        if !look(entry.as_bytes()) {
            return;
        }
    }
}

/// Kills those that are there now; whether there were any.
fn look(entry: &[u8]) -> bool {
    let mut found = false;
    for process in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else { continue };
        if pid == getpid() {
            continue;
        }
        // Opened before it is known by its environment, so that the signal cannot reach another that gets its number.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // A process that has died and is not reaped has none.
        let Ok(environment) = fs::read(process.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| variable == entry) {
            found |= pidfd_send_signal(&handle, Signal::KILL).is_ok();
        }
    }
    found
}
