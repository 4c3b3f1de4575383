//! Escapes untrusted text before it reaches a terminal: reasons in a grid, compiler logs, output of kernels, file
//! names. A control character in it could move the cursor, rename the window or inject input.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with control characters escaped as `\u{1b}`; line ends and tabs stay.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |_| 0)
}

/// [`plain`] for one cell of a table: also line ends and tabs are escaped, which would tear its row.
pub(super) fn cell(text: &str) -> String {
    plain(text).replace('\n', "\\u{a}").replace('\t', "\\u{9}")
}

/// [`plain`] for kgen's own messages that quote such text: colours and styles (`ESC [ 1 ; 31 m`) are kept.
pub(super) fn styled(text: &str) -> Cow<'_, str> {
    escaped(text, style_length)
}

/// `text` with control characters escaped; `kept` returns the number of leading bytes that stay as they are although
/// they begin with a control character.
fn escaped(text: &str, kept: impl Fn(&str) -> usize) -> Cow<'_, str> {
    let harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let keep = if harmless(c) { c.len_utf8() } else { kept(rest) };
        if keep == 0 {
            // Writing into a string cannot fail.
            write!(clean, "{}", c.escape_unicode()).ok();
        }
        let (whole, left) = rest.split_at(keep);
        clean.push_str(whole);
        rest = if keep == 0 { &left[c.len_utf8()..] } else { left };
    }
    Cow::Owned(clean)
}

/// Length in bytes of the style sequence at the start of `text`; 0 if there is none.
fn style_length(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else { return 0 };
    let length = numbers.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(numbers.len());
    if numbers[length..].starts_with('m') { 2 + length + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out_and_lines_and_tabs_stay() {
        assert_eq!(plain("a\tb\nc é"), "a\tb\nc é");
        assert_eq!(plain("\u{1b}]0;x\u{7}\r\u{9b}2J"), "\\u{1b}]0;x\\u{7}\\u{d}\\u{9b}2J");
        assert_eq!(plain("\u{1b}[31mred"), "\\u{1b}[31mred");
        assert_eq!(cell("\u{1b}[31mred\n\té"), "\\u{1b}[31mred\\u{a}\\u{9}é");
    }

    #[test]
    fn of_kgens_own_text_colours_stay_and_nothing_else() {
        assert_eq!(styled("\u{1b}[1;31mred\u{1b}[0m"), "\u{1b}[1;31mred\u{1b}[0m");
        assert_eq!(styled("\u{1b}[2Jgone\u{1b}[31"), "\\u{1b}[2Jgone\\u{1b}[31");
        assert_eq!(styled("\u{1b}[31mé\u{1b}"), "\u{1b}[31mé\\u{1b}");
    }
}
