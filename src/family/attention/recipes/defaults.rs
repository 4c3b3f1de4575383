//! Default tiles: the files of `tiles/`, embedded in the binary and read when they are first asked for.

use super::{Point, Tile, tile::BASE};
use crate::{family::attention::tile_keys, grid::TileFile, kernel::TileKey};

/// The file of that name in `tiles/`, as a `LazyLock`.
macro_rules! tile_file {
    ($name:literal) => {
        std::sync::LazyLock::new(|| {
            crate::family::attention::recipes::defaults::read($name, include_str!(concat!("../../../../tiles/", $name)))
        })
    };
}

pub(super) use tile_file;

/// Reads the text of the file `name`.
///
/// # Panics
/// If it does not hold, which tests exclude.
pub(super) fn read(name: &str, text: &str) -> TileFile {
    let keys: Vec<&TileKey> = tile_keys::KEYS.iter().collect();
    TileFile::parse(text, &format!("tiles/{name}"), &keys).unwrap_or_else(|error| panic!("{error}"))
}

/// The default tile of a kernel: what the rows that match it set, and [`BASE`] besides.
pub(super) fn default_of(file: &TileFile, variant: Point) -> Result<Tile, String> {
    let Some(rows) = file.table.of(&variant.into()) else {
        return Err(format!("`{variant}` has no default tile"));
    };
    Ok(BASE.changed(&rows))
}

#[cfg(test)]
mod tests;
