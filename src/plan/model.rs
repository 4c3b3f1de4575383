//! The resource model: shared-memory map, register estimate, occupancy, and the checks that refuse a plan.

use super::{InstructionPath, Limits, Occupancy, Panel, Plan, PlanError, Region, RegisterEstimate, Tile};
use crate::grid::Variant;

/// Registers of a thread beyond accumulators and kept Q: the operand fragments in flight (4 of A for each 16-row tile,
/// 4 of B), lane offsets and tile addresses, 64-bit pointers and strides of K and V, softmax state, loop counters.
/// Fitted by hand to ptxas's figures for the default tiles; it errs on the high side.
const OTHER_REGISTERS: u32 = 40;

/// Resolves every number of a plan from its tile and checks them against the target.
pub(super) fn resolve(variant: Variant, tile: Tile) -> Result<Plan, PlanError> {
    let limits = Limits::of(variant.target);
    let threads = tile.warps * 32;
    let head_dim_padded = variant.head_dim.next_multiple_of(16);

    let shared_memory = shared_memory_map(&tile, head_dim_padded * variant.dtype.bytes());
    let shared_memory_bytes = shared_memory.iter().map(|region| region.bytes).sum();
    check_shared_memory(variant, &tile, shared_memory_bytes, &limits)?;

    let registers = estimate_registers(&tile, variant.head_dim, head_dim_padded);
    check_registers(variant, &tile, registers.total, &limits)?;

    Ok(Plan {
        variant,
        path: InstructionPath::MmaSync,
        tile,
        threads,
        rows_per_warp: tile.m / tile.warps,
        head_dim_padded,
        panels: panels(head_dim_padded),
        shared_memory,
        shared_memory_bytes,
        registers,
        occupancy: occupancy(&tile, shared_memory_bytes, registers.total, &limits),
        limits,
    })
}

/// Cuts a row into panels of 64 columns, then at most one of 32 and one of 16, as `kgen/tile.cuh` does.
fn panels(columns: u32) -> Vec<Panel> {
    let mut panels = Vec::new();
    let mut first_column = 0;
    for width in [64, 32, 16] {
        while columns - first_column >= width {
            panels.push(Panel { first_column, columns: width });
            first_column += width;
        }
    }
    panels
}

/// Q, then K and V of the first stage, then those of the second. Every size is a multiple of 512 bytes (16 rows of at
/// least 32 bytes), so every tile starts aligned to the widest swizzle's 128-byte line.
fn shared_memory_map(tile: &Tile, row_bytes: u32) -> Vec<Region> {
    let q = ("Q (then O)", tile.m, Some("Q_OFFSET"));
    let first = [("K", tile.n, Some("K_OFFSET")), ("V", tile.n, Some("V_OFFSET"))];
    let second = [("K (second stage)", tile.n, None), ("V (second stage)", tile.n, None)];
    let stages = first.into_iter().chain(second.into_iter().filter(|_| tile.kv_stages == 2));

    let mut offset = 0;
    let mut place = |(name, rows, constant): (&str, u32, Option<&'static str>)| {
        let region = Region { name: name.to_owned(), constant, offset, bytes: rows * row_bytes };
        offset += region.bytes;
        region
    };
    std::iter::once(q).chain(stages).map(&mut place).collect()
}

/// Accumulators of m16n8k16: 4 fp32 registers a thread for each 16x8 block. S turns into P in place, two scores to a
/// packed register as it goes, so P needs no term of its own.
fn estimate_registers(tile: &Tile, head_dim: u32, head_dim_padded: u32) -> RegisterEstimate {
    let m_tiles = tile.m / tile.warps / 16;
    let output = m_tiles * (head_dim / 8) * 4;
    let scores = m_tiles * (tile.n / 8) * 4;
    let query = if tile.q_in_registers { m_tiles * (head_dim_padded / 16) * 4 } else { 0 };
    RegisterEstimate { output, scores, query, other: OTHER_REGISTERS, total: output + scores + query + OTHER_REGISTERS }
}

