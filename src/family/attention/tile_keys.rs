//! The `[[tile]]` keys of attention kernels, with their types.

use crate::kernel::{TileKey, TileOverride, TileType, TileValue};
use serde::Serialize;
use std::fmt;

/// Ways to copy a tile of K or V from device to shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyPath {
    /// Each thread copies its 16-byte pieces: `cp.async` on targets that have it, registers on others.
    #[default]
    CpAsync,
    /// One thread issues a Tensor Memory Accelerator copy of a whole tile: sm90 and newer.
    Tma,
}

/// Ways to store O from registers to device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StorePath {
    /// Each thread stores its own elements.
    #[default]
    Direct,
    /// Through shared memory, from which the Tensor Memory Accelerator stores whole tiles.
    Tma,
}

/// Exactness of O at the cost of speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Accuracy {
    /// The form that `rescale_threshold` permits: a weight that dominates its row is exact.
    #[default]
    Fast,
    /// The most exact form: O is rescaled whenever a maximum grows, as with a `rescale_threshold` of 0.
    Exact,
}

/// The instruction that multiplies FP8 operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fp8Mma {
    /// `mma.sync` m16n8k32 with an fp32 accumulator.
    #[default]
    Fp32,
    /// `mma.sync` m16n8k32 with an fp16 accumulator: twice the rate on Ada.
    Fp16,
    /// `mma.sync` `kind::mxf8f6f4.block_scale` with unit scales: the full rate on sm120 and sm121.
    BlockScaled,
}

/// Work that the warpgroups of a Hopper kernel do in turns, so that they do not all wait for the same unit at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Turns {
    /// No turns.
    #[default]
    None,
    /// Issuing products to the tensor cores ("ping-pong").
    Products,
    /// Exponentials, which a multiprocessor computes at 16 per clock.
    Exponentials,
}

/// The type of a key in [`TileChange`].
trait KeyType: Copy {
    /// The corresponding TOML type.
    const TAKES: TileType;

    /// The value, if it is of this type.
    fn read(value: TileValue) -> Option<Self>;

    /// The value in TOML.
    fn value(self) -> TileValue;
}

impl KeyType for u32 {
    const TAKES: TileType = TileType::Count;

    fn read(value: TileValue) -> Option<Self> {
        if let TileValue::Count(count) = value { Some(count) } else { None }
    }

    fn value(self) -> TileValue {
        TileValue::Count(self)
    }
}

impl KeyType for bool {
    const TAKES: TileType = TileType::Flag;

    fn read(value: TileValue) -> Option<Self> {
        if let TileValue::Flag(flag) = value { Some(flag) } else { None }
    }

    fn value(self) -> TileValue {
        TileValue::Flag(self)
    }
}

