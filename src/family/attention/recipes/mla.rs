//! Split-KV forward attention with `qv` (MLA), using TMA and `wgmma`: sm90 only.

use super::{
    Hopper, Kv, KvSource, Point, Recipe, Region, RegisterEstimate, TensorCore, Tile,
    defaults::{default_of, tile_file},
    hopper::{MBARRIER_BYTES, TMA_TILE_ALIGNMENT},
};
use crate::{
    grid::TileFile,
    kernel::{Dtype, Feature, Features, HeadDim, Target},
};
use std::sync::LazyLock;

/// The recipe of `templates/attention/fwd_mla_sm90.cu.tera`.
pub(super) struct LatentForward;

/// MMA warpgroups. All compute the same rows; each accumulates half the columns of O.
const CONSUMERS: u32 = 2;

/// Registers per consumer thread in addition to O, S and P: softmax state, tile addresses, barriers, loop counters.
const OTHER_REGISTERS: u32 = 32;

/// Registers per thread of the producer warpgroup, which looks up pages, and of the others: 512 per row of 128 threads.
const PRODUCER_REGISTERS: u32 = 56;
const CONSUMER_REGISTERS: u32 = 224;

static TILES: LazyLock<TileFile> = tile_file!("mla.toml");

impl Recipe for LatentForward {
    fn template(&self) -> &'static str {
        "attention/fwd_mla_sm90.cu.tera"
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        if variant.dtype == Dtype::Fp8 {
            return Err("kernels with `qv` have no FP8 form; available: `fp16`, `bf16`".to_owned());
        }
        if variant.head_dim != HeadDim::LATENT {
            let (held, options) = (HeadDim::LATENT, variant.head_dim);
            return Err(format!("kernels with `qv` are made for head dim {held} alone, not {options}"));
        }
        if let Some(score) = variant.features.score() {
            return Err(format!("kernels with `qv` take no declared score, and `{score}` is one"));
        }
        default_of(&TILES, variant)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn features(&self) -> Features {
        [Feature::Paged, Feature::Qv].into_iter().collect()
    }

