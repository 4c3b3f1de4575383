//! A tensor with an element for each query and key, of shape (batch or 1, heads or 1, queries or 1, keys).

use crate::{device::Field, family::attention::oracle::problem::Problem};

/// Axes and strides of such a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// For batch entries, query heads and queries: true if the tensor is broadcast over them.
    pub repeats: [bool; 3],
    /// Batch, head, row and column stride; 0 along axes on which it is broadcast.
    pub strides: [i64; 4],
}

/// The gradient of a tensor that is added to scores, as a launcher writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct AdditionGradient {
    /// Name of the tensor in `kgen.h`.
    pub tensor: &'static str,
    /// Numbers of the gradient in the structure of the backward pass.
    pub numbers: [(&'static str, Field); 4],
    /// Axes and strides of the tensor.
    pub places: Broadcast,
}

/// Indices of the element for a batch entry, head and row, given the axes on which a tensor is broadcast.
pub fn index(repeats: [bool; 3], of: [usize; 3]) -> [usize; 3] {
    std::array::from_fn(|axis| if repeats[axis] { 0 } else { of[axis] })
}

impl Broadcast {
    /// Indices of the element for a batch entry, head and row.
    pub fn index(&self, of: [usize; 3]) -> [usize; 3] {
        index(self.repeats, of)
    }

    /// True if it is broadcast along an axis.
    pub fn is_repeated(&self) -> bool {
        self.repeats.contains(&true)
    }

    /// The offset of an element.
    pub fn offset(&self, place: [usize; 4]) -> i64 {
        self.strides.iter().zip(place).map(|(stride, index)| stride * index as i64).sum()
    }

    /// Indices (batch entry, head, row, key) of every element within a call's bounds, without duplicates.
    pub fn all_places(&self, problem: &Problem) -> impl Iterator<Item = [usize; 4]> + use<> {
        let [heads, rows, keys] = problem.score_extents();
        let [batches, heads, rows] =
            std::array::from_fn(|axis| if self.repeats[axis] { 1 } else { [problem.sequences.len(), heads, rows][axis] });
        itertools::iproduct!(0..batches, 0..heads, 0..rows, 0..keys).map(|(b, h, r, k)| [b, h, r, k])
    }
}
