//! A problem of the backward pass.

use super::{dims::Dims, memory_layout::Side, problem::Problem};
use crate::{
    check::Number,
    family::attention::features::{AdditionGradient, addition_gradients},
};

/// A problem of the backward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a call, each independent of the others")]
pub struct BackwardProblem {
    /// The problem of the forward pass.
    pub problem: Problem,
    /// Requests bit-identical results for the same inputs.
    pub deterministic: bool,
    /// Passes the numbers of packed rows to the launcher.
    pub total_q: bool,
    /// Requests the gradient of the sinks, if there are any.
    pub sink_gradient: bool,
    /// Requests the gradients of tensors that are added to scores, if there are any.
    pub addition_gradients: bool,
    /// True if the log-sum-exp has a gradient too.
    pub lse_gradient: bool,
}

impl BackwardProblem {
    /// A problem that requests only the gradients.
    pub fn plain(problem: Problem) -> Self {
        Self { problem, deterministic: false, total_q: false, sink_gradient: true, addition_gradients: true, lse_gradient: false }
    }

    /// This problem with a gradient of the log-sum-exp.
    pub fn with_lse_gradient(self) -> Self {
        Self { lse_gradient: true, ..self }
    }

    /// A problem that requests bit-identical results for the same inputs; then no gradient of a tensor that is
    /// broadcast, which is a sum in no fixed order.
    pub fn deterministic(problem: Problem) -> Self {
        let is_repeated = addition_gradients(&problem).iter().any(|gradient| gradient.places.is_repeated());
        Self { deterministic: true, addition_gradients: !is_repeated, ..Self::plain(problem) }
    }

    /// True if the launcher gets a pointer for the gradient of the sinks.
    pub fn has_sink_gradient(&self) -> bool {
        self.sink_gradient && self.problem.options.sinks.is_some()
    }

    /// The gradients of tensors added to scores that the launcher is passed a place for.
    pub fn requested_addition_gradients(&self) -> Vec<AdditionGradient> {
        if self.addition_gradients { addition_gradients(&self.problem) } else { Vec::new() }
    }

    /// True if a tensor is packed and the launcher does not get its number of rows.
    pub fn lacks_totals(&self) -> bool {
        !self.total_q && [Side::Query, Side::Key].into_iter().any(|side| self.problem.is_packed(side))
    }

    /// The message of a launcher that fetches by TMA only, for the first reason why it cannot.
    pub fn what_tma_refuses(&self, head_dim: Dims, number: Number) -> Option<String> {
        let Self { problem, total_q, .. } = self;
        if problem.sequences.is_empty() || [Side::Query, Side::Key].iter().any(|side| problem.rows(*side).bound == 0) {
            return None;
        }
        let sides = [(Side::Query, "total_q is 0"), (Side::Key, "total_k is 0")];
        let unknown = sides.into_iter().find(|(side, _)| problem.is_packed(*side) && !total_q);
        let tensors = || {
            let forward = problem.what_tma_refuses(head_dim, number);
            forward.or_else(|| problem.what_tma_refuses_of_output_gradients(head_dim, number))
        };
        unknown.map(|(_, message)| message.to_owned()).or_else(tensors)
    }

    /// The stable name of the problem with a causal or full mask.
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
        if !self.addition_gradients {
            name.extend(addition_gradients(&self.problem).iter().map(|gradient| format!(" no-{}", gradient.tensor)));
        }
        if self.lse_gradient {
            name += " dlse";
        }
        name
    }
}
