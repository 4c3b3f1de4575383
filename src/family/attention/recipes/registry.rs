//! Which recipe makes which kernel.

use super::{
    Kind, Point, Recipe,
    bwd::PortableBackward,
    fp8::Fp8Forward,
    fwd::PortableForward,
    fwd_sm75::TuringForward,
    helpers::{COMBINE, PREPARE},
    hopper::HopperForward,
    hopper_fp8::HopperFp8Forward,
    hopper_short::HopperShort,
    split::SplitForward,
};
use crate::grid::{Dtype, Target, check_head_dim};

/// The family that makes `variant`, or why none does and what to ask for instead.
pub(super) fn recipe_of(variant: Point) -> Result<&'static dyn Recipe, String> {
    let Point { kind, head_dim, dtype, target, .. } = variant;
    if kind.has_shape() {
        check_head_dim(head_dim.into()).map_err(|error| error.to_string())?;
    }
    if dtype == Dtype::Fp32 {
        return Err("attention kernels multiply on tensor cores: dtypes `fp16`, `bf16` and, forward, `fp8`".to_owned());
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
