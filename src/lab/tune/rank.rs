//! The order in which candidates are measured: predictions, corrected by what was measured.
//!
//! The first wave takes the best predictions and, as predictions may be wrong alike for all similar tiles, as many that
//! differ most from those taken. Later waves follow a ridge regression of the errors on the keys of the tiles, and the
//! mean of the regression's errors over similar tiles.

use super::{Candidate, Evidence};
use crate::lab::predict::regression::{Sparse, ridge};
use itertools::Itertools;
use serde_json::Value;

/// Penalties of the ridge: of the mean, of coefficients of a key, and of the squares of a key's number.
const PENALTIES: [f64; 3] = [0.01, 0.1, 0.2];

/// Logarithm by which a tile beside one that failed is taken to be slower: it will probably spill too.
const RISK: f64 = 0.2;

/// Weight of "the regression is right" beside the measured candidates.
const PRIOR: f64 = 0.3;

/// The first `count` candidates besides the default: the best predictions, alternating with those that are farthest
/// from all that are taken.
pub(super) fn first(candidates: &[Candidate], count: usize) -> Vec<usize> {
    let by_time = |a: &usize, b: &usize| candidates[*a].predicted.total_cmp(&candidates[*b].predicted);
    let mut left: Vec<usize> = (1..candidates.len()).sorted_by(by_time).collect();
    let mut taken = vec![0];
    while taken.len() <= count && !left.is_empty() {
        let nearest = |place: usize| {
            let distances = taken.iter().map(|other| distance(&candidates[place], &candidates[*other]));
            distances.min_by(f64::total_cmp).unwrap_or_default()
        };
        let farthest = || left.iter().map(|place| nearest(*place)).enumerate().rev().max_by(|a, b| a.1.total_cmp(&b.1));
        let next = if taken.len() % 2 == 0 { farthest().map_or(0, |(next, _)| next) } else { 0 };
        taken.push(left.remove(next));
    }
    taken.split_off(1)
}

/// The places in `left`, best first: by predicted time, times the factor by which measured candidates teach that
/// predictions deviate. Tiles similar to `failed` ones come later.
pub(super) fn rank(candidates: &[Candidate], left: &[usize], evidence: &Evidence, failed: &[usize]) -> Vec<usize> {
    let error = |place: usize| {
        let expected = (candidates[place].predicted / candidates[0].predicted).ln();
        Some(evidence.mean_logarithm(place, 0) - expected).filter(|error| error.is_finite())
    };
    let measured: Vec<(usize, f64)> = (0..candidates.len()).filter_map(|place| Some((place, error(place)?))).collect();
    let numbers = numbers(candidates);
    let mut penalties = vec![PENALTIES[0]];
    penalties.extend(numbers[0][1..].iter().enumerate().map(|(place, _)| PENALTIES[1 + place % 2]));
    let row = |place: usize| numbers[place].iter().copied().enumerate().filter(|(_, number)| *number != 0.0);
    let rows: Vec<Sparse> = measured.iter().map(|(place, _)| row(*place).collect()).collect();
    let errors: Vec<f64> = measured.iter().map(|(_, error)| *error).collect();
    let coefficients = if rows.is_empty() { vec![0.0; penalties.len()] } else { ridge(&rows, &errors, &penalties) };
    let line = |place: usize| numbers[place].iter().zip(&coefficients).map(|(a, b)| a * b).sum::<f64>();
    let time = |place: usize| {
        let (mut weights, mut weighted) = (PRIOR, 0.0);
        for (other, error) in &measured {
            let weight = (-distance(&candidates[place], &candidates[*other])).exp();
            (weights, weighted) = (weights + weight, weighted + weight * (error - line(*other)));
        }
        let nearest = failed.iter().map(|other| distance(&candidates[place], &candidates[*other])).min_by(f64::total_cmp);
        let risk = nearest.map_or(0.0, |distance| RISK * (-distance).exp());
        candidates[place].predicted.ln() + line(place) + weighted / weights + risk
    };
    let order = left.iter().map(|place| (time(*place), *place)).sorted_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    order.map(|(_, place)| place).collect()
}

/// Features of each tile: 1, and for each key the octaves from the default and their square; of a key without numbers,
/// whether it differs from the default's, and 0.
fn numbers(candidates: &[Candidate]) -> Vec<Vec<f64>> {
    let default = &candidates[0].tile;
    let of_key = |key: &String, value: &Value| match (value.as_f64(), default.get(key).and_then(Value::as_f64)) {
        (Some(value), Some(usual)) if value > 0.0 && usual > 0.0 => {
            let octaves = (value / usual).log2();
            [octaves, octaves * octaves]
        }
        _ => [if default.get(key) == Some(value) { 0.0 } else { 1.0 }, 0.0],
    };
    let of_tile = |candidate: &Candidate| {
        let keys = candidate.tile.iter().flat_map(|(key, value)| of_key(key, value));
        std::iter::once(1.0).chain(keys).collect()
    };
    candidates.iter().map(of_tile).collect()
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
        assert_eq!(rank(&candidates, &[0, 1, 2, 3], &evidence, &[]), [1, 0, 2, 3]);
        evidence.begin_pass();
        for (place, time) in [(0, 100.0), (2, 80.0)] {
            evidence.add(place, &[time]);
        }
        assert_eq!(rank(&candidates, &[1, 3], &evidence, &[]), [3, 1], "m = 128 is faster than predicted");
        let unmeasured = Evidence::default();
        assert_eq!(rank(&candidates, &[0, 2, 3], &unmeasured, &[1]), [2, 3, 0], "n = 128 failed, and m = 64 is nearer");
    }

    #[test]
    fn the_first_wave_takes_good_predictions_and_tiles_unlike_them() {
        let candidates: Vec<Candidate> = (1..=16).map(|n| candidate(64, 16 * n, 100.0 + f64::from(n))).collect();
        assert_eq!(first(&candidates, 3), [1, 15, 2], "n = 32, the farthest 256, and 48");
        assert_eq!(first(&candidates, 100).len(), 15);
    }
}
