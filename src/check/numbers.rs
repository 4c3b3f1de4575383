//! Numbers of 8, 16 and 32 bits: exact widening, correct rounding, and the size of rounding errors.

use crate::{
    device::{DTYPE_BF16, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2, DTYPE_FP16, DTYPE_FP32, Element},
    kernel::Dtype,
};
use half::{bf16, f16};

/// Element types of a kernel's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// IEEE binary32.
    Fp32,
    /// IEEE binary16.
    Fp16,
    /// bfloat16.
    Bf16,
    /// FP8 E4M3: no infinity, `0x7f` and `0xff` are NaN, the largest number is 448.
    E4m3,
    /// FP8 E5M2: the upper half of an fp16. The largest number is 57344.
    E5m2,
}

impl Number {
    /// The type of a variant's inputs.
    pub fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Fp32 => Self::Fp32,
            Dtype::Fp16 => Self::Fp16,
            Dtype::Bf16 => Self::Bf16,
            Dtype::Fp8 => Self::E4m3,
        }
    }

    /// The type of O for a Q of this type.
    #[must_use]
    pub fn of_output(self) -> Self {
        match self {
            Self::Fp32 | Self::Fp16 => self,
            Self::Bf16 | Self::E4m3 | Self::E5m2 => Self::Bf16,
        }
    }

    /// `KGEN_DTYPE_*`.
    pub fn code(self) -> i32 {
        match self {
            Self::Fp32 => DTYPE_FP32,
            Self::Fp16 => DTYPE_FP16,
            Self::Bf16 => DTYPE_BF16,
            Self::E4m3 => DTYPE_FP8_E4M3,
            Self::E5m2 => DTYPE_FP8_E5M2,
        }
    }

    /// The width of an element in memory.
    pub fn element(self) -> Element {
        match self {
            Self::Fp32 => Element::Bits32,
            Self::Fp16 | Self::Bf16 => Element::Bits16,
            Self::E4m3 | Self::E5m2 => Element::Bits8,
        }
    }

    /// The bits of `value` rounded to nearest even; FP8 saturates.
    pub fn round(self, value: f32) -> u32 {
        match self {
            Self::Fp32 => value.to_bits(),
            Self::Fp16 => f16::from_f32(value).to_bits().into(),
            Self::Bf16 => bf16::from_f32(value).to_bits().into(),
            Self::E4m3 => round_to_byte(value, 3, -9, 448.0).into(),
            Self::E5m2 => round_to_byte(value, 2, -16, 57344.0).into(),
        }
    }

    /// The value of `bits`; exact.
    pub fn widen(self, bits: u32) -> f32 {
        match self {
            Self::Fp32 => f32::from_bits(bits),
            Self::Fp16 => f16::from_bits(bits as u16).to_f32(),
            Self::Bf16 => bf16::from_bits(bits as u16).to_f32(),
            Self::E4m3 => widen_e4m3(bits as u8),
            Self::E5m2 => f16::from_bits((bits as u16) << 8).to_f32(),
        }
    }

    /// `value` rounded to the type and widened again.
    pub fn through(self, value: f32) -> f32 {
        self.widen(self.round(value))
    }

    /// The spacing of the type's numbers at `x`; the spacing of subnormals if `x` is that small.
    pub fn ulp(self, x: f64) -> f64 {
        let least = match self {
            Self::Fp32 | Self::Bf16 => f64::from(f32::MIN_POSITIVE),
            Self::Fp16 | Self::E5m2 => f64::from(f16::MIN_POSITIVE.to_f32()),
            Self::E4m3 => 1.0 / 64.0,
        };
        // Without its mantissa a number is the power of two at or below it.
        let power = f64::from_bits(x.abs().max(least).to_bits() & f64::INFINITY.to_bits());
        2.0 * self.unit_roundoff() * power
    }

    /// Largest relative error of rounding to nearest: half the distance between 1 and the next number.
    pub fn unit_roundoff(self) -> f64 {
        match self {
            Self::Fp32 => f64::from(f32::EPSILON) / 2.0,
            Self::Fp16 => f64::from(f16::EPSILON.to_f32()) / 2.0,
            Self::Bf16 => f64::from(bf16::EPSILON.to_f32()) / 2.0,
            Self::E4m3 => 1.0 / 16.0,
            Self::E5m2 => 1.0 / 8.0,
        }
    }
}

