//! Flash Attention: forward, backward, split-KV and its helpers.

mod asked;
mod cost;
mod declared;
mod declared_text;
mod design;
pub(crate) mod exam;
mod kv_format;
mod mask;
mod point;
mod recipes;
mod score;

pub use asked::{Append, Asked, Cache, PageDescales, Pages, SinkType, Slopes, Starts};
pub use cost::{DEVICES, DRAM_PER_MILLE, DeviceRow, KernelCost};
pub use declared::{DeclaredCall, DeclaredRule, SETS};
pub(crate) use declared_text::DeclaredText;
pub use design::{
    Backward, ByteTransposition, DeclaredParts, Design, FeatureParts, Fp8Choices, Hopper, Kv, KvColumns, KvSource, Panel,
};
pub use exam::fuzz;
pub use kv_format::KvFormat;
pub use mask::Mask;
pub use point::{Kind, Point};
pub use recipes::Tile;
pub use score::Score;

use super::{Coordinates, Family, KindInfo};
use crate::{
    bench::{Bench, Layout, Size, Trial, Wanted, splits},
    check::{Case, Level, Subject, Tiling},
    grid::{Target, TileOverride},
    plan::{Plan, PlanError},
};

/// The family.
#[derive(Debug)]
pub struct Attention;

impl Family for Attention {
    type Point = Point;
    type Design = Design;

    const TEMPLATES: &'static str = "attention";
    const PREFIX: &'static str = "flash_";
    const KINDS: &'static [KindInfo] = point::KINDS;

    fn point(place: usize, at: &Coordinates) -> Point {
        Point::at(place, at)
    }

    fn plan(point: Point, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
        recipes::plan(point, change)
    }

    fn to_run_as(point: Point, design: &Design, target: Target) -> Result<Plan, PlanError> {
        recipes::to_run_as(point, design.tile, target)
    }

    fn tiling(point: Point, design: &Design) -> Tiling {
        let tile = &design.tile;
        let warpgroups = design.hopper.as_ref().map_or(1, |hopper| hopper.consumers as usize);
        let (row_groups, key_groups) = if point.kind == Kind::FwdShort { (1, warpgroups) } else { (warpgroups, 1) };
        Tiling {
            m: tile.m as usize,
            n: tile.n as usize,
            stages: tile.stages as usize,
            row_groups,
            key_groups,
            whole_tiles: tile.copy == crate::grid::CopyPath::Tma,
            cluster: tile.cluster as usize,
            persistent: tile.persistent,
        }
    }

    fn sizes(point: Point, wanted: &Wanted) -> Vec<Size> {
        if !point.kind.has_shape() {
            return Vec::new();
        }
        wanted.shapes(point).into_iter().map(Size::from).collect()
    }

    fn trial<'a>(variant: Point, size: Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        let Size::Attention(shape) = size else { return None };
        let splits = if variant.kind == Kind::FwdSplit { splits(variant, &shape, bench.multiprocessors) } else { 0 };
        let Bench { normals, kv_normals, seed, .. } = bench;
        Some(Box::new(Layout { variant, shape, normals, kv_normals: kv_normals.unwrap_or(normals), seed, splits }))
    }

    fn cases(subject: &Subject<Point>, level: Level) -> Vec<Box<dyn Case>> {
        exam::cases_of(subject, level)
    }
}

/// Whether there is a kernel of `point` but for one of its features, which its template does not have.
pub fn lacks_a_feature(point: Point) -> bool {
    recipes::lacks_a_feature(point)
}

/// Whether the kernel of `point` reads Q, K and V by TMA alone, and so refuses tensors that TMA does not take.
pub fn needs_tma(point: Point) -> bool {
    recipes::needs_tma(point)
}
