//! Transposition of matrices, out of place and in place.

mod abi;
mod exam;
mod plan;
mod point;
mod trial;

pub use plan::{Design, Tile};
pub use point::Point;

use super::{Coordinates, Family, KindInfo};
use crate::{
    bench::{Bench, Matrix, Size, Trial, Wanted},
    check::{Case, Level, Subject, Tiling},
    grid::{Target, TileOverride},
    plan::{Plan, PlanError},
};

/// The family.
#[derive(Debug)]
pub struct Transpose;

impl Family for Transpose {
    type Point = Point;
    type Design = Design;

    const TEMPLATES: &'static str = "transpose";
    const PREFIX: &'static str = "transpose_";
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
        let side = design.tile.side as usize;
        Tiling { m: side, n: side, ..Tiling::default() }
    }

    fn sizes(_point: Point, wanted: &Wanted) -> Vec<Size> {
        wanted.matrices(&[1024, 4096, 16_384].map(|side| Matrix { rows: side, columns: side }))
    }

    fn trial<'a>(point: Point, size: Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        trial::trial(point, size, bench)
    }

    fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
        exam::cases(subject, level)
    }
}
