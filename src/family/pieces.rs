//! The tile of families whose threads process 16-byte pieces: `vector_add`, `reduce` and `rmsnorm`.

use crate::kernel::{TileKey, TileOverride};
use serde::Serialize;
use std::fmt;

/// Bytes of a piece, which one instruction moves.
pub(super) const PIECE_BYTES: u32 = 16;

/// The keys of a tile.
pub(super) static KEYS: &[TileKey] = &[
    TileKey::count("warps", "Warps per block."),
    TileKey::count("stages", "16-byte pieces of a tensor that a thread has in flight."),
    TileKey::count("min_blocks_per_sm", "Second argument of `__launch_bounds__`."),
];

/// Block parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tile {
    /// Warps of a block.
    pub warps: u32,
    /// 16-byte pieces of a tensor in flight per thread: the key `stages`.
    pub pieces: u32,
    /// Second argument of `__launch_bounds__`.
    pub min_blocks_per_sm: u32,
}

impl fmt::Display for Tile {
    /// In the form of a table cell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pieces, {} warps", self.pieces, self.warps)
    }
}

impl Tile {
    /// This tile with keys replaced by those of an entry of `variants.toml`; an error if one of them is not read or out
    /// of range.
    pub(super) fn changed_by(self, change: Option<&TileOverride>) -> Result<Self, String> {
        let Some(change) = change else { return Ok(self) };
        if let Some(reason) = change.refusal(KEYS.iter().map(|key| key.name)) {
            return Err(reason);
        }
        let count = |key, own| change.count(key).unwrap_or(own);
        let tile = Self {
            warps: count("warps", self.warps),
            pieces: count("stages", self.pieces),
            min_blocks_per_sm: count("min_blocks_per_sm", self.min_blocks_per_sm),
        };
        for (key, value, most) in [("warps", tile.warps, 32), ("stages", tile.pieces, 16)] {
            if !(1..=most).contains(&value) {
                return Err(format!("`{key}` is {value}; it must be 1 to {most}"));
            }
        }
        if tile.min_blocks_per_sm == 0 {
            return Err("`min_blocks_per_sm` is 0; it must be at least 1".to_owned());
        }
        Ok(tile)
    }
}
