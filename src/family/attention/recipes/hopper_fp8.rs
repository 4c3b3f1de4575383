//! Forward attention on FP8 with TMA and `wgmma`: sm90 only.

use super::{
    ByteTransposition, Fp8Choices, Hopper, Kv, KvSource, Limits, Point, Recipe, Region, RegisterEstimate, StorePath, TensorCore,
    Tile,
    defaults::{default_of, tile_file},
    hopper::{
        HopperForward, MBARRIER_BYTES, TMA_TILE_ALIGNMENT, WARPGROUP_ROWS, distinct, passes_by_turns, work_bytes, zeros_bytes,
    },
};
use crate::{
    grid::TileFile,
    kernel::{Feature, Features, HeadDim, Target},
};
use std::{iter::once, sync::LazyLock};

/// The recipe of `templates/attention/fwd_fp8_sm90.cu.tera`.
pub(super) struct HopperFp8Forward;

/// Registers per consumer thread in addition to O, S or a part of P V, and P: what ptxas needs at head dim 256.
const OTHER_REGISTERS: u32 = 8;

/// [`OTHER_REGISTERS`] if P V is accumulated into O itself, overlapped with the next scores: with fewer, ptxas spills
/// in the key loop.
const OTHER_REGISTERS_OVERLAPPED: u32 = 32;

/// Bytes per element of the total that O is flushed to, if P V is accumulated into O itself: bf16.
const TOTAL_BYTES: u32 = 2;

/// The K of FP8 products.
const STEP: u32 = 32;

static TILES: LazyLock<TileFile> = tile_file!("hopper_fp8.toml");

/// Bytes of a row of Q and K, and of a row of V.
fn row_bytes(variant: Point) -> HeadDim {
    variant.head_dim.padded_to(STEP)
}

/// Bytes of a stage of K, of V, and of transposed V.
fn stage_bytes(variant: Point, tile: &Tile) -> (u32, u32, u32) {
    let transposed = variant.head_dim.v.next_multiple_of(16) * tile.n;
    let whole = |bytes: u32| bytes.next_multiple_of(TMA_TILE_ALIGNMENT);
    let row = row_bytes(variant);
    (whole(tile.n * row.qk), whole(tile.n * row.v), whole(transposed))
}

/// Bytes of the totals of all warpgroups.
fn totals_bytes(variant: Point, tile: &Tile) -> u32 {
    if tile.overlap { tile.m * variant.head_dim.v.next_multiple_of(16) * TOTAL_BYTES } else { 0 }
}

/// Bytes left for slots of Q and stages of untransposed V.
fn bytes_for_q_and_v(variant: Point, tile: &Tile) -> u32 {
    let (keys, _, transposed) = stage_bytes(variant, tile);
    // The three alignments are for descriptions of work, zeros and barriers.
    let taken = tile.stages * (keys + transposed) + totals_bytes(variant, tile) + 3 * TMA_TILE_ALIGNMENT;
    Limits::of(variant.target).shared_memory_per_block.saturating_sub(taken)
}

/// Stages of untransposed V. The transposing warps release a stage long before the products of its tile run. With
/// overlap, which also needs the totals, one stage suffices if no more fit beside a Q slot per warpgroup.
fn v_stages(variant: Point, tile: &Tile) -> u32 {
    if !tile.overlap {
        return tile.stages;
    }
    let (_, values, _) = stage_bytes(variant, tile);
    (bytes_for_q_and_v(variant, tile).saturating_sub(tile.m * row_bytes(variant).qk) / values).clamp(1, tile.stages)
}

fn q_slots(variant: Point, tile: &Tile) -> u32 {
    let consumers = tile.m / WARPGROUP_ROWS;
    if !tile.persistent {
        return consumers;
    }
    let (_, values, _) = stage_bytes(variant, tile);
    let available = bytes_for_q_and_v(variant, tile).saturating_sub(v_stages(variant, tile) * values);
    (available / (WARPGROUP_ROWS * row_bytes(variant).qk)).clamp(consumers, 2 * consumers)
}

