//! The `[[tile]]` entries of `variants.toml`: what tuning found better than the plan's own choice.

use crate::text::ticked;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a tile of K or V gets from device to shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyPath {
    /// Each thread copies its 16-byte pieces: `cp.async` where the target has it, registers where not.
    #[default]
    CpAsync,
    /// One thread asks the Tensor Memory Accelerator for a whole tile: sm90 and newer.
    Tma,
}

/// How O gets from registers to device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorePath {
    /// Each thread stores what it holds.
    #[default]
    Direct,
    /// Through shared memory, from where the Tensor Memory Accelerator stores whole tiles.
    Tma,
}

/// How exact O is where it costs speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accuracy {
    /// As exact as `rescale_threshold` allows: a weight that dominates its row is.
    #[default]
    Fast,
    /// The most exact form: O is rescaled at every growth of a maximum, as with a `rescale_threshold` of 0.
    Exact,
}

/// The instruction that multiplies FP8 operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fp8Mma {
    /// `mma.sync` m16n8k32 with an fp32 accumulator.
    #[default]
    Fp32,
    /// The same with an fp16 accumulator: twice the rate on Ada.
    Fp16,
    /// `mma.sync` `kind::mxf8f6f4.block_scale` with unit scales: the full rate on sm120 and sm121.
    BlockScaled,
}

/// What the warpgroups of a Hopper kernel do one after the other, so that they do not all wait for the same unit at
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turns {
    /// Nothing: each goes on as it can.
    #[default]
    None,
    /// Handing products to the tensor cores ("ping-pong").
    Products,
    /// Exponentials, of which a multiprocessor makes 16 a clock.
    Exponentials,
}

impl fmt::Display for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Products => "products",
            Self::Exponentials => "exponentials",
        })
    }
}

/// Writes down the keys of a tile once: the structure, their names, and how a later entry changes an earlier one.
macro_rules! tile_keys {
    ($($(#[$doc:meta])* $key:ident: $type:ty,)+) => {
        /// Changes to the plan's default tile; what is absent stays as the plan chooses it.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct TileOverride {
            $($(#[$doc])* pub $key: Option<$type>,)+
        }

        impl TileOverride {
            /// Every key, in the order documentation lists them.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($key)),+];

            /// The keys that it sets.
            pub fn keys(&self) -> impl Iterator<Item = &'static str> {
                [$((self.$key.is_some(), stringify!($key))),+].into_iter().filter_map(|(set, key)| set.then_some(key))
            }

            /// Why a kernel that reads no keys but `read` refuses it, if it does.
            pub fn refusal(&self, read: &[&str]) -> Option<String> {
                let ignored = self.keys().find(|key| !read.contains(key))?;
                let keys = match read {
                    [] => "it has no tile to choose".to_owned(),
                    read => format!("it reads {}", ticked(read)),
                };
                Some(format!("`{ignored}` is a tile key that this kernel does not read; {keys}"))
            }

            /// These changes, and those of `earlier` where these say nothing. (`accuracy` and `rescale_threshold` say
            /// something about each other.)
            #[must_use]
            pub fn over(self, mut earlier: Self) -> Self {
                if self.accuracy.is_some() || self.rescale_threshold.is_some() {
                    (earlier.accuracy, earlier.rescale_threshold) = (None, None);
                }
                Self { $($key: self.$key.or(earlier.$key),)+ }
            }
        }
    };
}

tile_keys! {
    /// Queries a block.
    m: u32,
    /// Keys a step.
    n: u32,
    /// Warps of a block.
    warps: u32,
    /// Buffers for each tensor that is walked over.
    stages: u32,
    /// Keep Q fragments in registers instead of re-reading them from shared memory each step.
    q_in_registers: bool,
    /// Second argument of `__launch_bounds__`: caps registers so that this many blocks fit.
    min_blocks_per_sm: u32,
    /// Powers of two a row maximum may grow before O is rescaled; 0 rescales at every growth.
    rescale_threshold: u32,
    /// `exact`: a `rescale_threshold` of 0, whatever the default is.
    accuracy: Accuracy,
    /// How tiles reach shared memory.
    copy: CopyPath,
    /// The instruction of FP8 kernels.
    fp8_mma: Fp8Mma,
    /// Hopper: Q K^T of the next keys runs under the softmax of these.
    overlap: bool,
    /// Hopper: what warpgroups take turns at.
    turns: Turns,
    /// Hopper: one block a multiprocessor walks over all work, instead of one block for each piece of it.
    persistent: bool,
    /// Hopper: blocks of a cluster, 1 or 2. Two take query tiles side by side and share what they fetch of K and V.
    cluster: u32,
    /// Hopper: how O reaches device memory.
    store: StorePath,
}
