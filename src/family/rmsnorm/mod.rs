//! RMS normalisation of rows, after a residual is added.

mod abi;
mod cases;
mod plan;
mod random;
mod timing;

pub use plan::Design;

use super::{Family, pieces};
use crate::{
    bench::{Bench, Matrix, Size, Trial, Wanted},
    check::{Case, Level, Number, Subject},
    kernel::{Kind, Target, TileKey, TileOverride, Variant},
    plan::{Plan, PlanError},
};

/// The family.
#[derive(Debug)]
pub struct Rmsnorm;

impl Family for Rmsnorm {
    fn templates(&self) -> &'static str {
        "rmsnorm"
    }

    fn prefix(&self) -> &'static str {
        "rmsnorm_"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Rmsnorm]
    }

    fn tile_keys(&self) -> &'static [TileKey] {
        pieces::KEYS
    }

    fn plan(&self, variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
        plan::plan(variant, change)
    }

    fn to_run_as(&self, plan: &Plan, target: Target) -> Result<Plan, PlanError> {
        plan::resolve(plan.variant, Some(target), plan.own_design::<Design>().tile)
    }

    fn sizes(&self, _variant: &Variant, wanted: &Wanted) -> Vec<Size> {
        wanted.matrices(&[(16384, 1024), (4096, 4096), (8192, 8192)].map(|(rows, columns)| Matrix { rows, columns }))
    }

    fn trial<'a>(&self, variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        timing::trial(variant, size, bench)
    }

    fn cases(&self, subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
        cases::cases(subject, level)
    }

    fn random_case(&self, variant: &Variant, size: u32, seed: u64) -> Option<Box<dyn Case>> {
        Some(Box::new(random::case(Number::of(variant.element()), size, seed)))
    }
}
