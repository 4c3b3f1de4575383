//! Tables of tiles: `[[tile]]` of `variants.toml`, and the files of `tiles/`. A row sets tile keys of the kernels that
//! its filter matches; rows are merged key by key, and the later one wins. docs/tiles.md describes the files.

use super::{
    Filter, GridError,
    declare::{filter, sentence},
    schema::{TileEntry, Word, example_of},
};
use crate::{
    kernel::{TileKey, TileOverride, TileType, TileValue, Variant},
    text::{Finding, Lines, explain, ticked, unknown_key, unlike},
};
use serde::{Deserialize, de::Error};
use std::{collections::BTreeMap, ops::Range};
use toml::Spanned;

/// The rows of a table, in the file's order.
#[derive(Clone, Debug, Default)]
pub struct TileTable(Vec<TileRow>);

/// A row: one `[[tile]]`.
#[derive(Clone, Debug)]
pub struct TileRow {
    /// The kernels it is for; all of them if there is no `when`.
    pub filter: Option<Filter>,
    /// The keys it sets.
    pub tile: TileOverride,
    /// Why these values: of `tiles/` only.
    pub reason: Option<String>,
    /// The record of a measurement, if there is one.
    pub measured: Option<String>,
    /// Its line, counted from 1: of `when`, or of the table.
    pub line: usize,
    /// The same place, in bytes.
    pub(super) span: Range<usize>,
}

impl TileRow {
    /// Whether it is for `variant`.
    pub fn matches(&self, variant: &Variant) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(variant))
    }
}

impl TileTable {
    /// The rows, in the file's order.
    pub fn rows(&self) -> &[TileRow] {
        &self.0
    }

    /// The same rows but one.
    #[cfg(test)]
    pub(crate) fn without(&self, row: usize) -> Self {
        let mut rows = self.0.clone();
        rows.remove(row);
        Self(rows)
    }

    /// What the rows that match `variant` say together; `None` if none does.
    pub fn of(&self, variant: &Variant) -> Option<TileOverride> {
        let matching = self.0.iter().filter(|row| row.matches(variant));
        matching.map(|row| row.tile.clone()).reduce(|earlier, later| later.over(earlier))
    }
}

/// The texts of a row besides its tile keys.
pub(super) struct Texts {
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

/// A file of `tiles/`: default tiles of the kernels of one template, and which others are worth a measurement.
#[derive(Debug)]
pub struct TileFile {
    /// The rows that make the default tiles.
    pub table: TileTable,
    /// The keys that candidates vary, with their values.
    pub candidates: Vec<(&'static TileKey, Vec<TileValue>)>,
}

impl TileFile {
    /// Reads the text of a file with these keys; `origin` names it in messages.
    ///
    /// # Errors
    /// [`GridError::Invalid`] with the first thing that does not hold, its line quoted.
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
        Ok(Self { candidates: candidates.collect::<Result<_, _>>()?, table: declare(&written.tile, &DEFAULT, keys, text)? })
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

/// Those of `tiles/`.
const DEFAULT: Texts = Texts { required: &["reason"], optional: &["when", "measured"] };

/// Those of `variants.toml`.
pub(super) const TUNED: Texts = Texts { required: &["when", "measured"], optional: &[] };

/// Reads the rows of a file.
pub(super) fn declare(
    entries: &[Spanned<TileEntry>],
    texts: &Texts,
    keys: &[&'static TileKey],
    text: &str,
) -> Result<TileTable, Finding> {
    let lines = Lines::of(text);
    Ok(TileTable(entries.iter().map(|entry| row(entry, texts, keys, text, &lines)).collect::<Result<_, _>>()?))
}

fn row(
    entry: &Spanned<TileEntry>,
    texts: &Texts,
    keys: &[&'static TileKey],
    text: &str,
    lines: &Lines,
) -> Result<TileRow, Finding> {
    let mut row =
        TileRow { filter: None, tile: TileOverride::default(), reason: None, measured: None, line: 0, span: entry.span() };
    let known = texts.required.iter().chain(texts.optional).copied();
    if let Some(missing) = texts.required.iter().find(|key| !entry.get_ref().keys().any(|set| set.get_ref() == **key)) {
        let title = format!("the key `{missing}` is missing");
        let example = match *missing {
            "reason" => "`reason = \"…\"`: why the kernels have this tile",
            other => example_of(other),
        };
        return Err(Finding::new(title, entry.span(), "in this table", format!("add {example}")));
    }
    for (name, value) in entry.get_ref() {
        if let Some(key) = keys.iter().find(|key| key.name == name.get_ref()) {
            row.tile.set(key, tile_value(key, value, text)?);
        } else if let Some(key) = known.clone().find(|key| key == name.get_ref()) {
            let words: Word = string(value, text)?;
            match key {
                "when" => (row.filter, row.span) = (Some(filter(&words, text)?), words.span()),
                "reason" => row.reason = Some(sentence(&words, key)?),
                _ => row.measured = Some(sentence(&words, key)?),
            }
        } else {
            let all: Vec<&str> = known.chain(keys.iter().map(|key| key.name)).collect();
            return Err(unknown_key(name.get_ref(), name.span(), &all));
        }
    }
    if row.tile.is_empty() {
        let all: Vec<&str> = keys.iter().map(|key| key.name).collect();
        let help = format!("set at least one of {}", ticked(&all));
        return Err(Finding::new("this tile changes nothing", entry.span(), "no tile key is set", help));
    }
    row.line = lines.at(row.span.start);
    Ok(row)
}

fn string(value: &Spanned<toml::Value>, text: &str) -> Result<Word, Finding> {
    let words = String::deserialize(value.get_ref().clone()).map_err(|error| unlike(&error, value.span(), text))?;
    Ok(Spanned::new(value.span(), words))
}

/// A value of `key`.
fn tile_value(key: &TileKey, value: &Spanned<toml::Value>, text: &str) -> Result<TileValue, Finding> {
    let written = value.get_ref().clone();
    let read = match key.takes {
        TileType::Count => u32::deserialize(written).map(TileValue::Count),
        TileType::Flag => bool::deserialize(written).map(TileValue::Flag),
        TileType::Words(words) => String::deserialize(written).and_then(|written| {
            let word = words.iter().find(|word| **word == written);
            word.map(|word| TileValue::Word(word)).ok_or_else(|| toml::de::Error::unknown_variant(&written, words))
        }),
    };
    read.map_err(|error| unlike(&error, value.span(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Coordinates, Dtype, Kind, Target};

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
