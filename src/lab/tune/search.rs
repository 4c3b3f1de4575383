//! The search itself.

use super::{
    Candidate, Evidence, Failure, Measurer, Ratio, Suite,
    rank::{first, rank},
};
use crate::lab::Status;
use serde::Serialize;
use std::collections::BTreeMap;

/// Parts of the candidates' budget that each wave measures: later waves follow what earlier ones found.
const WAVES: [f64; 4] = [0.4, 0.6, 0.8, 1.0];

/// Candidates that are compiled together; the time is looked at in between.
const BATCH: usize = 16;

/// Candidates, besides the default, among which passes are repeated until the end.
const FINALISTS: usize = 4;

/// Candidates that take this much of the time of the fastest (the default included) are not timed again: noise floors
/// are about a tenth of what separates them.
const HOPELESS: f64 = 1.10;

/// Passes of each finalist.
const FINAL_PASSES: usize = 5;

/// Passes of the confirmation.
const CONFIRMING_PASSES: usize = 5;

/// Part of the time after which no further wave begins, and after which halving ends: the rest confirms the winner.
const SHARES: [f64; 2] = [0.6, 0.8];

/// Limits of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Most candidates that are compiled, with the default.
    pub budget: usize,
    /// Most seconds of compiling, proving and timing.
    pub budget_s: f64,
    /// Seed of bootstrap samples.
    pub seed: u64,
}

/// A measured candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Standing {
    /// Place among the candidates.
    #[serde(skip)]
    pub place: usize,
    /// Its time by the default's.
    pub to_default: Ratio,
    /// Its time by that of the fastest; `None` if no pass timed both.
    pub to_fastest: Option<Ratio>,
    /// Registers of a thread.
    pub registers: u32,
    /// True if it belongs to the winners: the interval of its ratio to the fastest contains 1, or the ratio is within
    /// the noise floor, which is wider for candidates with few passes.
    pub tied: bool,
    /// True if it was timed in all passes up to the last.
    pub finalist: bool,
}

/// The winner against the default at sizes that were not tuned on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Confirmation {
    /// The winner's time by the default's; `None` if it could not be timed.
    pub ratio: Option<Ratio>,
    /// True if the winner is faster by more than the noise floor, and so is the whole interval faster than the default.
    pub confirmed: bool,
    /// The reason for a missing ratio.
    pub message: String,
}

/// Outcome of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Measured candidates, fastest first.
    pub standings: Vec<Standing>,
    /// Candidates that failed, by their place.
    pub failures: BTreeMap<usize, Failure>,
    /// Place of the winner; 0 is the default.
    pub winner: usize,
    /// The noise floor, as a fraction.
    pub floor: f64,
    /// Confirmation of a winner other than the default.
    pub confirmation: Option<Confirmation>,
    /// Number of candidates that were not measured because the budget or the time ended.
    pub cut: usize,
    /// The reason why the search ended early.
    pub truncated: Option<String>,
    /// Seconds of compiling, proving and timing.
    pub spent_s: f64,
}

/// Searches the fastest of `candidates`, the first of which is the default. Rows of failures and of candidates that
/// were left out are the measurer's.
///
/// # Errors
/// [`Failure`] if the default cannot be timed: nothing can then be compared with it.
pub fn search(candidates: &[Candidate], settings: &Settings, measurer: &mut dyn Measurer) -> Result<Found, Failure> {
    let (registers, evidence, failures) = Default::default();
    let mut search = Search { candidates, settings, measurer, registers, evidence, failures, late: None };
    search.waves()?;
    let finalists = search.halving()?;
    let floor = search.evidence.floor();
    let standings = search.standings(&finalists, floor);
    let winner = search.winner(&standings);
    let confirmation = (winner != 0).then(|| search.confirm(winner, floor));
    let cut: Vec<usize> = (0..candidates.len()).filter(|place| search.is_untouched(*place)).collect();
    let over = format!("the budget of {} candidates is used up", settings.budget);
    let why = search.late.clone().or_else(|| (!cut.is_empty()).then_some(over));
    for place in &cut {
        search.measurer.cut(&candidates[*place], why.as_deref().unwrap_or_default());
    }
    let spent_s = search.measurer.spent_s();
    Ok(Found { standings, failures: search.failures, winner, floor, confirmation, cut: cut.len(), truncated: why, spent_s })
}

