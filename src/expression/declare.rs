//! `[score.NAME]`: a score, a mask or both, with the names they use, as a table of a TOML file.
//!
//! ```toml
//! [score.distance_decay]
//! scalars = ["decay"]
//! integers = ["sinks"]
//! score = "s - decay * abs(q - k)"
//! mask = "k <= q and (q - k < 4096 or k < sinks)"
//! ```

use super::{Declared, Expr, Goal, List, names::check_identifier, parsed};
use crate::{
    files::FieldHasher,
    text::{Finding, explain},
};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// A text with its position.
type Word = Spanned<String>;

/// A user's declaration under one name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UserScore {
    /// The name, in lower case; part of kernel names.
    pub name: String,
    /// The values that a call passes.
    pub names: Declared,
    /// The replacement of the scaled product; `None` leaves it unchanged.
    pub score: Option<Expr>,
    /// The keys that a query sees; `None` for all.
    pub mask: Option<Expr>,
}

impl UserScore {
    /// A declaration from its texts, which must use every declared name.
    ///
    /// # Errors
    /// The complete message; for an expression that cannot be parsed it points at the column.
    pub fn of(name: &str, names: Declared, score: Option<&str>, mask: Option<&str>) -> Result<Self, String> {
        let refused = |error: super::NameError| format!("{}\nhelp: {}", error.title, error.help);
        check_lower_case(name).map_err(refused)?;
        let read = |text: Option<&str>, goal| text.map(|text| Expr::parse(text, &names, goal)).transpose();
        let score = read(score, Goal::Score).map_err(|error| error.to_string())?;
        let mask = read(mask, Goal::Mask).map_err(|error| error.to_string())?;
        if score.is_none() && mask.is_none() {
            return Err(format!("`{name}` declares neither a score nor a mask\nhelp: give one of them, or both"));
        }
        let lists = [List::Scalars, List::Integers, List::Tables];
        let is_used = |name: &str| score.iter().chain(&mask).any(|expr| expr.uses_name(name));
        if let Some(unused) = lists.iter().flat_map(|list| names.names(*list)).find(|name| !is_used(name)) {
            return Err(format!("`{unused}` is declared and not used\nhelp: leave it out, or use it"));
        }
        Ok(Self { name: name.to_owned(), names, score, mask })
    }

    /// A hash of the computation: declarations share it if they differ only in name, spaces, brackets and the spelling
    /// of numbers. 64 hexadecimal digits.
    pub fn hash(&self) -> String {
        let mut hasher = FieldHasher::default();
        for list in [List::Scalars, List::Integers, List::Tables] {
            for name in self.names.names(list) {
                hasher.field(list.key(), name.as_bytes());
            }
        }
        for (key, expr) in [("score", &self.score), ("mask", &self.mask)] {
            hasher.field(key, expr.as_ref().map(Expr::hash).unwrap_or_default());
        }
        hasher.finish()
    }
}

/// The reason why a file's scores cannot be read. `Display` is the complete message, with the line quoted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct DeclarationError(String);

/// A file of scores.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    score: BTreeMap<Word, Entry>,
}

/// One `[score.NAME]` as parsed by serde.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    #[serde(default)]
    scalars: Vec<Word>,
    #[serde(default)]
    integers: Vec<Word>,
    #[serde(default)]
    tables: Vec<Word>,
    score: Option<Word>,
    mask: Option<Word>,
}

/// Reads the scores of a TOML text, in name order. `origin` is the file's name for messages.
///
/// # Errors
/// [`DeclarationError`] with the first invalid declaration.
pub fn read(text: &str, origin: &str) -> Result<Vec<UserScore>, DeclarationError> {
    let file = toml::from_str::<File>(text).map_err(|error| explain(&error, text, example_of));
    let scores = file.and_then(|file| file.score.iter().map(|(name, entry)| declare(name, entry, text)).collect());
    scores.map_err(|finding: Finding| DeclarationError(finding.render(origin, text)))
}

fn example_of(_key: &str) -> &'static str {
    concat!("a table such as `[score.distance_decay]`; its keys are shown at ", page!("expressions.md"))
}

/// Checks one declaration of a file's `text`.
pub(crate) fn declare(name: &Word, entry: &Entry, text: &str) -> Result<UserScore, Finding> {
    check_name(name)?;
    let mut names = Declared::default();
    let lists = [(List::Scalars, &entry.scalars), (List::Integers, &entry.integers), (List::Tables, &entry.tables)];
    for (list, words) in lists {
        for word in words {
            let refused = names.declare(list, word.get_ref());
            refused.map_err(|error| Finding::new(error.title, word.span(), "cannot be declared", error.help))?;
        }
    }
    if entry.score.is_none() && entry.mask.is_none() {
        let title = format!("`{}` declares neither a score nor a mask", name.get_ref());
        let help = "add `score = \"s - decay * abs(q - k)\"` or `mask = \"k <= q\"`";
        return Err(Finding::new(title, name.span(), "an empty declaration", help));
    }
    let read = |word: &Option<Word>, goal| word.as_ref().map(|word| expression(word, &names, goal, text)).transpose();
    let (score, mask) = (read(&entry.score, Goal::Score)?, read(&entry.mask, Goal::Mask)?);
    for (list, words) in lists {
        let is_used = |name: &str| score.iter().chain(&mask).any(|expr| expr.uses_name(name));
        if let Some(unused) = words.iter().find(|word| !is_used(word.get_ref())) {
            let title = format!("`{}` is declared and not used", unused.get_ref());
            let help = format!("remove it from `{}`, or use it", list.key());
            return Err(Finding::new(title, unused.span(), "no value of the expressions depends on it", help));
        }
    }
    Ok(UserScore { name: name.get_ref().clone(), names, score, mask })
}

