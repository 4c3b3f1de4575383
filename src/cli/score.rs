//! A score or a mask on the command line, for kernels that are generated on demand.

use crate::command::ScoreRequest;

/// Arguments. All but the first two describe the score and the mask further.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct ScoreArgs {
    /// Kernels that compute this with each product, for example 's - decay * abs(q - k)'; `kgen expression` shows the
    /// resulting code.
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

impl From<ScoreArgs> for ScoreRequest {
    fn from(args: ScoreArgs) -> Self {
        let ScoreArgs { score, mask, score_name: name, scalars, integers, tables } = args;
        Self { score, mask, name, scalars, integers, tables }
    }
}
