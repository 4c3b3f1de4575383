//! The points of `vector_add`: dtype × target.

use crate::{
    family::{self, Axis, Coordinates, KindInfo},
    grid::{Dtype, Target},
};
use serde::{Deserialize, Serialize};

pub(super) const KINDS: &[KindInfo] = &[KindInfo {
    name: "vector_add",
    aliases: &["add"],
    axes: &[Axis::Dtype],
    constant: "KGEN_KIND_VECTOR_ADD",
    params: "kgen_vector_add_params",
    workspace: false,
    helpers: &[],
    summary: "sum of two vectors",
}];

/// The one kind, as JSON spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Sum of two vectors.
    #[default]
    VectorAdd,
}

/// One kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// What it computes.
    pub kind: Kind,
    /// Element type of all three vectors.
    pub dtype: Dtype,
    /// The architecture it is generated for.
    pub target: Target,
}

impl Point {
    /// The kernel at these coordinates.
    pub(super) fn at(at: &Coordinates) -> Self {
        Self { kind: Kind::VectorAdd, dtype: at.dtype.unwrap_or(Dtype::Fp32), target: at.target }
    }
}

impl family::Point for Point {
    fn place(&self) -> usize {
        0
    }

    fn coordinates(&self) -> Coordinates {
        Coordinates { head_dim: None, dtype: Some(self.dtype), causal: None, features: None, target: self.target }
    }

    /// `vector_add_<dtype>_<target>`.
    fn name(&self) -> String {
        format!("vector_add_{}_{}", self.dtype, self.target)
    }
}
