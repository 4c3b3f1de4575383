//! The region of shared memory for a tile of elements that a feature adds to scores
//! (`templates/include/kgen/staged_bias.cuh`).

use super::{Limits, Tile};
use crate::kernel::{Feature, Features, Target};

/// Name, bytes and constant of a region.
type Part<'a> = (&'a str, u32, Option<&'static str>);

/// The region's constant; templates test for it to determine whether the region exists.
pub(in crate::family::attention) const STAGED_OFFSET: &str = "BIAS_OFFSET";

/// The region.
pub(super) fn staged_elements(bytes: u32) -> Part<'static> {
    ("rows of the bias", bytes, Some(STAGED_OFFSET))
}

/// Bytes of `rows` rows of `columns` keys each: 16 more per row than they take, for rows that begin at no multiple of
/// 16 bytes.
pub(super) fn bytes_of_elements(rows: u32, columns: u32) -> u32 {
    rows * (2 * columns + 16)
}

/// True if a forward kernel can stage elements: not if rows of a tile have different heads, nor if a declared score is
/// computed from the sum.
pub(super) fn may_stage_elements(features: Features) -> bool {
    features.any(|info| info.adds_elements) && !features.has(Feature::PackGqa) && features.score().is_none()
}

/// Regions, and one of `bytes` for a tile of elements if `min_blocks_per_sm` blocks with all of them fit a
/// multiprocessor; otherwise the kernel reads the elements from device memory.
pub(super) fn with_staged_elements<'a>(
    regions: impl Iterator<Item = Part<'a>>,
    target: Target,
    tile: &Tile,
    bytes: Option<u32>,
) -> impl Iterator<Item = Part<'a>> {
    let regions: Vec<_> = regions.collect();
    let taken: u32 = regions.iter().map(|(_, bytes, _)| bytes).sum();
    let limits = Limits::of(target);
    let most = limits.shared_memory_per_block.min(limits.shared_memory_per_sm / tile.min_blocks_per_sm - BESIDE);
    let staged = bytes.filter(|bytes| taken + bytes <= most).map(staged_elements);
    regions.into_iter().chain(staged)
}

/// Bytes of a block beside its tiles: those that CUDA reserves, and mbarriers at an aligned address.
const BESIDE: u32 = 1024 + 128;
