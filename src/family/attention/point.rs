//! The points of attention: kind × head dim × dtype × mask × features × target.

use crate::kernel::{self, Coordinates, Dtype, Feature, Features, HeadDim, Target, Variant};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Kinds of attention kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Forward attention: O and LSE from Q, K, V.
    Fwd,
    /// Hopper's forward kernel for small problems: warpgroups share the keys of few query tiles.
    FwdShort,
    /// Forward attention over one split of the keys; partial O and LSE.
    FwdSplit,
    /// Merges the partial results of `FwdSplit`. Not specialised for a head dim, dtype or mask.
    FwdCombine,
    /// Chooses the split count of each sequence on the device. Not specialised for a head dim, dtype or mask.
    PrepareScheduler,
    /// Backward attention: dQ, dK, dV from O, LSE and dO.
    Bwd,
}

impl Kind {
    /// The kind with this general kind, if attention has it.
    pub fn of(kind: kernel::Kind) -> Option<Self> {
        Some(match kind {
            kernel::Kind::Fwd => Self::Fwd,
            kernel::Kind::FwdShort => Self::FwdShort,
            kernel::Kind::FwdSplit => Self::FwdSplit,
            kernel::Kind::FwdCombine => Self::FwdCombine,
            kernel::Kind::PrepareScheduler => Self::PrepareScheduler,
            kernel::Kind::Bwd => Self::Bwd,
            _ => return None,
        })
    }

    /// True if the kernel is specialised for a head dim, dtype and mask; false for the two helper kernels.
    pub fn has_shape(self) -> bool {
        !matches!(self, Self::FwdCombine | Self::PrepareScheduler)
    }

    /// True for the kernel that splits keys among blocks, and for its helpers.
    pub fn splits_keys(self) -> bool {
        matches!(self, Self::FwdSplit | Self::FwdCombine | Self::PrepareScheduler)
    }

    /// The canonical name.
    pub fn name(self) -> &'static str {
        kernel::Kind::from(self).name()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Kind> for kernel::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Fwd => Self::Fwd,
            Kind::FwdShort => Self::FwdShort,
            Kind::FwdSplit => Self::FwdSplit,
            Kind::FwdCombine => Self::FwdCombine,
            Kind::PrepareScheduler => Self::PrepareScheduler,
            Kind::Bwd => Self::Bwd,
        }
    }
}

/// One attention kernel: its specification, without implementation choices.
///
/// For the two kinds without a shape (`Kind::has_shape`), `head_dim` is 0, `dtype` is the accumulator's neighbour
/// `Fp16` and `causal` false by convention; they take no part in the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// The kind of kernel.
    pub kind: Kind,
    /// Elements of one head's row of Q and K, and of V and O.
    #[serde(flatten)]
    pub head_dim: HeadDim,
    /// Element type of Q, K and V.
    pub dtype: Dtype,
    /// Causal mask, aligned to the bottom right; otherwise full attention.
    pub causal: bool,
    /// Other features that a call may request. Manifests of older versions lack them.
    #[serde(default)]
    pub features: Features,
    /// The architecture that the kernel is generated for.
    pub target: Target,
}

impl Point {
    /// The point of a variant, if it is an attention kernel.
    pub fn of(variant: &Variant) -> Option<Self> {
        let at = variant.coordinates();
        Some(Self {
            kind: Kind::of(variant.kind())?,
            head_dim: at.head_dim.unwrap_or(HeadDim::equal(0)),
            dtype: at.dtype.unwrap_or(Dtype::Fp16),
            causal: at.causal.unwrap_or(false),
            features: at.features.unwrap_or_default(),
            target: at.target,
        })
    }

    /// True if queries have a second part, which is multiplied with V: such kernels have a separate template.
    pub fn has_latent_queries(self) -> bool {
        self.features.has(Feature::Qv)
    }

    /// True if several blocks may share the key tiles of a query tile: `num_splits` of them, whose partial results
    /// `fwd_combine` merges.
    pub fn shares_tiles(self) -> bool {
        self.kind == Kind::FwdShort || self.features.has(Feature::SplitKv)
    }

    /// The features of the calls that the kernel supports: its own, and for a split-KV kernel also those that the
    /// combine kernel handles.
    pub fn served_features(&self) -> Features {
        if self.kind == Kind::FwdSplit { self.features.with(Features::combined()) } else { self.features }
    }

    /// The unique name of this kernel: file stem, launcher symbol, cache label.
    pub fn name(&self) -> String {
        Variant::from(*self).name()
    }
}

impl From<Point> for Variant {
    fn from(point: Point) -> Self {
        let Point { kind, head_dim, dtype, causal, features, target } = point;
        kernel::Kind::from(kind).at(&Coordinates {
            head_dim: Some(head_dim),
            dtype: Some(dtype),
            causal: Some(causal),
            features: Some(features),
            target,
        })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_what_its_variant_makes_of_it() {
        for kind in kernel::Kind::ALL {
            let at = Coordinates {
                head_dim: Some(HeadDim::equal(64)),
                dtype: Some(Dtype::Bf16),
                causal: Some(true),
                features: Some(Features::NONE),
                target: Target::Sm90,
            };
            let variant = kind.at(&at);
            let Some(point) = Point::of(&variant) else { continue };
            assert_eq!((Variant::from(point), point.kind.has_shape()), (variant, variant.head_dim().is_some()));
        }
        assert_eq!(
            Point::of(&kernel::Kind::Transpose.at(&Coordinates { dtype: Some(Dtype::Fp16), ..Coordinates::at(Target::Sm80) })),
            None
        );
    }
}
