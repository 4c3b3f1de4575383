//! How a plan cuts its work: lengths of test cases are chosen by it, to reach every stage, tile border and warpgroup.

use serde::{Deserialize, Serialize};

/// How a kernel cuts its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tiling {
    /// Query rows of a tile.
    pub m: usize,
    /// Keys of a tile.
    pub n: usize,
    /// Key tiles in flight.
    pub stages: usize,
    /// Parts of the query rows that walk over the keys at a pace of their own: warpgroups on Hopper, otherwise 1.
    pub row_groups: usize,
    /// Warpgroups that share the keys of a row out, tile by tile: 1 where each sees all of its rows' keys.
    pub key_groups: usize,
    /// Keys come in whole tiles, with rows of other sequences in them: by TMA.
    pub whole_tiles: bool,
    /// Blocks of a cluster.
    pub cluster: usize,
    /// A block takes one piece of work after another.
    pub persistent: bool,
}

impl Default for Tiling {
    /// One piece of work of one element.
    fn default() -> Self {
        Self { m: 1, n: 1, stages: 1, row_groups: 1, key_groups: 1, whole_tiles: false, cluster: 1, persistent: false }
    }
}

impl Tiling {
    /// Pieces of work of a call: query tiles of all heads and sequences, the empty ones of short sequences included.
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
