//! Reductions of rows, or of all elements, to one number: sum, max, logsumexp.

mod abi;
mod cases;
mod operation;
mod plan;
mod timing;

pub use super::pieces::Tile;
pub use plan::Design;

use super::{Family, pieces};
use crate::{
    bench::{Bench, Matrix, Size, Trial, Wanted},
    check::{Case, Level, Subject},
    kernel::{Kind, Target, TileKey, TileOverride, Variant},
    plan::{Plan, PlanError},
};

/// The family.
#[derive(Debug)]
pub struct Reduce;

impl Family for Reduce {
    fn templates(&self) -> &'static str {
        "reduce"
    }

    fn prefix(&self) -> &'static str {
        "reduce_"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::ReduceSum, Kind::ReduceMax, Kind::ReduceLogsumexp]
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
        wanted.matrices(&[(1, 1 << 20), (1, 1 << 24), (1, 1 << 28), (4096, 4096)].map(|(rows, columns)| Matrix { rows, columns }))
    }

    fn trial<'a>(&self, variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        timing::trial(variant, size, bench)
    }

    fn cases(&self, subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
        cases::cases(subject, level)
    }
}
