//! Verdicts of earlier runs: a kernel that passed need not be run again until it, the emulator, the cases or kgen change.
//! Only passes are kept; a failure is always shown by running it.

use super::{Verdict, worker};
use crate::files::{FieldHasher, content_hash, write_atomic};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

/// What a pass means, and the format it is kept in: the hash of the code that draws inputs, runs, judges and writes. Part
/// of every key, so that nobody has to remember to raise a number when one of these files changes.
static JUDGE: LazyLock<String> = LazyLock::new(|| {
    let code = [
        include_str!("compare.rs"),
        include_str!("numbers.rs"),
        include_str!("place.rs"),
        include_str!("problem.rs"),
        include_str!("reference.rs"),
        include_str!("tensors.rs"),
        include_str!("tolerance.rs"),
        include_str!("verdict.rs"),
        include_str!("worker.rs"),
        include_str!("../device/abi.rs"),
        include_str!("../device/emulator.rs"),
        include_str!("../device/gpu.rs"),
        include_str!("../device/image.rs"),
    ];
    content_hash(code.concat())
});

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
        let mut hasher = FieldHasher::default();
        hasher.field("judge", &*JUDGE);
        hasher.field("level", request.level.word());
        hasher.field("seed", request.seed.to_le_bytes());
        hasher.field("variant", request.variant.name());
        hasher.field("device", request.device.word());
        for part in kernel {
            hasher.field("kernel", part);
        }
        for case in worker::selected_cases(request.level, request.variant.causal, request.filter.as_deref()) {
            hasher.field("case", format!("{case:?}"));
        }
        hasher.finish()
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
            write_atomic(&self.path(key), serde_json::to_string_pretty(verdict)?.as_bytes()).map(drop)
        };
        if verdict.passed() {
            let _ = write();
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}
