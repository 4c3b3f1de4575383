//! Selections: the variants of a grid that a command applies to.

use super::{Filter, Grid};
use crate::kernel::{Dtype, Features, HeadDim, HeadDimError, Kind, Target, Variant};
use crate::text::{suggestion, ticked};
use std::{collections::BTreeSet, fmt::Write};

/// A user's request. Every field narrows it; an empty selection is the whole grid.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Kinds; empty for all.
    pub kinds: Vec<Kind>,
    /// Head dims; empty for all. A valid head dim that no selected variant has extends the selected families.
    pub head_dims: Vec<HeadDim>,
    /// Dtypes; empty for all.
    pub dtypes: Vec<Dtype>,
    /// True selects causal variants, false full ones, and `None` both.
    pub causal: Option<bool>,
    /// Selects only kernels with exactly these features. A set that no selected variant has extends the selected
    /// families.
    pub features: Option<Features>,
    /// True to select only kernels without features, if some of the selected ones have none.
    pub prefers_plain: bool,
    /// Targets; empty for all.
    pub targets: Vec<Target>,
    /// A named set of the grid.
    pub set: Option<String>,
    /// A further condition.
    pub filter: Option<Filter>,
}

/// Reasons why a selection gives no variants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// A head dim no kernel can have.
    #[error("{}\nhelp: {}", .0.title(), .0.help())]
    HeadDim(#[from] HeadDimError),
    /// A kind, dtype or target that no family of the grid has.
    #[error("no family in the grid has {axis} `{word}`; the grid has: {known}\nhelp: {help}")]
    NotInGrid {
        /// `kind`, `dtype` or `target`.
        axis: &'static str,
        /// The requested value.
        word: &'static str,
        /// The values in the grid.
        known: String,
        /// The remedy.
        help: String,
    },
    /// The grid has no set of this name.
    #[error("the grid has no set `{name}`\nhelp: {help}")]
    UnknownSet {
        /// The requested name.
        name: String,
        /// The sets in the grid.
        help: String,
    },
    /// Everything selected is excluded by the grid.
    #[error("the grid excludes everything selected:{}\nhelp: select others, or remove the `[[exclude]]` from the grid", listed(.0))]
    Excluded(Vec<super::Excluded>),
    /// The flags contradict each other or the grid.
    #[error("nothing is selected: {flag} leaves none of {before}\nhelp: {help}")]
    Empty {
        /// The flag that emptied the selection, with its value.
        flag: String,
        /// The selection before that flag.
        before: String,
        /// The remedy.
        help: &'static str,
    },
}

/// One condition of a selection, and its flag.
struct Stage<'a> {
    flag: String,
    keeps: Box<dyn Fn(&Variant) -> bool + 'a>,
    help: &'static str,
}

impl Grid {
    /// The variants of `selection`, sorted and without duplicates; never empty.
    ///
    /// Conditions intersect. If no variant that meets the other conditions, in the grid or excluded from it, has a
    /// requested head dim or set of features, the families that meet the other conditions are expanded with it.
    /// Excludes apply to those variants too.
    ///
    /// # Errors
    /// [`SelectError`] if a value exists nowhere in the grid, or nothing is left.
    pub fn select(&self, selection: &Selection) -> Result<Vec<Variant>, SelectError> {
        self.check_values(selection)?;
        let stages = self.stages(selection)?;
        let (points, off_grid) = self.points(selection);
        let kept = |candidates: &BTreeSet<Variant>| -> BTreeSet<Variant> {
            candidates.iter().filter(|variant| stages.iter().all(|stage| (stage.keeps)(variant))).copied().collect()
        };
        let mut selected = kept(&points);
        let requested = |variant: &Variant| (variant.head_dim(), variant.coordinates().features);
        let covered: BTreeSet<_> = selected.iter().map(requested).collect();
        selected.extend(kept(&off_grid).into_iter().filter(|variant| !covered.contains(&requested(variant))));
        let is_plain = |variant: &Variant| variant.coordinates().features.is_none_or(Features::is_empty);
        if selection.prefers_plain && selected.iter().any(is_plain) {
            selected.retain(is_plain);
        }
        if selected.is_empty() {
            let made = |variant: &&Variant| self.exclusion(**variant).is_none();
            return Err(empty(selection, &stages, points.union(&off_grid).filter(made).copied().collect()));
        }
        let mut excluded = Vec::new();
        selected.retain(|variant| match self.exclusion(*variant) {
            None => true,
            Some(reason) => {
                excluded.push(super::Excluded { variant: *variant, reason: reason.to_owned() });
                false
            }
        });
        if selected.is_empty() { Err(SelectError::Excluded(excluded)) } else { Ok(selected.into_iter().collect()) }
    }

