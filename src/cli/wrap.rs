//! Wraps lines between words on a narrow terminal. Elsewhere lines stay whole, since scripts and logs are read line by
//! line.

use console::{Term, measure_text_width, strip_ansi_codes};
use std::borrow::Cow;
use textwrap::{Options, WordSeparator, WordSplitter};

/// Columns of a terminal that does not report its width.
const UNKNOWN: usize = 80;

/// Minimum width for wrapping: a narrower terminal wraps lines itself, or there would be one word per line.
const LEAST: usize = 30;

/// Labels that indent the continuation lines of their sentence.
const LABELS: [&str; 4] = ["note: ", "error: ", "help: ", "warning: "];

/// Programs whose command lines are meant to be copied, and so are not wrapped if they fill a line.
const COMMANDS: [&str; 3] = ["kgen ", "nvcc ", "cargo "];

/// Longest code in back-ticks that is kept on one line.
const CODE: usize = 60;

/// Placeholder for a space at which no line may break; a private-use character.
const GLUE: &str = "\u{e000}";

/// Columns of `stream`; `None` if it is not a terminal, and lines may have any length.
pub(super) fn columns(stream: &Term) -> Option<usize> {
    stream.is_term().then(|| stream.size_checked().map_or(UNKNOWN, |(_, columns)| usize::from(columns)))
}

/// `text` wrapped to at most `width` columns, as far as breaks between words allow. Quoted source and command lines
/// stay as they are.
pub(super) fn within(width: Option<usize>, text: &str) -> Cow<'_, str> {
    let Some(width) = width.filter(|width| *width >= LEAST) else { return Cow::Borrowed(text) };
    if text.lines().all(|line| measure_text_width(line) <= width) {
        return Cow::Borrowed(text);
    }
    let wrapped: String = text.split_inclusive('\n').map(|line| wrapped(width, line)).collect();
    Cow::Owned(wrapped)
}

/// One line, with its line end if it has one.
fn wrapped(width: usize, line: &str) -> String {
    let (words, end) = line.strip_suffix('\n').map_or((line, ""), |words| (words, "\n"));
    let bare = strip_ansi_codes(words);
    if measure_text_width(words) <= width || is_quoted(&bare) {
        return line.to_owned();
    }
    let indent = " ".repeat(hang(&bare, width));
    let options = Options::new(width)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::wrap(&glued(words), options).join("\n").replace(GLUE, " ") + end
}

/// True for a line of numbered source, a marker below it, or a command.
fn is_quoted(line: &str) -> bool {
    let line = line.trim_start();
    let after_number = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let is_source = after_number.starts_with('|') || line.starts_with("-->") || line.starts_with("╭▸");
    is_source || COMMANDS.iter().any(|command| line.starts_with(command))
}

/// Indentation of continuation lines: the start of the text after its label, or below its last column.
fn hang(line: &str, width: usize) -> usize {
    let own = line.len() - line.trim_start().len();
    let label = LABELS.iter().find(|label| line[own..].starts_with(*label)).map(|label| own + label.len());
    let column = || {
        let gap = line.trim_end().rfind("  ").filter(|gap| *gap >= own.max(1));
        gap.map(|gap| measure_text_width(&line[..gap + 2])).filter(|column| *column < width / 2)
    };
    label.or_else(column).unwrap_or(own + 2)
}

/// The line with spaces inside back-ticks protected: code that is copied must not be broken.
fn glued(line: &str) -> String {
    let pieces: Vec<&str> = line.split('`').collect();
    let is_code = |index: usize| index % 2 == 1 && index + 1 < pieces.len() && measure_text_width(pieces[index]) <= CODE;
    let piece = |(index, piece): (usize, &&str)| if is_code(index) { piece.replace(' ', GLUE) } else { (*piece).to_owned() };
    pieces.iter().enumerate().map(piece).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_break_between_words_below_their_label_and_code_stays_whole() {
        let note = "note: one two three four five six seven `kgen list --plan` eight nine ten\n";
        let wrapped = within(Some(40), note);
        assert_eq!(wrapped, "note: one two three four five six seven\n      `kgen list --plan` eight nine ten\n");
        assert_eq!(within(None, note), note, "a pipe gets whole lines");
        assert_eq!(within(Some(80), note), note);
        assert_eq!(within(Some(10), note), note, "such a terminal breaks lines itself");
        let coloured = "\u{1b}[36mnote:\u{1b}[0m one two three four five six\n";
        assert_eq!(within(Some(30), coloured), "\u{1b}[36mnote:\u{1b}[0m one two three four five\n      six\n");
    }

    #[test]
    fn a_finding_breaks_below_its_column_and_a_path_stays_whole() {
        let found = "found    nvcc      13.0.88 at `/home/somebody/cuda` (of PATH)";
        let wrapped = within(Some(48), found);
        assert_eq!(
            wrapped,
            "found    nvcc      13.0.88 at\n                   `/home/somebody/cuda` (of\n                   PATH)"
        );
        let path = "library: /a/folder/with/a-very-long-name/that-does-not-fit/libkgen.so (1 MB)\n";
        assert_eq!(
            within(Some(40), path),
            "library:\n  /a/folder/with/a-very-long-name/that-does-not-fit/libkgen.so\n  (1 MB)\n"
        );
    }

    #[test]
    fn quoted_source_and_commands_stay_whole() {
        let quoted = "error: `x` is none\n  --> a/long/path/to/some/file/kgen.toml:1:1 and more\n   |\n12 | target = 'x' # a long line of somebody's file\n\
                      \n  kgen check --device emulator --target sm90 --case low --schedule priorities:3\n";
        assert_eq!(within(Some(40), quoted), quoted);
    }
}
