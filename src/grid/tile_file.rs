//! The files of `tiles/`, which docs/tiles.md describes.

use super::{
    GridError,
    schema::{TileEntry, Word, example_of},
    tiles::{Texts, TileTable, declare, tile_value},
};
use crate::{
    kernel::{TileKey, TileValue},
    text::{Finding, explain, unknown_key},
};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// A file of `tiles/`: default tiles of the kernels of one template, and the candidates for measurement.
#[derive(Debug)]
pub struct TileFile {
    /// The rows that define the default tiles.
    pub table: TileTable,
    /// The keys that candidates vary, with their values.
    pub candidates: Vec<(&'static TileKey, Vec<TileValue>)>,
}

impl TileFile {
    /// Parses the text of a file with these keys; `origin` names it in messages.
    ///
    /// # Errors
    /// [`GridError::Invalid`] with the first problem, its line quoted.
    pub(crate) fn parse(text: &str, origin: &str, keys: &[&'static TileKey]) -> Result<Self, GridError> {
        Self::read(text, keys).map_err(|finding| GridError::invalid(&finding, origin, text))
    }

    fn read(text: &str, keys: &[&'static TileKey]) -> Result<Self, Finding> {
        let written: Written = toml::from_str(text).map_err(|error| explain(&error, text, example_of))?;
        let candidates = written.candidates.iter().map(|(name, values)| {
            let Some(key) = keys.iter().find(|key| key.name == name.get_ref()) else {
                return Err(unknown_key(name.get_ref(), name.span(), &keys.iter().map(|key| key.name).collect::<Vec<_>>()));
            };
            Ok((*key, values.iter().map(|value| tile_value(key, value, text)).collect::<Result<_, _>>()?))
        });
        Ok(Self { candidates: candidates.collect::<Result<_, _>>()?, table: declare(&written.tile, &TEXTS, keys, text)? })
    }
}

/// A file of `tiles/` as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    candidates: BTreeMap<Word, Vec<Spanned<toml::Value>>>,
    tile: Vec<Spanned<TileEntry>>,
}

/// The texts of a row: it may apply to all kernels, and need not be measured.
const TEXTS: Texts = Texts { required: &["reason"], optional: &["when", "measured"] };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Coordinates, Dtype, Kind, Target, TileType};

    static M: TileKey = TileKey::count("m", "Rows.");
    static TURNS: TileKey =
        TileKey { name: "turns", about: "Turns.", takes: TileType::Words(&["none", "products"]), replaces: &[] };

    fn parse(text: &str) -> Result<TileFile, String> {
        TileFile::parse(text, "tiles/test.toml", &[&M, &TURNS]).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_merged_key_by_key_and_the_later_wins() {
        let text = "[candidates]\nm = [64, 128]\n[[tile]]\nreason = 'all'\nm = 64\nturns = 'none'\n\
                    [[tile]]\nwhen = 'target == sm90'\nreason = 'more'\nmeasured = 'a page'\nm = 128\n";
        let file = parse(text).unwrap_or_else(|error| panic!("{error}"));
        let of = |target| {
            let variant = Kind::VectorAdd.at(&Coordinates { dtype: Some(Dtype::Fp16), ..Coordinates::at(target) });
            let tile = file.table.of(&variant).expect("the first row is for all");
            (tile.count("m"), tile.get("turns"))
        };
        let none = Some(TileValue::Word("none"));
        assert_eq!((of(Target::Sm80), of(Target::Sm90)), ((Some(64), none), (Some(128), none)));
        assert_eq!(file.candidates, [(&M, vec![TileValue::Count(64), TileValue::Count(128)])]);
        let [first, second] = file.table.rows() else { panic!("two rows") };
        assert_eq!((first.reason.as_deref(), first.measured.as_deref(), first.line), (Some("all"), None, 3));
        assert_eq!((second.reason.as_deref(), second.measured.as_deref(), second.line), (Some("more"), Some("a page"), 8));
    }

    #[test]
    fn every_mistake_is_quoted_with_its_line_and_what_to_change() {
        let row = "[[tile]]\nreason = 'all'\nm = 64\n";
        let cases = [
            ("", "the key `tile` is missing", 1, "add"),
            ("[[tile]]\nm = 64\n", "the key `reason` is missing", 1, "why the kernels have this tile"),
            ("[[tile]]\nreason = ''\nm = 64\n", "`reason` says nothing", 2, "one sentence"),
            ("[[tile]]\nreason = 'all'\n", "this tile changes nothing", 1, "`m`, `turns`"),
            (&format!("{row}k = 3\n"), "unknown key `k`", 4, "`measured`"),
            (&format!("{row}turns = 'both'\n"), "unknown value `both`", 4, "`\"products\"`"),
            (&format!("{row}when = 'hdm > 64'\n"), "unknown field `hdm`", 4, "`hdim`"),
            (&format!("{row}[candidates]\nmm = [64]\n"), "unknown key `mm`", 5, "`m`"),
            (&format!("{row}[candidates]\nm = ['64']\n"), "wrong type", 5, "write `64`"),
            (&format!("{row}[candidates]\nm = 64\n"), "wrong type", 5, "write `[64]`"),
            (&format!("{row}[other]\n"), "unknown key `other`", 4, "`candidates`"),
        ];
        for (text, says, line, help) in cases {
            let message = parse(text).expect_err("it does not hold");
            let first = message.lines().next().unwrap_or_default();
            assert!(first.contains(says) && message.contains(&format!("tiles/test.toml:{line}:")), "{message}");
            let advice = message.split_once("help: ").unwrap_or_else(|| panic!("no help:\n{message}")).1;
            assert!(advice.contains(help), "{message}");
        }
    }
}
