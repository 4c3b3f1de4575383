//! Verdicts of earlier runs: a kernel that passed need not be run again until it, the emulator, the cases or kgen
//! change. Only passes are kept; a failure is always shown by running it.

use super::{Verdict, selected_cases, worker};
use crate::files::{self, FieldHasher, seal, touch, unseal, write_atomic};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What a pass means, and the format it is kept in: the hash of all code that draws inputs, runs, judges and writes,
/// from `build.rs`. Part of every key, so that nobody has to remember to raise a number when that code changes.
const JUDGE: &str = env!("KGEN_JUDGE");

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
        hasher.field("judge", JUDGE);
        hasher.field("level", request.level.word());
        hasher.field("seed", request.seed.to_le_bytes());
        hasher.field("subject", format!("{:?}", request.subject));
        for part in kernel {
            hasher.field("kernel", part);
        }
        // A variant without cases never passes, so it needs no key of its own.
        for case in selected_cases(&request.subject, request.level, request.filter.as_deref()) {
            hasher.field("case", format!("{case:?}"));
        }
        hasher.finish()
    }

    /// The kept pass, if there is one. A file that is not as it was written, or was written for another key, counts as
    /// none.
    pub(super) fn find(&self, key: &str) -> Option<Verdict> {
        let text = files::read(&self.path(key)).ok()?;
        let verdict: Verdict = unseal(&text, &[key.as_bytes()])?;
        touch(&self.path(key));
        verdict.passed().then_some(Verdict { cached: true, ..verdict })
    }

    /// Keeps a pass. The cache is a convenience: what cannot be written is checked again next time.
    pub(super) fn keep(&self, key: &str, verdict: &Verdict) {
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            write_atomic(&self.path(key), &seal(verdict, &[key.as_bytes()])?).map(drop)
        };
        if verdict.passed() {
            let _ = write();
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::{Level, Status},
        device::DeviceKind,
    };

    #[test]
    fn an_edited_verdict_and_one_under_another_key_are_not_believed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let cache = VerdictCache::new(folder.path());
        let verdict = Verdict {
            name: "flash_fwd".to_owned(),
            device: "emulator".to_owned(),
            kind: DeviceKind::Emulator,
            level: Level::Smoke,
            seed: 1,
            status: Status::Pass,
            cases_run: 7,
            worst: None,
            seconds: 0.1,
            message: String::new(),
            cached: false,
            same_as: None,
        };
        cache.keep("key", &verdict);
        assert_eq!(cache.find("key"), Some(Verdict { cached: true, ..verdict }));
        let text = fs::read_to_string(cache.path("key")).expect("it was kept");
        fs::write(cache.path("other"), &text).expect("written");
        assert_eq!(cache.find("other"), None);
        assert!(text.contains("\"cases_run\":7"), "{text}");
        fs::write(cache.path("key"), text.replace("\"cases_run\":7", "\"cases_run\":8")).expect("written");
        assert_eq!(cache.find("key"), None);
    }
}
