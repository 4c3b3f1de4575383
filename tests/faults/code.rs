//! C++ text without comments and white space, which do not matter for planted faults and so may be reworded without
//! changing the lists.

use std::ops::Range;

/// The characters of a C++ text outside comments and white space, each with its position.
pub fn code(text: &str) -> Vec<(usize, char)> {
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let (length, is_comment) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), true),
            '/' if rest.starts_with("/*") => (rest[2..].find("*/").map_or(rest.len(), |end| end + 4), true),
            '"' => (literal_length(rest), false),
            '\'' if !ends_in_number(&text[..at]) => (literal_length(rest), false),
            other => (other.len_utf8(), false),
        };
        if !is_comment {
            let own = rest[..length].char_indices().filter(|(_, c)| !c.is_whitespace());
            kept.extend(own.map(|(place, c)| (at + place, c)));
        }
        at += length;
    }
    kept
}

/// Length of the literal at the start of a text. No literal spans lines, so a stray quote hides at most one line.
fn literal_length(text: &str) -> usize {
    let quote = text.chars().next();
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return at,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if Some(c) == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// True if a text ends inside a number, in which `'` separates digits.
fn ends_in_number(text: &str) -> bool {
    let word = text.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '\'' && c != '_').next();
    word.is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// The parts of a text whose code equals that of `find`.
pub fn places(text: &str, find: &str) -> Vec<Range<usize>> {
    let (kept, wanted) = (code(text), code(find));
    assert!(!wanted.is_empty(), "`{find}` holds no code");
    let is_wanted = |window: &&[(usize, char)]| window.iter().map(|(_, c)| c).eq(wanted.iter().map(|(_, c)| c));
    let end = |(at, c): (usize, char)| at + c.len_utf8();
    kept.windows(wanted.len()).filter(is_wanted).map(|window| window[0].0..end(window[wanted.len() - 1])).collect()
}

/// The text with the only match of `find` (compared as code) replaced by `replace`, including comments within it.
///
/// # Errors
/// The number of matches if it is not one.
pub fn replace_once(text: &str, find: &str, replace: &str) -> Result<String, usize> {
    match &places(text, find)[..] {
        [place] => Ok(format!("{}{replace}{}", &text[..place.start], &text[place.end..])),
        found => Err(found.len()),
    }
}
