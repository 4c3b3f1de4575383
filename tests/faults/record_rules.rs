//! Rules of the record, on a fault of a header, on a kernel that passes, and on made-up trials.

use super::{
    Bodies,
    laboratory::{Kernel, laboratory},
    list::Fault,
    record::{Keys, Record, SAMPLE, Sources, key, key_of_passes, trials},
    unharmed::{is_passing, passing},
};
use std::collections::{BTreeMap, BTreeSet};

pub fn rules() -> Bodies {
    vec![
        ("what a verdict depends on is part of its key", what_a_verdict_depends_on),
        ("what a verdict does not depend on changes no key", what_it_does_not_depend_on),
        ("what a pass depends on is part of its key, and nothing else is", what_a_pass_depends_on),
        ("every kernel has a trial with a key, and no fault has the name of one", every_kernel_has_a_key),
        ("a trial whose key is another runs", another_key_runs),
        ("the entry of one trial excuses no other", one_entry_for_one_trial),
        ("one of eight trials on record runs, others after any change", a_sample_runs),
        ("an update keeps what it did not try and drops what failed or is gone", an_update),
    ]
}

/// A fault of a kernel that includes headers, the kernel, and its text with the fault.
fn example() -> (&'static Fault, &'static Kernel, String) {
    let list = laboratory().lists.iter().find(|list| list.name == "forward").expect("the list is there");
    let fault = list.faults.first().expect("it is not empty");
    let (kernel, text) = laboratory().tried(list, fault).expect("it can be planted");
    (fault, kernel, text)
}

fn sources() -> Sources<'static> {
    Sources { headers: &laboratory().headers, emulator: &laboratory().emulator }
}

/// The files with one character more in one of them.
fn edited(files: &BTreeMap<String, String>, path: &str) -> BTreeMap<String, String> {
    let mut files = files.clone();
    files.get_mut(path).unwrap_or_else(|| panic!("there is no `{path}`")).push('\n');
    files
}

fn holds(claim: bool, what: &str) -> Result<(), String> {
    if claim { Ok(()) } else { Err(what.to_owned()) }
}

fn what_a_verdict_depends_on() -> Result<(), String> {
    let (fault, kernel, text) = example();
    let (plan, own) = (&kernel.plan, key(sources(), fault, &kernel.plan, &text, Some("a case")));
    let differs = |other: String, what: &str| holds(other != own, what);
    differs(key(sources(), fault, plan, &format!("{text} "), Some("a case")), "the text")?;
    differs(key(sources(), fault, plan, &text, Some("a cas")), "the hint")?;
    differs(key(sources(), fault, plan, &text, None), "that there is a hint")?;
    let expects = Fault { expect: fault.expect.clone() + "s", ..fault.clone() };
    differs(key(sources(), &expects, plan, &text, Some("a case")), "`expect`")?;
    let says = Fault { says: Some(fault.says.clone().unwrap_or_default() + "x"), ..fault.clone() };
    differs(key(sources(), &says, plan, &text, Some("a case")), "`says`")?;
    let cases = Fault { cases: Some("no case".to_owned()), ..fault.clone() };
    differs(key(sources(), &cases, plan, &text, Some("a case")), "`cases`")?;
    let emulator = edited(sources().emulator, "runtime/race.hpp");
    differs(key(Sources { emulator: &emulator, ..sources() }, fault, plan, &text, Some("a case")), "the emulator")?;
    // `kgen/strides.cuh` is included by headers, neither by kernels nor by the emulator.
    for header in ["kgen.h", "kgen/strides.cuh"] {
        let headers = edited(sources().headers, header);
        differs(key(Sources { headers: &headers, ..sources() }, fault, plan, &text, Some("a case")), header)?;
    }
    let others = laboratory().grid("kernels").iter().find(|other| other.plan.tiling() != plan.tiling());
    let other = others.ok_or("all kernels have one tiling")?;
    differs(key(sources(), fault, &other.plan, &text, Some("a case")), "the kernel's plan")
}

fn what_it_does_not_depend_on() -> Result<(), String> {
    let (fault, kernel, text) = example();
    let own = key(sources(), fault, &kernel.plan, &text, None);
    let headers = edited(sources().headers, "kgen/path_cost.cuh");
    let other = key(Sources { headers: &headers, ..sources() }, fault, &kernel.plan, &text, None);
    holds(other == own, "a header of dispatchers changes a kernel's key")?;
    let renamed = Fault { name: "of another name".to_owned(), ..fault.clone() };
    holds(key(sources(), &renamed, &kernel.plan, &text, None) == own, "the name of a fault changes its key")
}

fn key_of_texts(sources: Sources, texts: &[(&Kernel, &str)]) -> String {
    key_of_passes(sources, texts.iter().map(|(kernel, text)| (&kernel.plan, *text)))
}

