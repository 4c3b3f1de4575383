//! Searches in the rows of a store.

use super::{Request, Search, Sizes, card, space::Space, space::lessons};
use crate::{
    command::{CommandError, session::Session},
    kernel::{Card, Variant},
    lab::{
        Condition, Row, Status, Store,
        tune::{Candidate, Replay, Settings, quality, search, tile_of},
    },
    text::ticked,
};
use itertools::Itertools;
use std::path::Path;

/// Searches tiles of variants among the rows of the store at `path`. Returns the card's name too.
///
/// # Errors
/// [`CommandError::Usage`] if the store cannot be read or has no row of a variant on the card.
pub(super) fn run(
    path: &Path,
    request: &Request,
    variants: &[Variant],
    settings: &Settings,
    session: &Session,
    sizes: Sizes<'_>,
) -> Result<(String, Vec<Search>), CommandError> {
    let rows: Vec<Row> = Store::open_to_read(path)?.rows(&Condition::default())?;
    let names: Vec<String> = variants.iter().map(Variant::name).collect();
    let usable = |row: &&Row| row.own && row.foreign.is_none() && row.status != Status::Truncated && tile_of(row).is_some();
    let rows_of_variants: Vec<&Row> =
        rows.iter().filter(usable).filter(|row| names.iter().any(|name| row.kernel_name() == name)).collect();
    let card = card_of(path, &rows_of_variants, request.gpu.as_deref())?;
    let mut searches = Vec::new();
    for variant in variants {
        let name = variant.name();
        let of_variant: Vec<&Row> =
            rows_of_variants.iter().copied().filter(|row| row.kernel_name() == name && is_of(row, &card)).collect();
        if of_variant.is_empty() {
            let cards = cards(rows_of_variants.iter().copied().filter(|row| row.kernel_name() == name));
            return Err(no_rows(path, &name, &card, &cards));
        }
        let lessons = lessons(&rows, &card, *variant, variants, session);
        let Some(mut space) = Space::new(*variant, session, &card, &lessons, sizes(variant)?)? else { continue };
        space.retain(|candidate| of_variant.iter().any(|row| tile_of(row) == Some(&candidate.tile)));
        let mut replay = Replay::new(of_variant.iter().copied(), &space.tuned, &space.held_out);
        let found = search(&space.candidates, settings, &mut replay);
        let run_of = |candidate: &Candidate| {
            let last = of_variant.iter().rev().find(|row| tile_of(row) == Some(&candidate.tile));
            last.map_or_else(String::new, |row| row.run_id().to_owned())
        };
        let judged = found.as_ref().ok().filter(|_| request.quality);
        let quality =
            judged.and_then(|found| quality(&space.candidates, found, settings, &of_variant, &space.tuned, &space.held_out));
        searches.push(Search { quality, ..Search::of(&space, found, run_of) });
    }
    Ok((card.name, searches))
}

/// True if a row was measured on a card.
fn is_of(row: &Row, card: &Card) -> bool {
    Card::named(row.gpu()).is_some_and(|of_row| of_row.name == card.name)
}

/// Names of the cards of rows.
fn cards<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<&'a str> {
    rows.into_iter().map(Row::gpu).filter(|gpu| !gpu.is_empty()).sorted_unstable().dedup().collect()
}

/// The card of a replay: the one that is named, or the only one of the rows.
fn card_of(path: &Path, rows: &[&Row], named: Option<&str>) -> Result<Card, CommandError> {
    if let Some(name) = named {
        return card(name);
    }
    match cards(rows.iter().copied())[..] {
        [only] => card(only),
        [] => Err(CommandError::Usage(format!(
            "`{}` has no row of the selected kernels with its tile; `kgen tune --db` and `kgen bench --db` add them",
            path.display()
        ))),
        ref several => {
            Err(CommandError::Usage(format!("`{}` has rows of {}; choose one with `--gpu`", path.display(), ticked(several))))
        }
    }
}

fn no_rows(path: &Path, name: &str, card: &Card, cards: &[&str]) -> CommandError {
    let others = if cards.is_empty() {
        "; `kgen tune --db` adds them on such a card".to_owned()
    } else {
        format!(", only of {}: times of another card do not choose its tiles; change `--gpu`", ticked(cards))
    };
    CommandError::Usage(format!("`{}` has no row of `{name}` on `{}`{others}", path.display(), card.name))
}
