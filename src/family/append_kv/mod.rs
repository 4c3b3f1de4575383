//! Appends new rows of K and V to a KV cache, with rotary embedding of K and Q.
#![allow(clippy::cast_possible_wrap, reason = "sizes of test cases are far below 2³¹")]

mod abi;
mod call;
mod case;
mod cases;
mod memory;
mod plan;
mod random;
mod refusals;
mod timing;

use case::AppendCase;
pub use plan::{Design, Tile};

use super::Family;
use crate::{
    bench::{Bench, Size, Trial, Wanted},
    check::{Case, Level, Number, Subject},
    kernel::{Kind, Target, TileKey, TileOverride, Variant},
    plan::{Plan, PlanError},
};

/// The family.
#[derive(Debug)]
pub struct AppendKv;

impl Family for AppendKv {
    fn templates(&self) -> &'static str {
        "append_kv"
    }

    fn prefix(&self) -> &'static str {
        "append_kv_"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::AppendKv]
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
        wanted.matrices(&timing::SIZES)
    }

    fn trial<'a>(&self, variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        timing::trial(variant, size, bench)
    }

    fn cases(&self, subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
        cases::cases(subject, level)
    }

    fn random_case(&self, variant: &Variant, size: u32, seed: u64) -> Option<Box<dyn Case>> {
        Some(Box::new(AppendCase::random(Number::of(variant.element()), size, seed)))
    }
}
