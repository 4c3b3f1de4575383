//! Kernels that must pass: unchanged ones, and ones with harmless changes.

use super::{
    code::replace_once,
    laboratory::{Kernel, laboratory},
    record::{Sources, key_of_passes},
};
use std::sync::LazyLock;

/// A text of a kernel that must pass, and what is changed in it.
pub struct Text {
    change: String,
    kernel: &'static Kernel,
    code: String,
}

impl Text {
    fn new(change: impl Into<String>, kernel: &'static Kernel, code: String) -> Self {
        Self { change: change.into(), kernel, code }
    }
}

/// The texts of a trial, or why there are none.
type Texts = Result<Vec<Text>, String>;

/// A trial of texts that must pass.
pub struct Passing {
    pub name: String,
    texts: Box<dyn Fn() -> Texts + Send + Sync>,
}

impl Passing {
    fn new(name: String, texts: impl Fn() -> Texts + Send + Sync + 'static) -> Self {
        Self { name, texts: Box::new(texts) }
    }

    /// The key of the record; none for a trial without texts.
    pub fn key(&self, sources: Sources) -> Option<String> {
        let texts = (self.texts)().ok()?;
        Some(key_of_passes(sources, texts.iter().map(|text| (&text.kernel.plan, text.code.as_str()))))
    }

    /// Checks that every text passes.
    ///
    /// # Errors
    /// The first verdict that is no pass, or why there is nothing to check.
    pub fn run(&self) -> Result<(), String> {
        (self.texts)()?.into_iter().try_for_each(|Text { change, kernel, code }| {
            laboratory()
                .passes(kernel, code)
                .map_err(|error| if change.is_empty() { error } else { format!("{change}: {error}") })
        })
    }
}

/// All trials of texts that must pass: long ones first, then one for each kernel in which faults may be planted.
pub fn passing() -> &'static [Passing] {
    static PASSING: LazyLock<Vec<Passing>> = LazyLock::new(|| variations().into_iter().chain(unharmed()).collect());
    &PASSING
}

/// True for the name of a trial of [`passing`], which no fault has.
pub fn is_passing(trial: &str) -> bool {
    [UNHARMED, VARIATIONS].iter().any(|group| trial.strip_prefix(group).is_some_and(|rest| rest.starts_with('/')))
}

const UNHARMED: &str = "unharmed";
const VARIATIONS: &str = "variations";

fn unharmed() -> impl Iterator<Item = Passing> {
    let laboratory = laboratory();
    laboratory.grids().flat_map(move |(grid, kernels)| {
        kernels.iter().map(move |kernel| {
            let text = || Ok(vec![Text::new("", kernel, kernel.text(laboratory).to_owned())]);
            Passing::new(format!("{UNHARMED}/{grid}/{}", kernel.name()), text)
        })
    })
}

fn variations() -> Vec<Passing> {
    let total_after = |tiles| move || total_after(tiles);
    vec![
        variation("the work of several groups of heads is done", groups_of_heads),
        variation("the work of several groups of packed heads is done", groups_of_packed_heads),
        variation("O may move to its total after each tile", total_after(1)),
        variation("O may move to its total after two tiles", total_after(2)),
        variation("O may move to its total after three tiles", total_after(3)),
    ]
}

fn variation(name: &str, texts: impl Fn() -> Texts + Send + Sync + 'static) -> Passing {
    Passing::new(format!("{VARIATIONS}/{name}"), texts)
}

/// The kernels whose text a change applies to.
fn that_take(change: impl Fn(&str) -> Option<String>) -> Vec<&'static Kernel> {
    let laboratory = laboratory();
    laboratory.shapes("kernels").filter(|kernel| change(kernel.text(laboratory)).is_some()).collect()
}

/// On five multiprocessors each head is a separate group.
fn groups_of_heads() -> Texts {
    let all = "heads_per_group(p, p.num_heads, params.blocks, items_a_head)";
    let grouped = |text: &str, heads: &str| replace_once(text, all, heads).ok();
    let stay = that_take(|text| grouped(text, "1"));
    let kernel = stay.first().ok_or("no kernel's blocks stay for all work")?;
    let of = |heads| {
        let text = grouped(kernel.text(laboratory()), heads).expect("it has groups");
        Text::new(format!("groups of {heads}"), kernel, text)
    };
    Ok(["2", "3", "5", "params.heads"].map(of).into())
}

/// Sequences of equal lengths, however short, are taken in groups of packed heads.
fn groups_of_packed_heads() -> Texts {
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
    let of = |heads| {
        let text = in_groups(kernel.text(laboratory), heads).expect("it has groups");
        Text::new(format!("groups of {heads}"), kernel, text)
    };
    Ok(["1", "2", "params.heads"].map(of).into())
}

/// The kernels with O moved to its total every `tiles` tiles instead of every four. The longest sequences of the checks
/// have nine tiles of 32 keys: O moves once at the usual interval, and at least twice at a shorter one.
fn total_after(tiles: u32) -> Texts {
    let earlier = format!("constexpr int FOLD = {tiles};");
    let changed = |text: &str| replace_once(text, "constexpr int FOLD = 4;", &earlier).ok();
    let kernels = that_take(changed);
    if kernels.is_empty() {
        return Err("no kernel has a total".to_owned());
    }
    let of = |kernel: &'static Kernel| {
        let text = changed(kernel.text(laboratory())).expect("it has a total");
        Text::new("", kernel, text)
    };
    Ok(kernels.into_iter().map(of).collect())
}
