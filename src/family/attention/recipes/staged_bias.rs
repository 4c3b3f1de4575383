//! The region of shared memory for a tile of a bias (`templates/include/kgen/staged_bias.cuh`).

use super::{Limits, Tile};
use crate::kernel::{Feature, Features, Target};

/// The region's constant, by which templates know that there is one.
pub(in crate::family::attention) const BIAS_OFFSET: &str = "BIAS_OFFSET";

/// Bytes of a row of `columns` keys: 16 more than they take, for rows that begin at no multiple of 16 bytes.
pub(super) fn bias_pitch(columns: u32) -> u32 {
    2 * columns + 16
}

/// Whether a forward kernel can stage its bias: not if rows of a tile have different heads, nor if a declared score is
/// computed from the sum.
pub(super) fn may_stage_bias(features: Features) -> bool {
    features.has(Feature::Bias) && !features.has(Feature::PackGqa) && features.score().is_none()
}

/// Regions, and one of `bytes` for a tile of a bias if `min_blocks_per_sm` blocks with all of them fit a
/// multiprocessor; otherwise the kernel reads its bias from device memory.
pub(super) fn with_staged_bias<'a>(
    regions: impl Iterator<Item = (&'a str, u32, Option<&'static str>)>,
    target: Target,
    tile: &Tile,
    bytes: Option<u32>,
) -> impl Iterator<Item = (&'a str, u32, Option<&'static str>)> {
    let regions: Vec<_> = regions.collect();
    let taken: u32 = regions.iter().map(|(_, bytes, _)| bytes).sum();
    let limits = Limits::of(target);
    let most = limits.shared_memory_per_block.min(limits.shared_memory_per_sm / tile.min_blocks_per_sm - BESIDE);
    let staged = bytes.filter(|bytes| taken + bytes <= most).map(|bytes| ("rows of the bias", bytes, Some(BIAS_OFFSET)));
    regions.into_iter().chain(staged)
}

/// Bytes of a block beside its tiles: those that CUDA reserves, and mbarriers at an aligned address.
const BESIDE: u32 = 1024 + 128;
