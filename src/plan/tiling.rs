//! The tiling of a plan: test cases choose lengths from it, to reach every stage, tile border and warpgroup.

use serde::{Deserialize, Serialize};

/// The tiling of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tiling {
    /// Query rows of a tile.
    pub m: usize,
    /// Keys of a tile.
    pub n: usize,
    /// Key tiles in flight.
    pub stages: usize,
    /// Groups of the query rows that iterate over the keys independently: warpgroups on Hopper, otherwise 1.
    pub row_groups: usize,
    /// Warpgroups that share the keys of a row, tile by tile: 1 if each processes all keys of its rows.
    pub key_groups: usize,
    /// Keys are loaded in whole tiles, including rows of other sequences: by TMA.
    pub whole_tiles: bool,
    /// Blocks of a cluster.
    pub cluster: usize,
    /// A block processes one work item after another.
    pub persistent: bool,
}

impl Default for Tiling {
    /// One work item of one element.
    fn default() -> Self {
        Self { m: 1, n: 1, stages: 1, row_groups: 1, key_groups: 1, whole_tiles: false, cluster: 1, persistent: false }
    }
}

impl Tiling {
    /// Work items of a call: query tiles of all heads and sequences, including the empty ones of short sequences.
    pub fn pieces(&self, longest_query: usize, heads: usize, batch: usize) -> usize {
        longest_query.div_ceil(self.m * self.cluster) * self.cluster * heads * batch
    }

    /// Keys of one tile of each key group.
    pub fn round(&self) -> usize {
        self.n * self.key_groups
    }

    /// Query rows of one row group.
    pub fn group_rows(&self) -> usize {
        self.m / self.row_groups
    }
}
