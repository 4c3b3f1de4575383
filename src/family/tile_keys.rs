//! The grid with the `[[tile]]` keys of all families. `grid` is independent of families: the keys are passed to it.

use super::FAMILIES;
use crate::{
    grid::{Grid, GridError},
    kernel::TileKey,
};
use std::path::Path;

/// The tile keys of all families, without duplicates: families that share a name share its type.
fn tile_keys() -> Vec<&'static TileKey> {
    let mut keys: Vec<&TileKey> = Vec::new();
    for key in FAMILIES.iter().flat_map(|family| family.tile_keys()) {
        if keys.iter().all(|known| known.name != key.name) {
            keys.push(key);
        }
    }
    keys
}

impl Grid {
    /// The grid embedded in the binary.
    ///
    /// # Panics
    /// Never, if kgen's tests pass: one of them parses the embedded file.
    pub fn builtin() -> Self {
        Self::builtin_with(&tile_keys())
    }

    /// Parses the text of a `variants.toml`; `origin` names it in messages.
    ///
    /// # Errors
    /// [`GridError::Invalid`] with the first problem, its line quoted.
    pub fn parse(text: &str, origin: &str) -> Result<Self, GridError> {
        Self::parse_with(text, origin, &tile_keys())
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// [`GridError`]: not readable, not UTF-8, or not valid.
    pub fn load(path: &Path) -> Result<Self, GridError> {
        Self::load_with(path, &tile_keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::TileType;

    #[test]
    fn a_key_has_one_type_in_all_families() {
        for key in FAMILIES.iter().flat_map(|family| family.tile_keys()) {
            let same = tile_keys().into_iter().find(|known| known.name == key.name).expect("every key is there");
            assert_eq!((same.takes, same.replaces), (key.takes, key.replaces), "{}", key.name);
        }
    }

    #[test]
    fn the_reference_has_a_row_for_every_key_with_its_type() {
        let reference = include_str!("../../docs/variants.md");
        for key in tile_keys() {
            assert!(key.about.ends_with('.') && !key.about.starts_with(' '), "{}: {}", key.name, key.about);
            let of_type = match key.takes {
                TileType::Count => "integer",
                TileType::Flag => "boolean",
                TileType::Words(_) => "string",
            };
            let row = format!("| `{}` | {of_type}, optional |", key.name);
            let row = reference.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("no row `{row}`"));
            if let TileType::Words(words) = key.takes {
                assert!(words.iter().all(|word| row.contains(word)), "{row}");
            }
        }
    }
}
