//! Output of results on standard output, and of sentences on standard error.

use super::{
    escape::{plain, styled},
    verbosity, wrap,
};
use crate::command::CommandError;
use console::{Term, style};
use serde::Serialize;
use std::{
    fmt,
    io::{self, ErrorKind, Write},
    sync::atomic::{AtomicBool, Ordering},
};

/// True once a JSON document has been written to standard output.
static JSON_PRINTED: AtomicBool = AtomicBool::new(false);

/// Writes a command's result to standard output. A reader that closes the pipe early (`kgen list | head -1`) is not an
/// error. Control characters other than colours are escaped. On a terminal, long lines break between words.
///
/// # Errors
/// [`CommandError::Environment`] if standard output cannot be written for another reason.
pub fn print(result: &str) -> Result<(), CommandError> {
    write(&wrap::within(wrap::columns(&Term::stdout()), &styled(result)))
}

/// Like [`print`], without wrapping: for source, scripts and paths.
///
/// # Errors
/// The errors of [`print`].
pub fn print_verbatim(result: &str) -> Result<(), CommandError> {
    write(&styled(result))
}

/// Writes a file for other programs: exactly these bytes, unless a person reads them on a terminal.
///
/// # Errors
/// The errors of [`print`].
pub fn print_file(content: &str) -> Result<(), CommandError> {
    if Term::stdout().is_term() { print_verbatim(content) } else { write(content) }
}

fn write(result: &str) -> Result<(), CommandError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(result.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::Environment(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a command's result as one JSON document.
///
/// # Errors
/// The errors of [`print`].
pub fn print_json(result: &impl Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(result);
    let text = text.map_err(|error| CommandError::Environment(format!("cannot write the result as JSON: {error}")))?;
    JSON_PRINTED.store(true, Ordering::SeqCst);
    write(&(in_ascii_controls(&text) + "\n"))
}

/// True if no JSON document has been printed yet.
pub(super) fn no_json_yet() -> bool {
    !JSON_PRINTED.load(Ordering::SeqCst)
}

/// Escapes the control characters that JSON strings may contain but terminals interpret: DEL and C1.
fn in_ascii_controls(json: &str) -> String {
    let escape = |c: char| if ('\u{7f}'..='\u{9f}').contains(&c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    if json.contains(|c| ('\u{7f}'..='\u{9f}').contains(&c)) { json.chars().map(escape).collect() } else { json.to_owned() }
}

/// Writes a line to standard error, wrapped as by [`print`]. Unlike `eprintln!` it does not panic if the reader has
/// closed the pipe (`kgen build 2>&1 | head -1`).
pub(super) fn tell(line: fmt::Arguments<'_>) {
    // A failure cannot be reported anywhere.
    writeln!(io::stderr(), "{}", for_stderr(&line.to_string())).ok();
}

/// A text prepared for standard error.
pub(super) fn for_stderr(text: &str) -> String {
    wrap::within(wrap::columns(&Term::stderr()), &styled(text)).into_owned()
}

/// Writes one sentence about the current work to standard error; silent with `--quiet`.
pub fn note(message: &str) {
    if !verbosity::quiet() {
        insist(message);
    }
}

/// Writes one sentence to standard error even with `--quiet`: for facts about the user's own files that are reported
/// nowhere else.
pub fn insist(message: &str) {
    tell(format_args!("{} {}", style("note:").cyan().for_stderr(), plain(message)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_holds_no_character_that_a_terminal_obeys() {
        let json = in_ascii_controls(&serde_json::to_string("a\u{9b}2J\u{7f}\u{1b}é").unwrap());
        assert_eq!(json, "\"a\\u009b2J\\u007f\\u001bé\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "a\u{9b}2J\u{7f}\u{1b}é");
    }
}
