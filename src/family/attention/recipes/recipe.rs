//! A template's recipe: the variants that it supports, their tiles, and the resources of a tile.

use super::{Backward, CopyPath, Fp8Choices, Hopper, Kv, KvSource, Point, Region, RegisterEstimate, TensorCore, Tile};
use crate::{
    grid::TileFile,
    kernel::{Features, Target},
};

/// The recipe of one template. Its methods are called with variants that `registry` assigns to it.
pub(super) trait Recipe: Sync {
    /// The template, a file below `templates/attention/`.
    fn template(&self) -> &'static str;

    /// The tile of a variant without an override in `variants.toml`; or the reason why the template does not support
    /// the variant, with an alternative.
    fn default_tile(&self, variant: Point) -> Result<Tile, String>;

    /// The recipe's file in `tiles/`: default tiles and candidates. `None` if its kernels have no tile to choose.
    fn tiles(&self) -> Option<&'static TileFile> {
        None
    }

    /// The supported keys of `[[tile]]`; any other is refused.
    fn keys(&self) -> &'static [&'static str];

    /// Features that its kernels can have.
    fn features(&self) -> Features {
        Features::NONE
    }

    /// The first rule of the kernel that `tile` breaks, as a sentence.
    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String>;

    /// Regions of a block's shared memory, in order. The end of the last region is the size requested by a launch.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region>;

    /// Registers per thread.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate;

    /// The tensor-core instructions that the machine code for `compiled_for` must contain, and no others.
    fn tensor_core(&self, variant: Point, tile: &Tile, compiled_for: Target) -> TensorCore;

    /// The K of the template's MMA, in elements; rows of shared-memory tiles are rounded up to it.
    fn head_dim_step(&self) -> u32 {
        16
    }

    /// Loading of K and V.
    fn kv(&self, _variant: Point, tile: &Tile) -> Kv {
        Kv::aside(if tile.copy == CopyPath::Tma { KvSource::Tma } else { KvSource::CpAsync })
    }

    /// Choices of FP8 kernels; `None` for others.
    fn fp8(&self, _tile: &Tile, _compiled_for: Target) -> Option<Fp8Choices> {
        None
    }

    /// For a variant made for another target: the nearest tile that uses only instructions that `target` supports, or
    /// the reason why there is none.
    fn portable(&self, variant: Point, tile: Tile, target: Target) -> Result<Tile, String>;

    /// True if the kernel loads Q, K and V by TMA only.
    fn needs_tma(&self) -> bool {
        false
    }

    /// Values of `wgmma` kernels in addition to the tile.
    fn hopper(&self, _variant: Point, _tile: &Tile) -> Option<Hopper> {
        None
    }

    /// Values of backward kernels in addition to the tile.
    fn backward(&self, _variant: Point, _tile: &Tile) -> Option<Backward> {
        None
    }
}
