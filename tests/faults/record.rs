//! The record of caught faults, `caught.json`, and of kernels that passed, `passed.json`: for each trial a hash of all
//! that its verdict depended on when it last succeeded. A trial with the same hash today need not run; one of eight of
//! these runs nevertheless.

use super::{
    hints::hints,
    judge::{options, request},
    laboratory::Laboratory,
    list::{Fault, List, folder},
    unharmed::{is_passing, passing},
};
use kgen::{check::source_key, plan::Plan};
use rayon::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
};

/// Of so many trials on record one runs.
pub const SAMPLE: u64 = 8;

/// Hexadecimal digits of a key: no key of this length is met by accident.
const DIGITS: usize = 16;

/// What a kernel is compiled against.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    pub headers: &'a BTreeMap<String, String>,
    pub emulator: &'a BTreeMap<String, String>,
}

impl Sources<'_> {
    /// Identifies what a text is compiled against: the emulator, and the headers that either of them includes.
    fn identity(&self, text: &str) -> String {
        let mut todo: Vec<&str> = self.emulator.values().map(String::as_str).chain([text]).collect();
        let mut reached = BTreeMap::new();
        while let Some(text) = todo.pop() {
            for path in text.lines().filter_map(included) {
                if let Some((path, text)) = self.headers.get_key_value(path)
                    && reached.insert(path, text).is_none()
                {
                    todo.push(text);
                }
            }
        }
        hash(&(self.emulator, reached))
    }
}

/// The path in a line that includes a file, in quotes or angle brackets.
fn included(line: &str) -> Option<&str> {
    let directive = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
    directive.split(['"', '<', '>']).nth(1)
}

/// Hash of what serialises without ambiguity.
fn hash(fields: &impl serde::Serialize) -> String {
    blake3::hash(&serde_json::to_vec(fields).expect("it serialises")).to_hex().to_string()
}

/// Hash of all that the verdict on a kernel with a fault depends on, the same on every machine: the compiler of the
/// host, its flags and the processor are not part of it.
pub fn key(sources: Sources, fault: &Fault, plan: &Plan, text: &str, hint: Option<&str>) -> String {
    let request = request(plan, text.to_owned());
    let emulator = sources.identity(text);
    let checks: Vec<_> = hint
        .map(Some)
        .into_iter()
        .chain([fault.cases.as_deref()])
        .map(|cases| (cases, source_key(&request, &options(cases), &emulator).expect("a source has a key")))
        .collect();
    let Fault { expect, says, .. } = fault;
    // The crates with which cases are drawn have their versions in the lock.
    let mut key = hash(&(include_str!("judge.rs"), include_str!("../../Cargo.lock"), checks, expect, says));
    key.truncate(DIGITS);
    key
}

/// Hash of all that the passes of kernels' texts depend on, without what differs between machines, as for a fault.
pub fn key_of_passes<'a>(sources: Sources, texts: impl Iterator<Item = (&'a Plan, &'a str)>) -> String {
    let checks: Vec<_> = texts
        .map(|(plan, text)| {
            let emulator = sources.identity(text);
            source_key(&request(plan, text.to_owned()), &options(None), &emulator).expect("a source has a key")
        })
        .collect();
    let mut key = hash(&(include_str!("judge.rs"), include_str!("../../Cargo.lock"), "pass", checks));
    key.truncate(DIGITS);
    key
}

/// The keys of all trials today. One whose texts cannot be made has none.
pub struct Keys {
    pub of: BTreeMap<String, String>,
    /// Hash of all of them.
    digest: String,
}

impl Keys {
    pub fn new(laboratory: &Laboratory) -> Self {
        let sources = Sources { headers: &laboratory.headers, emulator: &laboratory.emulator };
        // It is made by the threads that work here: if all of them waited for it, it would wait for them.
        laboratory.marking();
        let passes = passing().par_iter().filter_map(|passing| Some((passing.name.clone(), passing.key(sources)?)));
        let faults: Vec<(&List, &Fault)> =
            laboratory.lists.iter().flat_map(|list| list.faults.iter().map(move |fault| (list, fault))).collect();
        let keyed = faults.par_iter().filter_map(|(list, fault)| {
            let (kernel, text) = laboratory.tried(list, fault).ok()?;
            let trial = list.trial(fault);
            let key = key(sources, fault, &kernel.plan, &text, hints().case(&trial));
            Some((trial, key))
        });
        Self::of(keyed.chain(passes).collect())
    }

    pub fn of(keys: BTreeMap<String, String>) -> Self {
        let digest = hash(&keys);
        Self { of: keys, digest }
    }