fn check_shared_memory(variant: Variant, tile: &Tile, bytes: u32, limits: &Limits) -> Result<(), PlanError> {
    let refuse = |needed, available, unit, remedy: String| {
        Err(PlanError::DoesNotFit { variant: variant.name(), resource: "shared memory", needed, available, unit, remedy })
    };
    let shrink = if tile.kv_stages == 2 { "lower `n`, `m` or `kv_stages`" } else { "lower `n` or `m`" };
    if bytes > limits.shared_memory_per_block {
        return refuse(bytes, limits.shared_memory_per_block, "bytes a block", shrink.to_owned());
    }
    let blocks = tile.min_blocks_per_sm;
    let together = blocks.saturating_mul(bytes + limits.shared_memory_reserved);
    if together > limits.shared_memory_per_sm {
        let remedy = format!("{shrink}, or `min_blocks_per_sm` from {blocks}");
        return refuse(together, limits.shared_memory_per_sm, "bytes a multiprocessor", remedy);
    }
    Ok(())
}

fn check_registers(variant: Variant, tile: &Tile, total: u32, limits: &Limits) -> Result<(), PlanError> {
    let blocks = tile.min_blocks_per_sm;
    let available = limits.register_cap(tile.warps * 32, blocks);
    if total <= available {
        return Ok(());
    }
    let mut levers = vec!["lower `n`"];
    if tile.m / tile.warps > 16 {
        levers.push("give each warp 16 rows (`m` = 16 x `warps`)");
    }
    if tile.q_in_registers {
        levers.push("set `q_in_registers` to false");
    }
    if blocks > 1 {
        levers.push("lower `min_blocks_per_sm`");
    }
    Err(PlanError::DoesNotFit {
        variant: variant.name(),
        resource: "registers",
        needed: total,
        available,
        unit: "a thread",
        remedy: levers.join(" or "),
    })
}

