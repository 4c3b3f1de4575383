//! Times of passes, and ratios between candidates.

use crate::bench::{Summary, percentile};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Part of the pairs of passes that the floor covers.
const WITHIN: f64 = 0.95;

/// Pairs of passes below which a floor is not known.
const FEWEST_PAIRS: usize = 6;

/// The floor while it is not known: that of most cases between processes on an H200 (`kgen db noise`).
const USUAL_FLOOR: f64 = 0.01;

/// The least floor: times of a process are quantised and rounded more coarsely than a smaller one says.
const LEAST_FLOOR: f64 = 0.002;

/// A ratio of two times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Geometric mean over the passes.
    pub mean: f64,
    /// 95 % interval over the passes; a point if there is only one.
    pub interval: [f64; 2],
    /// Number of passes.
    pub passes: usize,
}

/// Times of passes: candidates by their place, with the mean logarithm of their times over the sizes.
#[derive(Debug, Clone, Default)]
pub struct Evidence(Vec<BTreeMap<usize, f64>>);

impl Evidence {
    /// Begins a pass.
    pub fn begin_pass(&mut self) {
        self.0.push(BTreeMap::new());
    }

    /// Adds the times of a candidate to the current pass.
    pub fn add(&mut self, candidate: usize, microseconds: &[f64]) {
        let mean = microseconds.iter().map(|time| time.ln()).sum::<f64>() / microseconds.len().max(1) as f64;
        if let Some(pass) = self.0.last_mut() {
            pass.insert(candidate, mean);
        }
    }

    /// Passes in which a candidate was timed.
    pub fn passes(&self, candidate: usize) -> usize {
        self.0.iter().filter(|pass| pass.contains_key(&candidate)).count()
    }

    /// Logarithms of the ratio of a candidate's time to that of another in the same pass.
    fn logarithms(&self, candidate: usize, to: usize) -> Vec<f64> {
        self.0.iter().filter_map(|pass| Some(pass.get(&candidate)? - pass.get(&to)?)).collect()
    }

    /// The ratio of a candidate's time to that of another; `None` if no pass timed both. `seed` draws the bootstrap
    /// samples of the interval.
    pub fn ratio(&self, candidate: usize, to: usize, seed: u64) -> Option<Ratio> {
        let logarithms = self.logarithms(candidate, to);
        let summary = Summary::of(&logarithms, seed)?;
        let mean = summary.mean.exp();
        // The interval is one of the median, which may leave out the mean.
        let [low, high] = summary.interval.map(f64::exp);
        Some(Ratio { mean, interval: [low.min(mean), high.max(mean)], passes: logarithms.len() })
    }

    /// Mean logarithm of the ratio to another candidate, for sorting; infinite without a common pass.
    pub fn mean_logarithm(&self, candidate: usize, to: usize) -> f64 {
        let all = self.logarithms(candidate, to);
        if all.is_empty() { f64::INFINITY } else { all.iter().sum::<f64>() / all.len() as f64 }
    }

    /// The noise floor: 95 % of the pairs of passes that timed the same candidate differ by at most this fraction, in
    /// the ratio to candidate 0. Passes with exactly the same times are one measurement read twice.
    pub fn floor(&self) -> f64 {
        let candidates = self.0.iter().flat_map(BTreeMap::keys).copied().filter(|candidate| *candidate != 0).unique();
        let apart = candidates.flat_map(|candidate| {
            let ratios = self.logarithms(candidate, 0);
            ratios.into_iter().array_combinations().map(|[a, b]| (a - b).abs()).filter(|apart| *apart > 0.0).collect::<Vec<_>>()
        });
        let apart: Vec<f64> = apart.collect();
        let is_known = apart.len() >= FEWEST_PAIRS;
        percentile(apart, WITHIN).filter(|_| is_known).map_or(USUAL_FLOOR, |floor| floor.exp_m1().max(LEAST_FLOOR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes with the times of candidates 0, 1, … at one size.
    fn evidence(passes: &[&[f64]]) -> Evidence {
        let mut evidence = Evidence::default();
        for pass in passes {
            evidence.begin_pass();
            pass.iter().enumerate().for_each(|(candidate, time)| evidence.add(candidate, &[*time]));
        }
        evidence
    }

    #[test]
    fn ratios_are_those_of_the_same_pass_so_that_a_drift_cancels() {
        let found = evidence(&[&[100.0, 90.0], &[200.0, 180.0], &[50.0, 45.0]]).ratio(1, 0, 1).expect("both were timed");
        assert!((found.mean - 0.9).abs() < 1e-12 && found.passes == 3, "{found:?}");
        assert!(found.interval.iter().all(|end| (end - 0.9).abs() < 1e-12), "{found:?}");
        assert_eq!(evidence(&[&[100.0]]).ratio(1, 0, 1), None);
    }

    #[test]
    fn the_floor_is_how_far_passes_of_the_same_candidate_lie_apart() {
        let noisy: Vec<Vec<f64>> = [0.99, 1.0, 1.01, 1.02].iter().map(|factor| vec![100.0, 90.0 * factor]).collect();
        let floor = evidence(&noisy.iter().map(Vec::as_slice).collect::<Vec<_>>()).floor();
        assert!((floor - (1.02 / 0.99 - 1.0)).abs() < 1e-9, "{floor}");
        let same = evidence(&[&[100.0, 90.0][..]; 8]).floor();
        assert!((same - USUAL_FLOOR).abs() < 1e-12, "one measurement read eight times says nothing: {same}");
    }
}
