//! Canonical text, hash, CUDA, derivative and interval of a score or a mask.

use super::{CommandError, Context, Observer, score::declare};
use crate::{
    expression::{self, Expr, Goal, Interval, Spelling, Text, Trend, UserScore, Work},
    files,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Request about one expression, or a file of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// One expression.
    Text {
        /// The expression.
        text: String,
        /// True for a mask, the condition for a query to see a key; false for a score.
        #[serde(default)]
        mask: bool,
        /// Names of the real-valued parameters that a call passes.
        #[serde(default)]
        scalars: Vec<String>,
        /// Names of the integer parameters that a call passes.
        #[serde(default)]
        integers: Vec<String>,
        /// Names of tables with one real number per query head.
        #[serde(default)]
        tables: Vec<String>,
    },
    /// A TOML file whose tables `[score.NAME]` are read.
    File(PathBuf),
}

/// Reports on the expressions.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The report on one expression.
    Text(Box<Report>),
    /// The reports on a file's expressions.
    File(Vec<Named>),
}

/// Report on an expression.
#[derive(Debug, Serialize)]
pub struct Report {
    /// `score` or `mask`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The canonical text.
    pub canonical: String,
    /// Hash of the canonical text.
    pub hash: String,
    /// Integers that must be positive in a call.
    pub divisors: Vec<String>,
    /// Operations per element.
    pub work: Work,
    /// CUDA code.
    pub cuda: Text,
    /// The derivative of a score with respect to the logit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derivative: Option<Derivative>,
    /// The keys that a mask can show, if they depend only on the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Bounds>,
}

/// The derivative of a score.
#[derive(Debug, Serialize)]
pub struct Derivative {
    /// The canonical text.
    pub canonical: String,
    /// Operations per element.
    pub work: Work,
    /// Two results: the score and its derivative.
    pub cuda: Text,
}

/// An interval of keys.
#[derive(Debug, Serialize)]
pub struct Bounds {
    /// First key.
    pub low: String,
    /// Key after the last.
    pub high: String,
    /// True if the mask shows all keys in the interval.
    pub exact: bool,
    /// Change of the first key with the row.
    pub low_trend: Trend,
    /// Change of the last key with the row.
    pub high_trend: Trend,
    /// CUDA code.
    pub cuda: Text,
}

/// One `[score.NAME]`.
#[derive(Debug, Serialize)]
pub struct Named {
    /// NAME of the table.
    pub name: String,
    /// Hash of the canonical text.
    pub hash: String,
    /// The score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<Report>,
    /// The mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<Report>,
}

/// Reads the expressions.
///
/// # Errors
/// [`CommandError::Usage`] for an invalid expression, names that cannot be declared, and files that cannot be read.
pub fn run(request: &Request, _context: &Context, _observer: &dyn Observer) -> Result<Outcome, CommandError> {
    match request {
        Request::File(path) => {
            let name = path.display();
            let text = files::read_to_string(path);
            let text = text
                .map_err(|error| CommandError::Usage(format!("cannot read `{name}`: {error}; give `--file` a readable file")))?;
            let scores = expression::read(&text, &name.to_string()).map_err(|error| CommandError::Usage(error.to_string()))?;
            Ok(Outcome::File(scores.iter().map(of_score).collect()))
        }
        Request::Text { text, mask, scalars, integers, tables } => {
            let names = declare(scalars, integers, tables)?;
            let goal = if *mask { Goal::Mask } else { Goal::Score };
            let expr = Expr::parse(text, &names, goal).map_err(|error| CommandError::Usage(error.to_string()))?;
            let given = scalars.iter().chain(integers).chain(tables);
            if let Some(unused) = given.into_iter().find(|name| !expr.uses_name(name)) {
                return Err(CommandError::Usage(format!(
                    "`{unused}` is declared and not used\nhelp: leave it out, or use it in the expression"
                )));
            }
            Ok(Outcome::Text(Box::new(report(&expr, goal))))
        }
    }
}

fn of_score(score: &UserScore) -> Named {
    Named {
        name: score.name.clone(),
        hash: score.hash(),
        score: score.score.as_ref().map(|expr| report(expr, Goal::Score)),
        mask: score.mask.as_ref().map(|expr| report(expr, Goal::Mask)),
    }
}

fn report(expr: &Expr, goal: Goal) -> Report {
    let spelling = Spelling::default();
    let derivative = || {
        let slope = expr.derivative();
        let both = [expr, &slope];
        Derivative { canonical: slope.to_string(), work: Work::of(&both), cuda: Text::of(&both, &spelling) }
    };
    let bounds = |found: Interval| {
        let (low_trend, high_trend) = found.trends();
        let cuda = Text::per_row(&[&found.low, &found.high], &spelling);
        let (low, high) = (found.low.to_string(), found.high.to_string());
        Bounds { low, high, exact: found.exact, low_trend, high_trend, cuda }
    };
    Report {
        kind: if goal == Goal::Mask { "mask" } else { "score" },
        canonical: expr.to_string(),
        hash: expr.hash(),
        divisors: expr.divisors(),
        work: Work::of(&[expr]),
        cuda: Text::of(&[expr], &spelling),
        derivative: (goal == Goal::Score).then(derivative),
        interval: if goal == Goal::Mask { expr.interval().map(bounds) } else { None },
    }
}