/// Columns of a partial P V, which is summed separately in the registers of S: as wide as registers allow, up to 128,
/// and if possible a divisor of O's columns (otherwise the last part overlaps the previous one). Narrower parts than
/// necessary spill, because ptxas starts the products of one part before the sums of the last are consumed. With
/// overlap it is all columns, since P V is accumulated into O itself.
fn part_columns(variant: Point, tile: &Tile) -> u32 {
    let columns = variant.head_dim.v.next_multiple_of(16);
    if tile.overlap {
        return columns;
    }
    let (_, available) = registers_of(variant, tile.m / WARPGROUP_ROWS);
    let fits = |part: &u32| *part <= tile.n && estimate(variant, tile, *part).total <= available;
    let divisors =
        (columns.min(48)..=columns.min(128)).rev().filter(|part| part.is_multiple_of(16) && columns.is_multiple_of(*part));
    let overlapping = [128, 64].map(|widest| (columns / 16).div_ceil(columns.div_ceil(widest)) * 16);
    divisors.chain(overlapping).find(fits).unwrap_or(overlapping[1])
}

/// Registers per thread of the producer and transposer warpgroup, and of the MMA warpgroups: transposing warps need
/// more than one that only loads, and page lookup with work search needs more than 40.
fn registers_of(variant: Point, consumers: u32) -> (u32, u32) {
    let paged = variant.features.has(Feature::Paged);
    match consumers {
        1 => (255, 255),
        2 if paged => (56, 224),
        3 if paged => (56, 152),
        2 => (40, 232),
        _ => (32, 160),
    }
}

/// O; S, whose registers P reuses, four elements per register; and a part of P V. With overlap all of O, the next S,
/// and P.
fn estimate(variant: Point, tile: &Tile, part: u32) -> RegisterEstimate {
    if tile.overlap {
        let output = variant.head_dim.v.next_multiple_of(16) / 2;
        return RegisterEstimate::sum(output, tile.n / 2 + tile.n / 8, 0, OTHER_REGISTERS_OVERLAPPED);
    }
    RegisterEstimate::sum(variant.head_dim.v / 2, (tile.n / 2).max(part / 2 + tile.n / 4), 0, OTHER_REGISTERS)
}

