//! Forward attention on Turing: fp16, `mma.sync` m16n8k8, `ldmatrix`, and tiles copied through registers.

use super::{
    Kv, KvSource, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    defaults::{default_of, tile_file},
    fwd::PortableForward,
};
use crate::{
    grid::TileFile,
    kernel::{Dtype, Feature, Features, Target},
};
use std::sync::LazyLock;

/// The recipe of `templates/attention/fwd_sm75.cu.tera`: sm80's tiles and layouts with different copies and MMAs.
pub(super) struct TuringForward;

static TILES: LazyLock<TileFile> = tile_file!("fwd_sm75.toml");

/// The widest head dim: 128 queries and 64 keys then fill shared memory exactly.
const WIDEST: u32 = 128;

/// Registers per thread in addition to accumulators and kept Q: those of `fwd.rs`, plus addresses of shared-memory
/// stores, which `cp.async` does not need.
const OTHER_REGISTERS: u32 = 64;

impl Recipe for TuringForward {
    fn template(&self) -> &'static str {
        "attention/fwd_sm75.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        let Point { dtype, head_dim, .. } = variant;
        if dtype != Dtype::Fp16 {
            let newer = if dtype == Dtype::Bf16 { Target::Sm80 } else { Target::Sm89 };
            return Err(format!("sm75's tensor cores have no {dtype}, which needs {newer} or newer; available: `fp16`"));
        }
        if head_dim.wider() > WIDEST {
            return Err(format!(
                "sm75 has 64 KB of shared memory a block, which ends at head dim {WIDEST}; head dim {head_dim} needs sm80 or newer"
            ));
        }
        default_of(&TILES, variant)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn features(&self) -> Features {
        Features::with_pages().with(Features::from_iter([Feature::Cache]))
    }

    fn keys(&self) -> &'static [&'static str] {
        &["m", "n", "warps", "stages", "q_in_registers", "min_blocks_per_sm", "rescale_threshold", "accuracy", "copy"]
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        if tile.stages != 1 {
            return Some(format!("`stages` is {}; a tile that comes through registers has 1", tile.stages));
        }
        PortableForward.broken_rule(variant, tile)
    }

    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        PortableForward.shared_memory(variant, tile)
    }

    /// The accumulators of sm80, and the thread's share of the K or V tile in flight.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        let RegisterEstimate { output, scores, query, .. } = PortableForward.registers(variant, tile);
        RegisterEstimate::sum(output, scores, query, self.kv(variant, tile).registers + OTHER_REGISTERS)
    }

    fn kv(&self, variant: Point, tile: &Tile) -> Kv {
        let tile_bytes = tile.n * variant.head_dim.padded_to(self.head_dim_step()).wider() * variant.dtype.bytes();
        Kv { from: KvSource::Staged, threads: 0, registers: tile_bytes.div_ceil(tile.warps * 32 * 4) }
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hmma
    }

    /// Every newer GPU supports all of its instructions.
    fn portable(&self, _variant: Point, tile: Tile, _target: Target) -> Result<Tile, String> {
        Ok(tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::TileChange;
    use crate::kernel::HeadDim;
    use crate::{family::attention::Kind, plan::Plan};

    const D64: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(64),
        dtype: Dtype::Fp16,
        causal: false,
        features: Features::NONE,
        target: Target::Sm75,
    };

    fn error(variant: Point, change: &TileChange) -> String {
        Plan::changed(variant, change).expect_err("impossible").to_string()
    }

    #[test]
    fn every_head_dim_from_16_to_128_has_a_default_that_keeps_its_promise() {
        for head_dim in (16..=128).step_by(8) {
            let plan = Plan::new(Point { head_dim: HeadDim::equal(head_dim), ..D64 }, None).expect("a default fits");
            assert!(plan.occupancy.blocks_per_sm >= plan.attention().tile.min_blocks_per_sm, "{head_dim}: {:?}", plan.occupancy);
            assert_eq!(plan.template, "attention/fwd_sm75.cu.tera");
        }
    }

    #[test]
    fn what_turing_cannot_do_is_refused_with_the_gpu_that_can() {
        let none = TileChange::default();
        let wide = error(Point { head_dim: HeadDim::equal(136), ..D64 }, &none);
        assert!(wide.contains("ends at head dim 128; head dim 136 needs sm80 or newer"), "{wide}");
        let bf16 = error(Point { dtype: Dtype::Bf16, ..D64 }, &none);
        assert!(bf16.contains("have no bf16, which needs sm80 or newer; available: `fp16`"), "{bf16}");
        let fp8 = error(Point { dtype: Dtype::Fp8, ..D64 }, &none);
        assert!(fp8.contains("have no fp8, which needs sm89 or newer"), "{fp8}");
    }

    #[test]
    fn registers_hold_one_stage() {
        let two = TileChange { stages: Some(2), ..TileChange::default() };
        assert!(error(D64, &two).contains("`stages` is 2; a tile that comes through registers has 1"));
        let plan = Plan::new(D64, None).expect("fits");
        // 64 keys of 128 bytes over 128 threads need 16 registers each.
        assert_eq!(plan.registers.other, 16 + OTHER_REGISTERS);
    }

    #[test]
    fn it_runs_as_any_newer_gpu() {
        let plan = Plan::new(D64, None).expect("fits").to_run_as(Target::Sm90).expect("portable");
        assert_eq!((plan.compiled_for(), plan.attention().tile.n), (Target::Sm90, 64));
    }
}
