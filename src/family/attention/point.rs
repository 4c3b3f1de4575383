//! The points of attention: kind × head dim × dtype × mask × target.

use crate::{
    family::{self, Axis, Coordinates, KindInfo, Variant},
    grid::{Dtype, Features, HeadDim, Target},
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What an attention kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Forward attention: O and LSE from Q, K, V.
    Fwd,
    /// The same where there is little work: warpgroups share the keys of few query tiles.
    FwdShort,
    /// Forward attention over one split of the keys; partial O and LSE.
    FwdSplit,
    /// Merges the partial results of `FwdSplit`. Has no head dim, dtype or mask of its own.
    FwdCombine,
    /// Chooses the split count of each sequence on the device. Has no head dim, dtype or mask of its own.
    PrepareScheduler,
    /// Backward attention: dQ, dK, dV from O, LSE and dO.
    Bwd,
}

const SHAPE: &[Axis] = &[Axis::HeadDim, Axis::Dtype, Axis::Mask, Axis::Features];

/// A kind that takes `kgen_fwd_params`.
const fn forward(
    name: &'static str,
    aliases: &'static [&'static str],
    axes: &'static [Axis],
    constant: &'static str,
    summary: &'static str,
) -> KindInfo {
    KindInfo { name, aliases, axes, constant, params: "kgen_fwd_params", workspace: false, helpers: &[], summary }
}

/// In the order of [`Kind`].
pub(super) const KINDS: &[KindInfo] = &[
    forward("fwd", &["forward"], SHAPE, "KGEN_KIND_FWD", "forward: O and the log-sum-exp"),
    forward("fwd_short", &["short"], SHAPE, "KGEN_KIND_FWD_SHORT", "forward where there is little work"),
    KindInfo {
        workspace: true,
        helpers: &["fwd_combine", "prepare_scheduler"],
        ..forward(
            "fwd_split",
            &["split", "splitkv"],
            SHAPE,
            "KGEN_KIND_FWD_SPLIT",
            "forward over splits of the keys: partial results in a workspace",
        )
    },
    forward("fwd_combine", &["combine"], &[], "KGEN_KIND_FWD_COMBINE", "combines the partial results of the splits"),
    forward(
        "prepare_scheduler",
        &["scheduler"],
        &[],
        "KGEN_KIND_PREPARE_SCHEDULER",
        "decides on the device how many splits each sequence gets",
    ),
    KindInfo {
        name: "bwd",
        aliases: &["backward"],
        axes: SHAPE,
        constant: "KGEN_KIND_BWD",
        params: "kgen_bwd_params",
        workspace: true,
        helpers: &[],
        summary: "backward: dQ, dK and dV",
    },
];

impl Kind {
    /// In the order of `KINDS`.
    const ALL: [Self; 6] = [Self::Fwd, Self::FwdShort, Self::FwdSplit, Self::FwdCombine, Self::PrepareScheduler, Self::Bwd];

    /// True where the kernel is specialised for a head dim, dtype and mask; false for the two helper kernels.
    pub fn has_shape(self) -> bool {
        !matches!(self, Self::FwdCombine | Self::PrepareScheduler)
    }

    /// True for the kernel that divides keys among blocks, and for those that it needs.
    pub fn splits_keys(self) -> bool {
        matches!(self, Self::FwdSplit | Self::FwdCombine | Self::PrepareScheduler)
    }

    /// The canonical name.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].name
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Kind> for family::Kind {
    fn from(kind: Kind) -> Self {
        let point = Point {
            kind,
            head_dim: HeadDim::equal(0),
            dtype: Dtype::Fp16,
            causal: false,
            features: Features::NONE,
            target: Target::Sm80,
        };
        Variant::from(point).kind()
    }
}

/// One attention kernel: what is asked for, nothing of how it is done.
///
/// For the two kinds without a shape (`Kind::has_shape`), `head_dim` is 0, `dtype` is the accumulator's neighbour
/// `Fp16` and `causal` false by convention; they take no part in the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// What the kernel computes.
    pub kind: Kind,
    /// Elements of one head's row of Q and K, and of V and O.
    #[serde(flatten)]
    pub head_dim: HeadDim,
    /// Element type of Q, K and V.
    pub dtype: Dtype,
    /// Causal mask, aligned to the bottom right; otherwise full attention.
    pub causal: bool,
    /// What a call may ask for besides. Manifests of older versions do not have it.
    #[serde(default)]
    pub features: Features,
    /// The architecture it is generated for.
    pub target: Target,
}

impl Point {
    /// The kernel of the kind at `place` of `KINDS`.
    pub(super) fn at(place: usize, at: &Coordinates) -> Self {
        Self {
            kind: Kind::ALL[place],
            head_dim: at.head_dim.unwrap_or(HeadDim::equal(0)),
            dtype: at.dtype.unwrap_or(Dtype::Fp16),
            causal: at.causal.unwrap_or(false),
            features: at.features.unwrap_or_default(),
            target: at.target,
        }
    }

    /// The one name of this kernel: file stem, launcher symbol, cache label.
    /// `flash_<kind>_hdim<D>_<dtype>[_causal][_<feature>…]_<target>`, with `hdim<D>_<DV>` where V and O
    /// have a head dim of their own; kinds without a shape are `flash_<kind>_<target>`.
    pub fn name(&self) -> String {
        if !self.kind.has_shape() {
            return format!("flash_{}_{}", self.kind, self.target);
        }
        let mask = if self.causal { "_causal" } else { "" };
        format!("flash_{}_hdim{}_{}{mask}{}_{}", self.kind, self.head_dim, self.dtype, self.features.suffix(), self.target)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl family::Point for Point {
    fn place(&self) -> usize {
        self.kind as usize
    }

    fn coordinates(&self) -> Coordinates {
        let shape = self.kind.has_shape();
        Coordinates {
            head_dim: shape.then_some(self.head_dim),
            dtype: shape.then_some(self.dtype),
            causal: shape.then_some(self.causal),
            features: shape.then_some(self.features),
            target: self.target,
        }
    }

    fn name(&self) -> String {
        Self::name(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Point as _;

    #[test]
    fn a_name_follows_flash_attentions_scheme() {
        let v = Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(224),
            dtype: Dtype::Fp8,
            causal: true,
            features: Features::NONE,
            target: Target::Sm121,
        };
        assert_eq!(v.name(), "flash_fwd_hdim224_fp8_causal_sm121");
        assert_eq!(
            Point { causal: false, dtype: Dtype::Bf16, head_dim: HeadDim::equal(64), target: Target::Sm80, ..v }.name(),
            "flash_fwd_hdim64_bf16_sm80"
        );
        assert_eq!(Point { kind: Kind::FwdCombine, target: Target::Sm80, ..v }.name(), "flash_fwd_combine_sm80");
    }

    #[test]
    fn a_point_is_what_its_coordinates_make() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            let shape = kind.has_shape();
            let (head_dim, dtype) = if shape { (64, Dtype::Bf16) } else { (0, Dtype::Fp16) };
            let point = Point {
                kind,
                head_dim: HeadDim::equal(head_dim),
                dtype,
                causal: shape,
                features: Features::NONE,
                target: Target::Sm90,
            };
            assert_eq!((point.place(), Point::at(place, &point.coordinates())), (place, point));
            assert_eq!(KINDS[place].axes.is_empty(), !shape, "{kind}");
        }
    }
}
