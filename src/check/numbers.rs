//! 16-bit numbers: exact widening, correct rounding, and how large a rounding error is.

use crate::{
    device::{DTYPE_BF16, DTYPE_FP16},
    grid::Dtype,
};
use half::{bf16, f16};

/// The two 16-bit types a forward kernel reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// IEEE binary16.
    Fp16,
    /// bfloat16.
    Bf16,
}

impl Number {
    /// The type of a variant's tensors; `None` for FP8, which no template reads yet.
    pub fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::Fp16 => Some(Self::Fp16),
            Dtype::Bf16 => Some(Self::Bf16),
            Dtype::Fp8 => None,
        }
    }

    /// `KGEN_DTYPE_*`.
    pub fn code(self) -> i32 {
        match self {
            Self::Fp16 => DTYPE_FP16,
            Self::Bf16 => DTYPE_BF16,
        }
    }

    /// The bits of `value` rounded to nearest even.
    pub fn round(self, value: f32) -> u16 {
        match self {
            Self::Fp16 => f16::from_f32(value).to_bits(),
            Self::Bf16 => bf16::from_f32(value).to_bits(),
        }
    }

    /// The value of `bits`; exact.
    pub fn widen(self, bits: u16) -> f32 {
        match self {
            Self::Fp16 => f16::from_bits(bits).to_f32(),
            Self::Bf16 => bf16::from_bits(bits).to_f32(),
        }
    }

    /// `value` rounded to the type and widened again.
    pub fn through(self, value: f32) -> f32 {
        self.widen(self.round(value))
    }

    /// Largest relative error of rounding to nearest: half the distance between 1 and the next number.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            Self::Fp16 => f64::from(f16::EPSILON.to_f32()) / 2.0,
            Self::Bf16 => f64::from(bf16::EPSILON.to_f32()) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_roundoff_is_the_error_of_the_worst_tie() {
        for number in [Number::Fp16, Number::Bf16] {
            let tie = 1.0 + number.unit_roundoff() as f32;
            let error = f64::from((number.through(tie) - tie).abs());
            assert!((error - number.unit_roundoff()).abs() < 1e-12, "{number:?}");
        }
    }
}
