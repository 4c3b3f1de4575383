//! A score or a mask on the command line, for kernels that are made on demand.

use super::CliError;
use crate::{
    expression::{Declared, KeptScore, List, UserScore},
    grid::Grid,
};

/// Arguments. Those after the first two say more of it.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct ScoreArgs {
    /// Kernels that compute this with each product, for example 's - decay * abs(q - k)'; `kgen expression` shows what
    /// becomes of it.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = "Score of your own")]
    score: Option<String>,

    /// Kernels with this mask, for example 'k <= q and q - k < window'.
    #[arg(long = "mask", value_name = "TEXT", allow_hyphen_values = true, help_heading = "Score of your own")]
    mask: Option<String>,

    /// Its name, a part of the kernels' names.
    #[arg(long, value_name = "NAME", help_heading = "Score of your own")]
    score_name: Option<String>,

    /// Names of real numbers that a call passes.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Score of your own")]
    scalars: Vec<String>,

    /// Names of integers that a call passes.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Score of your own")]
    integers: Vec<String>,

    /// Names of tables with one real number per query head.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Score of your own")]
    tables: Vec<String>,
}

impl ScoreArgs {
    /// What is declared; `None` where no flag was given.
    ///
    /// # Errors
    /// [`CliError::Usage`] for a text that is no expression, and for names that cannot be declared.
    pub(super) fn declared(&self, grid: &Grid) -> Result<Option<KeptScore>, CliError> {
        if self.score.is_none() && self.mask.is_none() {
            let given = [("scalars", &self.scalars), ("integers", &self.integers), ("tables", &self.tables)];
            let without = given.into_iter().find(|(_, names)| !names.is_empty()).map(|(flag, _)| flag);
            let without = without.or(self.score_name.as_ref().map(|_| "score-name"));
            return match without {
                None => Ok(None),
                Some(flag) => {
                    Err(CliError::Usage(format!("`--{flag}` is given and no expression\nhelp: add `--score` or `--mask`")))
                }
            };
        }
        let mut names = Declared::default();
        for (list, given) in [(List::Scalars, &self.scalars), (List::Integers, &self.integers), (List::Tables, &self.tables)] {
            for name in given {
                names.declare(list, name).map_err(|error| CliError::Usage(format!("{}\nhelp: {}", error.title, error.help)))?;
            }
        }
        let name = self.score_name.as_deref().unwrap_or("user");
        let score = UserScore::of(name, names, self.score.as_deref(), self.mask.as_deref()).map_err(CliError::Usage)?;
        let kept = KeptScore::of(score);
        grid.clone().with_score(kept).map_err(CliError::Usage)?;
        Ok(Some(kept))
    }
}