fn check_name(name: &Word) -> Result<(), Finding> {
    check_lower_case(name.get_ref()).map_err(|error| Finding::new(error.title, name.span(), "cannot be a name", error.help))
}

/// Checks that a name can be part of kernel names.
fn check_lower_case(name: &str) -> Result<(), super::NameError> {
    check_identifier(name)?;
    if name.chars().any(|c| c.is_ascii_uppercase()) {
        let (title, help) = (format!("`{name}` has capitals"), "names of kernels are in lower case".to_owned());
        return Err(super::NameError { title, help });
    }
    if name.ends_with('_') {
        let (title, help) = (format!("`{name}` ends with an underscore"), "end it with a letter or a digit".to_owned());
        return Err(super::NameError { title, help });
    }
    Ok(())
}

/// An expression inside the file: its errors point into the file's line.
fn expression(word: &Word, names: &Declared, goal: Goal, text: &str) -> Result<Expr, Finding> {
    parsed(word.get_ref(), names, goal).map_err(|finding| {
        let outer = word.span();
        let written = text.get(outer.clone()).unwrap_or_default();
        // If the string has escapes, its characters differ from those of the file: point at all of it.
        let begin = written.find(word.get_ref().as_str()).filter(|_| !word.get_ref().is_empty());
        let Some(begin) = begin.map(|quote| outer.start + quote) else {
            return Finding { span: outer, context: None, ..finding };
        };
        let context = finding.context.map(|place| Box::new((begin + place.0.start..begin + place.0.end, place.1)));
        Finding { span: begin + finding.span.start..begin + finding.span.end, context, ..finding }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[score.distance_decay]
scalars = ["decay"]
integers = ["sinks"]
tables = ["slope"]
score = "s - decay * slope[h] * abs(q - k)"
mask = "k <= q and (q - k < 4096 or k < sinks)"

[score.causal]
mask = 'k <= q'
"#;

    #[test]
    fn a_file_declares_scores_and_masks() {
        let scores = read(GOOD, "scores.toml").unwrap();
        let names: Vec<&str> = scores.iter().map(|score| score.name.as_str()).collect();
        assert_eq!(names, ["causal", "distance_decay"]);
        assert!(scores[0].score.is_none() && scores[0].mask.as_ref().is_some_and(|mask| mask.to_string() == "k <= q"));
        assert_eq!(scores[1].names.names(List::Integers), ["sinks".into()]);
    }

    #[test]
    fn an_error_quotes_the_line_of_the_file_and_points_at_the_column() {
        for (from, to, says, quotes) in [
            ("abs(q - k)", "abs(q - kk)", "unknown name `kk`", "abs(q - kk)"),
            ("abs(q - k)", "abs(q - k", "`)` is missing", "abs(q - k"),
            ("k < sinks", "s < sinks", "`s` cannot be used in a mask", "s < sinks"),
            ("[\"decay\"]", "[\"decay\", \"other\"]", "`other` is declared and not used", "\"other\""),
            ("\"decay\"", "\"float\"", "`float` is a name of C++ and CUDA", "float"),
            ("\"decay\"", "\"de cay\"", "`de cay` is no name", "de cay"),
            ("[\"sinks\"]", "[\"decay\"]", "`decay` is declared twice", "decay"),
            ("[\"slope\"]", "[1]", "wrong type", "[1]"),
            ("tables", "table", "unknown key `table`", "table"),
            ("score.causal", "score.Causal", "`Causal` has capitals", "Causal"),
            ("score.causal", "score.int", "`int` is a name of C++ and CUDA", "int"),
            ("mask = 'k <= q'", "", "neither a score nor a mask", "causal"),
            ("mask = 'k <= q'", "mask = ''", "a value is missing", "mask = ''"),
            ("mask = 'k <= q'", "mask = \"k <=\\u0020p\"", "unknown name `p`", "mask ="),
        ] {
            let message = read(&GOOD.replacen(from, to, 1), "scores.toml").expect_err(says).to_string();
            assert!(message.contains(says) && message.contains("scores.toml:") && message.contains("help:"), "{message}");
            let quoted = message.lines().any(|line| line.contains('|') && line.contains(quotes));
            assert!(quoted && message.contains('^'), "{message}");
        }
        let message = read(&GOOD.replace("decay * slope", "dcay * slope"), "scores.toml").unwrap_err().to_string();
        let (line, caret) = (message.lines().nth(3).unwrap(), message.lines().nth(4).unwrap());
        assert_eq!(line.find("dcay"), caret.find("^^^^"), "{message}");
    }

    #[test]
    fn the_hash_is_that_of_what_is_computed() {
        let hash = |text: &str| read(text, "t").unwrap()[0].hash();
        let plain = hash("[score.one]\nscalars = ['c']\nscore = 's - c * k'");
        assert_eq!(plain, hash("[score.two]\nscalars = ['c']\nscore = '(s) -  ( c*1.0 * k )'"));
        assert_ne!(plain, hash("[score.one]\nscalars = ['c']\nscore = 's + c * k'"));
        assert_ne!(plain, hash("[score.one]\nscalars = ['d']\nscore = 's - d * k'"));
        assert_ne!(plain, hash("[score.one]\nscalars = ['c']\nscore = 's - c * k'\nmask = 'k <= q'"));
    }
}
