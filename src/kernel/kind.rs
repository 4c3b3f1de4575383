//! The kind of a kernel, an axis common to all families, and properties of each kind that any module may use.

use super::UnknownWord;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// An axis of the grid that a kind may have in addition to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Elements of one head's row.
    HeadDim,
    /// Element type of the inputs.
    Dtype,
    /// Full or causal.
    Mask,
    /// A set of features.
    Features,
}

impl Axis {
    /// Key of the axis in `variants.toml`.
    pub fn key(self) -> &'static str {
        match self {
            Self::HeadDim => "head_dim",
            Self::Dtype => "dtype",
            Self::Mask => "mask",
            Self::Features => "features",
        }
    }
}

/// Kinds of kernels, in list order: kinds of one family are adjacent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[repr(u8)]
pub enum Kind {
    /// Forward attention: O and LSE from Q, K, V.
    Fwd,
    /// Forward attention for small problems: warpgroups share the keys of few query tiles.
    FwdShort,
    /// Forward attention over one split of the keys; partial O and LSE.
    FwdSplit,
    /// Merges the partial results of `FwdSplit`.
    FwdCombine,
    /// Chooses the split count of each sequence on the device.
    PrepareScheduler,
    /// Backward attention: dQ, dK, dV from O, LSE and dO.
    Bwd,
    /// Sum of two vectors.
    VectorAdd,
    /// Transposition of a matrix.
    Transpose,
    /// Sum of each row.
    ReduceSum,
    /// Largest element of each row.
    ReduceMax,
    /// Logarithm of the sum of the exponentials of each row.
    ReduceLogsumexp,
    /// Appends rows of K and V to a KV cache, with rotary embedding.
    AppendKv,
    /// RMS normalisation of each row, after a residual is added.
    Rmsnorm,
}

/// Spelling of a dtype in kernel names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtypeWord {
    /// `bf16`.
    Name,
    /// `b16`: the kernel moves bits, and supports every type of that size.
    Bits,
}

/// Properties of a kind that any module may use.
#[derive(Debug)]
pub struct KindInfo {
    /// Name of the kind, as in files and JSON.
    pub name: &'static str,
    /// Other words accepted on the command line and in `variants.toml`.
    pub aliases: &'static [&'static str],
    /// Axes of the kind in addition to the target.
    pub axes: &'static [Axis],
    /// Prefix of the kind's name in kernel names.
    pub prefix: &'static str,
    /// Spelling of the dtype in kernel names.
    pub dtype_word: DtypeWord,
    /// Constant of the kind in `kgen.h`.
    pub constant: &'static str,
    /// The structure of `kgen.h` that the kind's launchers take.
    pub params: &'static str,
    /// True if each launcher has a function `<name>_workspace`.
    pub workspace: bool,
    /// Kinds that a library must contain to use kernels of this kind.
    pub helpers: &'static [Kind],
    /// A short description of the computation, for lists.
    pub summary: &'static str,
}

impl KindInfo {
    /// The dispatcher's function that takes its parameters.
    pub fn function(&self) -> &'static str {
        self.params.trim_end_matches("_params")
    }
}

const SHAPE: &[Axis] = &[Axis::HeadDim, Axis::Dtype, Axis::Mask, Axis::Features];

/// Facts that kinds of the small families share; each kind overrides the rest.
const PLAIN: KindInfo = KindInfo {
    name: "",
    aliases: &[],
    axes: &[Axis::Dtype],
    prefix: "",
    dtype_word: DtypeWord::Name,
    constant: "",
    params: "",
    workspace: false,
    helpers: &[],
    summary: "",
};

/// A kind that takes `kgen_fwd_params`.
const FORWARD: KindInfo = KindInfo { axes: SHAPE, prefix: "flash_", params: "kgen_fwd_params", ..PLAIN };

/// A reduction of rows.
const REDUCE: KindInfo = KindInfo { params: "kgen_reduce_params", workspace: true, ..PLAIN };

