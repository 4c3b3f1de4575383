//! What a family of kernels decides for itself. A family is a template; its recipe says which variants it can make, with
//! which tiles, and what those cost.

use super::{
    Fp8Choices, Panel, Region, RegisterEstimate, TensorCore, Tile,
    bwd::{Backward, PortableBackward},
    fp8::Fp8Forward,
    fwd::PortableForward,
    fwd_sm75::TuringForward,
    helpers::{COMBINE, PREPARE},
    hopper::{Hopper, HopperForward},
    hopper_fp8::HopperFp8Forward,
    hopper_short::HopperShort,
    split::SplitForward,
};
use crate::grid::{Dtype, Kind, Target, Variant, check_head_dim};

/// One family of kernels. Everything a recipe is asked about a variant is about one that [`recipe_of`] gave it to.
pub(super) trait Recipe: Sync {
    /// Its template, a file below `templates/flash/`.
    fn template(&self) -> &'static str;

    /// The tile of a variant that `variants.toml` says nothing about; or why the family cannot make it and what to ask
    /// for instead.
    fn default_tile(&self, variant: Variant) -> Result<Tile, String>;

    /// The first rule of the kernel that `tile` breaks, in words.
    fn broken_rule(&self, variant: Variant, tile: &Tile) -> Option<String>;

    /// Shared memory of a block, in order; where the last region ends is what a launch asks for.
    fn shared_memory(&self, variant: Variant, tile: &Tile) -> Vec<Region>;

    /// Registers a thread needs.
    fn registers(&self, variant: Variant, tile: &Tile) -> RegisterEstimate;

    /// The tensor-core instructions that the machine code for `compiled_for` must hold, and no others.
    fn tensor_core(&self, variant: Variant, tile: &Tile, compiled_for: Target) -> TensorCore;

    /// The K of the family's MMA in elements: rows of shared-memory tiles are rounded up to it.
    fn head_dim_step(&self) -> u32 {
        16
    }

    /// What FP8 kernels decide besides; `None` for others.
    fn fp8(&self, _tile: &Tile, _compiled_for: Target) -> Option<Fp8Choices> {
        None
    }

    /// The nearest tile that uses only instructions `target` has as well, for a variant made for another target; or why
    /// there is none.
    fn portable(&self, variant: Variant, tile: Tile, target: Target) -> Result<Tile, String>;

    /// Whether the kernel reads Q, K and V by TMA alone.
    fn needs_tma(&self) -> bool {
        false
    }

    /// What a kernel with `wgmma` has besides its tile.
    fn hopper(&self, _variant: Variant, _tile: &Tile) -> Option<Hopper> {
        None
    }

    /// What a backward kernel has besides its tile.
    fn backward(&self, _variant: Variant, _tile: &Tile) -> Option<Backward> {
        None
    }
}

/// The family that makes `variant`, or why none does and what to ask for instead.
pub(super) fn recipe_of(variant: Variant) -> Result<&'static dyn Recipe, String> {
    let Variant { kind, head_dim, dtype, target, .. } = variant;
    if kind.has_shape() {
        check_head_dim(head_dim.into()).map_err(|error| error.to_string())?;
    }
    match kind {
        Kind::Fwd if dtype == Dtype::Fp8 && target == Target::Sm90 => Ok(&HopperFp8Forward),
        Kind::Fwd if dtype == Dtype::Fp8 && target >= Target::Sm89 => Ok(&Fp8Forward),
        Kind::Fwd if target == Target::Sm90 && dtype != Dtype::Fp8 => Ok(&HopperForward),
        Kind::Fwd if target == Target::Sm75 => Ok(&TuringForward),
        Kind::Fwd => Ok(&PortableForward),
        Kind::FwdShort if target == Target::Sm90 && dtype != Dtype::Fp8 => Ok(&HopperShort),
        Kind::FwdShort => {
            Err("`fwd_short` is made of `wgmma` on 16-bit types: target `sm90`, dtypes `fp16` and `bf16`".to_owned())
        }
        Kind::FwdSplit => Ok(&SplitForward),
        Kind::FwdCombine => Ok(&COMBINE),
        Kind::PrepareScheduler => Ok(&PREPARE),
        Kind::Bwd => Ok(&PortableBackward),
    }
}

/// Cuts a row of `columns` elements into panels of 64 columns, then at most one of 32 and one of 16, as `kgen/tile.cuh`
/// does.
pub(super) fn panels(columns: u32) -> Vec<Panel> {
    let mut panels = Vec::new();
    let mut first_column = 0;
    for width in [64, 32, 16] {
        while columns - first_column >= width {
            panels.push(Panel { first_column, columns: width });
            first_column += width;
        }
    }
    panels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_cover_every_padded_head_dim_once_and_halve_at_most_twice() {
        for columns in (16..=256).step_by(16) {
            let panels = panels(columns);
            let mut next = 0;
            for panel in &panels {
                assert_eq!(panel.first_column, next, "{columns}");
                next += panel.columns;
            }
            assert_eq!(next, columns);
            assert!(panels.iter().filter(|p| p.columns < 64).map(|p| p.columns).is_sorted_by(|a, b| a > b), "{columns}");
        }
    }
}