fn what_a_pass_depends_on() -> Result<(), String> {
    let kernels = laboratory().grid("kernels");
    let [kernel, other] = kernels.first_chunk().ok_or("there are no two kernels")?;
    let text = kernel.text(laboratory());
    let own = key_of_texts(sources(), &[(kernel, text)]);
    let differs = |other: String, what: &str| holds(other != own, what);
    differs(key_of_texts(sources(), &[(kernel, &format!("{text} "))]), "the text")?;
    differs(key_of_texts(sources(), &[(other, text)]), "the kernel's plan")?;
    differs(key_of_texts(sources(), &[(kernel, text), (other, other.text(laboratory()))]), "a second text")?;
    let emulator = edited(sources().emulator, "runtime/race.hpp");
    differs(key_of_texts(Sources { emulator: &emulator, ..sources() }, &[(kernel, text)]), "the emulator")?;
    for header in ["kgen.h", "kgen/strides.cuh"] {
        let headers = edited(sources().headers, header);
        differs(key_of_texts(Sources { headers: &headers, ..sources() }, &[(kernel, text)]), header)?;
    }
    let headers = edited(sources().headers, "kgen/path_cost.cuh");
    let with_another = key_of_texts(Sources { headers: &headers, ..sources() }, &[(kernel, text)]);
    holds(with_another == own, "a header of dispatchers changes a kernel's key")
}

fn every_kernel_has_a_key() -> Result<(), String> {
    let without = passing().iter().filter(|passing| passing.key(sources()).is_none() || !is_passing(&passing.name));
    let without: Vec<&str> = without.map(|passing| passing.name.as_str()).collect();
    holds(without.is_empty(), &format!("no key, or no name of a trial that must pass: {without:#?}"))?;
    let kernels = laboratory().grids().map(|(_, kernels)| kernels.len()).sum::<usize>();
    holds(passing().len() > kernels, &format!("{} trials for {kernels} kernels and the variations", passing().len()))?;
    let faults = laboratory().lists.iter().flat_map(|list| list.faults.iter().map(move |fault| list.trial(fault)));
    let misnamed: Vec<String> = faults.filter(|trial| is_passing(trial)).collect();
    holds(misnamed.is_empty(), &format!("taken for kernels: {misnamed:#?}"))
}

/// Keys of made-up trials, `0` to `999`.
fn made_up(key: impl Fn(usize) -> String) -> Keys {
    Keys::of((0..1000).map(|number| (number.to_string(), key(number))).collect())
}

fn another_key_runs() -> Result<(), String> {
    let (then, now) = (made_up(|number| format!("then {number}")), made_up(|number| format!("now {number}")));
    let record = Record(then.of.clone());
    holds(then.of.keys().all(|trial| record.holds(trial, &then)), "a trial's own key is not believed")?;
    holds(now.of.keys().all(|trial| record.requires(trial, &now)), "a trial with another key does not run")?;
    holds(now.of.keys().all(|trial| Record(BTreeMap::new()).requires(trial, &now)), "a trial without entry does not run")?;
    holds(record.requires("of a fault that cannot be planted", &then), "a trial without key does not run")
}

fn one_entry_for_one_trial() -> Result<(), String> {
    let keys = made_up(|number| format!("key {number}"));
    let shifted = (0..1000).map(|number: usize| (((number + 1) % 1000).to_string(), format!("key {number}")));
    let record = Record(shifted.collect());
    holds(keys.of.keys().all(|trial| record.requires(trial, &keys)), "another trial's key is believed")
}

fn a_sample_runs() -> Result<(), String> {
    let sampled = |keys: &Keys| {
        let record = Record(keys.of.clone());
        keys.of.keys().filter(|trial| record.requires(trial, keys)).cloned().collect::<BTreeSet<_>>()
    };
    let keys = || made_up(|number| format!("key {number}"));
    let changed = made_up(|number| format!("key {}", if number == 7 { "changed".to_owned() } else { number.to_string() }));
    let (one, other) = (sampled(&keys()), sampled(&changed));
    holds(one == sampled(&keys()), "two runs of one tree try different trials")?;
    let expected = 1000 / usize::try_from(SAMPLE).expect("it is small");
    holds(one.len().abs_diff(expected) < expected / 3, &format!("{} of 1000 run", one.len()))?;
    let common = one.intersection(&other).count();
    holds(common < one.len() / 2, &format!("{common} of {} run again after a change of one key", one.len()))
}

fn an_update() -> Result<(), String> {
    let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<BTreeMap<_, _>>();
    let keys = Keys::of(map(&[("caught", "new"), ("failed", "new"), ("not tried", "new")]));
    let record = Record(map(&[("failed", "new"), ("not tried", "old"), ("gone", "old")]));
    let tried = [("caught", true), ("failed", false), ("cannot be planted", true)];
    let tried = tried.map(|(trial, is_caught)| (trial.to_owned(), is_caught)).into();
    let all = ["caught", "failed", "not tried", "cannot be planted"].map(str::to_owned).into();
    let Record(after) = record.after(&tried, &keys, &all);
    holds(after == map(&[("caught", "new"), ("not tried", "old")]), &format!("{after:?}"))
}

/// For the trials of lists: every entry is a trial's, and a stale one excuses none.
pub fn every_entry_is_of_a_trial() -> Result<(), String> {
    let (Record(entries), keys) = (Record::read(), Keys::new(laboratory()));
    let all: BTreeSet<String> = trials(laboratory()).collect();
    let lost: Vec<&String> = entries.keys().filter(|trial| !all.contains(*trial)).collect();
    holds(lost.is_empty(), &format!("no trials, but on record: {lost:#?}; KGEN_UPDATE_FAULTS=1 removes them"))?;
    let record = Record(entries);
    let stale = all.iter().filter(|trial| keys.of.get(*trial) != record.0.get(*trial));
    let excused: Vec<&String> = stale.filter(|trial| !record.requires(trial, &keys)).collect();
    holds(excused.is_empty(), &format!("stale on record, but would not run: {excused:#?}"))
}