/// One sign bit, four of exponent, three of mantissa; multiples of 2⁻⁹ below 2⁻⁶.
fn widen_e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let magnitude = match bits & 0x7f {
        0x7f => f32::NAN,
        0..8 => mantissa * power_of_two(-9),
        _ => (8.0 + mantissa) * power_of_two(exponent - 10),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

/// 2 to the power of `exponent`, from -126 to 127, assembled from bits: `powi` would call a function that multiplies.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((127 + exponent).cast_unsigned() << 23)
}

/// Rounds to `mantissa` bits (multiples of 2 to the power of `last` for subnormals), saturating at `largest`.
fn round_to_byte(value: f32, mantissa: i32, last: i32, largest: f32) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    if value.is_nan() {
        return 0x7f;
    }
    // Exponent of the last place, which is at least the subnormal exponent.
    let magnitude = value.abs().min(largest);
    let exponent = ((magnitude.to_bits() >> 23).cast_signed() - 127 - mantissa).max(last);
    let places = (magnitude * power_of_two(-exponent)).round_ties_even();
    // A mantissa that rounds up to twice its range is the next exponent; the carry into the exponent's bits gives
    // exactly that.
    sign | (((exponent - last) << mantissa) + places as i32) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_normal_power_of_two_is_what_powi_gives() {
        assert!((-126..=127).all(|exponent| power_of_two(exponent) == 2.0_f32.powi(exponent)));
    }

    #[test]
    fn the_unit_roundoff_is_the_error_of_the_worst_tie() {
        for number in [Number::Fp16, Number::Bf16, Number::E4m3, Number::E5m2] {
            let tie = 1.0 + number.unit_roundoff() as f32;
            let error = f64::from((number.through(tie) - tie).abs());
            assert!((error - number.unit_roundoff()).abs() < 1e-12, "{number:?}");
        }
    }

    #[test]
    fn the_last_place_is_that_of_the_binade_and_of_subnormals_below() {
        assert_eq!([1.0, 1.99, -2.0, 0.0].map(|x| Number::Fp16.ulp(x) * 1024.0), [1.0, 1.0, 2.0, 1.0 / 16384.0]);
        assert_eq!([1.0, 1.5, 0.25].map(|x| Number::Bf16.ulp(x) * 128.0), [1.0, 1.0, 0.25]);
    }

    #[test]
    fn every_byte_comes_back_from_its_value_and_halfway_goes_to_even() {
        for (number, largest) in [(Number::E4m3, 0x7e), (Number::E5m2, 0x7b)] {
            for bits in 0..largest {
                let (value, next) = (number.widen(bits), number.widen(bits + 1));
                assert_eq!((number.round(value), number.round(-value)), (bits, bits | 0x80));
                let halfway = f32::midpoint(value, next);
                assert_eq!(number.round(halfway), bits + bits % 2, "{halfway}");
                assert_eq!(number.round(halfway.next_down()), bits, "{halfway}");
                assert_eq!(number.round(halfway.next_up()), bits + 1, "{halfway}");
            }
        }
    }

    #[test]
    fn e5m2_has_the_ends_its_format_says() {
        let values = [0x00, 0x01, 0x04, 0x3c, 0x7b].map(|bits| Number::E5m2.widen(bits));
        assert_eq!(values, [0.0, 2.0_f32.powi(-16), 2.0_f32.powi(-14), 1.0, 57344.0]);
        assert_eq!([57345.0, 1e9, f32::INFINITY].map(|value| Number::E5m2.round(value)), [0x7b; 3]);
        assert!(Number::E5m2.widen(Number::E5m2.round(f32::NAN)).is_nan());
    }

    #[test]
    fn e4m3_has_the_ends_its_format_says() {
        let values = [0x00, 0x01, 0x08, 0x38, 0x7e].map(|bits| Number::E4m3.widen(bits));
        assert_eq!(values, [0.0, 2.0_f32.powi(-9), 2.0_f32.powi(-6), 1.0, 448.0]);
        assert!(Number::E4m3.widen(0x7f).is_nan() && Number::E4m3.widen(0xff).is_nan());
        assert_eq!([449.0, 1e9, f32::INFINITY].map(|value| Number::E4m3.round(value)), [0x7e; 3]);
        assert_eq!(Number::E4m3.round(f32::NAN), 0x7f);
    }
}