/// Blocks that share a multiprocessor, from each resource alone; the scarcest one decides.
fn occupancy(tile: &Tile, shared_memory_bytes: u32, registers: u32, limits: &Limits) -> Occupancy {
    let registers_per_warp = registers.min(limits.registers_per_thread).next_multiple_of(8) * 32;
    let fits = [
        ("registers", limits.registers_per_sm / registers_per_warp / tile.warps),
        ("shared memory", limits.shared_memory_per_sm / (shared_memory_bytes + limits.shared_memory_reserved)),
        ("warps", limits.warps_per_sm / tile.warps),
        ("blocks", limits.blocks_per_sm),
    ];
    // `min_by_key` gives the first of equals: registers before shared memory, which is the order of what is tuned.
    let (limited_by, blocks_per_sm) = fits.into_iter().min_by_key(|(_, blocks)| *blocks).unwrap_or(("blocks", 0));
    Occupancy { blocks_per_sm, warps_per_sm: blocks_per_sm * tile.warps, limited_by }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Dtype, Kind, Target, TileOverride};

    fn variant(head_dim: u32) -> Variant {
        Variant { kind: Kind::Fwd, head_dim, dtype: Dtype::Bf16, causal: true, target: Target::Sm80 }
    }

    fn plan(head_dim: u32, change: &TileOverride) -> Result<Plan, PlanError> {
        Plan::new(variant(head_dim), Some(change))
    }

    fn map(plan: &Plan) -> Vec<(&str, u32, u32)> {
        plan.shared_memory.iter().map(|r| (r.name.as_str(), r.offset, r.bytes)).collect()
    }

    /// The tile these tests compute by hand, whatever the defaults become.
    fn fixed() -> TileOverride {
        TileOverride {
            m: Some(128),
            n: Some(64),
            warps: Some(4),
            kv_stages: Some(1),
            q_in_registers: Some(false),
            min_blocks_per_sm: Some(2),
            rescale_threshold: Some(8),
        }
    }

    #[test]
    fn the_numbers_of_head_dim_128_are_exact() {
        let plan = plan(128, &fixed()).expect("fits");
        assert_eq!((plan.threads, plan.rows_per_warp, plan.head_dim_padded), (128, 32, 128));
        assert_eq!(map(&plan), [("Q (then O)", 0, 32_768), ("K", 32_768, 16_384), ("V", 49_152, 16_384)]);
        assert_eq!(plan.shared_memory_bytes, 65_536);
        assert_eq!((plan.registers.output, plan.registers.scores, plan.registers.query), (128, 64, 0));
        assert_eq!(plan.registers.total, 128 + 64 + OTHER_REGISTERS);
        assert_eq!(plan.occupancy, Occupancy { blocks_per_sm: 2, warps_per_sm: 8, limited_by: "registers" });
    }

    #[test]
    fn the_numbers_of_head_dim_72_pad_shared_memory_to_80_but_not_the_output() {
        let plan = plan(72, &fixed()).expect("fits");
        assert_eq!(plan.head_dim_padded, 80);
        assert_eq!(plan.panels, [Panel { first_column: 0, columns: 64 }, Panel { first_column: 64, columns: 16 }]);
        assert_eq!(map(&plan), [("Q (then O)", 0, 20_480), ("K", 20_480, 10_240), ("V", 30_720, 10_240)]);
        assert_eq!(plan.registers.output, 2 * 9 * 4, "O has 72 columns");
    }

    #[test]
    fn a_second_stage_follows_the_first_and_has_no_constant() {
        let plan = plan(64, &TileOverride { kv_stages: Some(2), ..fixed() }).expect("fits");
        let names: Vec<_> = plan.shared_memory.iter().map(|r| (r.name.as_str(), r.constant)).collect();
        let q = ("Q (then O)", Some("Q_OFFSET"));
        let first = [("K", Some("K_OFFSET")), ("V", Some("V_OFFSET"))];
        assert_eq!(names, [q, first[0], first[1], ("K (second stage)", None), ("V (second stage)", None)]);
        let stage_bytes = 2 * 64 * 64 * 2;
        assert_eq!(plan.shared_memory[3].offset, plan.shared_memory[1].offset + stage_bytes);
        assert_eq!(plan.shared_memory_bytes, 128 * 64 * 2 + 2 * stage_bytes);
    }

    #[test]
    fn panels_cover_every_padded_head_dim_once_and_halve_at_most_twice() {
        for columns in (16..=256).step_by(16) {
            let panels = panels(columns);
            let mut next = 0;
            for panel in &panels {
                assert_eq!(panel.first_column, next, "{columns}");
                next += panel.columns;
            }
            assert_eq!(next, columns);
            assert!(panels.iter().filter(|p| p.columns < 64).map(|p| p.columns).is_sorted_by(|a, b| a > b), "{columns}");
        }
    }

    #[test]
    fn every_default_plan_fits_and_reaches_the_occupancy_it_promises() {
        for head_dim in (16..=256).step_by(8) {
            let plan = Plan::new(variant(head_dim), None).expect("a default fits");
            assert!(plan.occupancy.blocks_per_sm >= plan.tile.min_blocks_per_sm, "{head_dim}: {:?}", plan.occupancy);
            assert!(plan.registers.total <= 255, "{head_dim}");
        }
    }

    #[test]
    fn too_much_shared_memory_is_refused_with_the_number() {
        let change = TileOverride { n: Some(128), kv_stages: Some(2), min_blocks_per_sm: Some(1), ..fixed() };
        let error = plan(256, &change).expect_err("64 KB of Q and 256 KB of K and V");
        let PlanError::DoesNotFit { resource, needed, available, .. } = error else { panic!("{error}") };
        assert_eq!((resource, needed, available), ("shared memory", 327_680, 166_912));
    }

    #[test]
    fn blocks_that_cannot_share_a_multiprocessor_are_refused_with_the_number() {
        let change = TileOverride { m: Some(64), n: Some(64), ..fixed() };
        let error = plan(256, &change).expect_err("two blocks of 97 KB").to_string();
        assert!(error.contains("198656 of 167936 bytes a multiprocessor"), "{error}");
        assert!(error.contains("`min_blocks_per_sm` from 2"), "{error}");
    }

    #[test]
    fn too_many_registers_are_refused_with_the_number_and_the_levers() {
        let change = TileOverride { n: Some(128), q_in_registers: Some(true), min_blocks_per_sm: Some(1), ..fixed() };
        let error = plan(128, &change).expect_err("128 + 128 + 64 registers and more").to_string();
        assert!(error.contains(&format!("registers needs {} of 255 a thread", 320 + OTHER_REGISTERS)), "{error}");
        assert!(error.contains("lower `n` or give each warp 16 rows") && error.contains("`q_in_registers`"), "{error}");
    }

    #[test]
    fn occupancy_names_what_stops_more_blocks() {
        let small = TileOverride { m: Some(64), n: Some(32), min_blocks_per_sm: Some(1), ..fixed() };
        // Registers: 8 * 4 + 4 * 4 + other = 88, so 5 blocks of 128 threads; shared memory would hold 9.
        let registers = plan(64, &small).expect("fits").occupancy;
        assert_eq!((registers.limited_by, registers.blocks_per_sm), ("registers", 5));
        let wide = TileOverride { m: Some(64), n: Some(64), min_blocks_per_sm: Some(1), ..fixed() };
        let shared = plan(256, &wide).expect("fits").occupancy;
        assert_eq!((shared.limited_by, shared.blocks_per_sm), ("shared memory", 1));
    }
}
