//! The two helper kernels of split-KV. They have no head dim, dtype or mask, and nothing to tune.

use super::{Point, Recipe, Region, RegisterEstimate, TensorCore, Tile, split::check_target, tile::BASE};
use crate::kernel::Target;

/// The recipe of one helper.
pub(super) struct Helper {
    template: &'static str,
    warps: u32,
    /// Name and bytes of its region of shared memory.
    shared: (&'static str, u32),
    /// Registers per thread, as reported by ptxas.
    registers: u32,
}

/// Merges partial results: each of 128 threads exchanges eight columns of fp32.
pub(super) static COMBINE: Helper =
    Helper { template: "attention/fwd_combine.cu.tera", warps: 4, shared: ("sums of O", 128 * 8 * 4), registers: 78 };

/// Chooses split counts: one flag per warp, for two rounds.
pub(super) static PREPARE: Helper =
    Helper { template: "attention/prepare_scheduler.cu.tera", warps: 8, shared: ("flags", 2 * 8 * 4), registers: 40 };

impl Recipe for Helper {
    fn template(&self) -> &'static str {
        self.template
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        check_target(variant.target)?;
        Ok(Tile { warps: self.warps, ..BASE })
    }

    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        let fixed = Tile { warps: self.warps, ..BASE };
        (*tile != fixed).then(|| format!("`{}` has no tile to choose", variant.kind))
    }

    fn shared_memory(&self, _variant: Point, _tile: &Tile) -> Vec<Region> {
        let (name, bytes) = self.shared;
        Region::lay_out([(name, bytes, None)].into_iter())
    }

    fn registers(&self, _variant: Point, _tile: &Tile) -> RegisterEstimate {
        RegisterEstimate::sum(0, 0, 0, self.registers)
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::None
    }

    fn portable(&self, _variant: Point, tile: Tile, target: Target) -> Result<Tile, String> {
        check_target(target).map(|()| tile)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        family::attention::{Kind, Point, TileChange},
        kernel::{Dtype, Features, HeadDim, Target},
        plan::Plan,
    };

    #[test]
    fn helpers_have_a_plan_from_sm80_on_and_nothing_to_choose() {
        for kind in [Kind::FwdCombine, Kind::PrepareScheduler] {
            let helper = Point {
                kind,
                head_dim: HeadDim::equal(0),
                dtype: Dtype::Fp16,
                causal: false,
                features: Features::NONE,
                target: Target::Sm80,
            };
            assert!(Plan::new(helper, None).is_ok() && Plan::new(Point { target: Target::Sm121, ..helper }, None).is_ok());
            assert!(Plan::new(Point { target: Target::Sm75, ..helper }, None).is_err());
            let change = TileChange { m: Some(64), ..TileChange::default() };
            let error = Plan::changed(helper, &change).expect_err("no tile").to_string();
            assert!(error.contains("has no tile to choose"), "{error}");
        }
    }
}
