//! Tiles near the default of a kernel: what a tuner compiles and times.

use super::{Point, Tile, resolve};
use crate::{
    kernel::TileOverride,
    plan::{Plan, PlanError},
};
use itertools::Itertools;

/// The plans of `point` with every tile near its default that its kernel can have, the default among them, each once.
///
/// Near are all combinations of the values that `[candidates]` of the recipe's file in `tiles/` lists; a key keeps its
/// default besides. Rules of the kernel, shared memory, registers and the promised blocks per multiprocessor decide
/// which of them it can have. Keys that change results, as `rescale_threshold` does, are never listed.
///
/// # Errors
/// [`PlanError`] if the kernel has no default.
pub(in crate::family::attention) fn candidates(point: Point) -> Result<impl Iterator<Item = Plan>, PlanError> {
    let recipe = resolve::recipe(point)?;
    let default = Tile::choose(point, recipe, None)?;
    let listed = recipe.tiles().map(|file| file.candidates.as_slice()).unwrap_or_default();
    let axes = listed.iter().map(move |(key, values)| {
        let set = |value| TileOverride::default().with(key, value);
        let changes: Vec<TileOverride> = values.iter().map(|value| set(*value)).collect();
        let own = changes.iter().all(|change| default.changed(change) != default).then(TileOverride::default);
        changes.into_iter().chain(own).collect::<Vec<_>>()
    });
    let combinations = axes
        .multi_cartesian_product()
        .map(|changes| changes.into_iter().fold(TileOverride::default(), |all, change| change.over(all)));
    Ok(combinations.filter_map(move |change| {
        let tile = default.changed(&change);
        let breaks = recipe.broken_rule(point, &tile).is_some();
        if breaks { None } else { resolve::resolve(point, None, recipe, tile).ok() }
    }))
}