    fn keys(&self) -> &'static [&'static str] {
        &["rescale_threshold", "accuracy"]
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        let Tile { rescale_threshold, .. } = *tile;
        // P is at most 2^threshold: the maximum of fp16 is 65504, and fp32 sums of bf16 P are exact enough up to 2^64.
        let (dtype, most) = (variant.dtype, if variant.dtype == Dtype::Fp16 { 14 } else { 64 });
        (rescale_threshold > most).then(|| format!("`rescale_threshold` is {rescale_threshold}; {dtype} allows at most {most}"))
    }

    /// Q and QV of the block's rows; the stages of K and V; P, of which each warpgroup writes half; each warpgroup's
    /// maximum and sum of each row; and the full and empty barriers of each stage.
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let HeadDim { qk, v } = variant.head_dim;
        let bytes = |rows: u32, columns: u32| rows * columns * variant.dtype.bytes();
        let regions = [
            ("Q", bytes(tile.m, qk), Some("Q_OFFSET")),
            ("QV", bytes(tile.m, v), Some("QV_OFFSET")),
            ("stages of K and V", tile.stages * bytes(tile.n, qk + v), Some("STAGES_OFFSET")),
            ("P", bytes(tile.m, tile.n), Some("WEIGHTS_OFFSET")),
            ("maxima and sums", CONSUMERS * tile.m * 8, Some("STATE_OFFSET")),
            ("mbarriers", 2 * tile.stages * MBARRIER_BYTES, Some("BARRIERS_OFFSET")),
        ];
        Region::lay_out_aligned(regions.into_iter(), TMA_TILE_ALIGNMENT)
    }

    /// Per warpgroup: O of 64 rows and its half of the columns, S of its half of the keys, and P of all keys, 16 bits
    /// per element.
    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        let scores = tile.n / CONSUMERS / 2 + tile.n / 4;
        RegisterEstimate::sum(variant.head_dim.v / CONSUMERS / 2, scores, 0, OTHER_REGISTERS)
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Hgmma
    }

    fn portable(&self, variant: Point, _tile: Tile, target: Target) -> Result<Tile, String> {
        Err(format!("`{variant}` is made of `wgmma`, which `{target}` does not have"))
    }

    fn needs_tma(&self) -> bool {
        true
    }

    fn kv(&self, _variant: Point, _tile: &Tile) -> Kv {
        Kv { from: KvSource::TmaProducer, threads: 128, registers: PRODUCER_REGISTERS }
    }

    fn hopper(&self, variant: Point, tile: &Tile) -> Option<Hopper> {
        let widths = vec![tile.n / CONSUMERS, variant.head_dim.v / CONSUMERS];
        let registers = [PRODUCER_REGISTERS, CONSUMER_REGISTERS];
        Some(Hopper { next_starts_first: true, ..Hopper::new(CONSUMERS, registers, widths, variant.head_dim.v) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::TileChange;
    use crate::{
        expression::{Declared, KeptScore, UserScore},
        family::attention::Kind,
        plan::{Occupancy, Plan},
    };

    fn latent() -> Point {
        Point {
            kind: Kind::FwdSplit,
            head_dim: HeadDim::LATENT,
            dtype: Dtype::Bf16,
            causal: true,
            features: [Feature::Paged, Feature::Qv].into_iter().collect(),
            target: Target::Sm90,
        }
    }

    #[test]
    fn the_numbers_are_exact() {
        let plan = Plan::new(latent(), None).expect("fits");
        let map: Vec<_> = plan.shared_memory.iter().map(|r| (r.name.as_str(), r.offset, r.bytes)).collect();
        assert_eq!(map[..3], [("Q", 0, 8_192), ("QV", 8_192, 65_536), ("stages of K and V", 73_728, 147_456)]);
        assert_eq!(map[3..], [("P", 221_184, 8_192), ("maxima and sums", 229_376, 1_024), ("mbarriers", 230_400, 32)]);
        assert_eq!((plan.shared_memory_bytes, plan.threads), (230_432, 384));
        assert_eq!((plan.registers.output, plan.registers.scores), (128, 16 + 16));
        assert_eq!(plan.attention().hopper.as_ref().map(|hopper| hopper.widths.clone()), Some(vec![32, 256]));
        assert_eq!(plan.occupancy, Occupancy { blocks_per_sm: 1, warps_per_sm: 12, limited_by: "registers" });
        let Hopper { producer_registers, consumer_registers, .. } = plan.attention().hopper.clone().expect("it has `wgmma`");
        assert!(producer_registers + CONSUMERS * consumer_registers <= 65_536 / 128);
    }

    #[test]
    fn what_there_is_no_kernel_for_is_refused_by_name() {
        let error = |variant, change: Option<&TileChange>| {
            Plan::changed(variant, change.unwrap_or(&TileChange::default())).expect_err("refused").to_string()
        };
        let fp8 = error(Point { dtype: Dtype::Fp8, ..latent() }, None);
        assert!(fp8.contains("kernels with `qv` have no FP8 form"), "{fp8}");
        let other = error(Point { head_dim: HeadDim::equal(128), ..latent() }, None);
        assert!(other.contains("`qv` are made for head dim 64_512 alone, not 128"), "{other}");
        for target in [Target::Sm75, Target::Sm80, Target::Sm100, Target::Sm120] {
            let elsewhere = error(Point { target, ..latent() }, None);
            assert!(elsewhere.contains("`fwd_split_sm80.cu.tera` has no `qv`"), "{elsewhere}");
        }
        for kind in [Kind::Fwd, Kind::FwdShort, Kind::Bwd] {
            let elsewhere = error(Point { kind, features: Features::from_iter([Feature::Qv]), ..latent() }, None);
            assert!(elsewhere.contains("has no `qv`"), "{elsewhere}");
        }
        let without = error(Point { features: Features::NONE, ..latent() }, None);
        assert!(without.contains("64_512 is the head dim of kernels with `qv`"), "{without}");
        let window = error(Point { features: latent().features.with(Features::from_iter([Feature::Window])), ..latent() }, None);
        assert!(window.contains("has no `window`"), "{window}");
        let score = UserScore::of("halved", Declared::default(), Some("s / 2"), None).expect("it reads");
        let declared = error(Point { features: latent().features.with_score(Some(KeptScore::of(score))), ..latent() }, None);
        assert!(declared.contains("take no declared score, and `halved` is one"), "{declared}");
        let tall = TileChange { m: Some(128), ..TileChange::default() };
        assert!(error(latent(), Some(&tall)).contains("`m`"));
        let threshold = TileChange { rescale_threshold: Some(15), ..TileChange::default() };
        let said = error(Point { dtype: Dtype::Fp16, ..latent() }, Some(&threshold));
        assert!(said.contains("fp16 allows at most 14"), "{said}");
        let moved = Plan::new(latent(), None).expect("fits").to_run_as(Target::Sm100).expect_err("no wgmma").to_string();
        assert!(moved.contains("made of `wgmma`, which `sm100` does not have"), "{moved}");
    }
}
