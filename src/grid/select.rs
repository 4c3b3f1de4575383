//! Selections: which variants of a grid a command is about.

use super::{Dtype, Filter, Grid, HeadDimError, Kind, Target, Variant, check_head_dim, words};
use std::{collections::BTreeSet, fmt::Write};

/// What a user asks for. Every field narrows; an empty selection is the whole grid.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Kinds; empty for all.
    pub kinds: Vec<Kind>,
    /// Head dims; empty for all. A possible head dim that nothing selected has extends the selected families.
    pub head_dims: Vec<u32>,
    /// Dtypes; empty for all.
    pub dtypes: Vec<Dtype>,
    /// Only causal, only full, or both.
    pub causal: Option<bool>,
    /// Targets; empty for all.
    pub targets: Vec<Target>,
    /// A named set of the grid.
    pub set: Option<String>,
    /// A further condition.
    pub filter: Option<Filter>,
    /// The whole grid, said aloud. Narrows nothing, and lifts nothing the other fields say.
    pub all: bool,
}

/// Why a selection gives no variants.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// A head dim no kernel can have.
    #[error("{}\nhelp: {}", .0.title(), .0.help())]
    HeadDim(#[from] HeadDimError),
    /// A kind, dtype or target that no family of the grid has.
    #[error(
        "no family in the grid has {axis} `{word}`; the grid has: {known}\nhelp: add a `[[family]]` with it to the grid, or select one it has"
    )]
    NotInGrid {
        /// `kind`, `dtype` or `target`.
        axis: &'static str,
        /// The value asked for.
        word: &'static str,
        /// The values there are.
        known: String,
    },
    /// No set of that name.
    #[error("the grid has no set `{name}`\nhelp: {help}")]
    UnknownSet {
        /// What was asked for.
        name: String,
        /// The sets there are.
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
        /// What was left before it.
        before: String,
        /// What to change.
        help: &'static str,
    },
}

/// One condition of a selection, with the flag that stands for it.
struct Stage<'a> {
    flag: String,
    keeps: Box<dyn Fn(&Variant) -> bool + 'a>,
    help: &'static str,
}

