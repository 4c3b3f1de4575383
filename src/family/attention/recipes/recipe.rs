//! A template's recipe: the variants that it can make, their tiles, and what those cost.

use super::{Backward, CopyPath, Fp8Choices, Hopper, Kv, KvSource, Point, Region, RegisterEstimate, TensorCore, Tile};
use crate::{
    grid::TileFile,
    kernel::{Features, Target},
};

/// The recipe of one template. Its methods are called with variants that `registry` assigns to it.
pub(super) trait Recipe: Sync {
    /// The template, a file below `templates/attention/`.
    fn template(&self) -> &'static str;

    /// The tile of a variant that `variants.toml` says nothing about; or why the template cannot make it and what to
    /// request instead.
    fn default_tile(&self, variant: Point) -> Result<Tile, String>;

    /// Its file in `tiles/`: default tiles and candidates. `None` if its kernels have no tile to choose.
    fn tiles(&self) -> Option<&'static TileFile> {
        None
    }

    /// The keys of `[[tile]]` that it reads; any other is refused.
    fn keys(&self) -> &'static [&'static str];

    /// What its kernels can be generated with.
    fn features(&self) -> Features {
        Features::NONE
    }

    /// The first rule of the kernel that `tile` breaks, in words.
    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String>;

    /// Shared memory of a block, in order; where the last region ends is what a launch asks for.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region>;

    /// Registers a thread needs.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate;

    /// The tensor-core instructions that the machine code for `compiled_for` must hold, and no others.
    fn tensor_core(&self, variant: Point, tile: &Tile, compiled_for: Target) -> TensorCore;

    /// The K of the template's MMA in elements: rows of shared-memory tiles are rounded up to it.
    fn head_dim_step(&self) -> u32 {
        16
    }

    /// Where K and V come from.
    fn kv(&self, _variant: Point, tile: &Tile) -> Kv {
        Kv::aside(if tile.copy == CopyPath::Tma { KvSource::Tma } else { KvSource::CpAsync })
    }

    /// What FP8 kernels decide besides; `None` for others.
    fn fp8(&self, _tile: &Tile, _compiled_for: Target) -> Option<Fp8Choices> {
        None
    }

    /// The nearest tile that uses only instructions `target` has as well, for a variant made for another target; or why
    /// there is none.
    fn portable(&self, variant: Point, tile: Tile, target: Target) -> Result<Tile, String>;

    /// Whether the kernel reads Q, K and V by TMA alone.
    fn needs_tma(&self) -> bool {
        false
    }

    /// What a kernel with `wgmma` has besides its tile.
    fn hopper(&self, _variant: Point, _tile: &Tile) -> Option<Hopper> {
        None
    }

    /// What a backward kernel has besides its tile.
    fn backward(&self, _variant: Point, _tile: &Tile) -> Option<Backward> {
        None
    }
}