impl Recipe for HopperFp8Forward {
    fn template(&self) -> &'static str {
        "attention/fwd_fp8_sm90.cu.tera"
    }

    fn head_dim_step(&self) -> u32 {
        STEP
    }

    fn default_tile(&self, variant: Point) -> Result<Tile, String> {
        default_of(&TILES, variant)
    }

    fn tiles(&self) -> Option<&'static TileFile> {
        Some(&TILES)
    }

    fn features(&self) -> Features {
        Features::with_pages()
    }

    fn keys(&self) -> &'static [&'static str] {
        HopperForward.keys()
    }

    fn broken_rule(&self, variant: Point, tile: &Tile) -> Option<String> {
        // P V consumes 32 keys at a time.
        if tile.n == 0 || !tile.n.is_multiple_of(STEP) || tile.n > 256 {
            return Some(format!("`n` is {}; it must be a multiple of 32 from 32 to 256", tile.n));
        }
        if tile.store != StorePath::Direct {
            return Some("`store` is \"tma\"; O, twice as wide as Q, has no room in shared memory".to_owned());
        }
        // Powers of two only: P is at most 2^8, below E4M3's 448.
        if tile.rescale_threshold != 0 {
            let threshold = tile.rescale_threshold;
            return Some(format!(
                "`rescale_threshold` is {threshold}; P of a maximum twice as large would overflow, so it must be 0"
            ));
        }
        HopperForward.broken_rule(variant, tile)
    }

    /// Slots of Q, the totals with overlap, the stages of K, V and transposed V, the descriptions of work, and the full
    /// and empty barriers of each slot and stage (V has as many as K).
    fn shared_memory(&self, variant: Point, tile: &Tile) -> Vec<Region> {
        let q_slots = q_slots(variant, tile);
        let (keys, values, transposed) = stage_bytes(variant, tile);
        let totals = tile.overlap.then(|| ("totals of O", totals_bytes(variant, tile), Some("TOTALS_OFFSET")));
        let slots = ("slots of Q", q_slots * WARPGROUP_ROWS * row_bytes(variant).qk, Some("Q_OFFSET"));
        let behind = [
            ("stages of K", tile.stages * keys, Some("K_OFFSET")),
            ("stages of V", v_stages(variant, tile) * values, Some("V_OFFSET")),
            ("stages of V transposed", tile.stages * transposed, Some("VALUES_OFFSET")),
            ("work", q_slots * work_bytes(variant), Some("WORK_OFFSET")),
            ("zeros", zeros_bytes(tile), Some("ZEROS_OFFSET")),
            ("mbarriers", (2 * q_slots + 6 * tile.stages) * MBARRIER_BYTES, Some("BARRIERS_OFFSET")),
        ];
        Region::lay_out_aligned(once(slots).chain(totals).chain(behind), TMA_TILE_ALIGNMENT)
    }

    fn registers(&self, variant: Point, tile: &Tile) -> RegisterEstimate {
        estimate(variant, tile, part_columns(variant, tile))
    }

    fn tensor_core(&self, _variant: Point, _tile: &Tile, _compiled_for: Target) -> TensorCore {
        TensorCore::Qgmma
    }

    fn fp8(&self, _tile: &Tile, _compiled_for: Target) -> Option<Fp8Choices> {
        Some(Fp8Choices { transposition: ByteTransposition::Prmt, p_exponent: 8 })
    }

    fn portable(&self, variant: Point, tile: Tile, target: Target) -> Result<Tile, String> {
        HopperForward.portable(variant, tile, target)
    }

    fn needs_tma(&self) -> bool {
        true
    }

    fn kv(&self, variant: Point, tile: &Tile) -> Kv {
        let registers = self.hopper(variant, tile).map_or(0, |hopper| hopper.producer_registers);
        Kv { from: KvSource::TmaProducer, threads: 128, registers }
    }

    fn hopper(&self, variant: Point, tile: &Tile) -> Option<Hopper> {
        let consumers = tile.m / WARPGROUP_ROWS;
        let (producer_registers, consumer_registers) = registers_of(variant, consumers);
        let part_columns = part_columns(variant, tile);
        let widths = distinct([tile.n, part_columns].into_iter());
        Some(Hopper {
            q_slots: q_slots(variant, tile),
            passes_by_turns: passes_by_turns(variant.features, tile),
            // Without overlap, P V of two warpgroups waits for its own sums, not for V; with four chunks the products
            // wait for shared memory (2 to 5 % at head dim 256 on an H100).
            transposed_at_once: if consumers == 2 && !tile.overlap { 2 } else { 4 },
            ..Hopper::new(consumers, [producer_registers, consumer_registers], widths, part_columns)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::{TileChange, Turns};
    use crate::{
        family::attention::Kind,
        kernel::{Dtype, Features, HeadDim},
        plan::Plan,
    };
    use itertools::Itertools;

    const D128: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(128),
        dtype: Dtype::Fp8,
        causal: false,
        features: Features::NONE,
        target: Target::Sm90,
    };

    fn reason(change: &TileChange) -> String {
        Plan::changed(D128, change).expect_err("the tile breaks a rule").to_string()
    }

    /// The columns of P V that are summed at a time, for a head dim with its default tile without overlap.
    fn default_part(head_dim: u32) -> u32 {
        let apart = TileChange { overlap: Some(false), ..TileChange::default() };
        let plan = Plan::changed(Point { head_dim: HeadDim::equal(head_dim), ..D128 }, &apart).expect("fits");
        plan.attention().hopper.clone().expect("made of wgmma").part_columns
    }

    #[test]
    fn every_head_dim_has_a_default_whose_runs_are_one_width_of_an_instruction_and_fit_beside_p() {
        for (head_dim, causal) in (16..=256).step_by(8).cartesian_product([false, true]) {
            let plan = Plan::new(Point { head_dim: HeadDim::equal(head_dim), causal, ..D128 }, None).expect("fits");
            let hopper = plan.attention().hopper.clone().expect("made of wgmma");
            let part = hopper.part_columns;
            if plan.attention().tile.overlap {
                assert_eq!(part, head_dim.next_multiple_of(16), "all of O at once");
            } else {
                assert!(part.is_multiple_of(16) && (16..=128).contains(&part), "{head_dim}: {part}");
                assert!(part <= head_dim.next_multiple_of(16), "a run is no wider than O's columns: {head_dim}: {part}");
                assert!(part <= plan.attention().tile.n, "its sums take the place of S: {head_dim}: {part}");
            }
            assert!(plan.registers.total <= hopper.consumer_registers, "{head_dim}: {:?}", plan.registers);
            assert_eq!(plan.threads, 128 * (1 + hopper.consumers), "{head_dim}");
            assert_eq!(plan.tensor_core, TensorCore::Qgmma);
        }
    }

    #[test]
    fn the_numbers_of_head_dim_128_are_exact() {
        // Three warpgroups, each with two slots for a Q of 64 rows.
        let tile = TileChange { m: Some(192), n: Some(128), warps: Some(16), ..TileChange::default() };
        let plan = Plan::changed(D128, &TileChange { turns: Some(Turns::Exponentials), ..tile.clone() }).expect("fits");
        assert_eq!(regions(&plan)[..2], [("Q_OFFSET", 0, 6 * 8192), ("K_OFFSET", 49_152, 2 * 16_384)]);
        assert_eq!(regions(&plan)[2..4], [("V_OFFSET", 81_920, 2 * 16_384), ("VALUES_OFFSET", 114_688, 2 * 16_384)]);
        let behind = [("WORK_OFFSET", 147_456, 96), ("ZEROS_OFFSET", 148_480, 8), ("BARRIERS_OFFSET", 149_504, 192)];
        assert_eq!(regions(&plan)[4..], behind);
        assert_eq!((plan.registers.output, plan.registers.scores), (64, 32 + 32), "S, or P beside the sums of half of P V");
        let hopper = plan.attention().hopper.clone().expect("made of wgmma");
        assert_eq!((hopper.producer_registers, hopper.consumer_registers, hopper.part_columns), (32, 160, 64));
        assert_eq!(hopper.widths, [64, 128]);
        let other = Plan::changed(D128, &TileChange { turns: Some(Turns::Products), ..tile }).expect("fits");
        let behind = [("WORK_OFFSET", 147_456, 96), ("ZEROS_OFFSET", 148_480, 0), ("BARRIERS_OFFSET", 148_480, 192)];
        assert_eq!(regions(&other)[4..], behind, "only exponentials that are taken in turns have zeros added");
    }

    fn overlapped(head_dim: u32, m: u32, n: u32) -> Result<Plan, crate::plan::PlanError> {
        let tile = TileChange {
            m: Some(m),
            n: Some(n),
            warps: Some(4 + m / 16),
            overlap: Some(true),
            turns: Some(Turns::Products),
            ..TileChange::default()
        };
        Plan::changed(Point { head_dim: HeadDim::equal(head_dim), ..D128 }, &tile)
    }

    fn regions(plan: &Plan) -> Vec<(&str, u32, u32)> {
        plan.shared_memory.iter().map(|r| (r.constant.unwrap_or_default(), r.offset, r.bytes)).collect()
    }

    #[test]
    fn with_overlap_o_has_a_total_and_v_one_stage_where_no_more_fit() {
        let plan = overlapped(256, 128, 96).expect("fits");
        assert_eq!(regions(&plan)[..2], [("Q_OFFSET", 0, 2 * 16_384), ("TOTALS_OFFSET", 32_768, 128 * 256 * 2)]);
        assert_eq!(regions(&plan)[2..4], [("K_OFFSET", 98_304, 2 * 24_576), ("V_OFFSET", 147_456, 24_576)]);
        assert_eq!(regions(&plan)[4..6], [("VALUES_OFFSET", 172_032, 2 * 24_576), ("WORK_OFFSET", 221_184, 32)]);
        assert_eq!(regions(&plan)[6..], [("ZEROS_OFFSET", 222_208, 0), ("BARRIERS_OFFSET", 222_208, 128)]);
        assert_eq!((plan.registers.output, plan.registers.scores, plan.registers.total), (128, 48 + 12, 220));
        let hopper = plan.attention().hopper.clone().expect("made of wgmma");
        assert_eq!((hopper.part_columns, hopper.widths), (256, vec![96, 256]), "P V in one piece");

        let v_bytes = |plan: &Plan| regions(plan)[3].2;
        assert_eq!(v_bytes(&overlapped(224, 128, 128).expect("fits")), 128 * 224, "a second stage of V does not fit");
        assert_eq!(v_bytes(&overlapped(192, 128, 128).expect("fits")), 2 * 128 * 192, "a second stage of V fits");
        let slots = |plan: Plan| plan.attention().hopper.clone().expect("made of wgmma").q_slots;
        assert_eq!(slots(overlapped(192, 128, 128).expect("fits")), 2, "and leaves no place for the next Q");
        assert_eq!(slots(overlapped(128, 128, 128).expect("fits")), 4);
    }

    #[test]
    fn with_overlap_all_of_o_s_and_p_must_fit() {
        let refused = |head_dim, m, n| overlapped(head_dim, m, n).expect_err("does not fit").to_string();
        assert!(refused(256, 128, 128).contains("shared memory needs"), "{}", refused(256, 128, 128));
        assert!(refused(128, 192, 160).contains("registers needs 196 of 160"), "{}", refused(128, 192, 160));
    }

    /// With two warpgroups there are 232 registers per thread, with three 160.
    #[test]
    fn a_part_of_p_v_is_as_wide_as_registers_allow_and_divides_o_where_it_can() {
        let part = |m: u32, n: u32| {
            let tile = TileChange { m: Some(m), n: Some(n), warps: Some(4 + m / 16), ..TileChange::default() };
            Plan::changed(D128, &tile).expect("fits").attention().hopper.clone().expect("made of wgmma").part_columns
        };
        assert_eq!(part(128, 128), 128, "64 of O, 64 + 32 and 8 others");
        assert_eq!(part(192, 128), 64, "128 would make it 168");
        assert_eq!(part(128, 96), 64, "its sums take the place of S");
        assert_eq!(default_part(72), 80, "all of O, which has 80 columns: 36, 40 + 32 and 8 others");
        assert_eq!(default_part(136), 48, "a third of 144");
        assert_eq!(default_part(256), 128, "128 of O, 64 + 32 and 8 others are all 232");
    }

    #[test]
    fn every_head_dim_has_a_default_for_pages_that_fits_what_looking_up_leaves() {
        let all = Features::with_pages();
        for (head_dim, features) in (16..=256).step_by(8).cartesian_product([Features::from_iter([Feature::Paged]), all]) {
            let point = Point { head_dim: HeadDim::equal(head_dim), features, ..D128 };
            let plan = Plan::new(point, None).expect("fits");
            let hopper = plan.attention().hopper.clone().expect("made of wgmma");
            assert!(matches!((hopper.producer_registers, hopper.consumer_registers), (56, 224 | 152)), "{head_dim}");
            assert!(plan.registers.total <= hopper.consumer_registers, "{head_dim}: {:?}", plan.registers);
        }
    }

    #[test]
    fn a_head_dim_that_no_part_divides_has_its_last_one_overlap() {
        assert_eq!(default_part(200), 112, "of 208 columns, the second from column 96 on");
        assert_eq!(default_part(176), 96, "the second from column 80 on");
        let narrow = TileChange {
            m: Some(64),
            n: Some(96),
            warps: Some(8),
            turns: Some(Turns::None),
            overlap: Some(false),
            ..TileChange::default()
        };
        let plan = Plan::changed(Point { head_dim: HeadDim::equal(200), ..D128 }, &narrow).expect("fits");
        assert_eq!(
            plan.attention().hopper.clone().expect("made of wgmma").part_columns,
            64,
            "112 is wider than S; the fourth from column 144 on"
        );
    }

    #[test]
    fn each_broken_rule_is_named_with_its_number() {
        let none = TileChange::default();
        assert!(reason(&TileChange { n: Some(48), ..none.clone() }).contains("`n` is 48; it must be a multiple of 32"));
        let one_stage = TileChange { overlap: Some(true), stages: Some(1), ..none.clone() };
        assert!(reason(&one_stage).contains("`overlap` is true with one stage"));
        assert!(reason(&TileChange { rescale_threshold: Some(8), ..none.clone() }).contains("must be 0"));
        assert!(reason(&TileChange { store: Some(StorePath::Tma), ..none.clone() }).contains("`store` is \"tma\""));
        assert!(reason(&TileChange { m: Some(96), ..none }).contains("`m` is 96"));
    }
}
