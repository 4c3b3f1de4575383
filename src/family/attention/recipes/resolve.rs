//! From a recipe and a tile to a plan, with every number checked against the GPU that the kernel is compiled for.

use super::{Point, Recipe, Tile, recipe_of};
use crate::{
    family::attention::design::{self, FeatureParts, KvColumns, panels},
    kernel::{Target, TileOverride},
    plan::{Limits, Plan, PlanError, Resources},
};

/// The plan of `point` with its default tile, modified by `change`.
pub(in crate::family::attention) fn plan(point: Point, change: Option<&TileOverride>) -> Result<Plan, PlanError> {
    let recipe = recipe(point)?;
    resolve(point, None, recipe, Tile::choose(point, recipe, change)?)
}

/// The kernel of a plan of `point` with `tile`, compiled for `target`.
pub(in crate::family::attention) fn to_run_as(point: Point, tile: Tile, target: Target) -> Result<Plan, PlanError> {
    let recipe = recipe(point)?;
    let tile = recipe.portable(point, tile, target);
    let tile = tile.map_err(|reason| PlanError::Unsupported { variant: point.name(), reason })?;
    resolve(point, Some(target), recipe, tile)
}

pub(super) fn recipe(point: Point) -> Result<&'static dyn Recipe, PlanError> {
    let unsupported = |reason| PlanError::Unsupported { variant: point.name(), reason };
    let recipe = recipe_of(point).map_err(unsupported)?;
    let held = recipe.features();
    if let Some(feature) = point.features.iter().find(|feature| !held.has(*feature)) {
        let template = recipe.template().rsplit('/').next().unwrap_or_default();
        return Err(unsupported(format!("`{template}` has no `{feature}`; its features: {held}")));
    }
    match point.features.broken_rule(point.dtype) {
        Some(reason) => Err(unsupported(reason.to_owned())),
        None => Ok(recipe),
    }
}

/// The plan of `point` with `tile`, compiled for its own target or for another one.
pub(super) fn resolve(point: Point, run_as: Option<Target>, recipe: &dyn Recipe, tile: Tile) -> Result<Plan, PlanError> {
    let compiled_for = run_as.unwrap_or(point.target);
    let limits = Limits::of(compiled_for);
    let padded = point.head_dim.padded_to(recipe.head_dim_step());
    let hopper = recipe.hopper(point, &tile);
    let registers = recipe.registers(point, &tile);
    let threads = tile.warps * 32;
    let cap = limits.register_cap(threads, tile.min_blocks_per_sm);
    let shrink = if tile.stages > 1 { "lower `n`, `m` or `stages`" } else { "lower `n` or `m`" };

    let resources = Resources {
        threads,
        min_blocks_per_sm: tile.min_blocks_per_sm,
        shared_memory: recipe.shared_memory(point, &tile),
        registers,
        registers_available: hopper.as_ref().map_or(cap, |hopper| hopper.consumer_registers),
        // A block with `wgmma` is allocated its initial share of registers, even if its warpgroups reallocate them
        // later.
        registers_launched_with: hopper.as_ref().map_or(registers.total, |_| cap),
        to_save_shared_memory: shrink.to_owned(),
        to_save_registers: fewer_registers(&tile),
    };
    let design = design::Design {
        rows_per_warp: if hopper.is_some() { 16 } else { tile.m / tile.warps },
        head_dim_padded: padded.qk,
        head_dim_v_padded: padded.v,
        panels: panels(padded.qk),
        panels_v: panels(padded.v),
        features: FeatureParts::of(point),
        kv: recipe.kv(point, &tile),
        early: point.kind.splits_keys() && compiled_for >= Target::Sm90,
        widened_to: point.widens_queries().then_some(point.multiplied()),
        kv_columns: KvColumns::of(point),
        fp8: recipe.fp8(&tile, compiled_for),
        backward: recipe.backward(point, &tile),
        hopper,
        tile,
    };
    let tensor_core = recipe.tensor_core(point, &tile, compiled_for);
    Plan::resolve(point.into(), run_as, recipe.template(), design, resources, tensor_core)
}

/// Advice for a tile that needs too many registers.
fn fewer_registers(tile: &Tile) -> String {
    let mut levers = vec!["lower `n`"];
    if tile.m / tile.warps > 16 {
        levers.push("give each warp 16 rows (`m` = 16 x `warps`)");
    }
    if tile.q_in_registers {
        levers.push("set `q_in_registers` to false");
    }
    if tile.min_blocks_per_sm > 1 {
        levers.push("lower `min_blocks_per_sm`");
    }
    levers.join(" or ")
}
