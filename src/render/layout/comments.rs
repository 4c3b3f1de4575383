//! `//` comments, wrapped at words.

use super::{COLUMNS, INDENT, indent_of, width};

/// Whether a line holds a `//` comment and nothing else.
pub(super) fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Comment lines that are one run of words.
pub(super) struct Paragraph {
    /// What each line starts with: its indentation, `//` and the white space behind it.
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

    /// Whether its last line is too long.
    pub(super) fn is_too_long(&self) -> bool {
        self.lines.last().is_some_and(|line| width(line) > COLUMNS)
    }

    /// Whether `next` goes on with its sentence, so that words may move to it.
    pub(super) fn continues_in(&self, next: &str) -> bool {
        let ends = self.lines.last().is_some_and(|line| line.ends_with(['.', ':', ';']));
        let is_text = |rest: &str| rest.starts_with(|first: char| first.is_alphanumeric() || first == '`');
        !ends && self.prefix.ends_with("// ") && next.strip_prefix(&self.prefix).is_some_and(is_text)
    }

    /// Adds a line, with the words that the one before has no room for.
    pub(super) fn extend(&mut self, next: &str) {
        let Some(last) = self.lines.pop() else { return };
        let mut wrapped = wrap(&last, &self.prefix);
        let overflow = wrapped.pop().unwrap_or_default();
        let words = next.get(self.prefix.len()..).unwrap_or_default();
        self.lines.append(&mut wrapped);
        self.lines.push(format!("{overflow} {words}"));
    }

    /// Its lines, none too long unless a word is.
    pub(super) fn lines(mut self) -> Vec<String> {
        if let Some(last) = self.lines.pop() {
            // A line that stands in from its paragraph is an item or a command: what it goes on with stands in further.
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

/// A comment line and, where it is too long, the lines behind it, which start with `hanging`.
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
