//! The factors of FP8 tensors.

use super::problem::Problem;
use crate::device::Image;

/// Layout of the descales of Q, K and V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Descales {
    /// No descales: all factors are 1.
    Absent,
    /// One number per tensor: both strides are 0.
    Uniform,
    /// One per batch entry and key head, with gaps between them, and different ones for each tensor.
    ByHead,
}

/// Names of the tensors in `kgen.h`.
const NAMES: [&str; 3] = ["q_descale", "k_descale", "v_descale"];

impl Descales {
    /// The word used in case names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Absent => "",
            Self::Uniform => " descale",
            Self::ByHead => " descale-by-head",
        }
    }

    /// The factor of tensor number `tensor` (Q, K, V) for a sequence and key head: between 3/8 and 15/8, and different
    /// for neighbours.
    pub fn factor(self, tensor: usize, sequence: usize, head_k: usize) -> f32 {
        let number = match self {
            Self::Absent => return 1.0,
            Self::Uniform => 5 * tensor,
            Self::ByHead => 5 * tensor + 7 * sequence + 3 * head_k,
        };
        0.375 + (number % 13) as f32 / 8.0
    }

    /// Batch and head stride of tensor number `tensor`'s factors.
    pub fn strides(self, tensor: usize, heads_k: usize) -> [i64; 2] {
        match self {
            Self::Absent | Self::Uniform => [0; 2],
            Self::ByHead => {
                let head = 1 + tensor as i64;
                [heads_k as i64 * head + 2, head]
            }
        }
    }

    /// The factors in memory, if there are any.
    pub fn images(self, problem: &Problem) -> Vec<(&'static str, Image)> {
        let image = |tensor| {
            let [batch, head] = self.strides(tensor, problem.heads_k);
            let all = itertools::iproduct!(0..problem.sequences.len(), 0..problem.heads_k);
            let numbers = all.map(|(b, h)| (b as i64 * batch + h as i64 * head, self.factor(tensor, b, h)));
            Image::of_numbers(&numbers.collect::<Vec<_>>())
        };
        if self == Self::Absent { Vec::new() } else { NAMES.iter().enumerate().map(|(t, name)| (*name, image(t))).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_lie_at_their_strides_and_differ_by_tensor_sequence_and_head() {
        let problem = Problem::new(&[(1, 1); 2], 4, 2);
        let images = Descales::ByHead.images(&problem);
        let at = |tensor: usize, sequence: i64, head: i64| {
            let [batch, row] = Descales::ByHead.strides(tensor, 2);
            f32::from_bits(images[tensor].1.bits(sequence * batch + head * row))
        };
        assert_eq!((at(0, 0, 0), at(0, 0, 1), at(0, 1, 0), at(2, 1, 1)), (0.375, 0.75, 1.25, 0.375 + 7.0 / 8.0));
        assert!(Descales::Absent.images(&problem).is_empty());
        assert_eq!(Descales::Uniform.factor(1, 1, 1), Descales::Uniform.factor(1, 0, 0));
    }
}
