//! The points of `transpose`: size of an element × target.

use crate::{
    family::{self, Axis, Coordinates, KindInfo},
    grid::{Dtype, Target},
};
use serde::{Deserialize, Serialize};

pub(super) const KINDS: &[KindInfo] = &[KindInfo {
    name: "transpose",
    aliases: &["transposition"],
    axes: &[Axis::Dtype],
    constant: "KGEN_KIND_TRANSPOSE",
    params: "kgen_transpose_params",
    workspace: false,
    helpers: &[],
    summary: "transposed matrix",
}];

/// The one kind, as JSON spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Transposition of a matrix.
    #[default]
    Transpose,
}

/// One kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// What it computes.
    pub kind: Kind,
    /// A type of the size that its elements have: the kernel moves bits, and serves every type of that size.
    pub dtype: Dtype,
    /// The architecture it is generated for.
    pub target: Target,
}

impl Point {
    /// The kernel at these coordinates.
    pub(super) fn at(at: &Coordinates) -> Self {
        Self { kind: Kind::Transpose, dtype: at.dtype.unwrap_or(Dtype::Fp32), target: at.target }
    }
}

impl family::Point for Point {
    fn place(&self) -> usize {
        0
    }

    fn coordinates(&self) -> Coordinates {
        Coordinates { head_dim: None, dtype: Some(self.dtype), causal: None, features: None, target: self.target }
    }

    /// `transpose_b<bits>_<target>`.
    fn name(&self) -> String {
        format!("transpose_b{}_{}", self.dtype.bytes() * 8, self.target)
    }
}