    /// The declared variants, including excluded ones, that have one of the requested head dims and the requested
    /// features, and the variants that the families would have if they declared those.
    fn points(&self, selection: &Selection) -> (BTreeSet<Variant>, BTreeSet<Variant>) {
        let declared = self.families().iter().flat_map(|family| family.variants(None, None));
        let Selection { head_dims, features, .. } = selection;
        if head_dims.is_empty() && features.is_none() {
            return (declared.collect(), BTreeSet::new());
        }
        let others = (!head_dims.is_empty()).then_some(head_dims.as_slice());
        let extended = self.families().iter().flat_map(|family| family.variants(others, *features));
        let meets = |variant: &Variant| {
            let head_dim = head_dims.is_empty() || variant.head_dim().is_some_and(|d| head_dims.contains(&d));
            head_dim && features.is_none_or(|set| variant.coordinates().features == Some(set))
        };
        let has_others = |variant: &Variant| {
            let is_bound = variant.coordinates().features.is_some_and(|set| set.any(|info| info.has_own_head_dims));
            features.is_some() || !is_bound
        };
        (declared.filter(meets).collect(), extended.filter(has_others).collect())
    }

    /// Refuses values that cannot match under any other conditions.
    fn check_values(&self, selection: &Selection) -> Result<(), SelectError> {
        for head_dim in &selection.head_dims {
            head_dim.checked()?;
        }
        let families = self.families();
        let dtypes: BTreeSet<Dtype> = families.iter().flat_map(|family| family.dtypes.clone()).collect();
        let targets: BTreeSet<Target> = families.iter().flat_map(|family| family.targets.clone()).collect();
        present("kind", &selection.kinds, &self.kinds().into_iter().collect(), Kind::name, |_| None)?;
        present("dtype", &selection.dtypes, &dtypes, Dtype::name, |_| None)?;
        present("target", &selection.targets, &targets, Target::name, |missing| served_by(missing, &targets))
    }

    /// The conditions of a selection except its head dims, in the order in which errors report them.
    fn stages<'a>(&'a self, selection: &'a Selection) -> Result<Vec<Stage<'a>>, SelectError> {
        const OTHERS: &str = "change it, or leave out one of the other flags; `kgen list` shows the grid";
        let mut stages = Vec::new();
        let mut stage = |flag: String, help, keeps: Box<dyn Fn(&Variant) -> bool + 'a>| stages.push(Stage { flag, keeps, help });
        if !selection.kinds.is_empty() {
            stage(flag("--kind", &selection.kinds), OTHERS, Box::new(|v| selection.kinds.contains(&v.kind())));
        }
        if !selection.targets.is_empty() {
            stage(flag("--target", &selection.targets), OTHERS, Box::new(|v| selection.targets.contains(&v.target())));
        }
        if !selection.dtypes.is_empty() {
            let keeps = |v: &Variant| v.dtype().is_some_and(|dtype| selection.dtypes.contains(&dtype));
            stage(flag("--dtype", &selection.dtypes), OTHERS, Box::new(keeps));
        }
        if let Some(causal) = selection.causal {
            let name = if causal { "`--causal`" } else { "`--full`" };
            stage(name.to_owned(), OTHERS, Box::new(move |v| v.causal() == Some(causal)));
        }
        if let Some(name) = &selection.set {
            let set = self.set(name).ok_or_else(|| self.unknown_set(name))?;
            let help = "the set is a slice of the grid: leave out one of the other flags, or leave out `--set`";
            stage(format!("`--set {name}`"), help, Box::new(|v| set.filter.matches(v)));
        }
        if let Some(filter) = &selection.filter {
            let help = "`kgen list` shows the grid; a head dim outside of it is asked for with `--head-dim`";
            stage(format!("`--filter '{filter}'`"), help, Box::new(|v| filter.matches(v)));
        }
        Ok(stages)
    }

