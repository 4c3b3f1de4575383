//! A problem of the backward pass.

use super::problem::Problem;
use crate::family::attention::Bias;

/// A problem of the backward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a call, each independent of the others")]
pub struct BackwardProblem {
    /// The forward pass's.
    pub problem: Problem,
    /// Asks for the same bits from the same inputs.
    pub deterministic: bool,
    /// Tells the launcher how many rows packed queries have.
    pub total_q: bool,
    /// Asks for the gradient of sinks where there are any.
    pub sink_gradient: bool,
    /// Requests the gradient of a bias if there is one.
    pub bias_gradient: bool,
    /// The log-sum-exp has a gradient too.
    pub lse_gradient: bool,
}

impl BackwardProblem {
    /// A problem of which nothing but the gradients is asked.
    pub fn plain(problem: Problem) -> Self {
        Self { problem, deterministic: false, total_q: false, sink_gradient: true, bias_gradient: true, lse_gradient: false }
    }

    /// The same, with a gradient of the log-sum-exp.
    pub fn with_lse_gradient(self) -> Self {
        Self { lse_gradient: true, ..self }
    }

    /// The same, asking for the same bits from the same inputs.
    pub fn deterministic(problem: Problem) -> Self {
        Self { deterministic: true, ..Self::plain(problem) }
    }

    /// Whether the launcher is given a place for the gradient of sinks.
    pub fn has_sink_gradient(&self) -> bool {
        self.sink_gradient && self.problem.options.sinks.is_some()
    }

    /// The bias whose gradient the launcher is passed a place for.
    pub fn bias_with_gradient(&self) -> Option<Bias> {
        self.problem.options.bias.filter(|_| self.bias_gradient)
    }

    /// Its stable name under a causal mask or none.
    pub fn name(&self, causal: bool) -> String {
        let mut name = self.problem.name(causal);
        if self.total_q {
            name += " total_q";
        }
        if self.deterministic {
            name += " deterministic";
        }
        if !self.sink_gradient {
            name += " no-dsinks";
        }
        if !self.bias_gradient {
            name += " no-dbias";
        }
        if self.lse_gradient {
            name += " dlse";
        }
        name
    }
}
