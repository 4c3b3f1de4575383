//! What is asked for: the axes as types, the schema of `variants.toml`, its expansion, filters and sets.
//! Knows nothing of plans, templates, compilers or terminals.

mod axes;
mod tile;

pub use axes::{Dtype, Kind, Target, UnknownWord, Variant};
pub use tile::TileOverride;
