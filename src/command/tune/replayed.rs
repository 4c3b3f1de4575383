//! Searches in the rows of a store.

use super::{Request, Search, Sizes, card, space::Space, space::lessons};
use crate::{
    command::{CommandError, session::Session},
    kernel::{Card, Variant},
    lab::{
        Condition, Row, Status, Store,
        tune::{Candidate, Failure, Found, Replay, Settings, is_timing, quality, search, size_key, tile_of},
    },
    text::ticked,
};
use itertools::Itertools;
use std::path::Path;

/// Searches tiles of variants among the rows of the store at `path`. Returns the card's name too. A variant without
/// rows on the card is a search that is `absent`.
///
/// # Errors
/// [`CommandError::Usage`] if the store cannot be read or has no row of any variant on the card.
pub(super) fn run(
    path: &Path,
    request: &Request,
    variants: &[Variant],
    settings: &Settings,
    session: &Session,
    sizes: Sizes<'_>,
) -> Result<(String, Vec<Search>), CommandError> {
    let rows = Store::open_to_read(path).and_then(|store| store.rows(&Condition::default()));
    let rows: Vec<Row> = rows.map_err(|error| error.named(" with `--replay`"))?;
    let names: Vec<String> = variants.iter().map(Variant::name).collect();
    let is_own = |row: &Row| row.own && row.foreign.is_none();
    let usable = |row: &&Row| is_own(row) && row.status != Status::Truncated && tile_of(row).is_some() && is_timing(row);
    let is_untimed = |row: &Row| names.iter().any(|name| row.kernel_name() == name) && !is_timing(row);
    let untimed = if rows.iter().any(is_untimed) { "; the store's profiles and verdicts are no times" } else { "" };
    let rows_of_variants: Vec<&Row> =
        rows.iter().filter(usable).filter(|row| names.iter().any(|name| row.kernel_name() == name)).collect();
    let card = card_of(path, &rows_of_variants, request.gpu.as_deref(), untimed)?;
    if !rows_of_variants.iter().any(|row| is_of(row, &card)) {
        let selected = if let [only] = &names[..] { format!("`{only}`") } else { "the selected kernels".to_owned() };
        let why = no_rows(&selected, &card, &cards(rows_of_variants.iter().copied()));
        return Err(CommandError::Usage(format!("`{}` has {why}{untimed}", path.display())));
    }
    let mut searches = Vec::new();
    for variant in variants {
        let name = variant.name();
        let of_variant: Vec<&Row> =
            rows_of_variants.iter().copied().filter(|row| row.kernel_name() == name && is_of(row, &card)).collect();
        let lessons = lessons(&rows, &card, *variant, variants, session);
        let Some(mut space) = Space::new(*variant, session, &card, &lessons, sizes(variant)?)? else { continue };
        space.retain(|candidate| of_variant.iter().any(|row| tile_of(row) == Some(&candidate.tile)));
        if of_variant.is_empty() {
            let cards = cards(rows_of_variants.iter().copied().filter(|row| row.kernel_name() == name));
            let message = format!("the store has {}", no_rows(&format!("`{name}`"), &card, &cards));
            searches.push(Search::of(&space, Err(Failure { status: Status::Absent, message }), |_| String::new()));
            continue;
        }
        let mut replay = Replay::new(of_variant.iter().copied(), &space.tuned, &space.held_out);
        let found = with_recorded(search(&space.candidates, settings, &mut replay), &space, &of_variant);
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

/// The card of a replay: the one that is named, or the only one of the rows. `untimed` says what other rows there are.
fn card_of(path: &Path, rows: &[&Row], named: Option<&str>, untimed: &str) -> Result<Card, CommandError> {
    if let Some(name) = named {
        return card(name);
    }
    match cards(rows.iter().copied())[..] {
        [only] => card(only),
        [] => Err(CommandError::Usage(format!(
            "`{}` has no row of the selected kernels with its tile{untimed}; `kgen tune --db` and `kgen bench --db` add them",
            path.display()
        ))),
        ref several => {
            Err(CommandError::Usage(format!("`{}` has rows of {}; choose one with `--gpu`", path.display(), ticked(several))))
        }
    }
}

/// Most sizes that a message lists.
const LISTED: usize = 8;

/// A search's outcome whose message says, if rows of a size are missing, which sizes the store has.
fn with_recorded(mut found: Result<Found, Failure>, space: &Space, rows: &[&Row]) -> Result<Found, Failure> {
    let default = &space.candidates[0].tile;
    let timed = rows.iter().filter(|row| row.median_us().is_some() && tile_of(row) == Some(default));
    let recorded: Vec<String> = timed.map(|row| row.size_key()).sorted_by_cached_key(|size| numbers(size)).dedup().collect();
    let list = || {
        let sizes: Vec<&str> = recorded.iter().take(LISTED).map(String::as_str).collect();
        match recorded.len().checked_sub(LISTED) {
            _ if sizes.is_empty() => "; it has no time of the default tile".to_owned(),
            None | Some(0) => format!("; it has {}", ticked(&sizes)),
            Some(more) => format!("; it has {} and {more} more", ticked(&sizes)),
        }
    };
    match &mut found {
        Err(Failure { status: Status::Absent, message }) => {
            *message = format!("{message}{}: choose recorded ones with `--batch`, `--heads`, `--seqlen` and the like", list());
        }
        Ok(Found { confirmation: Some(confirmation), .. })
            if space.held_out.iter().any(|size| !recorded.contains(&size_key(size))) =>
        {
            confirmation.message = format!("{}{}: choose recorded lengths with `--held-out`", confirmation.message, list());
        }
        _ => {}
    }
    found
}

/// The numbers of a size, by which sizes are sorted: 512 keys before 1024.
fn numbers(size: &str) -> Vec<u64> {
    size.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

/// That there is no row of `kernel` on the card, only on others.
fn no_rows(kernel: &str, card: &Card, others: &[&str]) -> String {
    let others = if others.is_empty() {
        "; `kgen tune --db` adds them on such a card".to_owned()
    } else {
        format!(", only of {}: times of another card do not choose its tiles; change `--gpu`", ticked(others))
    };
    format!("no row of {kernel} on `{}`{others}", card.name)
}
