//! The requested kernels: the schema of `variants.toml`, its expansion, filters and sets. Independent of plans,
//! templates, compilers and terminals.
//!
//! ```text
//! text ─▶ schema ─▶ declare ─▶ expand ─▶ select ─▶ variants
//! ```

mod declare;
mod error;
mod expand;
mod filter;
mod schema;
mod select;
mod tile_file;
mod tiles;

#[cfg(test)]
mod bad_input;

pub use declare::Set;
pub use error::GridError;
pub use expand::{Excluded, Grid};
pub use filter::{Filter, FilterError};
pub use select::{SelectError, Selection};
pub use tile_file::TileFile;
pub use tiles::{TileRow, TileTable};
