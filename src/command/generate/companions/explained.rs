//! An explanation of a kernel as a page of Markdown.

use crate::{
    command::explain::{Explanation, Neighbour, Optimisation, Reason},
    render::COMMENT_MARK,
    text::{count, size},
};
use itertools::Itertools;

/// The page: what `kgen explain` prints of a kernel without a store.
pub(super) fn page(kernel: &Explanation) -> String {
    let Explanation { name, template, tile, threads, occupancy, registers, .. } = kernel;
    let mut parts = vec![
        format!("# {name}"),
        format!("{COMMENT_MARK}{}; `kgen explain {name}` prints more, such as measured times -->", env!("CARGO_PKG_VERSION")),
        format!("From `templates/{template}`, with the tile {tile}."),
        format!(
            "{threads} threads, {} of shared memory, about {registers} registers a thread: {} a multiprocessor, limited by {}.",
            size(kernel.shared_memory_bytes.into()),
            count(occupancy.blocks_per_sm as usize, "block"),
            occupancy.limited_by
        ),
    ];
    if !kernel.reasons.is_empty() {
        parts.push("## Why this tile".to_owned());
        parts.push("Later rows win.".to_owned());
        parts.push(kernel.reasons.iter().map(reason).join("\n"));
    }
    if !kernel.optimisations.is_empty() {
        parts.push("## Optimisations".to_owned());
        parts.push("The effects are those of the kernels, shapes and cards that were timed.".to_owned());
        parts.push(kernel.optimisations.iter().map(optimisation).join("\n"));
    }
    if !kernel.neighbours.is_empty() {
        parts.push("## Tiles that differ in one key".to_owned());
        let head = "| key | shared memory | registers | blocks | limited by |\n|---|---|---|---|---|";
        parts.push(format!("{head}\n{}", kernel.neighbours.iter().map(neighbour).join("\n")));
    }
    parts.join("\n\n") + "\n"
}

fn reason(Reason { when, keys, reason, measured }: &Reason) -> String {
    let when = when.as_deref().unwrap_or("every kernel of the template");
    let why = reason.iter().chain(measured).map(|line| format!("\n  {line}")).join("");
    format!("* {} ({when}){why}", keys.iter().map(|key| format!("`{key}`")).join(", "))
}

fn optimisation(Optimisation { id, name, status, when, reason, measured }: &Optimisation) -> String {
    format!("* {id} **{name}**: {}. {when} {reason}\n  Measured: {measured}", status.word())
}

fn neighbour(neighbour: &Neighbour) -> String {
    let Neighbour { key, value, shared_memory_bytes, registers, occupancy, .. } = neighbour;
    let shared = size((*shared_memory_bytes).into());
    format!("| `{key} = {value}` | {shared} | {registers} | {} | {} |", occupancy.blocks_per_sm, occupancy.limited_by)
}
