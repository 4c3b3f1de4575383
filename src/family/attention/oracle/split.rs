//! A problem of the split-KV kernels.

use super::problem::Problem;

/// Split boundaries are multiples of this many keys (`SPLIT_KEYS` of `kgen/split_plan.cuh`).
pub const SPLIT_KEYS: usize = 16;

/// A problem, `num_splits` and `split_counts`.
pub type Listed = (Problem, usize, Option<Vec<usize>>);
