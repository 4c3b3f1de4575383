//! A kernel's arithmetic: the types of its tensors and of its products, and the summation of Q Kᵀ in its tensor cores.

use crate::{
    check::Number,
    family::attention::Point,
    plan::{Plan, TensorCore},
};

/// Bits that a sum of E4M3 products keeps below its leading one on Hopper: `FP8_FRACTION_BITS` of the emulator's
/// `runtime/fp8_sums.hpp`, which documents the source.
const FRACTION_BITS: i32 = 13;

/// Number of products that one instruction sums.
const STEP: usize = 32;

/// The exponent of 0, which is never the largest.
const NO_EXPONENT: i32 = -1000;

/// The arithmetic of one kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arithmetic {
    /// The type of Q, K and V.
    pub number: Number,
    /// The operand type of the products, including P's.
    pub multiplied: Number,
    /// The summation in Q Kᵀ.
    pub sums: Sums,
}

/// Summation in tensor cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sums {
    /// In fp32, or with a loss of bits so small that a separate term of the tolerance covers it.
    Fp32,
    /// With the truncated terms of `QGMMA`: see [`Row`].
    Truncated,
}

impl Arithmetic {
    /// The arithmetic of the kernel of `variant`.
    pub fn of(variant: Point) -> Self {
        let truncated = Plan::new(variant, None).is_ok_and(|plan| plan.tensor_core == TensorCore::Qgmma);
        let sums = if truncated { Sums::Truncated } else { Sums::Fp32 };
        Self { number: Number::of(variant.dtype), multiplied: Number::of(variant.multiplied()), sums }
    }
}

impl From<Number> for Arithmetic {
    /// The arithmetic of a kernel that multiplies tensors of this type directly and sums in fp32.
    fn from(number: Number) -> Self {
        Self { number, multiplied: number, sums: Sums::Fp32 }
    }
}

/// A row of E4M3 numbers, prepared for dot products as Hopper's tensor cores sum them: 32 products and the running sum
/// at a time. Each term is truncated toward zero 13 bits below the exponent of the largest one, and the sum is
/// truncated likewise below its own exponent.
pub struct Row(Vec<Step>);

/// The part of a row that one instruction reads.
struct Step {
    values: [f32; STEP],
    /// Exponents of the values; a subnormal number has that of the smallest normal one.
    exponents: [i32; STEP],
}

impl Row {
    /// Splits a row into steps of [`STEP`] elements, which one instruction reads; the last one is padded with zeros.
    pub fn new(values: &[f32]) -> Self {
        let step = |part: &[f32]| {
            let mut step = Step { values: [0.0; STEP], exponents: [NO_EXPONENT; STEP] };
            for (i, &value) in part.iter().enumerate() {
                step.values[i] = value;
                step.exponents[i] = if value == 0.0 { NO_EXPONENT } else { exponent_of(value).max(-6) };
            }
            step
        };
        Self(values.chunks(STEP).map(step).collect())
    }

    /// The dot product.
    pub fn dot(&self, other: &Self) -> f32 {
        self.0.iter().zip(&other.0).fold(0.0, |sum, (a, b)| {
            let exponents = a.exponents.iter().zip(&b.exponents).map(|(a, b)| a + b);
            let largest = exponents.fold(exponent_of(sum), i32::max);
            if largest <= NO_EXPONENT / 2 {
                return 0.0;
            }
            let unit = power_of_two(largest - FRACTION_BITS);
            let units_of_one = power_of_two(FRACTION_BITS - largest);
            let products = a.values.iter().zip(&b.values).map(|(a, b)| (a * b * units_of_one) as i32);
            let units = products.sum::<i32>() + (sum * units_of_one) as i32;
            truncated(units as f32 * unit)
        })
    }
}

/// The exponent of a normal number; [`NO_EXPONENT`] for 0.
fn exponent_of(value: f32) -> i32 {
    if value == 0.0 { NO_EXPONENT } else { (value.to_bits() >> 23 & 0xff).cast_signed() - 127 }
}

/// 2 to the power of `exponent`; the result must be a normal fp32 number.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent + 127).cast_unsigned() << 23)
}

/// The sum without the bits that are not kept.
fn truncated(sum: f32) -> f32 {
    f32::from_bits(sum.to_bits() & (u32::MAX << (23 - FRACTION_BITS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::Kind,
        kernel::{Dtype, Features, HeadDim, Target},
        render::Templates,
    };

    /// Value of the last bit of a sum from 256 to 512.
    const UNIT: f32 = 1.0 / 32.0;

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        Row::new(a).dot(&Row::new(b))
    }

    #[test]
    fn only_fp8_kernels_with_wgmma_truncate() {
        let sums = |dtype, target| {
            Arithmetic::of(Point {
                kind: Kind::Fwd,
                head_dim: HeadDim::equal(128),
                dtype,
                causal: false,
                features: Features::NONE,
                target,
            })
            .sums
        };
        assert_eq!(sums(Dtype::Fp8, Target::Sm90), Sums::Truncated);
        for (dtype, target) in [(Dtype::Bf16, Target::Sm90), (Dtype::Fp8, Target::Sm89), (Dtype::Fp8, Target::Sm120)] {
            assert_eq!(sums(dtype, target), Sums::Fp32, "{dtype:?} {target:?}");
        }
    }

    #[test]
    fn the_emulator_keeps_as_many_bits() {
        let templates = Templates::embedded();
        let (_, text) = templates.emulator_files().find(|(path, _)| *path == "runtime/fp8_sums.hpp").expect("it is there");
        assert!(text.contains(&format!("constexpr int FP8_FRACTION_BITS = {FRACTION_BITS};")));
    }

    /// Some of the statements of `tests/emulator/wgmma_primitives.cpp`.
    #[test]
    fn terms_are_cut_off_toward_zero_behind_the_largest_ones_power_of_two() {
        assert_eq!(dot(&[16.0, 0.25], &[16.0, 0.125]), 256.0 + UNIT);
        assert_eq!(dot(&[16.0; 2], &[16.0; 2]), 512.0);
        assert_eq!(dot(&[-16.0, 0.125, 0.125, 0.125], &[16.0, 0.125, 0.125, 0.125]), -256.0);
        assert_eq!(dot(&[16.0, -0.375], &[16.0, 0.125]), 256.0 - UNIT);
        assert_eq!(dot(&[16.0, 16.0, 0.25], &[16.0, 16.0, 0.125]), 512.0);
        assert_eq!(dot(&[448.0, -448.0, 2.0], &[448.0, 448.0, 4.0]), 8.0);
        assert_eq!(dot(&[2.0_f32.powi(-9), 2.0_f32.powi(-6)], &[256.0, 2.0_f32.powi(-6)]), 0.5);
        assert_eq!(dot(&[0.0; 3], &[448.0; 3]), 0.0);
    }

    #[test]
    fn the_sum_so_far_is_a_term_of_the_next_step() {
        let (mut a, b) = ([0.0; 40], [1.0; 40]);
        (a[0], a[35]) = (256.0, UNIT);
        assert_eq!(dot(&a, &b), 256.0 + UNIT);
        a[35] = UNIT / 2.0;
        assert_eq!(dot(&a, &b), 256.0);
        (a[0], a[35]) = (UNIT / 2.0, 256.0);
        assert_eq!(dot(&a, &b), 256.0);
    }
}
