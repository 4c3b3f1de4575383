//! The table of families. A family is a folder here, a folder of templates, its kinds in `kernel`, and a line in this
//! table: planning, cases and timing of its kernels.
//!
//! Modules shared by all kernels handle a kernel as a [`Variant`] and a [`Plan`]. Modules that depend on families use
//! the table; modules that families depend on (`check`, `bench`) get functions of it as arguments.

pub mod append_kv;
pub mod attention;
mod pieces;
pub mod reduce;
pub mod rmsnorm;
mod rotary;
mod tile_keys;
pub mod transpose;
pub mod vector_add;

use crate::{
    bench::{Bench, Draws, Estimate, Matrix, Size, Trial, Wanted},
    check::{Case, Level, Subject},
    grid::TileRow,
    kernel::{Card, Kind, Target, TileKey, TileOverride, Variant},
    plan::{Plan, PlanError},
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Values for templates, by name.
pub type Words = BTreeMap<&'static str, Value>;

/// A family of kernels: everything that differs between families.
pub trait Family: Sync {
    /// Folder of the family in `templates/`.
    fn templates(&self) -> &'static str;

    /// Prefix of the names of the family's kernels.
    fn prefix(&self) -> &'static str;

    /// The kinds of the family's kernels, in the order in which lists show them.
    fn kinds(&self) -> &'static [Kind];

    /// The keys of `[[tile]]` that the family's kernels may read; a kernel's plan decides which ones it reads.
    fn tile_keys(&self) -> &'static [TileKey];

    /// Plans a kernel with its default tile, modified by the entries of `variants.toml`.
    ///
    /// # Errors
    /// [`PlanError`] if the target cannot run it, a resource is exceeded, or the kernel does not read a tile key.
    fn plan(&self, variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError>;

    /// The kernel of a plan, compiled for `target` instead of the variant's own.
    ///
    /// # Errors
    /// [`PlanError`] if the kernel has no such form, or does not fit there.
    fn to_run_as(&self, plan: &Plan, target: Target) -> Result<Plan, PlanError>;

    /// The plans of a kernel with tiles near its default, including the default, without duplicates: candidates for
    /// measurement. A family that defines no neighbourhood has only the default.
    ///
    /// # Errors
    /// [`PlanError`] if the kernel has no default.
    fn candidates(&self, variant: Variant) -> Result<Box<dyn Iterator<Item = Plan>>, PlanError> {
        Ok(Box::new(std::iter::once(self.plan(variant, None)?)))
    }

    /// The choices of a plan's tile that make its kernel faster, each taken back by itself. None if the family does not
    /// tell such choices from others.
    fn rungs(&self, _plan: &Plan) -> Vec<Rung> {
        Vec::new()
    }

    /// The rows of `tiles/` that determine a kernel's default tile, the last of which wins; none if the family has no
    /// such file.
    fn tile_rows(&self, _variant: Variant) -> Vec<&'static TileRow> {
        Vec::new()
    }

    /// Template variables of the family's kernels, in addition to the plan and the common ones.
    fn words(&self, _plan: &Plan) -> Words {
        Words::new()
    }

    /// Template variables of a kernel's row in the dispatcher's table: `features`, `score`, `score_name`,
    /// `split_tiles_per_sm` and `cost`.
    fn row_words(&self, _plan: &Plan) -> Words {
        attention::row_of_another_family()
    }

    /// Template variables of the dispatcher that do not depend on a kernel.
    fn library_words(&self) -> Words {
        Words::new()
    }

    /// The sizes at which a kernel is timed, among those that a user requests; none if it is not timed on its own.
    fn sizes(&self, variant: &Variant, wanted: &Wanted) -> Vec<Size>;

    /// A size in the short form of tables: `4096x1024`, or `b8 h16 s2048` for attention.
    fn label(&self, size: &Size) -> String {
        Matrix::of(size).map_or_else(|| size.to_string(), |matrix| matrix.to_string())
    }

    /// The trial of a kernel at a size; `None` if the size does not belong to the family.
    fn trial<'a>(&self, variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>>;

    /// The time of a kernel at a size, computed from its plan; `None` if the size does not belong to the family or the
    /// kernel is not timed on its own. By default the time of the memory traffic of its trial.
    fn estimate(&self, plan: &Plan, size: &Size, card: &Card) -> Option<Estimate> {
        let draws = Draws::new(0);
        let bench = Bench { draws: &draws, seed: 0, multiprocessors: card.multiprocessors };
        Some(Estimate::of_traffic(self.trial(&plan.variant, size, bench)?.work(), card))
    }

    /// The time of a kernel for a batch of sequences with these lengths of queries and keys, whose heads are those of
    /// `size`. `None` as of [`estimate`](Self::estimate), and if the family's calls have no sequences.
    fn estimate_packed(&self, _plan: &Plan, _size: &Size, _lengths: &[[u32; 2]], _card: &Card) -> Option<Estimate> {
        None
    }

    /// The cases of a kernel, in order.
    fn cases(&self, subject: &Subject, level: Level) -> Vec<Box<dyn Case>>;

    /// A random valid call of the family's dispatcher function, of about `size` (at least 1); the same seed gives the
    /// same call. `None` if the family does not draw calls by size and seed.
    fn random_case(&self, _variant: &Variant, _size: u32, _seed: u64) -> Option<Box<dyn Case>> {
        None
    }
}

/// A choice of a tile taken back: a key, and the keys that the kernel's rules tie to it.
#[derive(Clone, Debug)]
pub struct Rung {
    /// The key of `[[tile]]`.
    pub switch: &'static str,
    /// The keys that change, with the plan's values.
    pub from: Map<String, Value>,
    /// The same keys with the values that they change to.
    pub to: Map<String, Value>,
    /// All keys of the changed tile.
    pub tile: Map<String, Value>,
    /// The kernel with this tile, or the reason why there is none.
    pub plan: Result<Plan, String>,
}

/// Every family, in the order in which lists show them.
pub static FAMILIES: &[&dyn Family] = &[
    &attention::Attention,
    &vector_add::VectorAdd,
    &transpose::Transpose,
    &reduce::Reduce,
    &append_kv::AppendKv,
    &rmsnorm::Rmsnorm,
];

/// The family of a kind.
pub fn of(kind: Kind) -> &'static dyn Family {
    let family = FAMILIES.iter().find(|family| family.kinds().contains(&kind));
    *family.unwrap_or_else(|| unreachable!("a test holds that each kind has a family"))
}

