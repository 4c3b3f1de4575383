//! Processes that a kernel has started and that have left the worker's process group, for example by `setsid`. They are
//! identified by an environment variable, which children inherit even if they move to another group, session or parent.
//! A process started with another environment is not found; this is not a sandbox.

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::fs;

/// The variable that contains the worker's mark.
pub(super) const VARIABLE: &str = "KGEN_WORKER";

/// Maximum number of scans: each may miss a child that was started during it. Stops early if a scan finds none.
const LOOKS: usize = 100;

/// Kills every process except this one that has `mark` in its environment. Processes of other users cannot be read, and
/// a kernel's are not among them.
pub(super) fn kill(mark: &str) {
    let entry = format!("{VARIABLE}={mark}");
    for _ in 0..LOOKS {
        if !look(entry.as_bytes()) {
            return;
        }
    }
}

/// Kills the matching processes that exist now; returns true if there were any.
fn look(entry: &[u8]) -> bool {
    let mut found = false;
    for process in fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else { continue };
        if pid == getpid() {
            continue;
        }
        // Opened before the environment is checked, so that the signal cannot reach another process that reuses the id.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // A dead process that is not reaped has no environment.
        let Ok(environment) = fs::read(process.path().join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| variable == entry) {
            found |= pidfd_send_signal(&handle, Signal::KILL).is_ok();
        }
    }
    found
}
