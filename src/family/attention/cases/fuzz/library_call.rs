//! A call of a library's dispatcher: of attention, or of another family that draws calls.

use super::{case::FuzzCase, drawn::DrawnCall, shrink};
use crate::{family::attention, kernel::Dtype, kernel::Kind};
use std::{fmt, str::FromStr};

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all calls are of attention")]
pub enum LibraryCall {
    /// `kgen_fwd` or `kgen_bwd`.
    Attention(FuzzCase),
    /// A function of another family.
    Drawn(DrawnCall),
}

impl LibraryCall {
    /// The kernel kind used if no other is better.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Attention(case) => case.entry.kind().into(),
            Self::Drawn(call) => call.kind,
        }
    }

    /// Element type of its inputs.
    pub fn dtype(&self) -> Dtype {
        match self {
            Self::Attention(case) => case.dtype,
            Self::Drawn(call) => call.dtype,
        }
    }

    /// The function that is called.
    pub fn function(&self) -> &'static str {
        match self {
            Self::Attention(case) => case.entry.function(),
            Self::Drawn(call) => call.function(),
        }
    }

    /// Approximate work of the call, to compare calls.
    pub(super) fn work(&self) -> usize {
        match self {
            Self::Attention(case) => shrink::work(case),
            Self::Drawn(call) => call.size as usize,
        }
    }

    /// Calls that are simpler in one respect, the largest simplifications first.
    pub(super) fn simpler(&self) -> Vec<Self> {
        match self {
            Self::Attention(case) => shrink::simpler(case).into_iter().map(Self::Attention).collect(),
            Self::Drawn(call) => call.simpler().into_iter().map(Self::Drawn).collect(),
        }
    }
}

impl fmt::Display for LibraryCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attention(case) => case.fmt(f),
            Self::Drawn(call) => call.fmt(f),
        }
    }
}

impl FromStr for LibraryCall {
    type Err = String;

    /// Parses a name. A name with a word for a kind of another family is a drawn call.
    fn from_str(text: &str) -> Result<Self, String> {
        let names_a_kind = |word: &str| word.parse::<Kind>().is_ok_and(|kind| attention::Kind::of(kind).is_none());
        if text.split_whitespace().any(names_a_kind) {
            return text.parse().map(Self::Drawn);
        }
        text.parse().map(Self::Attention)
    }
}
