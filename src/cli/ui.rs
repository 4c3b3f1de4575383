//! Results on standard output, and sentences on standard error.

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

/// Whether a JSON document has gone to standard output.
static JSON_PRINTED: AtomicBool = AtomicBool::new(false);

/// Writes a command's result to standard output. A reader that has seen enough (`kgen list | head -1`) is no error.
/// Control characters are written out, but for colours. On a terminal, lines that are too long for it break between
/// words.
///
/// # Errors
/// [`CommandError::Environment`] if standard output cannot be written for another reason.
pub fn print(result: &str) -> Result<(), CommandError> {
    write(&wrap::within(wrap::columns(&Term::stdout()), &styled(result)))
}

/// The same with all lines as they are: for source, scripts and paths.
///
/// # Errors
/// As [`print`].
pub fn print_verbatim(result: &str) -> Result<(), CommandError> {
    write(&styled(result))
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
/// As [`print`].
pub fn print_json(result: &impl Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(result);
    let text = text.map_err(|error| CommandError::Environment(format!("cannot write the result as JSON: {error}")))?;
    JSON_PRINTED.store(true, Ordering::SeqCst);
    write(&(in_ascii_controls(&text) + "\n"))
}

/// Whether there is nothing yet for a reader of JSON.
pub(super) fn no_json_yet() -> bool {
    !JSON_PRINTED.load(Ordering::SeqCst)
}

/// JSON with the control characters written out that it allows in strings, and terminals obey: DEL and C1.
fn in_ascii_controls(json: &str) -> String {
    let escape = |c: char| if ('\u{7f}'..='\u{9f}').contains(&c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    if json.contains(|c| ('\u{7f}'..='\u{9f}').contains(&c)) { json.chars().map(escape).collect() } else { json.to_owned() }
}

/// A line to standard error, broken as [`print`] does it. Unlike `eprintln!` it does not panic if nothing reads it
/// (`kgen build 2>&1 | head -1`).
pub(super) fn tell(line: fmt::Arguments<'_>) {
    // A failure cannot be reported anywhere.
    writeln!(io::stderr(), "{}", for_stderr(&line.to_string())).ok();
}

/// A text as standard error gets it.
pub(super) fn for_stderr(text: &str) -> String {
    wrap::within(wrap::columns(&Term::stderr()), &styled(text)).into_owned()
}

/// One sentence about what is going on, to standard error; not with `--quiet`.
pub fn note(message: &str) {
    if !verbosity::quiet() {
        insist(message);
    }
}

/// The same, also with `--quiet`: for facts on a person's own files that nothing else says.
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
