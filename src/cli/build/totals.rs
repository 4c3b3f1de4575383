//! The lines below a build's table.

use crate::{
    build::Share,
    command::build::Outcome,
    text::{count, size},
};
use itertools::Itertools;
use std::{collections::BTreeMap, fmt::Write};

/// Number of compiled kernels and their cost, summary of the machine code, and path and size of the library.
pub(super) fn totals(outcome: &Outcome) -> String {
    let report = &outcome.report;
    let (built, cached) = (outcome.kernels().count(), outcome.kernels().filter(|a| a.cached).count());
    let mut text = format!("{}: {} compiled, {cached} cached", count(outcome.variants(), "variant"), built - cached);
    // Writing into a string cannot fail.
    if outcome.failed_variants() > 0 {
        write!(text, ", {} failed", outcome.failed_variants()).ok();
    }
    write!(text, " in {:.1} s", report.wall_seconds).ok();
    if cached < built {
        let mean = report.cpu_seconds() / (built - cached) as f64;
        write!(text, " ({:.0} CPU s, {mean:.1} a variant, {} at once)", report.cpu_seconds(), outcome.jobs).ok();
    }
    let peak = outcome.kernels().map(|a| a.peak_memory_bytes).max().unwrap_or(0);
    writeln!(text, "; largest nvcc {}", size(peak)).ok();
    let kernels = |shares: &BTreeMap<String, Share>| shares.iter().filter(|(name, _)| *name != "host").count();
    if kernels(&report.by_kind) > 1 {
        let cost = |(name, share): (&String, &Share)| format!("{name} {:.1}", share.mean_cpu_seconds);
        let costs = report.by_kind.iter().filter(|(name, _)| *name != "host").map(cost).join(", ");
        writeln!(text, "CPU s a variant, when compiled: {costs}").ok();
    }
    let spilling = outcome.kernels().filter(|a| a.spill_bytes() > 0 || a.stack_bytes() > 0).count();
    if spilling > 0 {
        writeln!(text, "{}: registers spill to or live in local memory, which is slow", count(spilling, "variant")).ok();
    }
    machine_code(outcome, &mut text);
    if let Some(library) = &report.library {
        write!(text, "library: {} ({})", outcome.out_dir.join(&library.path).display(), size(library.size_bytes)).ok();
        if kernels(&report.by_target) > 1 {
            let size = |(name, share): (&String, &Share)| format!("{name} {}", size(share.object_bytes));
            write!(text, "; objects: {}", report.by_target.iter().map(size).join(", ")).ok();
        }
        text.push('\n');
    }
    let (logs, json) = (outcome.out_dir.join("log"), outcome.out_dir.join("report.json"));
    writeln!(text, "logs: {}, report: {}", logs.display(), json.display()).ok();
    text
}

/// One line on the findings of the disassembler, or the reason for skipping it.
fn machine_code(outcome: &Outcome, text: &mut String) {
    let mut variants: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut inspected, mut plain) = (0, 0);
    for code in outcome.kernels().filter_map(|artifact| artifact.machine_code.as_ref()) {
        inspected += 1;
        let families = code.families();
        plain += usize::from(families.is_empty());
        for family in families.into_keys() {
            *variants.entry(family).or_default() += 1;
        }
    }
    let without = (plain > 0).then(|| format!("{plain} without tensor cores"));
    let families = variants.iter().map(|(family, count)| format!("{count} {family}")).chain(without).join(", ");
    let built = outcome.kernels().count();
    // Writing into a string cannot fail.
    match (&outcome.report.not_inspected, built - inspected) {
        (None, _) if inspected == 0 => Ok(()),
        (None, _) => writeln!(text, "machine code, as promised: {families}"),
        (Some(reason), missing) => writeln!(text, "machine code not inspected in {missing} of {built} variants: {reason}"),
    }
    .ok();
}
