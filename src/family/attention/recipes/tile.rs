//! The numbers of a tile: defaults of a family, overrides in `variants.toml`, and the rules common to all families.

use super::{PlanError, Point, Recipe};
use crate::{
    family::attention::{Accuracy, CopyPath, Fp8Mma, StorePath, TileChange, Turns},
    kernel::TileOverride,
};
use serde::Serialize;
use std::fmt;

/// Tile sizes and pipeline choices of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tile {
    /// Queries per block (backward: queries per step).
    pub m: u32,
    /// Keys per step (backward: keys per block).
    pub n: u32,
    /// Warps per block.
    pub warps: u32,
    /// Buffers for each streamed tensor: K and V; in the backward pass Q and dO.
    pub stages: u32,
    /// True if Q fragments stay in registers across the key loop.
    pub q_in_registers: bool,
    /// Second argument of `__launch_bounds__`.
    pub min_blocks_per_sm: u32,
    /// Powers of two by which a row maximum may grow before O is rescaled.
    pub rescale_threshold: u32,
    /// Copy method from device to shared memory.
    pub copy: CopyPath,
    /// MMA instruction of FP8 kernels; ignored by others.
    pub fp8_mma: Fp8Mma,
    /// True if Q Kᵀ of the next keys overlaps with the softmax of the current ones. Only `wgmma` kernels use this and
    /// the next four fields.
    pub overlap: bool,
    /// Warpgroups alternate at the tensor cores.
    pub turns: Turns,
    /// Persistent kernel: one block per multiprocessor iterates over all work.
    pub persistent: bool,
    /// Blocks per cluster, which share their loads of K and V.
    pub cluster: u32,
    /// Copy method of O to device memory.
    pub store: StorePath,
}

/// Values of keys that no row of `tiles/` sets. A threshold of 8 lets P grow to 2^8, far inside fp16's range.
pub(super) const BASE: Tile = Tile {
    m: 0,
    n: 0,
    warps: 4,
    stages: 1,
    q_in_registers: false,
    min_blocks_per_sm: 1,
    rescale_threshold: 8,
    copy: CopyPath::CpAsync,
    fp8_mma: Fp8Mma::Fp32,
    overlap: false,
    turns: Turns::None,
    persistent: false,
    cluster: 1,
    store: StorePath::Direct,
};

impl fmt::Display for Tile {
    /// Text for a cell of a table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}, {} warps", self.m, self.n, self.warps)
    }
}

impl Tile {
    /// The tile for `variant`: the default of its family, with the changes of `tile_override`.
    ///
    /// # Errors
    /// [`PlanError::Unsupported`] when there is no default, [`PlanError::BadTile`] when an override breaks a rule of
    /// the kernel.
    pub(super) fn choose(variant: Point, recipe: &dyn Recipe, tile_override: Option<&TileOverride>) -> Result<Self, PlanError> {
        let unsupported = |reason| PlanError::Unsupported { variant: variant.name(), reason };
        let mut tile = recipe.default_tile(variant).map_err(unsupported)?;
        let change = tile_override.map(TileChange::from).unwrap_or_default();
        tile.apply(&change);
        let ignored =
            tile_override.and_then(|options| options.refusal(recipe.keys().iter().copied())).or_else(|| contradiction(&change));
        let none = tile.min_blocks_per_sm == 0;
        let broken = none.then(|| "`min_blocks_per_sm` is 0; it must be at least 1".to_owned());
        match ignored.or(broken).or_else(|| recipe.broken_rule(variant, &tile)) {
            Some(reason) => Err(PlanError::BadTile { variant: variant.name(), reason }),
            None => Ok(tile),
        }
    }

    /// The tile with the keys that `change` sets.
    pub(super) fn changed(mut self, change: &TileOverride) -> Self {
        self.apply(&change.into());
        self
    }

    fn apply(&mut self, change: &TileChange) {
        let TileChange {
            m,
            n,
            warps,
            stages,
            q_in_registers,
            min_blocks_per_sm,
            rescale_threshold,
            accuracy,
            copy,
            fp8_mma,
            overlap,
            turns,
            persistent,
            cluster,
            store,
        } = *change;
        *self = Self {
            m: m.unwrap_or(self.m),
            n: n.unwrap_or(self.n),
            warps: warps.unwrap_or(self.warps),
            stages: stages.unwrap_or(self.stages),
            q_in_registers: q_in_registers.unwrap_or(self.q_in_registers),
            min_blocks_per_sm: min_blocks_per_sm.unwrap_or(self.min_blocks_per_sm),
            rescale_threshold: match accuracy.unwrap_or_default() {
                Accuracy::Exact => 0,
                Accuracy::Fast => rescale_threshold.unwrap_or(self.rescale_threshold),
            },
            copy: copy.unwrap_or(self.copy),
            fp8_mma: fp8_mma.unwrap_or(self.fp8_mma),
            overlap: overlap.unwrap_or(self.overlap),
            turns: turns.unwrap_or(self.turns),
            persistent: persistent.unwrap_or(self.persistent),
            cluster: cluster.unwrap_or(self.cluster),
            store: store.unwrap_or(self.store),
        };
    }
}

/// The reason why the overrides of a tile are inconsistent.
fn contradiction(change: &TileChange) -> Option<String> {
    let threshold = change.rescale_threshold.filter(|&threshold| threshold > 0)?;
    (change.accuracy == Some(Accuracy::Exact)).then(|| {
        format!(
            "`accuracy` is `exact`, which is a `rescale_threshold` of 0, and `rescale_threshold` is {threshold}; leave one out"
        )
    })
}
