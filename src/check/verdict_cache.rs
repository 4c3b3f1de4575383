//! Verdicts of earlier runs: a kernel that passed need not be run again until it, the emulator, the cases or kgen change.
//! Only passes are kept; a failure is always shown by running it.

use super::{Verdict, worker};
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

/// Raised whenever inputs, reference or comparison change what a pass means; part of every key.
const REVISION: u32 = 2;

/// The folder of kept verdicts.
#[derive(Debug, Clone)]
pub(super) struct VerdictCache {
    folder: PathBuf,
}

impl VerdictCache {
    /// Below the user's cache folder.
    pub(super) fn new(cache: &Path) -> Self {
        Self { folder: cache.join("verdicts") }
    }

    /// The key of a check: `kernel` stands for the kernel and the device, `request` for everything else that is asked.
    pub(super) fn key(kernel: &[&str], request: &worker::Request) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &str| _ = hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        add(&format!("{REVISION} {} {} {}", env!("CARGO_PKG_VERSION"), request.level.word(), request.seed));
        add(&request.variant.name());
        add(request.device.word());
        for part in kernel {
            add(part);
        }
        for case in worker::selected_cases(request.level, request.variant.causal, request.filter.as_deref()) {
            add(&format!("{case:?}"));
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The kept pass, if there is one. A file that does not read as one counts as none.
    pub(super) fn find(&self, key: &str) -> Option<Verdict> {
        let text = fs::read(self.path(key)).ok()?;
        let verdict: Verdict = serde_json::from_slice(&text).ok()?;
        verdict.passed().then_some(Verdict { cached: true, ..verdict })
    }

    /// Keeps a pass. The cache is a convenience: what cannot be written is checked again next time.
    pub(super) fn keep(&self, key: &str, verdict: &Verdict) {
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(serde_json::to_string_pretty(verdict)?.as_bytes())?;
            file.persist(self.path(key))?;
            Ok(())
        };
        if verdict.passed() {
            let _ = write();
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}
