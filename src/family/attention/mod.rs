//! Flash Attention: forward, backward, split-KV and its helpers.

pub mod abi;
mod call;
pub(crate) mod cases;
mod cost;
mod declared;
mod declared_reference;
mod declared_text;
mod design;
mod edits;
mod features;
mod kv_format;
mod mask;
pub(crate) mod oracle;
mod point;
mod random;
mod recipes;
mod score;
mod tile_keys;
mod timing;
mod words;

pub use cases::fuzz;
pub use cost::{DEVICES, DeviceRow, KernelCost};
pub use declared::{DeclaredCall, DeclaredRule, SETS};
pub(crate) use declared_reference::DeclaredReference;
pub(crate) use declared_text::DeclaredText;
pub use design::{
    Backward, ByteTransposition, DeclaredParts, Design, FeatureParts, Fp8Choices, Hopper, Kv, KvColumns, KvSource, Panel,
};
pub use features::{Append, Cache, CallOptions, PageDescales, Pages, SinkType, Slopes, Starts};
pub use kv_format::KvFormat;
pub use mask::Mask;
pub use point::{Kind, Point};
pub use recipes::Tile;
pub use score::Score;
pub use tile_keys::{Accuracy, CopyPath, Fp8Mma, StorePath, TileChange, Turns};
pub(super) use words::of_other_row as row_of_another_family;

use super::{Family, Rung, Words};
use crate::{
    bench::{Bench, Estimate, Size, Trial, Wanted},
    check::{Case, Level, Number, Subject},
    grid::TileRow,
    kernel::{self, Card, Target, TileKey, TileOverride, Variant},
    plan::{Plan, PlanError},
};
use timing::{AttentionTrial, Shape};

/// The family.
#[derive(Debug)]
pub struct Attention;

impl Family for Attention {
    fn templates(&self) -> &'static str {
        "attention"
    }

    fn prefix(&self) -> &'static str {
        "flash_"
    }

    fn kinds(&self) -> &'static [kernel::Kind] {
        use kernel::Kind::{Bwd, Fwd, FwdCombine, FwdShort, FwdSplit, PrepareScheduler};
        &[Fwd, FwdShort, FwdSplit, FwdCombine, PrepareScheduler, Bwd]
    }

    fn tile_keys(&self) -> &'static [TileKey] {
        tile_keys::KEYS
    }

    fn plan(&self, variant: Variant, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
        recipes::plan(point_of(&variant), change)
    }

    fn to_run_as(&self, plan: &Plan, target: Target) -> Result<Plan, PlanError> {
        let design: &Design = plan.own_design();
        recipes::to_run_as(point_of(&plan.variant), design.tile, target)
    }

    fn candidates(&self, variant: Variant) -> Result<Box<dyn Iterator<Item = Plan>>, PlanError> {
        Ok(Box::new(recipes::candidates(point_of(&variant))?))
    }

    fn rungs(&self, plan: &Plan) -> Vec<Rung> {
        let tile = plan.design_as::<Design>().map(|design| design.tile);
        tile.and_then(|tile| recipes::rungs(point_of(&plan.variant), tile).ok()).unwrap_or_default()
    }

    fn tile_rows(&self, variant: Variant) -> Vec<&'static TileRow> {
        recipes::tile_rows(point_of(&variant))
    }

    fn words(&self, plan: &Plan) -> Words {
        words::of_kernel(plan, &point_of(&plan.variant))
    }

    fn row_words(&self, plan: &Plan) -> Words {
        words::of_row(plan, &point_of(&plan.variant))
    }

    fn library_words(&self) -> Words {
        words::of_library()
    }

    fn sizes(&self, variant: &Variant, wanted: &Wanted) -> Vec<Size> {
        let point = point_of(variant);
        if !point.kind.has_shape() {
            return Vec::new();
        }
        timing::shapes(wanted, point).into_iter().map(Size::from).collect()
    }

    fn label(&self, size: &Size) -> String {
        Shape::of(size).map_or_else(|| size.to_string(), |shape| shape.to_string())
    }

    fn trial<'a>(&self, variant: &Variant, size: &Size, bench: Bench<'a>) -> Option<Box<dyn Trial + 'a>> {
        let (variant, shape) = (point_of(variant), Shape::of(size)?);
        let splits = if variant.kind == Kind::FwdSplit { timing::splits(variant, &shape, bench.multiprocessors) } else { 0 };
        let normals = bench.draws.of(Number::of(variant.dtype));
        let kv_normals = KvFormat::of(variant.features).map_or(normals, |format| bench.draws.of(format.number()));
        Some(Box::new(AttentionTrial { variant, shape, normals, kv_normals, seed: bench.seed, splits }))
    }

    fn estimate(&self, plan: &Plan, size: &Size, card: &Card) -> Option<Estimate> {
        cost::estimate(point_of(&plan.variant), plan.own_design(), plan, &Shape::of(size)?, card)
    }

    fn estimate_packed(&self, plan: &Plan, size: &Size, lengths: &[[u32; 2]], card: &Card) -> Option<Estimate> {
        cost::estimate_packed(point_of(&plan.variant), plan.own_design(), plan, &Shape::of(size)?, lengths, card)
    }

    fn cases(&self, subject: &Subject, level: Level) -> Vec<Box<dyn Case>> {
        cases::cases_of(&subject.of(point_of(&subject.variant)), level)
    }
}

#[cfg(test)]
impl Plan {
    /// The plan of an attention kernel whose default tile is modified by `change`.
    pub(crate) fn changed(point: Point, change: &TileChange) -> Result<Self, PlanError> {
        Self::new(point, Some(&change.into()))
    }
}

/// The point of a variant of this family.
///
/// # Panics
/// If the kernel is of another family.
fn point_of(variant: &Variant) -> Point {
    Point::of(variant).unwrap_or_else(|| panic!("`{variant}` is not an attention kernel"))
}

/// True if `point` has no kernel only because its template lacks one of the features.
pub fn lacks_a_feature(point: Point) -> bool {
    recipes::lacks_a_feature(point)
}

/// True if the kernel of `point` reads Q, K and V only by TMA, and so refuses tensors that TMA cannot read.
pub fn needs_tma(point: Point) -> bool {
    recipes::needs_tma(point)
}