/// Implements [`KeyType`] for an enum: the word of each of its values.
macro_rules! words {
    ($type:ident: $($value:ident = $word:literal),+) => {
        impl $type {
            /// The word for it in files.
            pub fn name(self) -> &'static str {
                match self { $(Self::$value => $word,)+ }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl KeyType for $type {
            const TAKES: TileType = TileType::Words(&[$($word),+]);

            fn read(value: TileValue) -> Option<Self> {
                match value {
                    $(TileValue::Word($word) => Some(Self::$value),)+
                    _ => None,
                }
            }

            fn value(self) -> TileValue {
                TileValue::Word(self.name())
            }
        }
    };
}

words! { CopyPath: CpAsync = "cp_async", Tma = "tma" }
words! { StorePath: Direct = "direct", Tma = "tma" }
words! { Accuracy: Fast = "fast", Exact = "exact" }
words! { Fp8Mma: Fp32 = "fp32", Fp16 = "fp16", BlockScaled = "block_scaled" }
words! { Turns: None = "none", Products = "products", Exponentials = "exponentials" }

/// Declares the keys of a tile once: their table, a structure with a field for each, and its form as a
/// [`TileOverride`].
macro_rules! tile_keys {
    ($($(#[doc = $doc:literal])+ $key:ident: $type:ty $(, replaces $other:literal)?;)+) => {
        /// Changes to the default tile of an attention kernel; `None` leaves a key unchanged.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct TileChange {
            $($(#[doc = $doc])+ pub $key: Option<$type>,)+
        }

        /// Every key of attention, in the order of documentation.
        pub(super) static KEYS: &[TileKey] = &[$(TileKey {
            name: stringify!($key),
            about: concat!($($doc),+).trim_ascii_start(),
            takes: <$type as KeyType>::TAKES,
            replaces: &[$($other)?],
        }),+];

        impl From<&TileOverride> for TileChange {
            /// The keys that attention has; other keys are dropped.
            fn from(change: &TileOverride) -> Self {
                Self { $($key: change.get(stringify!($key)).and_then(KeyType::read),)+ }
            }
        }

        impl From<&TileChange> for TileOverride {
            fn from(change: &TileChange) -> Self {
                let values = [$(change.$key.map(KeyType::value)),+];
                let set = KEYS.iter().zip(values).filter_map(|(key, value)| Some((key, value?)));
                set.fold(Self::default(), |all, (key, value)| all.with(key, value))
            }
        }
    };
}

tile_keys! {
    /// Queries per block (`bwd`: queries per step).
    m: u32;
    /// Keys per step (`bwd`: keys per block).
    n: u32;
    /// Warps per block.
    warps: u32;
    /// Number of buffers for each tensor that the main loop reads: K and V, in the backward pass Q and dO.
    stages: u32;
    /// Q fragments stay in registers, instead of being read from shared memory in each step.
    q_in_registers: bool;
    /// Second argument of `__launch_bounds__`: caps registers so that this many blocks fit.
    min_blocks_per_sm: u32;
    /// Powers of two a row maximum may grow before O is rescaled; 0 rescales whenever it grows.
    rescale_threshold: u32, replaces "accuracy";
    /// `exact`: a `rescale_threshold` of 0, for any default.
    accuracy: Accuracy, replaces "rescale_threshold";
    /// The way tiles reach shared memory.
    copy: CopyPath;
    /// The instruction of FP8 kernels.
    fp8_mma: Fp8Mma;
    /// Hopper: Q K^T of the next keys overlaps with the softmax of the current ones.
    overlap: bool;
    /// Hopper: the work that warpgroups do in turns.
    turns: Turns;
    /// Hopper: one block per multiprocessor iterates over all work items, instead of one block for each item.
    persistent: bool;
    /// Hopper: blocks of a cluster, 1 or 2. Two take query tiles side by side and share the loaded tiles of K and V.
    cluster: u32;
    /// Hopper: how O reaches device memory.
    store: StorePath;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_manifests() {
        fn holds<T: Serialize + KeyType + fmt::Debug + PartialEq>(values: &[T]) {
            let TileType::Words(words) = T::TAKES else { panic!("an enum has words") };
            assert_eq!(values.len(), words.len());
            for (value, word) in values.iter().zip(words) {
                assert_eq!(value.value(), TileValue::Word(word));
                assert_eq!(T::read(value.value()), Some(*value));
                assert_eq!(serde_json::to_value(value).ok(), Some((*word).into()));
            }
        }
        holds(&[CopyPath::CpAsync, CopyPath::Tma]);
        holds(&[StorePath::Direct, StorePath::Tma]);
        holds(&[Accuracy::Fast, Accuracy::Exact]);
        holds(&[Fp8Mma::Fp32, Fp8Mma::Fp16, Fp8Mma::BlockScaled]);
        holds(&[Turns::None, Turns::Products, Turns::Exponentials]);
    }

    #[test]
    fn a_change_is_read_back_as_it_was_written() {
        let change = TileChange {
            n: Some(64),
            q_in_registers: Some(false),
            turns: Some(Turns::Products),
            accuracy: Some(Accuracy::Exact),
            ..TileChange::default()
        };
        assert_eq!(TileChange::from(&TileOverride::from(&change)), change);
    }

    /// If both are set, the later table wins.
    #[test]
    fn accuracy_and_rescale_threshold_replace_each_other() {
        let of = |change: TileChange| TileOverride::from(&change);
        let exact = of(TileChange { accuracy: Some(Accuracy::Exact), ..TileChange::default() });
        let four = of(TileChange { rescale_threshold: Some(4), ..TileChange::default() });
        assert_eq!(exact.clone().over(four.clone()), exact);
        assert_eq!(four.clone().over(exact), four);
    }
}
