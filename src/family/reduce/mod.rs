//! Reductions of rows, or of all elements, to one number: sum, max, logsumexp.

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
pub struct Reduce;

impl Family for Reduce {
    type Point = Point;
    type Design = Design;

    const TEMPLATES: &'static str = "reduce";
    const PREFIX: &'static str = "reduce_";
    const KINDS: &'static [KindInfo] = point::KINDS;

    fn point(place: usize, at: &Coordinates) -> Point {
        Point::at(place, at)
    }

    fn plan(point: Point, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
        plan::plan(point, change)
    }

    fn to_run_as(point: Point, design: &Design, target: Target) -> Result<Plan, PlanError> {
        plan::resolve(point, Some(target), design.tile)
    }

    fn tiling(_point: Point, design: &Design) -> Tiling {
        Tiling { m: design.short_row as usize, n: design.whole_row as usize, ..Tiling::default() }
    }

    fn sizes(_point: Point, wanted: &Wanted) -> Vec<Size> {
        wanted.matrices(&[(1, 1 << 20), (1, 1 << 24), (1, 1 << 28), (4096, 4096)].map(|(rows, columns)| Matrix { rows, columns }))
    }

    fn trial<'a>(point: Point, size: Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        trial::trial(point, size, bench)
    }

    fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
        exam::cases(subject, level)
    }
}
