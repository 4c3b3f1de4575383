//! Quality of a search whose candidates were all measured.

use super::{Candidate, Found, Replay, Settings, search};
use crate::{bench::Size, lab::Row};
use serde::Serialize;

/// Searches over resampled rounds.
const RESAMPLED: u64 = 50;

/// Quality of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    /// Candidates that the store has times of at every tuned size.
    pub known: usize,
    /// The winner's time by that of the fastest of them, minus 1, by all rows.
    pub regret: f64,
    /// True if the winner is the fastest of them.
    pub top_1: bool,
    /// Keys in which the fastest differs from the default.
    pub fastest: String,
    /// Part of the searches over resampled rounds that end with another winner.
    pub flips: f64,
    /// Part of them whose winner differs from this one, by all rows, by more than the noise floors of both searches.
    pub flips_outside_ties: f64,
    /// Number of those searches.
    pub resampled: u64,
}

/// The quality of what was `found` in `rows`; `None` if the winner or all candidates lack times.
pub fn quality(
    candidates: &[Candidate],
    found: &Found,
    settings: &Settings,
    rows: &[&Row],
    tuned: &[Size],
    held_out: &[Size],
) -> Option<Quality> {
    let replay = || Replay::new(rows.iter().copied(), tuned, held_out);
    let all = replay();
    let times: Vec<(usize, f64)> = candidates
        .iter()
        .enumerate()
        .filter_map(|(place, candidate)| Some((place, all.exhaustive(candidate, &candidates[0])?)))
        .collect();
    let (fastest, least) = times.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (_, of_winner) = times.iter().copied().find(|(place, _)| *place == found.winner)?;
    let again: Vec<(usize, f64)> = (1..=RESAMPLED)
        .filter_map(|seed| {
            let again = search(candidates, settings, &mut replay().resampled(settings.seed.wrapping_add(seed)));
            again.ok().map(|again| (again.winner, again.floor))
        })
        .collect();
    let flipped = again.iter().filter(|(winner, _)| *winner != found.winner);
    let time = |place: usize| times.iter().find(|(of, _)| *of == place).map_or(f64::INFINITY, |(_, time)| *time);
    // A search that hears more noise ties more tiles, and takes the smallest of them.
    let is_outside = |(winner, floor): &&(usize, f64)| (time(*winner) - of_winner).abs() > found.floor.max(*floor).ln_1p();
    let outside = flipped.clone().filter(is_outside);
    Some(Quality {
        known: times.len(),
        regret: (of_winner - least).exp_m1(),
        top_1: fastest == found.winner,
        fastest: candidates[fastest].changes(&candidates[0]),
        flips: flipped.clone().count() as f64 / RESAMPLED as f64,
        flips_outside_ties: outside.count() as f64 / RESAMPLED as f64,
        resampled: RESAMPLED,
    })
}