impl Grid {
    /// The variants `selection` means, sorted and without duplicates; never empty.
    ///
    /// Conditions intersect. A head dim asked for by number that no variant meeting the other conditions has, in the grid
    /// or excluded from it, is made for all of them: the families that meet the other conditions are expanded with it.
    /// Excludes hold for those variants too.
    ///
    /// # Errors
    /// [`SelectError`] where a value exists nowhere in the grid, or where nothing is left.
    pub fn select(&self, selection: &Selection) -> Result<Vec<Variant>, SelectError> {
        self.check_values(selection)?;
        let stages = self.stages(selection)?;
        let (points, off_grid) = self.points(&selection.head_dims);
        let kept = |candidates: &BTreeSet<Variant>| -> BTreeSet<Variant> {
            candidates.iter().filter(|variant| stages.iter().all(|stage| (stage.keeps)(variant))).copied().collect()
        };
        let mut selected = kept(&points);
        let covered: BTreeSet<u32> = selected.iter().map(|variant| variant.head_dim).collect();
        selected.extend(kept(&off_grid).into_iter().filter(|variant| !covered.contains(&variant.head_dim)));
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

    /// The declared variants, excluded ones included, that have one of `head_dims`, and beside them the variants the
    /// families would have if they declared those head dims.
    fn points(&self, head_dims: &[u32]) -> (BTreeSet<Variant>, BTreeSet<Variant>) {
        let declared = self.families().iter().flat_map(|family| family.variants(None));
        if head_dims.is_empty() {
            return (declared.collect(), BTreeSet::new());
        }
        let extended = self.families().iter().flat_map(|family| family.variants(Some(head_dims)));
        (declared.filter(|variant| head_dims.contains(&variant.head_dim)).collect(), extended.collect())
    }

    /// Refuses values that can give nothing, whatever the other conditions are.
    fn check_values(&self, selection: &Selection) -> Result<(), SelectError> {
        for head_dim in &selection.head_dims {
            check_head_dim(i64::from(*head_dim))?;
        }
        let families = self.families();
        let dtypes: BTreeSet<Dtype> = families.iter().flat_map(|family| family.dtypes.clone()).collect();
        let targets: BTreeSet<Target> = families.iter().flat_map(|family| family.targets.clone()).collect();
        present("kind", &selection.kinds, &self.kinds().into_iter().collect(), Kind::name)?;
        present("dtype", &selection.dtypes, &dtypes, Dtype::name)?;
        present("target", &selection.targets, &targets, Target::name)
    }

    /// The conditions of a selection besides its head dims, in the order in which they are blamed.
    fn stages<'a>(&'a self, selection: &'a Selection) -> Result<Vec<Stage<'a>>, SelectError> {
        const OTHERS: &str = "change it, or leave out one of the other flags; `kgen list` shows the grid";
        let mut stages = Vec::new();
        let mut stage = |flag: String, help, keeps: Box<dyn Fn(&Variant) -> bool + 'a>| stages.push(Stage { flag, keeps, help });
        if !selection.kinds.is_empty() {
            stage(flag("--kind", &selection.kinds), OTHERS, Box::new(|v| selection.kinds.contains(&v.kind)));
        }
        if !selection.targets.is_empty() {
            stage(flag("--target", &selection.targets), OTHERS, Box::new(|v| selection.targets.contains(&v.target)));
        }
        if !selection.dtypes.is_empty() {
            let keeps = |v: &Variant| v.kind.has_shape() && selection.dtypes.contains(&v.dtype);
            stage(flag("--dtype", &selection.dtypes), OTHERS, Box::new(keeps));
        }
        if let Some(causal) = selection.causal {
            let name = if causal { "`--causal`" } else { "`--full`" };
            stage(name.to_owned(), OTHERS, Box::new(move |v| v.kind.has_shape() && v.causal == causal));
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
            words::suggestion(name, &known).unwrap_or_else(|| format!("its sets are: {}", words::ticked(&known)))
        };
        SelectError::UnknownSet { name: name.to_owned(), help }
    }
}

/// A flag as it was written, its values in their canonical names.
fn flag<T: ToString>(name: &str, values: &[T]) -> String {
    format!("`{name} {}`", values.iter().map(T::to_string).collect::<Vec<_>>().join(","))
}

fn present<T: Copy + Ord>(
    axis: &'static str,
    asked: &[T],
    there: &BTreeSet<T>,
    name: fn(T) -> &'static str,
) -> Result<(), SelectError> {
    match asked.iter().find(|value| !there.contains(value)) {
        None => Ok(()),
        Some(missing) => {
            let known: Vec<&str> = there.iter().map(|value| name(*value)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { words::ticked(&known) };
            Err(SelectError::NotInGrid { axis, word: name(*missing), known })
        }
    }
}

/// Finds the condition that leaves nothing, taking them one after the other.
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
        let shown = words::ticked(&names[..names.len().min(3)]);
        let more = if names.len() > 3 { format!(" and {} more", names.len() - 3) } else { String::new() };
        // Writing to a String cannot fail.
        let _ = write!(lines, "\n  {shown}{more}: {reason}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: &str = r#"
version = 1
[targets.sm80]
description = "Ampere"
[targets.sm90]
description = "Hopper"
[targets.sm120]
description = "Blackwell"
[[family]]
kind = ["fwd"]
head_dim = [64, 128, 160]
dtype = ["fp16", "bf16"]
mask = ["full", "causal"]
target = ["sm80", "sm90"]
[[family]]
kind = ["bwd"]
head_dim = [64, 80, 128]
dtype = ["bf16"]
mask = ["full"]
target = ["sm80"]
[[family]]
kind = ["fwd_combine"]
target = ["sm80"]
[[exclude]]
when = "hdim > 128 and target == sm90"
reason = "too wide for now"
[[exclude]]
when = "kind == bwd and hdim > 64 and hdim < 96"
reason = "no tile fits"
[sets.slim]
description = "small ones"
filter = "hdim <= 64 or kind == fwd_combine"
"#;

    fn grid() -> Grid {
        Grid::parse(GRID, "test.toml").unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    fn names(selection: &Selection) -> Vec<String> {
        let selected = grid().select(selection).unwrap_or_else(|error| panic!("{error}"));
        assert!(selected.is_sorted_by(|a, b| a < b), "sorted, no duplicates");
        selected.iter().map(Variant::name).collect()
    }

    #[track_caller]
    fn refusal(selection: &Selection) -> String {
        grid().select(selection).expect_err("nothing is selected").to_string()
    }

    #[test]
    fn an_empty_selection_is_the_whole_grid() {
        assert_eq!(grid().select(&Selection::default()).as_deref(), Ok(grid().variants()));
        assert_eq!(grid().select(&Selection { all: true, ..Selection::default() }).as_deref(), Ok(grid().variants()));
    }

    #[test]
    fn flags_intersect() {
        let selection = Selection {
            head_dims: vec![128, 64, 64],
            dtypes: vec![Dtype::Bf16],
            causal: Some(false),
            targets: vec![Target::Sm80],
            ..Selection::default()
        };
        let expected = [
            "flash_fwd_hdim64_bf16_sm80",
            "flash_fwd_hdim128_bf16_sm80",
            "flash_bwd_hdim64_bf16_sm80",
            "flash_bwd_hdim128_bf16_sm80",
        ];
        assert_eq!(names(&selection), expected);
        assert_eq!(names(&Selection { set: Some("slim".into()), ..selection.clone() }), [expected[0], expected[2]]);
        assert_eq!(names(&Selection { filter: "kind == fwd and hdim > 64".parse().ok(), ..selection }), [expected[1]]);
    }

    #[test]
    fn a_head_dim_outside_the_grid_extends_the_selected_families() {
        let selection = Selection {
            kinds: vec![Kind::Fwd],
            head_dims: vec![72],
            dtypes: vec![Dtype::Fp16],
            targets: vec![Target::Sm80],
            ..Selection::default()
        };
        assert_eq!(names(&selection), ["flash_fwd_hdim72_fp16_sm80", "flash_fwd_hdim72_fp16_causal_sm80"]);
    }

    #[test]
    fn a_head_dim_in_the_grid_is_not_made_for_families_that_lack_it() {
        assert!(names(&Selection { head_dims: vec![160], ..Selection::default() }).iter().all(|name| name.contains("_fwd_")));
    }

    #[test]
    fn a_head_dim_the_selected_family_lacks_is_made_for_it() {
        let selection = Selection { kinds: vec![Kind::Bwd], head_dims: vec![128, 160], ..Selection::default() };
        assert_eq!(names(&selection), ["flash_bwd_hdim128_bf16_sm80", "flash_bwd_hdim160_bf16_sm80"]);
    }

    #[test]
    fn excludes_hold_outside_the_grid_too() {
        let all = names(&Selection { head_dims: vec![72], ..Selection::default() });
        assert!(!all.is_empty() && all.iter().all(|name| !name.contains("bwd")));
        let message = refusal(&Selection { kinds: vec![Kind::Bwd], head_dims: vec![72], ..Selection::default() });
        assert!(message.contains("`flash_bwd_hdim72_bf16_sm80`: no tile fits"), "{message}");
    }

    #[test]
    fn a_selection_of_excluded_variants_names_them_and_the_reason() {
        let message = refusal(&Selection { head_dims: vec![160], targets: vec![Target::Sm90], ..Selection::default() });
        assert!(
            message.contains("`flash_fwd_hdim160_fp16_sm90`") && message.contains("and 1 more: too wide for now"),
            "{message}"
        );
    }

    #[test]
    fn a_value_no_family_has_is_refused_with_those_there_are() {
        let message = refusal(&Selection { targets: vec![Target::Sm80, Target::Sm120], ..Selection::default() });
        assert!(message.starts_with("no family in the grid has target `sm120`; the grid has: `sm80`, `sm90`\n"), "{message}");
        let message = refusal(&Selection { dtypes: vec![Dtype::Fp8], ..Selection::default() });
        assert!(message.contains("dtype `fp8`; the grid has: `fp16`, `bf16`"), "{message}");
        let message = refusal(&Selection { kinds: vec![Kind::FwdSplit], ..Selection::default() });
        assert!(message.contains("kind `fwd_split`; the grid has: `fwd`, `fwd_combine`, `bwd`"), "{message}");
        let message = refusal(&Selection { set: Some("slin".into()), ..Selection::default() });
        assert!(message.contains("no set `slin`") && message.contains("did you mean `slim`?"), "{message}");
    }

    #[test]
    fn the_flag_that_emptied_a_selection_is_named() {
        let bwd = Selection { kinds: vec![Kind::Bwd], ..Selection::default() };
        let cases = [
            (
                Selection { targets: vec![Target::Sm90], ..bwd.clone() },
                "`--target sm90` leaves none of the 2 variants with `--kind bwd`",
            ),
            (
                Selection { dtypes: vec![Dtype::Fp16], ..bwd.clone() },
                "`--dtype fp16` leaves none of the 2 variants with `--kind bwd`",
            ),
            (Selection { causal: Some(true), ..bwd }, "`--causal` leaves none of"),
            (
                Selection { set: Some("slim".into()), head_dims: vec![160], dtypes: vec![Dtype::Fp16], ..Selection::default() },
                "`--set slim` leaves none of the 2 variants with `--head-dim 160`, `--dtype fp16`",
            ),
            (
                Selection { filter: "hdim == 72".parse().ok(), ..Selection::default() },
                "`--filter 'hdim == 72'` leaves none of the 23 variants of the grid",
            ),
            (
                Selection { kinds: vec![Kind::FwdCombine], head_dims: vec![64], ..Selection::default() },
                "`--kind fwd_combine` leaves none",
            ),
        ];
        for (selection, expected) in cases {
            let message = refusal(&selection);
            assert!(message.contains(expected), "{expected}\n{message}");
        }
    }

    #[test]
    fn a_helper_kernel_is_selected_by_kind_target_and_set_only() {
        assert_eq!(names(&Selection { kinds: vec![Kind::FwdCombine], ..Selection::default() }), ["flash_fwd_combine_sm80"]);
        assert!(
            names(&Selection { set: Some("slim".into()), ..Selection::default() }).contains(&"flash_fwd_combine_sm80".to_owned())
        );
        for selection in [
            Selection { dtypes: vec![Dtype::Fp16], ..Selection::default() },
            Selection { causal: Some(false), ..Selection::default() },
            Selection { head_dims: vec![64], ..Selection::default() },
        ] {
            assert!(names(&selection).iter().all(|name| !name.contains("combine")), "{selection:?}");
        }
    }

    #[test]
    fn an_impossible_head_dim_is_refused() {
        let message = refusal(&Selection { head_dims: vec![64, 264], ..Selection::default() });
        assert!(message.contains("impossible head dim `264`") && message.contains("16 to 256"), "{message}");
    }
}
