//! Tiles near a kernel's default, which the tuner compiles and times.

use super::{Point, Tile, resolve};
use crate::{
    kernel::TileOverride,
    plan::{Plan, PlanError},
};
use itertools::Itertools;

/// Plans of `point` with every valid tile near its default, including the default, without duplicates.
///
/// "Near" means all combinations of the values in `[candidates]` of the recipe's file in `tiles/`; each key also keeps
/// its default. Invalid are tiles that break a rule of the kernel, or exceed shared memory, registers or the promised
/// blocks per multiprocessor. Keys that change results, such as `rescale_threshold`, are never listed.
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
