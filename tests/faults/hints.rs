//! For faults that many cases pass before one shows it: the name of that case. A trial runs it first and ends if its
//! verdict is the expected one; otherwise it runs all cases, so a stale hint costs nothing but time.
//! `KGEN_UPDATE_HINTS=1` records the hints of the trials that run.

use super::{Bodies, laboratory::laboratory, list::folder};
use kgen::{
    check::{Level, Observer, Subject, selected_cases},
    device::DeviceKind,
    family,
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A hint that saves less time is not recorded.
const WORTHWHILE: Duration = Duration::from_millis(200);

/// Names of cases by the names of trials.
pub struct Hints {
    cases: BTreeMap<String, String>,
    /// Hints found by the trials of this run, if hints are recorded: the hint of each trial, or none.
    seen: Option<Mutex<BTreeMap<String, Option<String>>>>,
}

pub fn hints() -> &'static Hints {
    static HINTS: LazyLock<Hints> = LazyLock::new(Hints::read);
    &HINTS
}

impl Hints {
    fn read() -> Self {
        let text = std::fs::read_to_string(path()).expect("the hints can be read");
        let cases = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path().display()));
        Self { cases, seen: std::env::var_os("KGEN_UPDATE_HINTS").map(|_| Mutex::default()) }
    }

    /// The case to try first; none if this run records.
    pub fn case(&self, trial: &str) -> Option<&str> {
        if self.seen.is_some() { None } else { self.cases.get(trial).map(String::as_str) }
    }

    /// Records the case that detected a trial's fault; earlier cases had taken `passed`.
    pub fn see(&self, trial: &str, case: String, passed: Duration) {
        if let Some(seen) = &self.seen {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert(trial.to_owned(), (passed >= WORTHWHILE).then_some(case));
        }
    }

    /// Writes the hints, if this run records; trials that did not run keep theirs if they are among `all`.
    pub fn write(&self, all: &[String]) {
        let Some(seen) = &self.seen else { return };
        let mut cases = self.cases.clone();
        cases.retain(|trial, _| all.contains(trial));
        for (trial, case) in seen.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            match case {
                Some(case) => cases.insert(trial.clone(), case.clone()),
                None => cases.remove(trial),
            };
        }
        let text = serde_json::to_string_pretty(&cases).expect("names are text") + "\n";
        std::fs::write(path(), text).expect("the hints can be written");
    }
}

fn path() -> PathBuf {
    folder().join("first_cases.json")
}

/// The last case that a check began, and the time spent on the cases before it.
#[derive(Default)]
pub struct LastCase(Mutex<Option<(Instant, Duration, String)>>);

impl LastCase {
    pub fn take(self) -> Option<(String, Duration)> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, passed, case)| (case, passed))
    }
}

impl Observer for LastCase {
    fn case(&self, _variant: &str, _number: usize, _of: usize, name: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = last.as_ref().map_or_else(Instant::now, |(begun, ..)| *begun);
        *last = Some((begun, begun.elapsed(), name.to_owned()));
    }
}

pub fn rules() -> Bodies {
    vec![("every hint is for a fault", every_hint_is_for_a_fault), ("no hint changes a verdict", no_hint_changes_a_verdict)]
}

fn every_hint_is_for_a_fault() -> Result<(), String> {
    let trials: Vec<String> =
        laboratory().lists.iter().flat_map(|list| list.faults.iter().map(|fault| list.trial(fault))).collect();
    let lost: Vec<&String> = hints().cases.keys().filter(|trial| !trials.contains(trial)).collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("no faults, but hints: {lost:#?}; KGEN_UPDATE_HINTS=1 removes them")) }
}

/// A fault that the first case does not detect.
const LATE: (&str, &str) = ("vector_add", "elements one by one go one too far");

fn no_hint_changes_a_verdict() -> Result<(), String> {
    let laboratory = laboratory();
    let list = laboratory.lists.iter().find(|list| list.name == LATE.0).ok_or("the list is gone")?;
    let fault = list.faults.iter().find(|fault| fault.name == LATE.1).ok_or("the fault is gone")?;
    let planted = laboratory.planted(&list.grid, fault)?;
    let (kernel, broken) = planted.first().ok_or("no kernel has the fault")?;
    let plan = &kernel.plan;
    let shown_by = |text: &str, hint: Option<&str>| laboratory.rejected(fault, plan, text, hint);
    let (case, _) = shown_by(broken, None)?.ok_or("no case shows the fault")?;
    let subject = Subject { variant: plan.variant, tiling: plan.tiling(), device: DeviceKind::Emulator };
    let first = selected_cases(family::cases, &subject, Level::Smoke, None).first().map(|case| case.name());
    let passing = first.filter(|first| *first != case).ok_or("the first case shows the fault")?;
    for stale in ["a name of no case", &passing] {
        match shown_by(broken, Some(stale))? {
            Some((found, _)) if found == case => {}
            other => return Err(format!("with the hint `{stale}`: {other:?}")),
        }
    }
    match (shown_by(broken, Some(&case)), shown_by(kernel.text(laboratory), Some(&case))) {
        (Ok(None), Err(_)) => Ok(()),
        other => Err(format!("with the hint `{case}`, for a broken and an unharmed kernel: {other:?}")),
    }
}