    fn unknown_set(&self, name: &str) -> SelectError {
        let known: Vec<&str> = self.sets().iter().map(|set| set.name.as_str()).collect();
        let help = if known.is_empty() {
            "this grid names no sets".to_owned()
        } else {
            suggestion(name, &known).unwrap_or_else(|| format!("its sets are: {}", ticked(&known)))
        };
        SelectError::UnknownSet { name: name.to_owned(), help }
    }
}

/// A flag as the user writes it, with its values in canonical names.
fn flag<T: ToString>(name: &str, values: &[T]) -> String {
    format!("`{name} {}`", values.iter().map(T::to_string).collect::<Vec<_>>().join(","))
}

/// For a target without kernels: the newest of `there` whose kernels it can run, since they carry PTX.
fn served_by(missing: Target, there: &BTreeSet<Target>) -> Option<String> {
    let older = there.iter().rev().find(|t| t.carries_ptx() && t.compute_capability() < missing.compute_capability())?;
    Some(format!("kernels for `{older}` carry PTX and run on `{missing}` too: select `--target {older}`"))
}

fn present<T: Copy + Ord>(
    axis: &'static str,
    requested: &[T],
    there: &BTreeSet<T>,
    name: fn(T) -> &'static str,
    help: impl Fn(T) -> Option<String>,
) -> Result<(), SelectError> {
    match requested.iter().find(|value| !there.contains(value)) {
        None => Ok(()),
        Some(missing) => {
            let known: Vec<&str> = there.iter().map(|value| name(*value)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { ticked(&known) };
            let help =
                help(*missing).unwrap_or_else(|| "add a `[[family]]` with it to the grid, or select one it has".to_owned());
            Err(SelectError::NotInGrid { axis, word: name(*missing), known, help })
        }
    }
}

/// Finds the condition that leaves nothing, by applying them one after the other.
fn empty(selection: &Selection, stages: &[Stage<'_>], mut left: BTreeSet<Variant>) -> SelectError {
    let mut earlier = Vec::new();
    if !selection.head_dims.is_empty() {
        let head_dims = flag("--head-dim", &selection.head_dims);
        if left.is_empty() {
            let help = "leave it out: the kernels of this grid have no head dim, or are excluded";
            return SelectError::Empty { flag: head_dims, before: "the grid".to_owned(), help };
        }
        earlier.push(head_dims);
    }
    if let Some(features) = selection.features {
        earlier.push(format!("`--features {features}`"));
    }
    for stage in stages {
        let before = left.len();
        left.retain(|variant| (stage.keeps)(variant));
        if left.is_empty() {
            let of = if earlier.is_empty() { "of the grid".to_owned() } else { format!("with {}", earlier.join(", ")) };
            let plural = if before == 1 { "" } else { "s" };
            return SelectError::Empty {
                flag: stage.flag.clone(),
                before: format!("the {before} variant{plural} {of}"),
                help: stage.help,
            };
        }
        earlier.push(stage.flag.clone());
    }
    unreachable!("the stages together left nothing, so one of them did")
}

/// Excluded variants as lines, grouped by reason, the first few names of each.
fn listed(excluded: &[super::Excluded]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for one in excluded {
        if !reasons.contains(&one.reason.as_str()) {
            reasons.push(&one.reason);
        }
    }
    let mut lines = String::new();
    for reason in reasons {
        let names: Vec<String> = excluded.iter().filter(|one| one.reason == reason).map(|one| one.variant.name()).collect();
        let shown = ticked(&names[..names.len().min(3)]);
        let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        // Writing to a String cannot fail.
        let _ = write!(lines, "\n  {shown}{more}: {reason}");
    }
    lines
}

#[cfg(test)]
mod tests;
