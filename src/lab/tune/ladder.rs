//! The ladder of a kernel: its tile and the tiles that lack one of its choices each, timed in the same passes.

use super::{Candidate, Evidence, Failure, Measurer, Ratio, Settings, Suite};
use crate::lab::Status;

/// Passes of a ladder.
const PASSES: usize = 5;

/// Outcome of a ladder.
#[derive(Debug, Clone, PartialEq)]
pub struct Ladder {
    /// Of each candidate but the first: registers of a thread and its time by that of the first, or the failure.
    pub rungs: Vec<Result<(u32, Ratio), Failure>>,
    /// Ratios that differ from 1 by at most this fraction are ties.
    pub floor: f64,
    /// The reason why there were fewer passes than usual.
    pub truncated: Option<String>,
    /// Seconds of compiling, proving and timing.
    pub spent_s: f64,
}

/// Times all of `candidates`, the first of which is the kernel's own tile, in turns. A candidate that fails leaves the
/// passes. Once the time is used up, no further pass begins. Rows of failures are the measurer's.
///
/// # Errors
/// [`Failure`] if the first candidate fails.
pub fn ladder(candidates: &[Candidate], settings: &Settings, measurer: &mut dyn Measurer) -> Result<Ladder, Failure> {
    let mut prepared = measurer.prepare(&candidates.iter().collect::<Vec<_>>());
    let mut evidence = Evidence::default();
    let mut truncated = None;
    for pass in 0..PASSES {
        let alive: Vec<usize> = (0..prepared.len()).filter(|place| prepared[*place].is_ok()).collect();
        if let Some(Err(failure)) = prepared.first() {
            return Err(failure.clone());
        }
        let is_late = pass > 0 && measurer.spent_s() >= settings.budget_s;
        if is_late || measurer.is_interrupted() {
            let why = if is_late { format!("the time of {} s is used up", settings.budget_s) } else { "interrupted".to_owned() };
            truncated = Some(format!("{why} after {pass} of {PASSES} passes"));
            break;
        }
        let candidates: Vec<&Candidate> = alive.iter().map(|place| &candidates[*place]).collect();
        let answers = measurer.time(&candidates, Suite::Ladder);
        if measurer.is_interrupted() {
            continue;
        }
        evidence.begin_pass();
        for (place, answer) in alive.into_iter().zip(answers) {
            match answer {
                Ok(times) => evidence.add(place, &times),
                Err(failure) => prepared[place] = Err(failure),
            }
        }
    }
    let untimed = || Failure { status: Status::Truncated, message: truncated.clone().unwrap_or_default() };
    let rung = |(place, prepared): (usize, Result<u32, Failure>)| -> Result<(u32, Ratio), Failure> {
        Ok((prepared?, evidence.ratio(place, 0, settings.seed).ok_or_else(untimed)?))
    };
    let rungs: Vec<_> = prepared.into_iter().enumerate().map(rung).collect();
    match &rungs[..] {
        [Err(failure), ..] => Err(failure.clone()),
        _ => Ok(Ladder {
            rungs: rungs.into_iter().skip(1).collect(),
            floor: evidence.floor(),
            truncated,
            spent_s: measurer.spent_s(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Candidates whose times in each pass are those of a table, with a drift of the card; `None` is a failure.
    struct Table {
        times: Vec<Vec<Option<f64>>>,
        passes: usize,
        interrupted_after: usize,
    }

    impl Measurer for Table {
        fn prepare(&mut self, candidates: &[&Candidate]) -> Vec<Result<u32, Failure>> {
            let of = |candidate: &&Candidate| match candidate.tile["n"].as_u64() {
                Some(99) => Err(Failure { status: Status::Spilled, message: "spilled".to_owned() }),
                _ => Ok(100),
            };
            candidates.iter().map(of).collect()
        }

        fn time(&mut self, candidates: &[&Candidate], suite: Suite) -> Vec<Result<Vec<f64>, Failure>> {
            assert_eq!(suite, Suite::Ladder);
            let drift = 1.0 + self.passes as f64;
            let failed = Failure { status: Status::Crash, message: "died".to_owned() };
            let time = |candidate: &&Candidate| {
                let place = candidate.tile["n"].as_u64().unwrap_or_default() as usize;
                let time = self.times[place].get(self.passes).copied().flatten();
                time.map(|time| vec![drift * time, 2.0 * drift * time]).ok_or_else(|| failed.clone())
            };
            let times = candidates.iter().map(time).collect();
            self.passes += 1;
            times
        }

        fn cut(&mut self, _candidate: &Candidate, _why: &str) {}

        fn spent_s(&self) -> f64 {
            10.0 * self.passes as f64
        }

        fn is_interrupted(&self) -> bool {
            self.passes >= self.interrupted_after
        }
    }

    const SETTINGS: Settings = Settings { budget: 0, budget_s: 1e3, seed: 1 };

    fn candidates(keys: &[u64]) -> Vec<Candidate> {
        let of = |n: &u64| Candidate {
            tile: json!({ "n": n }).as_object().cloned().unwrap_or_default(),
            predicted: 1.0,
            registers: 0,
            shared_memory_bytes: 0,
        };
        keys.iter().map(of).collect()
    }

    fn table(times: &[&[Option<f64>]]) -> Table {
        Table { times: times.iter().map(|times| times.to_vec()).collect(), passes: 0, interrupted_after: usize::MAX }
    }

    #[test]
    fn all_rungs_are_in_all_passes_and_failures_are_told_apart() {
        let mut measurer = table(&[&[Some(10.0); 5], &[Some(12.0); 5], &[Some(9.0), None]]);
        let found = ladder(&candidates(&[0, 1, 2, 99]), &SETTINGS, &mut measurer).expect("the default is timed");
        let (registers, slower) = found.rungs[0].clone().expect("timed");
        assert!(registers == 100 && (slower.mean - 1.2).abs() < 1e-12 && slower.passes == 5, "{slower:?}");
        let statuses: Vec<_> = found.rungs[1..].iter().map(|rung| rung.clone().expect_err("failed").status).collect();
        assert_eq!((statuses, found.truncated), (vec![Status::Crash, Status::Spilled], None));
    }

    #[test]
    fn without_the_kernel_itself_there_is_no_ladder() {
        let failed =
            |times: &[&[Option<f64>]], keys: &[u64]| ladder(&candidates(keys), &SETTINGS, &mut table(times)).expect_err("it");
        assert_eq!(failed(&[], &[99]).status, Status::Spilled);
        assert_eq!(failed(&[&[Some(1.0), None], &[Some(1.0); 5]], &[0, 1]).status, Status::Crash);
    }

    #[test]
    fn the_time_and_an_interruption_end_it_between_passes() {
        let times: &[&[Option<f64>]] = &[&[Some(10.0); 5], &[Some(12.0); 5]];
        let late = ladder(&candidates(&[0, 1]), &Settings { budget_s: 20.0, ..SETTINGS }, &mut table(times)).expect("timed");
        assert_eq!(late.truncated.as_deref(), Some("the time of 20 s is used up after 2 of 5 passes"));
        assert_eq!(late.rungs[0].as_ref().map(|(_, ratio)| ratio.passes), Ok(2));
        let mut interrupted = Table { interrupted_after: 1, ..table(times) };
        let failure = ladder(&candidates(&[0, 1]), &SETTINGS, &mut interrupted).expect_err("its only pass is incomplete");
        assert_eq!((failure.status, interrupted.passes), (Status::Truncated, 1));
    }
}
