//! The type of a K and V that have another one than Q.

use super::{Kind, Point};
use crate::{
    check::Number,
    kernel::{Dtype, Feature, Features},
};
use serde::Serialize;

/// An FP8 format that K and V are held in.
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

    /// That of a kernel with these features; `None`: K and V have Q's type.
    pub fn of(features: Features) -> Option<Self> {
        Self::ALL.into_iter().find(|format| features.has(format.feature()))
    }

    /// What a kernel widens K and V from before it multiplies them; `None`: it multiplies them as they are. A split-KV
    /// kernel of FP8 queries widens all three: it waits for memory, and 16 bits need no transposition of V.
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

    /// What names of cases say of it.
    pub fn word(self) -> &'static str {
        match self {
            Self::E4m3 => "kv-e4m3",
            Self::E5m2 => "kv-e5m2",
        }
    }

    /// Its numbers.
    pub fn number(self) -> Number {
        match self {
            Self::E4m3 => Number::E4m3,
            Self::E5m2 => Number::E5m2,
        }
    }
}

impl Point {
    /// Whether the kernel has queries in FP8 and multiplies them in 16 bits.
    pub fn widens_queries(self) -> bool {
        self.kind == Kind::FwdSplit && self.dtype == Dtype::Fp8
    }

    /// The type that the kernel multiplies. FP8 becomes fp16, of which it takes the fewest instructions and loses
    /// nothing.
    pub fn multiplied(self) -> Dtype {
        if self.widens_queries() { Dtype::Fp16 } else { self.dtype }
    }
}
