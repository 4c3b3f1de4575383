//! Sum of two vectors: the smallest family, and the model for a new one.

mod abi;
mod cases;
mod plan;
mod timing;

pub use super::pieces::Tile;
pub use plan::Design;

use super::{Family, pieces};
use crate::{
    bench::{Bench, Size, Trial, Wanted},
    check::{Case, Level, Subject},
    kernel::{Kind, Target, TileKey, TileOverride, Variant},
    plan::{Plan, PlanError},
};

/// The family.
#[derive(Debug)]
pub struct VectorAdd;

impl Family for VectorAdd {
    fn templates(&self) -> &'static str {
        "vector_add"
    }

    fn prefix(&self) -> &'static str {
        "vector_add_"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::VectorAdd]
    }

    fn tile_keys(&self) -> &'static [TileKey] {
        pieces::KEYS
    }

    fn plan(&self, variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
        plan::plan(variant, change)
    }

    fn to_run_as(&self, plan: &Plan, target: Target) -> Result<Plan, PlanError> {
        plan::to_run_as(plan, target)
    }

    fn sizes(&self, _variant: &Variant, wanted: &Wanted) -> Vec<Size> {
        wanted.vectors()
    }

    fn trial<'a>(&self, variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        timing::trial(variant, size, bench)
    }

    fn cases(&self, subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
        cases::cases(subject, level)
    }
}
