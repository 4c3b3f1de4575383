//! The type of K and V if it differs from Q's.

use super::{Kind, Point};
use crate::{
    check::Number,
    kernel::{Dtype, Feature, Features},
};
use serde::Serialize;

/// An FP8 format of K and V.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KvFormat {
    /// Four bits of exponent, three of mantissa.
    E4m3,
    /// Five and two.
    E5m2,
}

impl KvFormat {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::E4m3, Self::E5m2];

    /// The format of a kernel with these features; `None`: K and V have Q's type.
    pub fn of(features: Features) -> Option<Self> {
        Self::ALL.into_iter().find(|format| features.has(format.feature()))
    }

    /// The format that a kernel widens K and V from before it multiplies them; `None`: it multiplies them directly. A
    /// split-KV kernel with FP8 queries widens all three: it is bound by memory, and 16-bit operands need no
    /// transposition of V.
    pub fn widened(point: Point) -> Option<Self> {
        if point.widens_queries() { Some(Self::E4m3) } else { Self::of(point.features) }
    }

    /// The feature of kernels that read it.
    pub fn feature(self) -> Feature {
        match self {
            Self::E4m3 => Feature::KvE4m3,
            Self::E5m2 => Feature::KvE5m2,
        }
    }

    /// The word used in case names.
    pub fn word(self) -> &'static str {
        match self {
            Self::E4m3 => "kv-e4m3",
            Self::E5m2 => "kv-e5m2",
        }
    }

    /// The number type.
    pub fn number(self) -> Number {
        match self {
            Self::E4m3 => Number::E4m3,
            Self::E5m2 => Number::E5m2,
        }
    }
}

impl Point {
    /// True if the kernel has FP8 queries and multiplies them in 16 bits.
    pub fn widens_queries(self) -> bool {
        self.kind == Kind::FwdSplit && self.dtype == Dtype::Fp8
    }

    /// The operand type of the products. FP8 becomes fp16, the conversion with the fewest instructions, without loss.
    pub fn multiplied(self) -> Dtype {
        if self.widens_queries() { Dtype::Fp16 } else { self.dtype }
    }
}
