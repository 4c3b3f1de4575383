//! Verdicts of earlier runs: a kernel that passed is not run again until it, the emulator, the cases or kgen change.
//! Only passes are stored; a failure is always reproduced by running.

use super::{Cases, Verdict, selected_cases, worker};
use crate::files::{self, FieldHasher, seal, touch, unseal, write_atomic};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Meaning and format of a stored pass: the hash of all code that draws inputs, runs, judges and writes, from
/// `build.rs`. It is part of every key, so that no version number has to be raised by hand when that code changes.
const JUDGE: &str = env!("KGEN_JUDGE");

/// The folder of stored verdicts.
#[derive(Debug, Clone)]
pub(super) struct VerdictCache {
    folder: PathBuf,
}

impl VerdictCache {
    /// The folder within the user's cache folder.
    pub(super) fn new(cache: &Path) -> Self {
        Self { folder: cache.join("verdicts") }
    }

    /// The key of a check: `kernel` identifies the kernel and the device, `request` holds the rest. The key's text is
    /// the same in every process; nothing in it comes from `Debug`, which prints addresses of functions. A case is
    /// identified by its name, which describes it completely, and by the code that draws it, which is part of the
    /// judge.
    pub(super) fn key(cases: Cases, kernel: &[&str], request: &worker::Request) -> serde_json::Result<String> {
        // Every field is named, so that a new one cannot be forgotten here. Only the cases that pass the filter enter
        // the key, below.
        let worker::Request {
            version: _,
            subject,
            compiled_for,
            library: _,
            level,
            filter,
            seed,
            schedule,
            threads: _,
            time_limit_seconds: _,
        } = request;
        let mut hasher = FieldHasher::default();
        hasher.field("judge", JUDGE);
        hasher.field("asked", serde_json::to_vec(&(subject, compiled_for, level, seed, schedule))?);
        for part in kernel {
            hasher.field("kernel", part);
        }
        // A variant without cases never passes, so it needs no key.
        for case in selected_cases(cases, subject, *level, filter.as_deref()) {
            hasher.field("case", case.name());
        }
        Ok(hasher.finish())
    }

    /// The stored pass, if there is one. A file that was altered, or was written for another key, is ignored.
    pub(super) fn find(&self, key: &str) -> Option<Verdict> {
        touch(&self.path(key));
        let text = files::read(&self.path(key)).ok()?;
        let verdict: Verdict = unseal(&text, &[key.as_bytes()])?;
        verdict.passed().then_some(Verdict { cached: true, ..verdict })
    }

    /// Stores a pass. The cache is a convenience: a pass that cannot be written is checked again next time.
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
        check::{Level, Status, Subject},
        device::DeviceKind,
        grid::Grid,
        kernel::Variant,
        plan::Plan,
    };
    use std::{collections::BTreeMap, env, process::Command};

    /// Set in the child process of the test that prints its keys.
    const PRINT: &str = "KGEN_TEST_PRINTS_KEYS";

    fn request(plan: &Plan, device: DeviceKind, level: Level) -> worker::Request {
        worker::Request {
            version: worker::PROTOCOL,
            subject: Subject { variant: plan.variant, tiling: plan.tiling(), device },
            compiled_for: plan.compiled_for(),
            library: PathBuf::new(),
            level,
            filter: None,
            seed: 1,
            schedule: None,
            threads: 1,
            time_limit_seconds: 1.0,
        }
    }

    /// One kernel of each kind for each target.
    fn one_of_each() -> Vec<Plan> {
        let grid = Grid::builtin();
        let by_kind: BTreeMap<_, Variant> = grid.variants().iter().map(|v| ((v.kind(), v.target()), *v)).collect();
        by_kind
            .into_values()
            .map(|variant| Plan::new(variant, grid.tile_override(&variant).as_ref()).expect("the grid's"))
            .collect()
    }

    #[test]
    fn keys_are_the_same_in_every_process_on_both_devices() {
        let mut keys = Vec::new();
        for plan in one_of_each() {
            for (device, level) in itertools::iproduct!([DeviceKind::Emulator, DeviceKind::Gpu], [Level::Smoke, Level::Thorough])
            {
                let key =
                    VerdictCache::key(crate::family::cases, &["kernel"], &request(&plan, device, level)).expect("it serialises");
                keys.push(format!("key {} {} {} {key}\n", plan.variant, device.word(), level.word()));
            }
        }
        let keys = keys.concat();
        if env::var_os(PRINT).is_some() {
            println!("\n{keys}");
            return;
        }
        // Code and data of another process have other addresses.
        let mut again = Command::new(env::current_exe().expect("this program"));
        again.args(["--exact", "--nocapture", "check::verdict_cache::tests::keys_are_the_same_in_every_process_on_both_devices"]);
        let output = again.env(PRINT, "1").output().expect("it starts");
        let said = String::from_utf8(output.stdout).expect("text");
        let others: String = said.lines().filter(|line| line.starts_with("key ")).flat_map(|line| [line, "\n"]).collect();
        assert!(!others.is_empty(), "{said}");
        assert_eq!(keys, others);
    }

    #[test]
    fn everything_that_is_asked_is_part_of_the_key_and_how_it_is_served_is_not() {
        let key =
            |request: &worker::Request| VerdictCache::key(crate::family::cases, &["kernel"], request).expect("it serialises");
        let plans = one_of_each();
        let requested = request(&plans[0], DeviceKind::Emulator, Level::Smoke);
        let other_target =
            plans.iter().map(Plan::compiled_for).find(|target| *target != requested.compiled_for).expect("several");
        for changed in [
            worker::Request { seed: 2, ..requested.clone() },
            worker::Request { level: Level::Thorough, ..requested.clone() },
            worker::Request { schedule: Some("priorities:3".parse().expect("an order")), ..requested.clone() },
            worker::Request { compiled_for: other_target, ..requested.clone() },
            worker::Request { filter: Some("one-hot".to_owned()), ..requested.clone() },
            request(&plans[0], DeviceKind::Gpu, Level::Smoke),
            request(&plans[1], DeviceKind::Emulator, Level::Smoke),
        ] {
            assert_ne!(key(&changed), key(&requested), "{changed:?}");
        }
        let served = worker::Request { library: PathBuf::from("l.so"), threads: 9, time_limit_seconds: 7.0, ..requested.clone() };
        assert_eq!(key(&served), key(&requested));
        assert_ne!(VerdictCache::key(crate::family::cases, &["other"], &requested).expect("it serialises"), key(&requested));
    }

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
