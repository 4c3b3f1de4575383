//! The points of `reduce`: operation × dtype × target.

use crate::{
    family::{self, Axis, Coordinates, KindInfo},
    grid::{Dtype, Target},
};
use serde::{Deserialize, Serialize};

/// What a row is reduced to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// The sum of its elements.
    #[serde(rename = "reduce_sum")]
    Sum,
    /// The largest of them.
    #[serde(rename = "reduce_max")]
    Max,
    /// The logarithm of the sum of their exponentials.
    #[serde(rename = "reduce_logsumexp")]
    Logsumexp,
}

const fn kind(name: &'static str, aliases: &'static [&'static str], constant: &'static str, summary: &'static str) -> KindInfo {
    KindInfo {
        name,
        aliases,
        axes: &[Axis::Dtype],
        constant,
        params: "kgen_reduce_params",
        workspace: true,
        helpers: &[],
        summary,
    }
}

/// In the order of [`Kind`].
pub(super) const KINDS: &[KindInfo] = &[
    kind("reduce_sum", &["sum"], "KGEN_KIND_REDUCE_SUM", "sum of each row"),
    kind("reduce_max", &["max"], "KGEN_KIND_REDUCE_MAX", "largest element of each row"),
    kind("reduce_logsumexp", &["logsumexp"], "KGEN_KIND_REDUCE_LOGSUMEXP", "log-sum-exp of each row"),
];

impl Kind {
    /// In the order of `KINDS`.
    const ALL: [Self; 3] = [Self::Sum, Self::Max, Self::Logsumexp];

    /// `KGEN_REDUCE_*`.
    pub(super) fn operation(self) -> i32 {
        match self {
            Self::Sum => 0,
            Self::Max => 1,
            Self::Logsumexp => 2,
        }
    }
}

/// One kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// What it computes.
    pub kind: Kind,
    /// Element type of the input; results are fp32.
    pub dtype: Dtype,
    /// The architecture it is generated for.
    pub target: Target,
}

impl Point {
    /// The kernel of the kind at `place` of `KINDS`.
    pub(super) fn at(place: usize, at: &Coordinates) -> Self {
        Self { kind: Kind::ALL[place], dtype: at.dtype.unwrap_or(Dtype::Fp32), target: at.target }
    }
}

impl family::Point for Point {
    fn place(&self) -> usize {
        self.kind as usize
    }

    fn coordinates(&self) -> Coordinates {
        Coordinates { head_dim: None, dtype: Some(self.dtype), causal: None, features: None, target: self.target }
    }

    /// `reduce_<operation>_<dtype>_<target>`.
    fn name(&self) -> String {
        format!("{}_{}_{}", KINDS[self.kind as usize].name, self.dtype, self.target)
    }
}
