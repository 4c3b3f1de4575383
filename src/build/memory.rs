//! Memory tokens: the number of compilers that fit into memory at once, from the peak of each in its last run.

use super::BuildError;
use crate::{files::write_atomic, toolchain::Cancel};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// Assumed need of a variant that was never compiled (bytes). Kernels of this project need 190 MB (measured with nvcc
/// 13.0 on the sm80 forward kernel, head dim 128), so this leaves a margin.
const UNKNOWN_NEED: u64 = 300_000_000;

/// Assumed memory if the system does not report it (bytes).
const UNKNOWN_MEMORY: u64 = 4_000_000_000;

/// A budget of bytes from which compilers reserve memory.
#[derive(Debug)]
pub(super) struct Gate {
    budget: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// A share of the budget; released when dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    gate: &'a Gate,
    bytes: u64,
}

impl Gate {
    /// A gate over `budget` bytes.
    pub fn new(budget: u64) -> Self {
        Self { budget, used: Mutex::new(0), freed: Condvar::new() }
    }

    /// Waits until `need` bytes are free. A compiler that needs more than the whole budget runs alone. `None` when
    /// cancelled.
    pub fn acquire(&self, need: u64, cancel: &Cancel) -> Option<Permit<'_>> {
        let bytes = need.min(self.budget);
        // The lock guards a single integer, which is valid even if the lock is poisoned.
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used > 0 && *used + bytes > self.budget && !cancel.requested() {
            // The wait has a timeout because `cancel` is polled.
            let woken = self.freed.wait_timeout(used, Duration::from_millis(50));
            used = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if cancel.requested() {
            return None;
        }
        *used += bytes;
        Some(Permit { gate: self, bytes })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.gate.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.gate.freed.notify_all();
    }
}

/// Memory available to new processes (bytes): `MemAvailable` of Linux, or the rest of the container's limit.
pub(super) fn available() -> u64 {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    // Versions 2 and 1 of control groups, at their mount points inside containers.
    let groups = [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ];
    let left = groups.iter().find_map(|(limit, used)| Some(number(limit)?.saturating_sub(number(used)?)));
    match (system, left) {
        (Some(a), Some(b)) => a.min(b),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => UNKNOWN_MEMORY,
    }
}

/// `MemAvailable` of `/proc/meminfo` in bytes.
fn mem_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct PeakFile {
    version: u32,
    peak_bytes: BTreeMap<String, u64>,
}

const PEAK_FILE_VERSION: u32 = 1;

/// Peak memory of each variant's last compilation, stored in `peaks.json` in the cache folder.
#[derive(Debug)]
pub(super) struct Peaks {
    path: PathBuf,
    known: BTreeMap<String, u64>,
    learned: Mutex<BTreeMap<String, u64>>,
}

impl Peaks {
    /// Reads the file; a missing or malformed one counts as empty.
    pub fn load(cache: &Path) -> Self {
        let path = cache.join("peaks.json");
        Self { known: read_peaks(&path), path, learned: Mutex::default() }
    }

    /// Bytes to reserve for `name`: its last peak plus a tenth, or a guess.
    pub fn estimate(&self, name: &str) -> u64 {
        self.known.get(name).map_or(UNKNOWN_NEED, |peak| peak + peak / 10)
    }

    /// Records the peak of `name`.
    pub fn learn(&self, name: &str, peak: u64) {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), peak);
    }

    /// Writes the recorded peaks, merged with those that other processes wrote meanwhile.
    ///
    /// # Errors
    /// [`BuildError::Cache`].
    pub fn save(&self) -> Result<(), BuildError> {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if learned.is_empty() {
            return Ok(());
        }
        let mut peak_bytes = read_peaks(&self.path);
        peak_bytes.extend(learned.iter().map(|(name, peak)| (name.clone(), *peak)));
        let text = serde_json::to_string_pretty(&PeakFile { version: PEAK_FILE_VERSION, peak_bytes });
        let written = text.map_err(io::Error::from).and_then(|text| write_atomic(&self.path, text.as_bytes()));
        written.map(drop).map_err(BuildError::cache("write", &self.path))
    }
}

fn read_peaks(path: &Path) -> BTreeMap<String, u64> {
    let file = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<PeakFile>(&bytes).ok());
    file.filter(|f| f.version == PEAK_FILE_VERSION).unwrap_or_default().peak_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn running_compilers_never_exceed_the_budget() {
        let (gate, cancel) = (Gate::new(100), Cancel::default());
        let (running, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for need in [40, 40, 40, 70, 10, 100, 40, 30] {
                let (gate, cancel, running, most) = (&gate, &cancel, &running, &most);
                scope.spawn(move || {
                    let _permit = gate.acquire(need, cancel).unwrap();
                    most.fetch_max(running.fetch_add(need, Ordering::SeqCst) + need, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(5));
                    running.fetch_sub(need, Ordering::SeqCst);
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 100);
    }

    #[test]
    fn a_need_beyond_the_budget_runs_alone_instead_of_never() {
        let (gate, cancel) = (Gate::new(100), Cancel::default());
        let permit = gate.acquire(1000, &cancel).unwrap();
        cancel.request();
        assert!(gate.acquire(1, &cancel).is_none(), "the budget is taken");
        drop(permit);
        assert_eq!(*gate.used.lock().unwrap(), 0);
    }

    #[test]
    fn a_learned_peak_is_the_next_runs_estimate() {
        let dir = tempfile::tempdir().unwrap();
        let peaks = Peaks::load(dir.path());
        assert_eq!(peaks.estimate("a"), UNKNOWN_NEED);
        peaks.learn("a", 1000);
        peaks.save().unwrap();
        let other = Peaks::load(dir.path());
        other.learn("b", 50);
        other.save().unwrap();
        let next = Peaks::load(dir.path());
        assert_eq!((next.estimate("a"), next.estimate("b")), (1100, 55));
    }

    #[test]
    fn available_memory_is_read_in_kibibytes() {
        assert_eq!(mem_available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2_097_152));
        assert_eq!(mem_available("MemTotal: 9 kB\n"), None);
    }
}
