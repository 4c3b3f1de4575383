//! Assignment of recipes to kernels.

use super::{
    Kind, Point, Recipe,
    bwd::PortableBackward,
    fp8::Fp8Forward,
    fwd::PortableForward,
    fwd_sm75::TuringForward,
    helpers::{COMBINE, PREPARE},
    hopper::HopperForward,
    hopper_bwd,
    hopper_fp8::HopperFp8Forward,
    hopper_short::HopperShort,
    mla::LatentForward,
    split::SplitForward,
};
use crate::kernel::{Dtype, HeadDim, Target};

/// The recipe of `variant`, or the reason why there is none, with an alternative.
pub(super) fn recipe_of(variant: Point) -> Result<&'static dyn Recipe, String> {
    let Point { kind, head_dim, dtype, target, .. } = variant;
    if kind.has_shape() {
        head_dim.checked().map_err(|error| error.to_string())?;
    }
    let latent = variant.has_latent_queries();
    if head_dim == HeadDim::LATENT && !latent {
        return Err(format!("{head_dim} is the head dim of kernels with `qv`: add that to the features"));
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
        Kind::FwdSplit if latent && target == Target::Sm90 => Ok(&LatentForward),
        Kind::FwdSplit => Ok(&SplitForward),
        Kind::FwdCombine => Ok(&COMBINE),
        Kind::PrepareScheduler => Ok(&PREPARE),
        Kind::Bwd => Ok(hopper_bwd::recipe_of(variant).unwrap_or(&PortableBackward)),
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim, Target},
        plan::Plan,
    };
    use itertools::iproduct;

    /// A V and O wider or narrower than Q and K need no more resources than an equal pair of the wider head dim.
    #[test]
    fn every_pair_of_head_dims_has_a_plan_where_its_wider_one_has() {
        let kinds = [Kind::Fwd, Kind::FwdShort, Kind::FwdSplit, Kind::Bwd];
        let features = [Features::NONE, Features::masks_and_scores()];
        for (kind, target, dtype, features) in iproduct!(kinds, Target::ALL, [Dtype::Fp16, Dtype::Fp8], features) {
            let point = |head_dim| Point { kind, head_dim, dtype, causal: true, features, target: *target };
            for (qk, v) in iproduct!((16..=256).step_by(8), (16..=256).step_by(8)) {
                let pair = HeadDim { qk, v };
                if Plan::new(point(HeadDim::equal(pair.wider())), None).is_ok() {
                    let plan = Plan::new(point(pair), None);
                    assert!(plan.is_ok(), "{}", plan.expect_err("it has none"));
                }
            }
        }
    }
}
