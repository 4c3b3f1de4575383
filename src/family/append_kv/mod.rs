//! New rows of K and V into a KV cache, with rotary embedding of K and Q.
#![allow(clippy::cast_possible_wrap, reason = "sizes of test cases are far below 2³¹")]

mod abi;
mod call;
mod cases;
mod exam;
mod memory;
mod plan;
mod point;
mod random;
mod refusals;
mod trial;

use exam::AppendCase;
pub use plan::{Design, Tile};
pub use point::Point;

use super::{Coordinates, Family, KindInfo};
use crate::{
    bench::{Bench, Size, Trial, Wanted},
    check::{Case, Level, Number, Subject, Tiling},
    grid::{Target, TileOverride},
    plan::{Plan, PlanError},
};

/// The family.
#[derive(Debug)]
pub struct AppendKv;

impl Family for AppendKv {
    type Point = Point;
    type Design = Design;

    const TEMPLATES: &'static str = "append_kv";
    const PREFIX: &'static str = "append_kv_";
    const KINDS: &'static [KindInfo] = point::KINDS;

    fn point(_place: usize, at: &Coordinates) -> Point {
        Point::at(at)
    }

    fn plan(point: Point, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
        plan::plan(point, change)
    }

    fn to_run_as(point: Point, design: &Design, target: Target) -> Result<Plan, PlanError> {
        plan::resolve(point, Some(target), design.tile)
    }

    fn tiling(_point: Point, design: &Design) -> Tiling {
        Tiling { n: 2 * design.tile.pairs as usize, ..Tiling::default() }
    }

    fn sizes(_point: Point, wanted: &Wanted) -> Vec<Size> {
        wanted.matrices(&trial::SIZES)
    }

    fn trial<'a>(point: Point, size: Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        trial::trial(point, size, bench)
    }

    fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
        cases::cases(subject, level)
    }

    fn random_case(point: Point, size: u32, seed: u64) -> Option<Box<dyn Case>> {
        Some(Box::new(AppendCase::random(Number::of(point.dtype), size, seed)))
    }
}
