//! The head dims of a case's tensors.

use crate::kernel::HeadDim;

/// Elements of a row of Q and K, and of V and O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dims {
    /// Elements of a row of Q and K.
    pub qk: usize,
    /// Elements of a row of V and O.
    pub v: usize,
}

impl Dims {
    /// Row length of tensor number `tensor` (Q, K, V, O, dO, dQ, dK, dV, QV = 0 .. 8).
    pub fn of(self, tensor: usize) -> usize {
        if matches!(tensor, 2 | 3 | 4 | 7 | 8) { self.v } else { self.qk }
    }
}

impl From<HeadDim> for Dims {
    fn from(head_dim: HeadDim) -> Self {
        Self { qk: head_dim.qk as usize, v: head_dim.v as usize }
    }
}

/// One head dim for all tensors.
impl From<usize> for Dims {
    fn from(head_dim: usize) -> Self {
        Self { qk: head_dim, v: head_dim }
    }
}
