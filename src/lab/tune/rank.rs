//! The order in which candidates are measured: predictions, corrected by what was measured of similar tiles.

use super::{Candidate, Evidence};
use serde_json::Value;

/// Weight of "the prediction is right" beside the measured candidates.
const PRIOR: f64 = 0.3;

/// The places in `left`, best first: by predicted time, times the mean factor by which measured candidates deviate from
/// their predictions, in which similar tiles weigh most.
pub(super) fn rank(candidates: &[Candidate], left: &[usize], evidence: &Evidence) -> Vec<usize> {
    let measured: Vec<(&Candidate, f64)> = candidates
        .iter()
        .enumerate()
        .filter(|(place, _)| evidence.passes(*place) > 0)
        .map(|(place, candidate)| {
            let expected = (candidate.predicted / candidates[0].predicted).ln();
            (candidate, evidence.mean_logarithm(place, 0) - expected)
        })
        .filter(|(_, error)| error.is_finite())
        .collect();
    let time = |place: usize| {
        let candidate = &candidates[place];
        let (mut weights, mut weighted) = (PRIOR, 0.0);
        for (other, error) in &measured {
            let weight = (-distance(candidate, other)).exp();
            (weights, weighted) = (weights + weight, weighted + weight * error);
        }
        candidate.predicted.ln() + weighted / weights
    };
    let mut order: Vec<(f64, usize)> = left.iter().map(|place| (time(*place), *place)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, place)| place).collect()
}

/// Distance of two tiles: for each key, the octaves between two numbers, and 1 between other values.
fn distance(a: &Candidate, b: &Candidate) -> f64 {
    let apart = |one: &Value, other: &Value| match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) if one > 0.0 && other > 0.0 => (one / other).log2().abs(),
        _ if one == other => 0.0,
        _ => 1.0,
    };
    a.tile.iter().map(|(key, value)| b.tile.get(key).map_or(1.0, |other| apart(value, other))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn candidate(m: u32, n: u32, predicted: f64) -> Candidate {
        let tile = json!({ "m": m, "n": n }).as_object().cloned().unwrap_or_default();
        Candidate { tile, predicted, registers: 0, shared_memory_bytes: 0 }
    }

    #[test]
    fn before_a_measurement_predictions_decide_and_after_it_similar_tiles_follow() {
        let candidates =
            [candidate(64, 64, 100.0), candidate(64, 128, 99.0), candidate(128, 64, 101.0), candidate(128, 72, 102.0)];
        let mut evidence = Evidence::default();
        assert_eq!(rank(&candidates, &[0, 1, 2, 3], &evidence), [1, 0, 2, 3]);
        evidence.begin_pass();
        for (place, time) in [(0, 100.0), (2, 80.0)] {
            evidence.add(place, &[time]);
        }
        assert_eq!(rank(&candidates, &[1, 3], &evidence), [3, 1], "m = 128 is faster than predicted");
    }
}
