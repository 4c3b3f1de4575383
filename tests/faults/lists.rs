//! Checks of the lists of faults that run no kernel.

use super::{Bodies, laboratory::laboratory, record_rules::every_entry_is_of_a_trial};
use kgen::family::FAMILIES;

/// Minimum number of faults in the lists: raise it when some are added. A fault that is removed must be replaced by
/// another.
const LEAST: usize = 984;

pub fn rules() -> Bodies {
    vec![
        ("every text to find occurs once", every_text_occurs_once),
        ("no fault is lost", no_fault_is_lost),
        ("every entry of the record is a trial's, and none that is stale excuses it", every_entry_is_of_a_trial),
        ("every family but attention has a list", every_family_has_a_list),
    ]
}

fn every_text_occurs_once() -> Result<(), String> {
    let laboratory = laboratory();
    let faults = laboratory.lists.iter().flat_map(|list| list.faults.iter().map(move |fault| (list, fault)));
    let wrong = faults.filter_map(|(list, fault)| {
        let reason = laboratory.planted(&list.grid, fault).err()?;
        Some(format!("{}/{}: {reason}", list.name, fault.name))
    });
    complaints(&wrong.collect::<Vec<_>>())
}

fn no_fault_is_lost() -> Result<(), String> {
    let count = laboratory().lists.iter().map(|list| list.faults.len()).sum::<usize>();
    if count >= LEAST { Ok(()) } else { Err(format!("the lists hold {count} faults, and held {LEAST}")) }
}

fn every_family_has_a_list() -> Result<(), String> {
    let has_list = |family: &str| laboratory().lists.iter().any(|list| list.name == family);
    let without = FAMILIES.iter().map(|family| family.templates()).filter(|family| *family != "attention" && !has_list(family));
    complaints(&without.map(|family| format!("`{family}` has no list of faults")).collect::<Vec<_>>())
}

fn complaints(lines: &[String]) -> Result<(), String> {
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}
