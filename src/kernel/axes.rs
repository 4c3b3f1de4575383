//! The axes of the grid as types: every word for a kind, a dtype or a target is defined here, once.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Element type of a kernel's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// IEEE binary16.
    Fp16,
    /// bfloat16.
    Bf16,
    /// OCP FP8 E4M3 (no infinities, largest finite value 448).
    Fp8,
    /// IEEE binary32.
    Fp32,
}

/// A GPU architecture that kernels are generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Turing.
    Sm75,
    /// Ampere (A100), and the fallback on every newer GPU.
    Sm80,
    /// Ada.
    Sm89,
    /// Hopper.
    Sm90,
    /// Blackwell, data centre.
    Sm100,
    /// Blackwell, workstation and GeForce.
    Sm120,
    /// Blackwell, GB10 (DGX Spark).
    Sm121,
}

/// A word that is not a value of an axis.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {axis} `{word}`; known: {known}")]
pub struct UnknownWord {
    /// The axis by its field's name: `kind`, `dtype` or `target`.
    pub axis: &'static str,
    /// The word as written.
    pub word: String,
    /// Every accepted word, canonical names first.
    pub known: String,
}

impl UnknownWord {
    /// The axis value named by `word`, in any case: by its canonical name or an alias.
    pub(crate) fn read<T: Copy>(
        axis: &'static str,
        word: &str,
        values: &[T],
        name: fn(T) -> &'static str,
        aliases: fn(T) -> &'static [&'static str],
    ) -> Result<T, Self> {
        let lower = word.trim().to_ascii_lowercase();
        let found = values.iter().copied().find(|v| name(*v) == lower || aliases(*v).contains(&lower.as_str()));
        found.ok_or_else(|| {
            let names = values.iter().map(|v| format!("`{}`", name(*v)));
            let aliases = values.iter().flat_map(|v| aliases(*v)).map(|a| format!("`{a}`"));
            Self { axis, word: word.to_owned(), known: names.chain(aliases).collect::<Vec<_>>().join(", ") }
        })
    }
}

/// Implements the string forms of an axis from one table of `(value, canonical name, aliases)`.
macro_rules! axis_words {
    ($type:ty, $axis:literal, [$(($value:expr, $name:literal, [$($alias:literal),*])),+ $(,)?]) => {
        impl $type {
            /// Every value, in canonical order.
            pub const ALL: &'static [Self] = &[$($value),+];

            /// The canonical name, as in variant names, files and JSON.
            pub fn name(self) -> &'static str {
                match self { $(v if v == $value => $name,)+ _ => unreachable!("ALL lists every value") }
            }

            /// Other words accepted on the command line and in `variants.toml`.
            pub fn aliases(self) -> &'static [&'static str] {
                match self { $(v if v == $value => &[$($alias),*],)+ _ => unreachable!("ALL lists every value") }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = UnknownWord;

            /// Accepts the canonical name or an alias, in any case.
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                UnknownWord::read($axis, word, Self::ALL, Self::name, Self::aliases)
            }
        }
    };
}

axis_words!(
    Dtype,
    "dtype",
    [
        (Dtype::Fp16, "fp16", ["half", "float16", "f16"]),
        (Dtype::Bf16, "bf16", ["bfloat16"]),
        (Dtype::Fp8, "fp8", ["e4m3", "float8_e4m3fn", "fp8_e4m3"]),
        (Dtype::Fp32, "fp32", ["float", "float32", "f32"]),
    ]
);

axis_words!(
    Target,
    "target",
    [
        (Target::Sm75, "sm75", ["sm_75", "turing", "t4"]),
        (Target::Sm80, "sm80", ["sm_80", "ampere", "a100"]),
        (Target::Sm89, "sm89", ["sm_89", "ada", "l4", "rtx4090"]),
        (Target::Sm90, "sm90", ["sm_90", "sm90a", "sm_90a", "hopper", "h100", "h200"]),
        (Target::Sm100, "sm100", ["sm_100", "blackwell-dc", "b200"]),
        (Target::Sm120, "sm120", ["sm_120", "blackwell", "rtx-pro-6000", "rtx5090"]),
        (Target::Sm121, "sm121", ["sm_121", "gb10", "dgx-spark"]),
    ]
);

impl Dtype {
    /// Bytes of one element.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Fp32 => 4,
            Self::Fp16 | Self::Bf16 => 2,
            Self::Fp8 => 1,
        }
    }
}

impl Target {
    /// Compute capability as `major * 10 + minor`.
    pub fn compute_capability(self) -> u32 {
        match self {
            Self::Sm75 => 75,
            Self::Sm80 => 80,
            Self::Sm89 => 89,
            Self::Sm90 => 90,
            Self::Sm100 => 100,
            Self::Sm120 => 120,
            Self::Sm121 => 121,
        }
    }

    /// The virtual architecture nvcc compiles for, with the feature suffix that some paths need: `90a` for wgmma,
    /// `100f`/`120f`/`121f` for family-specific instructions.
    pub fn virtual_arch(self) -> &'static str {
        match self {
            Self::Sm75 => "compute_75",
            Self::Sm80 => "compute_80",
            Self::Sm89 => "compute_89",
            Self::Sm90 => "compute_90a",
            Self::Sm100 => "compute_100f",
            Self::Sm120 => "compute_120f",
            Self::Sm121 => "compute_121f",
        }
    }

    /// The corresponding machine architecture: `sm_80` for `compute_80`.
    pub fn real_arch(self) -> String {
        self.virtual_arch().replace("compute", "sm")
    }

    /// True if objects carry PTX beside machine code, so that newer GPUs can load them. Objects of
    /// architecture-specific targets (suffix `a` or `f`) do not: their PTX loads on no other GPU.
    pub fn carries_ptx(self) -> bool {
        matches!(self, Self::Sm75 | Self::Sm80 | Self::Sm89)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alias_leads_to_one_value_only() {
        let mut seen = std::collections::HashSet::new();
        for t in Target::ALL {
            for word in t.aliases().iter().chain([&t.name()]) {
                assert!(seen.insert(word.to_string()), "`{word}` is claimed twice");
                assert_eq!(word.parse::<Target>(), Ok(*t));
            }
        }
        assert_eq!("BFloat16".parse(), Ok(Dtype::Bf16));
        assert_eq!("e4m3".parse(), Ok(Dtype::Fp8));
    }

    #[test]
    fn an_unknown_word_names_the_known_ones() {
        let message = "sm_42".parse::<Target>().expect_err("no such target").to_string();
        assert!(message.contains("unknown target `sm_42`") && message.contains("`sm80`") && message.contains("`blackwell`"));
    }
}
