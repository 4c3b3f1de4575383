//! An error in a text that a person wrote, and its display: the quoted line, a caret, and the remedy.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use std::ops::Range;

/// One error at one position of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The error, in one sentence.
    pub title: String,
    /// Position of the error, in bytes of the text.
    pub span: Range<usize>,
    /// Text beside the caret: usually what was expected there.
    pub label: String,
    /// The remedy.
    pub help: String,
    /// A second relevant position, and the reason. Boxed, since it is rare and errors should be small.
    pub context: Option<Box<(Range<usize>, String)>>,
}

impl Finding {
    /// A finding without a second position.
    pub fn new(title: impl Into<String>, span: Range<usize>, label: impl Into<String>, help: impl Into<String>) -> Self {
        Self { title: title.into(), span, label: label.into(), help: help.into(), context: None }
    }

    /// Adds another relevant position.
    pub fn with_context(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.context = Some(Box::new((span, label.into())));
        self
    }

    /// The line of `text` the finding starts on, counted from 1.
    pub fn line(&self, text: &str) -> usize {
        Lines::of(text).at(self.span.start)
    }

    /// The finding as plain text: title, position, quoted line with a caret, help.
    pub fn render(&self, origin: &str, text: &str) -> String {
        let context = self
            .context
            .iter()
            .map(|place| AnnotationKind::Context.span(within_one_line(text, &place.0)).label(place.1.as_str()));
        let snippet = Snippet::source(text)
            .path(origin)
            .annotation(AnnotationKind::Primary.span(within_one_line(text, &self.span)).label(self.label.as_str()))
            .annotations(context);
        let report = [Level::ERROR
            .no_name()
            .primary_title(self.title.as_str())
            .element(snippet)
            .element(Level::HELP.message(self.help.as_str()))];
        Renderer::plain().render(&report)
    }
}

/// Line ends of a text, computed once for all lookups.
#[derive(Debug)]
pub(crate) struct Lines(Vec<usize>);

impl Lines {
    /// The lines of `text`.
    pub fn of(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// The line that contains byte `at`, counted from 1; the last one for a position beyond the text.
    pub fn at(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

/// `span` cut at the end of its first line and moved to character boundaries: a caret under a whole table is less
/// useful than one under its header.
fn within_one_line(text: &str, span: &Range<usize>) -> Range<usize> {
    let start = boundary(text, span.start);
    let line = text[start..].find(['\n', '\r']).map_or(text.len(), |length| start + length);
    start..boundary(text, span.end.clamp(start, line))
}

/// The character boundary at or before byte `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_quotes_its_line_with_number_and_caret() {
        let text = "a = 1\nbb = 2\n";
        let finding = Finding::new("`bb` is odd", 6..8, "here", "call it `b`").with_context(0..1, "like this");
        let shown = finding.render("f.toml", text);
        assert_eq!(finding.line(text), 2);
        for part in ["`bb` is odd\n", "f.toml:2:1", "2 | bb = 2", "^^ here", "- like this", "help: call it `b`"] {
            assert!(shown.contains(part), "`{part}` is missing from\n{shown}");
        }
        assert!(!shown.contains('\u{1b}'), "no colour codes");
    }

    #[test]
    fn a_line_begins_after_the_newline_before_it() {
        let lines = Lines::of("a\n\nbc\n");
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 99].map(|at| lines.at(at)), [1, 1, 2, 3, 3, 3, 4, 4]);
    }

    #[test]
    fn a_span_is_cut_to_its_first_line_and_to_whole_characters() {
        assert_eq!(within_one_line("ab\ncd", &(0..5)), 0..2);
        assert_eq!(within_one_line("ab\r\ncd", &(1..6)), 1..2);
        assert_eq!(within_one_line("é", &(1..2)), 0..2);
        assert_eq!(within_one_line("ab", &(7..9)), 2..2);
    }
}
