//! Checks of kgen command lines quoted in texts: they parse, and their flags exist.

use clap::{CommandFactory, error::ErrorKind};
use kgen::cli::Cli;
use std::collections::BTreeSet;

/// The command lines of kgen in a shell line, as words from `kgen` on: after assignments and `cargo run … --`, and
/// before a pipe, a redirection or a comment.
pub fn kgen_commands(line: &str) -> Vec<Vec<String>> {
    let mut quote = None;
    let mut pieces = vec![String::new()];
    let mut before = ' ';
    for character in line.chars() {
        match (quote, character) {
            (None, '#') if before == ' ' => break,
            (None, '|' | '>' | ';' | '&') => pieces.push(String::new()),
            _ => {
                quote = match (quote, character) {
                    (None, '\'' | '"') => Some(character),
                    (Some(open), close) if open == close => None,
                    _ => quote,
                };
                pieces.last_mut().expect("one piece").push(character);
            }
        }
        before = character;
    }
    pieces.iter().filter_map(|piece| shlex::split(piece)).filter_map(|words| from_kgen(&words)).collect()
}

/// The words from kgen on, if they start kgen.
fn from_kgen(words: &[String]) -> Option<Vec<String>> {
    let is_assignment =
        |word: &String| word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
    let words: Vec<String> = words.iter().skip_while(|word| is_assignment(word)).cloned().collect();
    let command = match words.first()?.as_str() {
        "cargo" if words.get(1).is_some_and(|word| word == "run") => {
            words.iter().skip_while(|word| *word != "--").cloned().collect()
        }
        program if program.rsplit('/').next() == Some("kgen") => words,
        _ => return None,
    };
    // A sentence may have kgen as its subject; in a command, a word of the command line follows it.
    (command.len() > 1).then_some(command)
}

/// True for a placeholder: `…`, `COMMAND`.
pub fn is_placeholder(word: &str) -> bool {
    word.contains('…') || word.contains("...") || word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// The reason why kgen would reject a command line; a span in back-ticks may omit required arguments, and placeholders
/// may represent any value.
pub fn flaw(words: &[String], is_block: bool) -> Option<String> {
    let subcommand = words.get(1).expect("a command line has a second word");
    if is_placeholder(subcommand) {
        return None;
    }
    // An ellipsis is the value of the flag before it, or further arguments.
    let parsed = Cli::command().try_get_matches_from(words);
    let without = words.iter().filter(|word| *word != "…");
    let error = parsed.or_else(|_| Cli::command().try_get_matches_from(without)).err()?;
    let has_placeholder = words.iter().any(|word| is_placeholder(word));
    let is_shortened = |kind| match kind {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !is_block,
        ErrorKind::InvalidValue => !is_block && error.to_string().contains("a value is required") || has_placeholder,
        ErrorKind::ValueValidation => has_placeholder,
        _ => false,
    };
    (!is_shortened(error.kind())).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// A command and all its subcommands.
pub fn tree(command: &clap::Command) -> Vec<&clap::Command> {
    let below = command.get_subcommands().flat_map(tree);
    std::iter::once(command).chain(below).collect()
}

/// The long flags of all commands.
pub fn flags() -> BTreeSet<String> {
    let root = Cli::command();
    let long = |command: &clap::Command| {
        command
            .get_arguments()
            .flat_map(|argument| argument.get_long_and_visible_aliases().unwrap_or_default())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    tree(&root).into_iter().flat_map(long).collect()
}
