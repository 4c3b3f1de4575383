//! The shape of `variants.toml` as serde sees it, with places kept for messages. What it means is `declare`'s matter.

use super::{CopyPath, Fp8Mma, StorePath, Turns, finding::Finding, words};
use itertools::Itertools;
use serde::Deserialize;
use std::{collections::BTreeMap, ops::Range};
use toml::Spanned;

/// A word with its place.
pub(super) type Word = Spanned<String>;

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub version: Spanned<i64>,
    #[serde(default)]
    pub targets: BTreeMap<Word, TargetEntry>,
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
    pub head_dim: Option<Spanned<Vec<Spanned<i64>>>>,
    pub dtype: Option<Spanned<Vec<Word>>>,
    pub mask: Option<Spanned<Vec<Word>>>,
    pub features: Option<Spanned<Vec<Spanned<Vec<Word>>>>>,
}

/// `[[exclude]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExcludeEntry {
    pub when: Word,
    pub reason: Word,
}

/// `[[tile]]`. The keys of [`super::TileOverride`] are repeated here because serde cannot both flatten a struct and
/// refuse unknown keys; `declare` copies them field by field, so a new one cannot be forgotten.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TileEntry {
    pub when: Word,
    pub measured: Word,
    pub m: Option<u32>,
    pub n: Option<u32>,
    pub warps: Option<u32>,
    pub stages: Option<u32>,
    pub q_in_registers: Option<bool>,
    pub min_blocks_per_sm: Option<u32>,
    pub rescale_threshold: Option<u32>,
    pub copy: Option<CopyPath>,
    pub fp8_mma: Option<Fp8Mma>,
    pub overlap: Option<bool>,
    pub turns: Option<Turns>,
    pub persistent: Option<bool>,
    pub cluster: Option<u32>,
    pub store: Option<StorePath>,
}

/// `[sets.<name>]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetEntry {
    pub description: Word,
    pub filter: Word,
    pub size: Option<Spanned<u32>>,
}

/// Reads the text into its shape.
///
/// # Errors
/// What TOML or serde refuses, in the words of this file format.
pub(super) fn read(text: &str) -> Result<File, Finding> {
    toml::from_str(text).map_err(|error| explain(error.message(), error.span().unwrap_or(0..0), text))
}

/// Turns serde's sentence into a finding that says what to change.
fn explain(message: &str, span: Range<usize>, text: &str) -> Finding {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let source = text.get(span.clone()).unwrap_or_default();
    if message.starts_with("unknown field") {
        let (unknown, known) = (names.first().copied().unwrap_or_default(), names.get(1..).unwrap_or_default());
        let listed = format!("keys here: {}", words::ticked(known));
        let help = words::suggestion(unknown, known).map_or(listed.clone(), |meant| format!("{meant} {listed}"));
        return Finding::new(format!("unknown key `{unknown}`"), span, "not a key of this table", help);
    }
    if message.starts_with("missing field") {
        let key = names.first().copied().unwrap_or_default();
        return Finding::new(format!("the key `{key}` is missing"), span, "in this table", format!("add {}", example_of(key)));
    }
    if message.starts_with("invalid type") || message.starts_with("invalid value") {
        let (found, expected) = message.split_once(", expected ").unwrap_or((message, "another value"));
        let found = match found.split_once(": ").map_or(found, |(_, found)| found) {
            "map" => "table",
            "sequence" => "array",
            found => found,
        };
        let expected = expected
            .replace("a sequence", "an array")
            .replace("a boolean", "`true` or `false`")
            .replace("u32", "a whole number, 0 or more")
            .replace("i64", "a whole number");
        let title = format!("wrong type: {found}");
        return Finding::new(title, span, format!("expected {expected}"), mend(&expected, source));
    }
    if message.starts_with("unknown variant") {
        let (unknown, known) = (names.first().copied().unwrap_or_default(), names.get(1..).unwrap_or_default());
        let listed = format!("write one of {}", known.iter().map(|word| format!("`\"{word}\"`")).join(", "));
        let help = words::suggestion(unknown, known).map_or(listed.clone(), |meant| format!("{meant} {listed}"));
        return Finding::new(format!("unknown value `{unknown}`"), span, "not a value of this key", help);
    }
    if message.starts_with("duplicate key") {
        return Finding::new(
            "a key is set twice",
            span,
            "second time",
            "keep one of the two; arrays of tables are written `[[family]]`",
        );
    }
    Finding::new(
        format!("this is not TOML: {message}"),
        span,
        "here",
        "correct the TOML; strings stand in quotes, arrays in `[ ]`",
    )
}

/// What strings begin and end with.
const QUOTES: [char; 2] = ['"', '\''];

/// How a value of the wrong type is probably meant.
fn mend(expected: &str, source: &str) -> String {
    let short = (!source.contains('\n') && !source.is_empty() && source.len() < 60).then_some(source);
    match short {
        Some(source) if expected.contains("an array") => format!("write `[{source}]`"),
        Some(source) if expected.contains("string") && !source.contains(['"', '\'', '[', '{']) => format!("write `\"{source}\"`"),
        Some(source)
            if expected.contains("whole number")
                && source.starts_with(QUOTES)
                && source.trim_matches(QUOTES).parse::<i64>().is_ok() =>
        {
            format!("write `{}`, without quotes", source.trim_matches(QUOTES))
        }
        _ => format!("write {expected} here"),
    }
}

/// A key as it may be written, for the message that misses it.
fn example_of(key: &str) -> &'static str {
    match key {
        "version" => "`version = 1` at the top of the file",
        "kind" => "for example `kind = [\"fwd\"]`",
        "target" => "for example `target = [\"sm80\"]`",
        "when" => "a filter, for example `when = \"hdim > 192 and dtype == fp8\"`",
        "reason" => "`reason = \"…\"`: why these variants are not made",
        "measured" => "`measured = \"…\"`: the run these numbers come from",
        "description" => "`description = \"…\"`",
        "filter" => "a filter, for example `filter = \"kind == fwd and dtype == bf16\"`",
        _ => "it; docs/variants.md shows every key",
    }
}
