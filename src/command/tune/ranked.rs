//! Tiles in the order of their predicted times, with nothing measured.

use super::{Request, Sizes, card, space::Space, space::lessons};
use crate::{
    bench::Size,
    command::{CommandError, bench::find_gpu, db, session::Session},
    kernel::Variant,
    lab::{Condition, Row, Store, tune::Candidate},
};
use serde::Serialize;

/// The tiles of all variants.
#[derive(Debug, Serialize)]
pub struct Ranking {
    /// The card that times are predicted for.
    pub gpu: String,
    /// The tiles of each variant that has several.
    pub kernels: Vec<Ranked>,
}

/// The tiles of a kernel.
#[derive(Debug, Serialize)]
pub struct Ranked {
    /// Name of the kernel.
    pub name: String,
    /// The variant.
    #[serde(skip)]
    pub variant: Variant,
    /// The sizes that times are predicted at.
    pub sizes: Vec<Size>,
    /// Number of tiles that have a plan, with the default.
    pub candidates: usize,
    /// The tiles with the least predicted times, fastest first: as many as the budget, and the default in any case.
    pub tiles: Vec<Tile>,
}

/// A tile.
#[derive(Debug, Serialize)]
pub struct Tile {
    /// The keys in which it differs from the default.
    pub changes: String,
    /// Its predicted time by the default's: the geometric mean over the sizes.
    pub predicted: f64,
    /// Estimated registers of a thread.
    pub registers: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_memory_bytes: u32,
}

/// The tiles of variants by their predicted times on the card that the request names, or this machine's.
///
/// # Errors
/// [`CommandError`] if the card is not known, a variant has no plan or the store cannot be read.
pub(super) fn run(request: &Request, variants: &[Variant], session: &Session, sizes: Sizes<'_>) -> Result<Ranking, CommandError> {
    let card = match &request.gpu {
        Some(name) => card(name)?,
        None => card(&find_gpu()?.info.name)?,
    };
    let path = db::path(request.db.as_deref())?;
    let rows: Vec<Row> = if path.exists() { Store::open_to_read(&path)?.rows(&Condition::default())? } else { Vec::new() };
    let mut kernels = Vec::new();
    for variant in variants {
        let lessons = lessons(&rows, &card, *variant, variants, session);
        let Some(space) = Space::new(*variant, session, &card, &lessons, sizes(variant)?)? else { continue };
        let default = &space.candidates[0];
        let mut places: Vec<usize> = (0..space.candidates.len()).collect();
        places.sort_by(|a, b| space.candidates[*a].predicted.total_cmp(&space.candidates[*b].predicted));
        let within_budget = |(rank, place): &(usize, usize)| *rank < request.budget as usize || *place == 0;
        let tile = |candidate: &Candidate| Tile {
            changes: candidate.changes(default),
            predicted: candidate.predicted / default.predicted,
            registers: candidate.registers,
            shared_memory_bytes: candidate.shared_memory_bytes,
        };
        let shown = places.into_iter().enumerate().filter(within_budget);
        kernels.push(Ranked {
            name: variant.name(),
            variant: *variant,
            candidates: space.candidates.len(),
            tiles: shown.map(|(_, place)| tile(&space.candidates[place])).collect(),
            sizes: space.tuned,
        });
    }
    Ok(Ranking { gpu: card.name, kernels })
}
