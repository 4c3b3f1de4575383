//! Wraps `//` comments at words.

use super::{COLUMNS, INDENT, indent_of, width};

/// True if a line consists of a `//` comment.
pub(super) fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Comment lines that form a paragraph.
pub(super) struct Paragraph {
    /// Start of each line: indentation, `//` and the white space after it.
    prefix: String,
    lines: Vec<String>,
}

impl Paragraph {
    /// The paragraph that starts in `line`, which is a comment.
    pub(super) fn of(line: &str) -> Self {
        let after = line.trim_start().trim_start_matches('/');
        let words_at = line.len() - after.trim_start().len();
        Self { prefix: line[..words_at].to_owned(), lines: vec![line.to_owned()] }
    }

    /// True if its last line is too long.
    pub(super) fn is_too_long(&self) -> bool {
        self.lines.last().is_some_and(|line| width(line) > COLUMNS)
    }

    /// True if `next` continues the paragraph's last sentence, so that words may move to it.
    pub(super) fn continues_in(&self, next: &str) -> bool {
        let ends = self.lines.last().is_some_and(|line| line.ends_with(['.', ':', ';']));
        let is_text = |rest: &str| rest.starts_with(|first: char| first.is_alphanumeric() || first == '`');
        !ends && self.prefix.ends_with("// ") && next.strip_prefix(&self.prefix).is_some_and(is_text)
    }

    /// Adds a line, after wrapping the previous one; the words that do not fit move to the new line.
    pub(super) fn extend(&mut self, next: &str) {
        let Some(last) = self.lines.pop() else { return };
        let mut wrapped = wrap(&last, &self.prefix);
        let overflow = wrapped.pop().unwrap_or_default();
        let words = next.get(self.prefix.len()..).unwrap_or_default();
        self.lines.append(&mut wrapped);
        self.lines.push(format!("{overflow} {words}"));
    }

    /// The wrapped lines. A line is too long only if it is a single word.
    pub(super) fn lines(mut self) -> Vec<String> {
        if let Some(last) = self.lines.pop() {
            // An indented line is a list item or a command, so its continuation is indented further.
            let hanging = if self.prefix.ends_with("//  ") || self.prefix.ends_with("   ") && indent_of(&self.prefix) == 0 {
                self.prefix.clone() + &" ".repeat(INDENT)
            } else {
                self.prefix.clone()
            };
            self.lines.append(&mut wrap(&last, &hanging));
        }
        self.lines
    }
}

/// Wraps a comment line; continuation lines start with `hanging`.
fn wrap(line: &str, hanging: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = line.to_owned();
    while width(&rest) > COLUMNS {
        let start = rest.len() - rest.trim_start_matches(['/', ' ']).len();
        let fits = rest.char_indices().nth(COLUMNS).map_or(rest.len(), |(at, _)| at);
        let spaces = || rest.match_indices(' ').map(|(at, _)| at).filter(|at| *at > start);
        let Some(at) = spaces().take_while(|at| *at <= fits).last().or_else(|| spaces().next()) else { break };
        let next = format!("{hanging}{}", rest[at..].trim_start());
        lines.push(rest[..at].trim_end().to_owned());
        rest = next;
    }
    lines.push(rest);
    lines
}