struct Search<'a> {
    candidates: &'a [Candidate],
    settings: &'a Settings,
    measurer: &'a mut dyn Measurer,
    /// Registers of the candidates that compiled and are right.
    registers: BTreeMap<usize, u32>,
    evidence: Evidence,
    failures: BTreeMap<usize, Failure>,
    /// The reason why the search ends early.
    late: Option<String>,
}

impl Search<'_> {
    /// True if nothing was recorded of a candidate.
    fn is_untouched(&self, place: usize) -> bool {
        self.evidence.passes(place) == 0 && !self.failures.contains_key(&place)
    }

    /// True, with the reason kept, once `share` of the time is spent or the user interrupts.
    fn is_late(&mut self, share: f64) -> bool {
        if self.measurer.is_interrupted() {
            self.late = Some("interrupted".to_owned());
            return true;
        }
        let late = self.measurer.spent_s() >= share * self.settings.budget_s;
        if late && self.late.is_none() {
            self.late = Some(format!("the time of {} s is used up", self.settings.budget_s));
        }
        late
    }

    /// Measures candidates once, wave by wave.
    fn waves(&mut self) -> Result<(), Failure> {
        let budget = self.settings.budget.clamp(1, self.candidates.len());
        let mut begun = 0;
        for wave in WAVES {
            let size = ((budget as f64 * wave).ceil() as usize).min(budget) - begun;
            if size == 0 || (begun > 0 && self.is_late(SHARES[0])) {
                continue;
            }
            // The default is timed in every wave, and counted in the first.
            let mut chosen = if begun == 0 {
                std::iter::once(0).chain(first(self.candidates, size - 1)).collect()
            } else {
                let failed: Vec<usize> = self.failures.keys().copied().collect();
                let left: Vec<usize> = (1..self.candidates.len()).filter(|place| self.is_untouched(*place)).collect();
                rank(self.candidates, &left, &self.evidence, &failed)
            };
            chosen.truncate(size);
            begun += size;
            for (number, batch) in chosen.chunks(BATCH).enumerate() {
                if number == 0 || !self.is_late(SHARES[0]) {
                    self.prepare(batch);
                }
            }
            if let Some(failure) = self.failures.get(&0) {
                return Err(failure.clone());
            }
            chosen.retain(|place| *place != 0 && self.registers.contains_key(place));
            self.pass(&chosen, SHARES[1])?;
        }
        Ok(())
    }

    fn prepare(&mut self, places: &[usize]) {
        let candidates: Vec<&Candidate> = places.iter().map(|place| &self.candidates[*place]).collect();
        for (place, answer) in places.iter().zip(self.measurer.prepare(&candidates)) {
            match answer {
                Ok(registers) => _ = self.registers.insert(*place, registers),
                Err(failure) => _ = self.failures.insert(*place, failure),
            }
        }
    }

    /// Times the default and others once, in turns. Nothing if the `share` of the time is used up.
    ///
    /// # Errors
    /// The failure of the default.
    fn pass(&mut self, others: &[usize], share: f64) -> Result<(), Failure> {
        let is_first = self.evidence.passes(0) == 0;
        if !is_first && (others.is_empty() || self.is_late(share)) {
            return Ok(());
        }
        let places: Vec<usize> = std::iter::once(0).chain(others.iter().copied()).collect();
        let candidates: Vec<&Candidate> = places.iter().map(|place| &self.candidates[*place]).collect();
        let answers = self.measurer.time(&candidates, Suite::Tuned);
        self.evidence.begin_pass();
        for (place, answer) in places.into_iter().zip(answers) {
            match answer {
                Ok(times) => self.evidence.add(place, &times),
                Err(failure) if place == 0 => return Err(failure),
                Err(failure) => _ = self.failures.insert(place, failure),
            }
        }
        Ok(())
    }

    /// Candidates with times and without a failure, except the default, fastest first.
    fn alive(&self, among: impl Iterator<Item = usize>) -> Vec<usize> {
        let timed = among.filter(|place| self.evidence.passes(*place) > 0 && !self.failures.contains_key(place));
        let mut alive: Vec<(f64, usize)> = timed.map(|place| (self.evidence.mean_logarithm(place, 0), place)).collect();
        alive.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        alive.into_iter().map(|(_, place)| place).collect()
    }

    /// Drops the slower half after each round of passes, until finalists are left, and repeats their passes.
    fn halving(&mut self) -> Result<Vec<usize>, Failure> {
        let mut alive = self.alive(1..self.candidates.len());
        let mut passes = 1;
        while alive.len() > FINALISTS && !self.is_late(SHARES[1]) {
            let fastest = self.evidence.mean_logarithm(alive[0], 0).min(0.0);
            let is_near = |place: &&usize| self.evidence.mean_logarithm(**place, 0) - fastest < HOPELESS.ln();
            let near = alive.iter().take_while(is_near).count();
            alive.truncate(near.min(alive.len().div_ceil(2)).max(FINALISTS));
            for _ in 0..passes {
                self.pass(&alive, SHARES[1])?;
            }
            passes *= 2;
            alive = self.alive(alive.into_iter());
        }
        alive.truncate(FINALISTS);
        while alive.iter().any(|place| self.evidence.passes(*place) < FINAL_PASSES) && !self.is_late(SHARES[1]) {
            self.pass(&alive, SHARES[1])?;
            alive = self.alive(alive.into_iter());
        }
        Ok(alive)
    }

    fn standings(&self, finalists: &[usize], floor: f64) -> Vec<Standing> {
        let seed = self.settings.seed;
        let fastest = finalists.first().copied().filter(|place| self.evidence.mean_logarithm(*place, 0) < 0.0).unwrap_or(0);
        let mut order = vec![0];
        order.extend(self.alive(1..self.candidates.len()));
        let standing = |place: usize| {
            let to_default = self.evidence.ratio(place, 0, seed)?;
            let to_fastest = self.evidence.ratio(place, fastest, seed);
            let mean = to_fastest.map_or_else(
                || (self.evidence.mean_logarithm(place, 0) - self.evidence.mean_logarithm(fastest, 0)).exp(),
                |ratio| ratio.mean,
            );
            // What was dropped after a pass or two is known less well than the finalists.
            let fewer = FINAL_PASSES as f64 / to_default.passes as f64;
            let contains = to_fastest.is_some_and(|Ratio { interval: [low, high], .. }| low <= 1.0 && 1.0 <= high);
            Some(Standing {
                place,
                to_default,
                to_fastest,
                registers: self.registers.get(&place).copied().unwrap_or_default(),
                tied: contains || mean <= 1.0 + floor * fewer.max(1.0).sqrt(),
                finalist: place == 0 || finalists.contains(&place),
            })
        };
        let mut standings: Vec<Standing> = order.into_iter().filter_map(standing).collect();
        standings.sort_by(|a, b| a.to_default.mean.total_cmp(&b.to_default.mean).then(a.place.cmp(&b.place)));
        standings
    }

    /// The winner among tied finalists: the default, then fewer registers, less shared memory, the tile's text.
    fn winner(&self, standings: &[Standing]) -> usize {
        let key = |standing: &&Standing| {
            let candidate = &self.candidates[standing.place];
            let text = serde_json::to_string(&candidate.tile).unwrap_or_default();
            (standing.place != 0, standing.registers, candidate.shared_memory_bytes, text)
        };
        let tied = standings.iter().filter(|standing| standing.tied && standing.finalist);
        tied.min_by_key(key).map_or(0, |standing| standing.place)
    }

    /// Times the winner and the default at held-out sizes.
    fn confirm(&mut self, winner: usize, floor: f64) -> Confirmation {
        let mut held_out = Evidence::default();
        let mut message = String::new();
        for pass in 0..CONFIRMING_PASSES {
            // The last share of the time is the confirmation's; what ended the search before does not end it.
            if self.measurer.is_interrupted() || self.measurer.spent_s() >= self.settings.budget_s {
                message = format!("the time ended after {pass} of {CONFIRMING_PASSES} passes");
                break;
            }
            held_out.begin_pass();
            let places = [0, winner];
            let times = self.measurer.time(&places.map(|place| &self.candidates[place]), Suite::HeldOut);
            for (place, times) in places.into_iter().zip(times) {
                match times {
                    Ok(times) => held_out.add(place, &times),
                    Err(failure) => message = failure.message,
                }
            }
            if !message.is_empty() {
                break;
            }
        }
        let ratio = held_out.ratio(winner, 0, self.settings.seed);
        let is_faster = |ratio: Ratio| ratio.interval[1] < 1.0 && ratio.mean < 1.0 - floor;
        Confirmation { confirmed: message.is_empty() && ratio.is_some_and(is_faster), ratio, message }
    }
}

/// The failure of a candidate that a measurer knows nothing of.
pub(super) fn absent(message: &str) -> Failure {
    Failure { status: Status::Absent, message: message.to_owned() }
}
