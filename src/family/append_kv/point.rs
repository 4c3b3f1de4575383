//! The points of `append_kv`: dtype × target.

use crate::{
    family::{self, Axis, Coordinates, KindInfo},
    grid::{Dtype, Target},
};
use serde::{Deserialize, Serialize};

pub(super) const KINDS: &[KindInfo] = &[KindInfo {
    name: "append_kv",
    aliases: &["append"],
    axes: &[Axis::Dtype],
    constant: "KGEN_KIND_APPEND_KV",
    params: "kgen_append_kv_params",
    workspace: false,
    helpers: &[],
    summary: "new K and V into a cache, with rotary embedding",
}];

/// The one kind, as JSON spells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// New rows of K and V into a cache.
    #[default]
    AppendKv,
}

/// One kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Point {
    /// What it computes.
    pub kind: Kind,
    /// Element type of Q and of the new K and V.
    pub dtype: Dtype,
    /// The architecture it is generated for.
    pub target: Target,
}

impl Point {
    /// The kernel at these coordinates.
    pub(super) fn at(at: &Coordinates) -> Self {
        Self { kind: Kind::AppendKv, dtype: at.dtype.unwrap_or(Dtype::Bf16), target: at.target }
    }
}

impl family::Point for Point {
    fn place(&self) -> usize {
        0
    }

    fn coordinates(&self) -> Coordinates {
        Coordinates { head_dim: None, dtype: Some(self.dtype), causal: None, features: None, target: self.target }
    }

    /// `append_kv_<dtype>_<target>`.
    fn name(&self) -> String {
        format!("append_kv_{}_{}", self.dtype, self.target)
    }
}