/// The cases of a kernel at a level, in order.
pub fn cases(subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
    of(subject.variant.kind()).cases(subject, level)
}

/// The plans of a kernel with tiles near its default; [`Family::candidates`].
///
/// # Errors
/// [`PlanError`] if the kernel has no default.
pub fn candidates(variant: Variant) -> Result<Box<dyn Iterator<Item = Plan>>, PlanError> {
    of(variant.kind()).candidates(variant)
}

/// The choices of a plan's tile, each taken back; [`Family::rungs`].
pub fn rungs(plan: &Plan) -> Vec<Rung> {
    of(plan.variant.kind()).rungs(plan)
}

/// The time of a kernel for sequences of their own lengths; [`Family::estimate_packed`].
pub fn estimate_packed(plan: &Plan, size: &Size, lengths: &[[u32; 2]], card: &Card) -> Option<Estimate> {
    of(plan.variant.kind()).estimate_packed(plan, size, lengths, card)
}

/// The time of a kernel at a size, computed from its plan; [`Family::estimate`].
pub fn estimate(plan: &Plan, size: &Size, card: &Card) -> Option<Estimate> {
    of(plan.variant.kind()).estimate(plan, size, card)
}

/// The trial of a kernel at a size; `None` if the size does not belong to its family.
pub fn trial<'a>(variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
    of(variant.kind()).trial(variant, size, bench)
}

impl Plan {
    /// Plans `variant` with its default tile, or with `change` if `variants.toml` contains one.
    ///
    /// # Errors
    /// [`PlanError`] if the target cannot run it, a resource is exceeded, or the change names a key that the kernel
    /// does not read.
    pub fn new(variant: impl Into<Variant>, change: Option<&TileOverride>) -> Result<Self, PlanError> {
        let variant = variant.into();
        of(variant.kind()).plan(variant, change)
    }

    /// This kernel compiled for `target` instead of its own, as close to this plan as their common instructions allow.
    ///
    /// # Errors
    /// [`PlanError`] if the kernel has no such form, or does not fit there.
    pub fn to_run_as(&self, target: Target) -> Result<Self, PlanError> {
        of(self.variant.kind()).to_run_as(self, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Coordinates, Dtype, Features, HeadDim};

    #[test]
    fn kinds_are_those_of_the_families_in_their_order() {
        let all: Vec<Kind> = FAMILIES.iter().flat_map(|family| family.kinds()).copied().collect();
        assert_eq!(all, Kind::ALL);
    }

    #[test]
    fn names_of_kernels_begin_with_the_prefix_of_their_family() {
        let at = Coordinates {
            head_dim: Some(HeadDim::equal(64)),
            dtype: Some(Dtype::Bf16),
            causal: Some(true),
            features: Some(Features::NONE),
            target: Target::Sm90,
        };
        for kind in Kind::ALL {
            assert!(kind.at(&at).name().starts_with(of(*kind).prefix()), "{kind}");
        }
    }

    #[test]
    fn helpers_are_kinds_of_the_same_family() {
        for kind in Kind::ALL {
            assert!(kind.helpers().iter().all(|helper| of(*kind).kinds().contains(helper)), "{kind}");
        }
    }
}