    /// True if a trial runs though it is on record. The choice changes with any key.
    pub fn is_sampled(&self, trial: &str) -> bool {
        let drawn = blake3::hash(format!("{} {trial}", self.digest).as_bytes());
        u64::from_le_bytes(*drawn.as_bytes().first_chunk().expect("a hash has 32 bytes")).is_multiple_of(SAMPLE)
    }
}

/// The keys with which trials succeeded last.
pub struct Record(pub BTreeMap<String, String>);

impl Record {
    pub fn read() -> Self {
        let part = |path: &PathBuf| -> BTreeMap<String, String> {
            let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        Self(paths().iter().flat_map(part).collect())
    }

    fn write(self) {
        let (passed, caught): (BTreeMap<_, _>, _) = self.0.into_iter().partition(|(trial, _)| is_passing(trial));
        for (path, entries) in paths().iter().zip([caught, passed]) {
            let text = serde_json::to_string_pretty(&entries).expect("names are text") + "\n";
            std::fs::write(path, text).expect("the record can be written");
        }
    }

    /// True if a trial succeeded with the key that it has today.
    pub fn holds(&self, trial: &str, keys: &Keys) -> bool {
        keys.of.get(trial).is_some_and(|key| self.0.get(trial) == Some(key))
    }

    /// True if a trial must run.
    pub fn requires(&self, trial: &str, keys: &Keys) -> bool {
        !self.holds(trial, keys) || keys.is_sampled(trial)
    }

    /// The record after the trials `tried`, each with whether it succeeded. Others keep their entries as long
    /// as they are among `all`.
    pub fn after(&self, tried: &BTreeMap<String, bool>, keys: &Keys, all: &BTreeSet<String>) -> Self {
        let mut entries = self.0.clone();
        entries.retain(|trial, _| all.contains(trial));
        for (trial, has_succeeded) in tried {
            match keys.of.get(trial).filter(|_| *has_succeeded) {
                Some(key) => entries.insert(trial.clone(), key.clone()),
                None => entries.remove(trial),
            };
        }
        Self(entries)
    }
}

/// The record's files: of faults that were caught, and of kernels that passed.
fn paths() -> [PathBuf; 2] {
    ["caught.json", "passed.json"].map(|name| folder().join(name))
}

/// The trials in this run that the record may hold.
pub struct Run {
    laboratory: &'static Laboratory,
    record: Record,
    /// Computed if they are needed: that plants every fault.
    keys: OnceLock<Keys>,
    runs_all: bool,
    updates: bool,
    tried: Mutex<BTreeMap<String, bool>>,
}

impl Run {
    /// Trials that someone `asked` for by name run, whether on record or not.
    pub fn new(laboratory: &'static Laboratory, asked: bool) -> Self {
        let has = |name| env::var_os(name).is_some();
        let updates = has("KGEN_UPDATE_FAULTS");
        assert!(!(updates && has("KGEN_UPDATE_HINTS")), "the record depends on the hints: update these first");
        let runs_all = asked || updates || has("KGEN_EVERY_FAULT") || has("KGEN_UPDATE_HINTS");
        Self { laboratory, record: Record::read(), keys: OnceLock::new(), runs_all, updates, tried: Mutex::default() }
    }

    fn keys(&self) -> &Keys {
        self.keys.get_or_init(|| Keys::new(self.laboratory))
    }

    /// True if a trial must run in this run.
    pub fn requires(&self, trial: &str) -> bool {
        self.runs_all || self.record.requires(trial, self.keys())
    }

    /// Runs a trial.
    ///
    /// # Errors
    /// Those of `verdict`.
    pub fn attempt(&self, trial: String, verdict: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let verdict = verdict();
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.insert(trial, verdict.is_ok());
        verdict
    }

    /// Reports how many trials ran, and writes the record if it was asked for.
    pub fn end(&self) {
        let tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let all: BTreeSet<String> = trials(self.laboratory).collect();
        if self.updates {
            let record = self.record.after(&tried, self.keys(), &all);
            println!("faults and kernels: {} ran, {} are on record now", tried.len(), record.0.len());
            record.write();
        } else if !self.runs_all {
            println!("faults and kernels: {} ran, {} are on record", tried.len(), all.len() - tried.len());
        }
    }
}

/// The names of all trials that the record may hold.
pub fn trials(laboratory: &Laboratory) -> impl Iterator<Item = String> {
    let faults = laboratory.lists.iter().flat_map(|list| list.faults.iter().map(|fault| list.trial(fault)));
    faults.chain(passing().iter().map(|passing| passing.name.clone()))
}
