//! Adds the helper kernels that selected kernels need: without `fwd_combine`, a library of split-KV kernels never
//! splits.

use super::Observer;
use crate::{
    grid::Grid,
    kernel::{Kind, Target, Variant},
    plan::runs_on,
};
use itertools::Itertools;
use std::collections::BTreeSet;

/// `selected` plus the helpers in `grid` that they need, sorted. Notes report the added helpers, and those that the
/// grid lacks.
pub(super) fn complete(grid: &Grid, selected: Vec<Variant>, observer: &dyn Observer) -> Vec<Variant> {
    let Missing { there, nowhere } = missing(grid, &selected);
    if there.is_empty() && nowhere.is_empty() {
        return selected;
    }
    if !there.is_empty() {
        let names = there.iter().map(|helper| format!("`{helper}`")).join(", ");
        let (comes, them) = if there.len() == 1 { ("comes", "it") } else { ("come", "them") };
        observer.note(&format!("{names} {comes} along, which selected kernels need; `--no-helpers` leaves {them} out"));
    }
    for (kind, target) in &nowhere {
        observer.note(&format!(
            "the grid has no `{kind}` that runs on `{target}`; without one a library never splits the keys there"
        ));
    }
    selected.into_iter().chain(there).sorted_unstable().collect()
}

/// Helpers that are needed and not selected.
#[derive(Debug, Default, PartialEq)]
struct Missing {
    /// Helpers in the grid.
    there: BTreeSet<Variant>,
    /// Kinds for which the grid has no target whose files run on the GPUs that need them.
    nowhere: BTreeSet<(Kind, Target)>,
}

fn missing(grid: &Grid, selected: &[Variant]) -> Missing {
    let mut missing = Missing::default();
    let needed: BTreeSet<(Kind, Target)> =
        selected.iter().flat_map(|variant| variant.helpers().map(|kind| (kind, variant.target()))).collect();
    for (kind, target) in needed {
        let serves = |helper: &&Variant| helper.kind() == kind && runs_on(helper.target(), target.compute_capability(), true);
        match grid.variants().iter().filter(serves).max_by_key(|helper| helper.target()) {
            Some(helper) if selected.contains(helper) => {}
            Some(helper) => {
                missing.there.insert(*helper);
            }
            None => {
                missing.nowhere.insert((kind, target));
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Feature, HeadDim};
    use crate::{family::attention, grid::Selection};

    fn missing_of(grid: &Grid, kinds: &[attention::Kind], targets: &[Target]) -> Missing {
        let selection = Selection {
            kinds: kinds.iter().copied().map(Kind::from).collect(),
            targets: targets.to_vec(),
            head_dims: vec![HeadDim::equal(64)],
            ..Selection::default()
        };
        missing(grid, &grid.select(&selection).expect("selects something"))
    }

    #[test]
    fn split_kernels_bring_the_helpers_that_run_where_they_do() {
        let grid = Grid::builtin();
        let names = |targets: &[Target]| {
            let missing = missing_of(&grid, &[attention::Kind::Fwd, attention::Kind::FwdSplit], targets);
            missing.there.iter().map(Variant::name).collect::<Vec<_>>()
        };
        let both = ["flash_fwd_combine_sm80", "flash_prepare_scheduler_sm80"];
        assert_eq!(names(&[Target::Sm80]), both);
        assert_eq!(names(&[Target::Sm80, Target::Sm100, Target::Sm120]), both, "newer GPUs run them by PTX");
        assert_eq!(
            missing_of(&grid, &[attention::Kind::Fwd, attention::Kind::Bwd], &[Target::Sm80]),
            Missing::default(),
            "none is needed"
        );
    }

    #[test]
    fn dense_kernels_whose_blocks_share_keys_bring_the_one_that_merges() {
        let grid = Grid::builtin();
        let selection = Selection {
            head_dims: vec![HeadDim::equal(64)],
            features: Some([Feature::SplitKv].into_iter().collect()),
            ..Selection::default()
        };
        let missing = missing(&grid, &grid.select(&selection).expect("selects something"));
        assert_eq!(missing.there.iter().map(Variant::name).collect::<Vec<_>>(), ["flash_fwd_combine_sm90"]);
    }

    #[test]
    fn what_is_selected_already_or_declared_nowhere_does_not_come_along() {
        let all = Grid::builtin();
        assert_eq!(missing(&all, all.variants()), Missing::default());
        let text = "version = 1\n[targets.sm80]\ndescription = 'A100'\n[[family]]\nkind = ['fwd_split']\nhead_dim = [64]\n\
            dtype = ['fp16']\nmask = ['full']\ntarget = ['sm80']\n";
        let grid = Grid::parse(text, "t.toml").expect("a grid");
        let missing = missing(&grid, grid.variants());
        assert_eq!(missing.there.len(), 0);
        assert_eq!(missing.nowhere.len(), 2);
    }
}
