//! Errors of serde and TOML, in the terms of a file that a person wrote.

use super::{Finding, suggestion, ticked};
use itertools::Itertools;
use std::ops::Range;

/// Turns serde's sentence into a finding with a remedy. `example_of` returns an example of a missing key.
pub(crate) fn explain(error: &toml::de::Error, text: &str, example_of: fn(&str) -> &'static str) -> Finding {
    let (message, span) = (error.message(), error.span().unwrap_or(0..0));
    let names = names(message);
    if message.starts_with("unknown field") {
        let (unknown, known) = (names.first().copied().unwrap_or_default(), names.get(1..).unwrap_or_default());
        return unknown_key(unknown, span, known);
    }
    if message.starts_with("missing field") {
        let key = names.first().copied().unwrap_or_default();
        return Finding::new(format!("the key `{key}` is missing"), span, "in this table", format!("add {}", example_of(key)));
    }
    unlike(error, span, text)
}

/// The names quoted in serde's sentence.
fn names(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

/// A key that its table does not support.
pub(crate) fn unknown_key(unknown: &str, span: Range<usize>, known: &[&str]) -> Finding {
    let listed = format!("keys here: {}", ticked(known));
    let help = suggestion(unknown, known).map_or(listed.clone(), |meant| format!("{meant} {listed}"));
    Finding::new(format!("unknown key `{unknown}`"), span, "not a key of this table", help)
}

/// A value at `span` that does not have the expected type or is not one of the expected words.
pub(crate) fn unlike(error: &toml::de::Error, span: Range<usize>, text: &str) -> Finding {
    let message = error.message();
    let source = text.get(span.clone()).unwrap_or_default();
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
        let names = names(message);
        let (unknown, known) = (names.first().copied().unwrap_or_default(), names.get(1..).unwrap_or_default());
        let listed = format!("write one of {}", known.iter().map(|word| format!("`\"{word}\"`")).join(", "));
        let help = suggestion(unknown, known).map_or(listed.clone(), |meant| format!("{meant} {listed}"));
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
    Finding::new(format!("this is not TOML: {message}"), span, "here", "correct the TOML; strings need quotes, arrays `[ ]`")
}

/// String delimiters.
const QUOTES: [char; 2] = ['"', '\''];

/// Help for a value of the wrong type: the corrected source if it is evident, otherwise what is expected.
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
