//! Allowed distance of a kernel from the reference.
//!
//! **O** follows `FlashAttention`'s rule: twice the largest error of the same attention computed naively in the
//! kernel's own type, plus twice the error of rounding to O's type at the reference's largest magnitude, plus 2⁻¹²⁶ ·
//! max|V|: `ex2.approx.ftz` flushes smaller results to 0 (PTX ISA), and O of a row whose sink outweighs its keys by
//! that much consists of nothing else.
//!
//! **LSE** is fp32 and gets the same rule in fp32: twice the largest error of the naive fp32 computation, plus the
//! rounding of numbers of its magnitude, for the differences between a fused kernel and the naive one. If the kernel's
//! tensor cores keep too few bits of sums for that (FP8 on Hopper, `arithmetic`), the naive computation sums Q Kᵀ as
//! they do. Further terms:
//! * 2⁻²⁰ · max(1, |LSE|): the maximum is scaled by a rounded log₂ e, and `ex2.approx` and `lg2.approx` have errors of
//!   up to 2⁻²² each (PTX ISA), which the naive computation with its exact `exp` and `ln` lacks: 8 units in the last
//!   place;
//! * 2⁻²³ · max(4, ⌈D/16⌉) · scale · max‖q‖ · max‖k‖: tensor cores truncate instead of rounding, by up to a unit in the
//!   last place at each product of 16 columns, relative to the largest term of a dot product and not to its sum; the
//!   product of norms bounds the terms (Cauchy-Schwarz). Measured on an H200: 18 units for the 576 columns of MLA;
//! * for capped scores, the largest capped score times 2⁻¹⁰·⁹: the error of `tanh.approx` (PTX ISA); LSE's error is no
//!   larger than the worst score's. (Naive O has scores rounded to 16 bits, and needs no such term.)
//! * for scores that fall with the distance, 2⁻²⁴ · slope · 256: kernels take the difference of two products, each of
//!   the slope and a distance within the key tile. The naive computation multiplies by the small difference itself.
//! * for a declared score, the largest possible error of its fp32 steps, each propagated by the derivatives of later
//!   ones (`expression::rounding`), including the errors of the product and the cap.
//!
//! The first two terms are tiny compared with the effect of one key more or less, which is 1/seqlen.

use crate::check::Number;

/// Largest allowed absolute errors of one case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Error of every element of O.
    pub o: f64,
    /// Error of every element of LSE.
    pub lse: f64,
}

/// Inputs of the tolerance; the maximum of each over all rows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Yardstick {
    /// Error of O computed naively in 16 bits.
    pub naive_o_error: f64,
    /// |O| of the reference.
    pub o_magnitude: f64,
    /// Error of LSE computed naively in fp32, from scores that are summed as the kernel's tensor cores sum them.
    pub naive_lse_error: f64,
    /// Magnitude of the reference's LSE, over rows that see a key.
    pub lse_magnitude: f64,
    /// Bound on the magnitude of the terms of a scaled score.
    pub score_bound: f64,
    /// Number of truncations in the sum of a score: one for each product of 16 columns.
    pub truncations: f64,
    /// Error of a score due to approximate instructions.
    pub score_error: f64,
    /// |V|.
    pub v_magnitude: f64,
}

impl Yardstick {
    /// Adds one row that sees a key.
    pub fn see_row(&mut self, o: &[f64], naive_o: &[f32], lse: f64, naive_lse: f32) {
        for (&o, &naive) in o.iter().zip(naive_o) {
            self.naive_o_error = self.naive_o_error.max((f64::from(naive) - o).abs());
            self.o_magnitude = self.o_magnitude.max(o.abs());
        }
        self.naive_lse_error = self.naive_lse_error.max((f64::from(naive_lse) - lse).abs());
        self.lse_magnitude = self.lse_magnitude.max(lse.abs());
    }

    /// The larger of each.
    #[must_use]
    pub fn worst(self, other: Self) -> Self {
        Self {
            naive_o_error: self.naive_o_error.max(other.naive_o_error),
            o_magnitude: self.o_magnitude.max(other.o_magnitude),
            naive_lse_error: self.naive_lse_error.max(other.naive_lse_error),
            lse_magnitude: self.lse_magnitude.max(other.lse_magnitude),
            score_bound: self.score_bound.max(other.score_bound),
            truncations: self.truncations.max(other.truncations),
            score_error: self.score_error.max(other.score_error),
            v_magnitude: self.v_magnitude.max(other.v_magnitude),
        }
    }

    /// These magnitudes for a V, and so an O, multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let [naive_o_error, o_magnitude, v_magnitude] =
            [self.naive_o_error, self.o_magnitude, self.v_magnitude].map(|magnitude| magnitude * factor);
        Self { naive_o_error, o_magnitude, v_magnitude, ..self }
    }

    /// The rule of this module, for an O of type `number`.
    pub fn tolerance(&self, number: Number) -> Tolerance {
        let ulp = f64::from(f32::EPSILON);
        Tolerance {
            o: 2.0 * self.naive_o_error
                + 2.0 * number.unit_roundoff() * self.o_magnitude
                + f64::from(f32::MIN_POSITIVE) * self.v_magnitude,
            lse: 2.0 * self.naive_lse_error
                + 8.0 * ulp * self.lse_magnitude.max(1.0)
                + self.truncations.max(4.0) * ulp * self.score_bound
                + self.score_error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_is_twice_the_naive_error_plus_twice_the_rounding_error() {
        let mut yardstick = Yardstick::default();
        yardstick.see_row(&[2.0, -4.0], &[2.5, -4.0], 3.0, 3.25);
        let bf16 = yardstick.tolerance(Number::Bf16);
        assert_eq!(bf16.o, 2.0 * 0.5 + 2.0 * 4.0 / 256.0);
        assert_eq!(bf16.lse, 2.0 * 0.25 + 3.0 / 1_048_576.0);
        assert_eq!(yardstick.tolerance(Number::Fp16).o, 2.0 * 0.5 + 2.0 * 4.0 / 2048.0);
    }

    #[test]
    fn a_naive_result_that_overflows_makes_the_tolerance_no_number_to_pass_by() {
        let mut yardstick = Yardstick::default();
        yardstick.see_row(&[1.0], &[f32::INFINITY], 0.0, 0.0);
        assert!(!yardstick.tolerance(Number::Fp16).o.is_finite());
    }
}
