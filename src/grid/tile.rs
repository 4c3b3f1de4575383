//! The `[[tile]]` entries of `variants.toml`: what tuning found better than the plan's own choice.

use serde::{Deserialize, Serialize};

/// Changes to the plan's default tile; what is absent stays as the plan chooses it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TileOverride {
    /// Queries a block.
    pub m: Option<u32>,
    /// Keys a step.
    pub n: Option<u32>,
    /// Warps of a block.
    pub warps: Option<u32>,
    /// Buffers each for K and V: 1 or 2.
    pub kv_stages: Option<u32>,
    /// Keep Q fragments in registers instead of re-reading them from shared memory each step.
    pub q_in_registers: Option<bool>,
    /// Second argument of `__launch_bounds__`: caps registers so that this many blocks fit.
    pub min_blocks_per_sm: Option<u32>,
    /// Powers of two a row maximum may grow before O is rescaled; 0 rescales at every growth.
    pub rescale_threshold: Option<u32>,
}
