//! Reductions of a row.

use crate::kernel::{Kind, Variant};

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The sum of the elements.
    Sum = 0,
    /// The largest element.
    Max = 1,
    /// The logarithm of the sum of exponentials.
    Logsumexp = 2,
}

impl Operation {
    /// The reduction of a kernel of this family.
    ///
    /// # Panics
    /// If the kernel is of another family.
    pub fn of(variant: &Variant) -> Self {
        match variant.kind() {
            Kind::ReduceSum => Self::Sum,
            Kind::ReduceMax => Self::Max,
            Kind::ReduceLogsumexp => Self::Logsumexp,
            kind => panic!("`{kind}` reduces nothing"),
        }
    }

    /// `KGEN_REDUCE_*`.
    pub fn code(self) -> i32 {
        self as i32
    }
}
