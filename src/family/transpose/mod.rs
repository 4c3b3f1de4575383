//! Transposition of matrices, out of place and in place.

mod abi;
mod cases;
mod plan;
mod timing;

pub use plan::{Design, Tile};

use super::Family;
use crate::{
    bench::{Bench, Matrix, Size, Trial, Wanted},
    check::{Case, Level, Subject},
    kernel::{Kind, Target, TileKey, TileOverride, Variant},
    plan::{Plan, PlanError},
};

/// The family.
#[derive(Debug)]
pub struct Transpose;

impl Family for Transpose {
    fn templates(&self) -> &'static str {
        "transpose"
    }

    fn prefix(&self) -> &'static str {
        "transpose_"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Transpose]
    }

    fn tile_keys(&self) -> &'static [TileKey] {
        plan::KEYS
    }

    fn plan(&self, variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
        plan::plan(variant, change)
    }

    fn to_run_as(&self, plan: &Plan, target: Target) -> Result<Plan, PlanError> {
        plan::to_run_as(plan, target)
    }

    fn sizes(&self, _variant: &Variant, wanted: &Wanted) -> Vec<Size> {
        wanted.matrices(&[1024, 4096, 16_384].map(|side| Matrix { rows: side, columns: side }))
    }

    fn trial<'a>(&self, variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        timing::trial(variant, size, bench)
    }

    fn cases(&self, subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
        cases::cases(subject, level)
    }
}
