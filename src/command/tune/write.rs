//! Winners as `[[tile]]` entries of `variants.toml`.

use super::Search;
use crate::{
    command::CommandError,
    files::{self, write_named},
};
use serde_json::{Map, Value};
use std::{fmt::Write, io, path::Path};

/// First line of a file that the tuner wrote, and may replace.
const HEADER: &str = "# Tiles of `kgen tune`: entries to copy into a `variants.toml`.\n";

/// Writes the confirmed winners among `searches`; returns their number. Without any, no file is written.
///
/// # Errors
/// [`CommandError::Usage`] if the file exists and is another program's or cannot be written.
pub(super) fn write(path: &Path, searches: &[Search], gpu: &str) -> Result<usize, CommandError> {
    let entries: Vec<String> = searches.iter().filter_map(|search| entry(search, gpu)).collect();
    if entries.is_empty() {
        return Ok(0);
    }
    refuse_unwritable(path)?;
    let text = format!("{HEADER}\n{}", entries.join("\n"));
    let written = write_named(path, text.as_bytes());
    written.map_err(|error| unwritable(path, &error))?;
    Ok(entries.len())
}

/// Refuses a file that the tuner did not write, and a place where it cannot write one: a search may take hours, after
/// which that would be too late.
///
/// # Errors
/// [`CommandError::Usage`].
pub(super) fn refuse_unwritable(path: &Path) -> Result<(), CommandError> {
    match files::read_if_there(path) {
        Ok(Some(text)) if !text.starts_with(HEADER.as_bytes()) => Err(CommandError::Usage(format!(
            "`{}` exists and `kgen tune` did not write it; name a new file with `--write`, and copy its entries",
            path.display()
        ))),
        Ok(_) => files::probe_named(path).map_err(|error| unwritable(path, &error)),
        Err(error) => Err(unwritable(path, &error)),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> CommandError {
    CommandError::Usage(format!("cannot write `{}`: {error}; choose another place with `--write`", path.display()))
}

/// The entry of a winner; `None` for the default, and for one that is not confirmed.
fn entry(search: &Search, gpu: &str) -> Option<String> {
    let confirmed = search.confirmation.as_ref().filter(|confirmation| confirmation.confirmed)?;
    let (ratio, winner) = (confirmed.ratio?, search.winner.as_ref()?);
    let mut text = String::new();
    let [low, high] = ratio.interval;
    // Writing into a string cannot fail.
    writeln!(text, "# {:.3} of the default's time at held-out sizes ({low:.3} to {high:.3})", ratio.mean).ok();
    writeln!(text, "[[tile]]\nwhen = \"name == {}\"", search.name).ok();
    for (key, value) in changed(&winner.tile, &search.default) {
        writeln!(text, "{key} = {value}").ok();
    }
    writeln!(text, "measured = \"kgen tune, run {} on {gpu}\"", winner.run).ok();
    Some(text)
}

/// The keys whose values differ from the default's. Numbers, flags and words are written in TOML as in JSON.
fn changed<'a>(tile: &'a Map<String, Value>, default: &'a Map<String, Value>) -> impl Iterator<Item = (&'a String, &'a Value)> {
    tile.iter().filter(|(key, value)| default.get(*key) != Some(*value))
}
