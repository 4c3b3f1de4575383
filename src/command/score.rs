//! The caller's own score or mask, for kernels that are generated on demand.

use super::CommandError;
use crate::{
    expression::{Declared, KeptScore, List, UserScore},
    grid::Grid,
};
use serde::{Deserialize, Serialize};

/// A score and a mask as expressions of the logit `s`, the query index `q`, the key index `k` and the names declared
/// here. The default declares nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScoreRequest {
    /// Expression that replaces the logit, for example `s - decay * abs(q - k)`.
    pub score: Option<String>,
    /// Condition for a query to see a key, for example `k <= q and q - k < window`.
    pub mask: Option<String>,
    /// Name, which becomes a part of the kernels' names; `None` for `user`.
    pub name: Option<String>,
    /// Names of the real-valued parameters that a call passes.
    pub scalars: Vec<String>,
    /// Names of the integer parameters that a call passes.
    pub integers: Vec<String>,
    /// Names of tables with one real number per query head.
    pub tables: Vec<String>,
}

/// Declares the names of the three lists.
///
/// # Errors
/// [`CommandError::Usage`] with the name that cannot be declared.
pub(super) fn declare(scalars: &[String], integers: &[String], tables: &[String]) -> Result<Declared, CommandError> {
    let mut names = Declared::default();
    for (list, given) in [(List::Scalars, scalars), (List::Integers, integers), (List::Tables, tables)] {
        for name in given {
            let declared = names.declare(list, name);
            declared.map_err(|error| CommandError::Usage(format!("{}\nhelp: {}", error.title, error.help)))?;
        }
    }
    Ok(names)
}

impl ScoreRequest {
    /// The declared score; `None` if nothing is declared.
    ///
    /// # Errors
    /// [`CommandError::Usage`] for an invalid expression, and for names that cannot be declared.
    pub(super) fn declared(&self, grid: &Grid) -> Result<Option<KeptScore>, CommandError> {
        if self.score.is_none() && self.mask.is_none() {
            let given = [("scalars", &self.scalars), ("integers", &self.integers), ("tables", &self.tables)];
            let without = given.into_iter().find(|(_, names)| !names.is_empty()).map(|(flag, _)| flag);
            let without = without.or(self.name.as_ref().map(|_| "score-name"));
            return match without {
                None => Ok(None),
                Some(flag) => {
                    Err(CommandError::Usage(format!("`--{flag}` is given and no expression\nhelp: add `--score` or `--mask`")))
                }
            };
        }
        let names = declare(&self.scalars, &self.integers, &self.tables)?;
        let name = self.name.as_deref().unwrap_or("user");
        let score = UserScore::of(name, names, self.score.as_deref(), self.mask.as_deref()).map_err(CommandError::Usage)?;
        let kept = KeptScore::of(score);
        grid.clone().with_score(kept).map_err(CommandError::Usage)?;
        Ok(Some(kept))
    }
}
