//! Tables of tiles: `[[tile]]` of `variants.toml`, and the files of `tiles/`. A row sets tile keys of the kernels that
//! its filter matches; rows are merged key by key, and the later one wins.

use super::{
    Filter,
    declare::{filter, sentence},
    schema::{TileEntry, Word, example_of},
};
use crate::{
    kernel::{TileKey, TileOverride, TileType, TileValue, Variant},
    text::{Finding, Lines, ticked, unknown_key, unlike},
};
use serde::{Deserialize, de::Error};
use std::ops::Range;
use toml::Spanned;

/// The rows of a table, in the file's order.
#[derive(Clone, Debug, Default)]
pub struct TileTable(Vec<TileRow>);

/// A row: one `[[tile]]`.
#[derive(Clone, Debug)]
pub struct TileRow {
    /// The kernels that the row applies to; all kernels if there is no `when`.
    pub filter: Option<Filter>,
    /// The keys that the row sets.
    pub tile: TileOverride,
    /// The reason for these values; only in `tiles/`.
    pub reason: Option<String>,
    /// The record of a measurement, if there is one.
    pub measured: Option<String>,
    /// Line of the row, counted from 1: the line of `when`, or of the table.
    pub line: usize,
    /// Byte range of `when`, or of the whole table without one.
    pub(super) span: Range<usize>,
}

impl TileRow {
    /// True if it applies to `variant`.
    pub fn matches(&self, variant: &Variant) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.matches(variant))
    }
}

impl TileTable {
    /// The rows, in the file's order.
    pub fn rows(&self) -> &[TileRow] {
        &self.0
    }

    /// The table without row number `row`.
    #[cfg(test)]
    pub(crate) fn without(&self, row: usize) -> Self {
        let mut rows = self.0.clone();
        rows.remove(row);
        Self(rows)
    }

    /// The merged rows that match `variant`; `None` if none does.
    pub fn of(&self, variant: &Variant) -> Option<TileOverride> {
        let matching = self.0.iter().filter(|row| row.matches(variant));
        matching.map(|row| row.tile.clone()).reduce(|earlier, later| later.over(earlier))
    }
}

/// The texts of a row, in addition to its tile keys.
pub(super) struct Texts {
    pub required: &'static [&'static str],
    pub optional: &'static [&'static str],
}

/// The texts in `variants.toml`.
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
pub(super) fn tile_value(key: &TileKey, value: &Spanned<toml::Value>, text: &str) -> Result<TileValue, Finding> {
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
