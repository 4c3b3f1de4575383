//! The schema of `variants.toml` as parsed by serde, with positions kept for messages. `declare` interprets it.

use crate::{
    expression,
    text::{Finding, explain},
};
use serde::{Deserialize, Deserializer, de};
use std::{collections::BTreeMap, fmt};
use toml::Spanned;

/// A word and its position.
pub(super) type Word = Spanned<String>;

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub version: Spanned<i64>,
    #[serde(default)]
    pub targets: BTreeMap<Word, TargetEntry>,
    #[serde(default)]
    pub score: BTreeMap<Word, expression::Entry>,
    #[serde(default)]
    pub family: Vec<Spanned<FamilyEntry>>,
    #[serde(default)]
    pub exclude: Vec<Spanned<ExcludeEntry>>,
    #[serde(default)]
    pub tile: Vec<Spanned<TileEntry>>,
    #[serde(default)]
    pub sets: BTreeMap<Word, SetEntry>,
}

/// `[targets.<name>]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetEntry {
    pub description: Word,
}

/// `[[family]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FamilyEntry {
    pub kind: Spanned<Vec<Word>>,
    pub target: Spanned<Vec<Word>>,
    pub head_dim: Option<Spanned<Vec<Spanned<WrittenHeadDim>>>>,
    pub dtype: Option<Spanned<Vec<Word>>>,
    pub mask: Option<Spanned<Vec<Word>>>,
    pub features: Option<Spanned<Vec<Spanned<Vec<Word>>>>>,
}

/// A head dim as written: `128`, or `"192_128"` if V and O differ from Q and K. [`super::HeadDim`] interprets it.
#[derive(Debug)]
pub(super) struct WrittenHeadDim(pub String);

impl<'de> Deserialize<'de> for WrittenHeadDim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl de::Visitor<'_> for Words {
            type Value = WrittenHeadDim;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("i64, or a pair such as \"192_128\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<WrittenHeadDim, E> {
                Ok(WrittenHeadDim(number.to_string()))
            }

            fn visit_str<E: de::Error>(self, pair: &str) -> Result<WrittenHeadDim, E> {
                if pair.parse::<i64>().is_ok() {
                    return Err(E::invalid_type(de::Unexpected::Str(pair), &self));
                }
                Ok(WrittenHeadDim(pair.to_owned()))
            }
        }

        deserializer.deserialize_any(Words)
    }
}

/// `[[exclude]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExcludeEntry {
    pub when: Word,
    pub reason: Word,
}

/// `[[tile]]`: the keys that families declare, which `tiles` reads, in addition to texts.
pub(super) type TileEntry = BTreeMap<Word, Spanned<toml::Value>>;

/// `[sets.<name>]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetEntry {
    pub description: Word,
    pub filter: Word,
    pub size: Option<Spanned<u32>>,
}

/// Parses the text.
///
/// # Errors
/// An error of TOML or serde, in the terms of this file format.
pub(super) fn read(text: &str) -> Result<File, Finding> {
    toml::from_str(text).map_err(|error| explain(&error, text, example_of))
}

/// An example of a key, for the message that misses it.
pub(super) fn example_of(key: &str) -> &'static str {
    match key {
        "version" => "`version = 1` at the top of the file",
        "kind" => "for example `kind = [\"fwd\"]`",
        "target" => "for example `target = [\"sm80\"]`",
        "when" => "a filter, for example `when = \"hdim > 192 and dtype == fp8\"`",
        "reason" => "`reason = \"…\"`: why these variants are not made",
        "measured" => "`measured = \"…\"`: the run these numbers come from",
        "description" => "`description = \"…\"`",
        "filter" => "a filter, for example `filter = \"kind == fwd and dtype == bf16\"`",
        _ => concat!("it; every key is shown at ", page!("variants.md")),
    }
}
