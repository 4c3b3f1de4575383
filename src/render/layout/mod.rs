//! Wraps long lines of rendered C++ in the style of clang-format. Only white space and comments move, so the machine
//! code is unchanged.

mod breaks;
mod comments;
mod scan;
mod statements;
#[cfg(test)]
mod tests;

pub(super) use scan::literal;

/// Maximum width of a line, in characters.
const COLUMNS: usize = 120;
/// Indentation of a continuation or a nested statement.
const INDENT: usize = 4;

/// Wraps lines of more than 120 columns where possible. Lines that fit are unchanged, unless they continue a statement
/// with a line that does not fit: such a statement is laid out as a whole. Idempotent.
///
/// Preprocessor lines and block comments are unchanged too, because a directive ends at its line.
pub(super) fn layout(text: &str) -> String {
    let mut laid = Layout::default();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if laid.keeps(line) {
            laid.push(line);
        } else if comments::is_comment(line) {
            let mut paragraph = comments::Paragraph::of(line);
            while paragraph.is_too_long() && lines.peek().is_some_and(|next| paragraph.continues_in(next)) {
                paragraph.extend(lines.next().unwrap_or_default());
            }
            paragraph.lines().iter().for_each(|line| laid.push(line));
        } else if width(line) <= COLUMNS {
            laid.breaks_off = scan::breaks_off(scan::split_comment(line).0);
            laid.push(line);
        } else {
            let mut whole = line.to_owned();
            while let Some(rest) = lines.peek().and_then(|next| scan::continuation(&whole, next)) {
                whole.push_str(if whole.ends_with('(') { "" } else { " " });
                whole.push_str(rest);
                lines.next();
            }
            laid.code(&whole);
        }
    }
    laid.text
}

/// The text laid out so far, and the state that the next line depends on.
#[derive(Default)]
struct Layout {
    text: String,
    /// The last line of code ends inside a statement.
    breaks_off: bool,
    /// The last line ends in `\`.
    in_macro: bool,
    in_block_comment: bool,
}

impl Layout {
    /// True if the line is never wrapped: it is a directive or contains part of a block comment.
    fn keeps(&mut self, line: &str) -> bool {
        let in_macro = self.in_macro || line.trim_start().starts_with('#');
        self.in_macro = in_macro && line.ends_with('\\');
        let in_comment = self.in_block_comment || line.contains("/*");
        self.in_block_comment = in_comment && !line.contains("*/");
        in_macro || in_comment || line.trim_start().is_empty()
    }

    fn push(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Lays out a statement, and moves its trailing comment above it.
    fn code(&mut self, line: &str) {
        let indent = indent_of(line);
        let (code, comment) = scan::split_comment(line);
        if let Some(comment) = comment {
            let own_line = " ".repeat(indent) + comment;
            comments::Paragraph::of(&own_line).lines().iter().for_each(|line| self.push(line));
        }
        let inside = self.breaks_off || scan::follows_on(code.trim_start());
        self.breaks_off = scan::breaks_off(code);
        for line in &statements::lay_out(code.trim_start(), indent, inside) {
            self.push(line);
        }
    }
}

/// Number of leading spaces.
fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Number of characters of a line.
fn width(line: &str) -> usize {
    if line.is_ascii() { line.len() } else { line.chars().count() }
}
