//! Kernels that must pass: unchanged ones, and ones with harmless changes.

use super::{
    Bodies,
    code::replace_once,
    laboratory::{Kernel, laboratory},
};
use libtest_mimic::Trial;

/// One trial for each kernel in which faults may be planted.
pub fn trials() -> impl Iterator<Item = Trial> {
    let laboratory = laboratory();
    laboratory.grids().flat_map(move |(grid, kernels)| {
        kernels.iter().map(move |kernel| {
            let passes = || Ok(laboratory.passes(kernel, kernel.text(laboratory).to_owned())?);
            Trial::test(format!("unharmed/{grid}/{}", kernel.name()), passes)
        })
    })
}

pub fn variations() -> Bodies {
    vec![
        ("the work of several groups of heads is done", groups_of_heads),
        ("the work of several groups of packed heads is done", groups_of_packed_heads),
        ("O may move to its total after each tile", || total_after(1)),
        ("O may move to its total after two tiles", || total_after(2)),
        ("O may move to its total after three tiles", || total_after(3)),
    ]
}

/// The kernels whose text a change applies to.
fn that_take(change: impl Fn(&str) -> Option<String>) -> Vec<&'static Kernel> {
    let laboratory = laboratory();
    laboratory.shapes("kernels").filter(|kernel| change(kernel.text(laboratory)).is_some()).collect()
}

/// On five multiprocessors each head is a separate group.
fn groups_of_heads() -> Result<(), String> {
    let all = "heads_per_group(p, p.num_heads, params.blocks, items_a_head)";
    let grouped = |text: &str, heads: &str| replace_once(text, all, heads).ok();
    let stay = that_take(|text| grouped(text, "1"));
    let kernel = stay.first().ok_or("no kernel's blocks stay for all work")?;
    ["2", "3", "5", "params.heads"].into_iter().try_for_each(|heads| {
        let text = grouped(kernel.text(laboratory()), heads).expect("it has groups");
        laboratory().passes(kernel, text).map_err(|error| format!("groups of {heads}: {error}"))
    })
}

/// Sequences of equal lengths, however short, are taken in groups of packed heads.
fn groups_of_packed_heads() -> Result<(), String> {
    let in_groups = |text: &str, heads: &str| {
        let all = replace_once(text, "steps(0) >= UNLIKE_STEPS", "steps(0) >= 1").ok()?;
        replace_once(&all, "heads_per_group(p, params.heads, params.blocks, items_a_head)", heads).ok()
    };
    let laboratory = laboratory();
    let kernel = laboratory
        .grid("packgqa")
        .iter()
        .find(|kernel| in_groups(kernel.text(laboratory), "1").is_some())
        .ok_or("no kernel has groups")?;
    ["1", "2", "params.heads"].into_iter().try_for_each(|heads| {
        let text = in_groups(kernel.text(laboratory), heads).expect("it has groups");
        laboratory.passes(kernel, text).map_err(|error| format!("groups of {heads}: {error}"))
    })
}

/// Checks the kernels with O moved to its total every `tiles` tiles instead of every four. The longest sequences of the
/// checks have nine tiles of 32 keys: O moves once at the usual interval, and at least twice at a shorter one.
fn total_after(tiles: u32) -> Result<(), String> {
    let earlier = format!("constexpr int FOLD = {tiles};");
    let changed = |text: &str| replace_once(text, "constexpr int FOLD = 4;", &earlier).ok();
    let kernels = that_take(changed);
    if kernels.is_empty() {
        return Err("no kernel has a total".to_owned());
    }
    kernels.into_iter().try_for_each(|kernel| {
        let text = changed(kernel.text(laboratory())).expect("it has a total");
        laboratory().passes(kernel, text)
    })
}