/// Properties of the kinds, in the order of [`Kind`].
const INFO: &[KindInfo] = &[
    KindInfo {
        name: "fwd",
        aliases: &["forward"],
        constant: "KGEN_KIND_FWD",
        summary: "forward: O and the log-sum-exp",
        ..FORWARD
    },
    KindInfo {
        name: "fwd_short",
        aliases: &["short"],
        constant: "KGEN_KIND_FWD_SHORT",
        summary: "forward where there is little work",
        ..FORWARD
    },
    KindInfo {
        name: "fwd_split",
        aliases: &["split", "splitkv"],
        constant: "KGEN_KIND_FWD_SPLIT",
        workspace: true,
        helpers: &[Kind::FwdCombine, Kind::PrepareScheduler],
        summary: "forward over splits of the keys: partial results in a workspace",
        ..FORWARD
    },
    KindInfo {
        name: "fwd_combine",
        aliases: &["combine"],
        axes: &[],
        constant: "KGEN_KIND_FWD_COMBINE",
        summary: "combines the partial results of the splits",
        ..FORWARD
    },
    KindInfo {
        name: "prepare_scheduler",
        aliases: &["scheduler"],
        axes: &[],
        constant: "KGEN_KIND_PREPARE_SCHEDULER",
        summary: "decides on the device how many splits each sequence gets",
        ..FORWARD
    },
    KindInfo {
        name: "bwd",
        aliases: &["backward"],
        constant: "KGEN_KIND_BWD",
        params: "kgen_bwd_params",
        workspace: true,
        summary: "backward: dQ, dK and dV",
        ..FORWARD
    },
    KindInfo {
        name: "vector_add",
        aliases: &["add"],
        constant: "KGEN_KIND_VECTOR_ADD",
        params: "kgen_vector_add_params",
        summary: "sum of two vectors",
        ..PLAIN
    },
    KindInfo {
        name: "transpose",
        aliases: &["transposition"],
        dtype_word: DtypeWord::Bits,
        constant: "KGEN_KIND_TRANSPOSE",
        params: "kgen_transpose_params",
        summary: "transposed matrix",
        ..PLAIN
    },
    KindInfo { name: "reduce_sum", aliases: &["sum"], constant: "KGEN_KIND_REDUCE_SUM", summary: "sum of each row", ..REDUCE },
    KindInfo {
        name: "reduce_max",
        aliases: &["max"],
        constant: "KGEN_KIND_REDUCE_MAX",
        summary: "largest element of each row",
        ..REDUCE
    },
    KindInfo {
        name: "reduce_logsumexp",
        aliases: &["logsumexp"],
        constant: "KGEN_KIND_REDUCE_LOGSUMEXP",
        summary: "log-sum-exp of each row",
        ..REDUCE
    },
    KindInfo {
        name: "append_kv",
        aliases: &["append"],
        constant: "KGEN_KIND_APPEND_KV",
        params: "kgen_append_kv_params",
        summary: "new K and V into a cache, with rotary embedding",
        ..PLAIN
    },
    KindInfo {
        name: "rmsnorm",
        aliases: &["rms_norm"],
        constant: "KGEN_KIND_RMSNORM",
        params: "kgen_rmsnorm_params",
        summary: "RMS normalisation of each row, after a residual is added",
        ..PLAIN
    },
];

impl Kind {
    /// Every kind, in the order in which lists show them.
    pub const ALL: &'static [Self] = &[
        Self::Fwd,
        Self::FwdShort,
        Self::FwdSplit,
        Self::FwdCombine,
        Self::PrepareScheduler,
        Self::Bwd,
        Self::VectorAdd,
        Self::Transpose,
        Self::ReduceSum,
        Self::ReduceMax,
        Self::ReduceLogsumexp,
        Self::AppendKv,
        Self::Rmsnorm,
    ];

    /// The facts about it.
    pub fn info(self) -> &'static KindInfo {
        &INFO[self as usize]
    }

    /// The canonical name, as in variant names, files and JSON.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Other words accepted on the command line and in `variants.toml`.
    pub fn aliases(self) -> &'static [&'static str] {
        self.info().aliases
    }

    /// Kinds that a library must contain to use kernels of this kind.
    pub fn helpers(self) -> &'static [Self] {
        self.info().helpers
    }

    /// True if it has this axis.
    pub fn has(self, axis: Axis) -> bool {
        self.info().axes.contains(&axis)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.name().to_owned()
    }
}

impl TryFrom<String> for Kind {
    type Error = UnknownWord;

    fn try_from(word: String) -> Result<Self, UnknownWord> {
        word.parse()
    }
}

impl FromStr for Kind {
    type Err = UnknownWord;

    /// Accepts the canonical name or an alias, in any case.
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        UnknownWord::read("kind", word, Self::ALL, Self::name, Self::aliases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_table_is_in_the_order_of_the_kinds() {
        assert_eq!(INFO.len(), Kind::ALL.len());
        for (place, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, place);
            let constant = format!("KGEN_KIND_{}", kind.name().to_uppercase());
            assert_eq!(kind.info().constant, constant);
        }
    }

    #[test]
    fn every_word_leads_to_one_kind_only() {
        let mut seen = HashSet::new();
        for kind in Kind::ALL {
            for word in kind.aliases().iter().chain([&kind.name()]) {
                assert!(seen.insert(*word), "`{word}` is claimed twice");
                assert_eq!(word.parse(), Ok(*kind));
            }
        }
    }
}
