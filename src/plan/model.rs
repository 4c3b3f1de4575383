//! The resource model: what a recipe's shared memory and registers come to, and the checks that refuse a plan.

use super::{Hopper, Limits, Occupancy, Plan, PlanError, Recipe, Tile, recipe::panels};
use crate::grid::{Target, Variant};

/// Resolves every number of a plan from its tile and checks them against the GPU it is compiled for.
pub(super) fn resolve(variant: Variant, run_as: Option<Target>, recipe: &dyn Recipe, tile: Tile) -> Result<Plan, PlanError> {
    let compiled_for = run_as.unwrap_or(variant.target);
    let limits = Limits::of(compiled_for);
    let head_dim_padded = variant.head_dim.next_multiple_of(recipe.head_dim_step());

    let shared_memory = recipe.shared_memory(variant, &tile);
    let shared_memory_bytes = shared_memory.last().map_or(0, |last| last.offset + last.bytes);
    check_shared_memory(variant, &tile, shared_memory_bytes, &limits)?;

    let registers = recipe.registers(variant, &tile);
    let hopper = recipe.hopper(variant, &tile);
    check_registers(variant, &tile, registers.total, hopper.as_ref(), &limits)?;
    // A block with `wgmma` starts with all of a multiprocessor's, whatever its warpgroups do with them.
    let launched_with = hopper.as_ref().map_or(registers.total, |_| limits.register_cap(tile.warps * 32, tile.min_blocks_per_sm));

    Ok(Plan {
        variant,
        run_as,
        template: recipe.template(),
        tile,
        threads: tile.warps * 32,
        rows_per_warp: if hopper.is_some() { 16 } else { tile.m / tile.warps },
        head_dim_padded,
        panels: panels(head_dim_padded),
        shared_memory,
        shared_memory_bytes,
        registers,
        occupancy: occupancy(&tile, shared_memory_bytes, launched_with, &limits),
        limits,
        tensor_core: recipe.tensor_core(variant, &tile, compiled_for),
        fp8: recipe.fp8(&tile, compiled_for),
        backward: recipe.backward(variant, &tile),
        hopper,
    })
}

fn check_shared_memory(variant: Variant, tile: &Tile, bytes: u32, limits: &Limits) -> Result<(), PlanError> {
    let refuse = |needed, available, unit, remedy: String| {
        Err(PlanError::DoesNotFit { variant: variant.name(), resource: "shared memory", needed, available, unit, remedy })
    };
    let shrink = if tile.stages > 1 { "lower `n`, `m` or `stages`" } else { "lower `n` or `m`" };
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

fn check_registers(variant: Variant, tile: &Tile, total: u32, hopper: Option<&Hopper>, limits: &Limits) -> Result<(), PlanError> {
    let blocks = tile.min_blocks_per_sm;
    let available = hopper.map_or_else(|| limits.register_cap(tile.warps * 32, blocks), |hopper| hopper.consumer_registers);
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
