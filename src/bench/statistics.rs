//! Summary of a list of round times: median, spread and confidence interval.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Bootstrap samples: each end of a 95 % interval is then 50 samples from the extreme.
const DRAWS: usize = 2000;

/// Median, spread and confidence interval of a list of numbers, in their unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Middle value, or the mean of the middle two.
    pub median: f64,
    /// Median absolute deviation from the median.
    pub mad: f64,
    /// 95 % interval of the median: percentiles 2.5 and 97.5 of the medians of bootstrap samples (Efron, 1979).
    pub interval: [f64; 2],
    /// Number of values.
    pub n: usize,
    /// Arithmetic mean.
    #[serde(default)]
    pub mean: f64,
    /// Standard deviation of the sample; 0 for a single value.
    #[serde(default)]
    pub deviation: f64,
    /// The smallest.
    #[serde(default)]
    pub min: f64,
    /// The largest.
    #[serde(default)]
    pub max: f64,
    /// The 95th percentile, with linear interpolation.
    #[serde(default)]
    pub p95: f64,
    /// The 99th percentile.
    #[serde(default)]
    pub p99: f64,
}

impl Summary {
    /// Summary of `values`, which must not contain NaN; `None` if there are none. `seed` draws the bootstrap samples.
    pub fn of(values: &[f64], seed: u64) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let center = middle(values.to_vec());
        let mad = middle(values.iter().map(|value| (value - center).abs()).collect());
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut medians: Vec<f64> =
            (0..DRAWS).map(|_| middle((0..values.len()).map(|_| values[rng.random_range(0..values.len())]).collect())).collect();
        medians.sort_unstable_by(f64::total_cmp);
        let interval = [medians[DRAWS / 40], medians[DRAWS - 1 - DRAWS / 40]];
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            median: center,
            mad,
            interval,
            n,
            mean,
            deviation: (squares / (n.max(2) - 1) as f64).sqrt(),
            min: sorted[0],
            max: sorted[n - 1],
            p95: interpolated(&sorted, 0.95),
            p99: interpolated(&sorted, 0.99),
        })
    }
}

/// The smallest of `values` that at least the fraction `part` of them does not exceed: their percentile by nearest
/// rank, which unlike an interpolated one is a bound that so many values keep. `None` if there are no values.
pub fn percentile(values: impl IntoIterator<Item = f64>, part: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied()
}

/// The median: the middle value, or the mean of the middle two; `None` if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    (!values.is_empty()).then(|| middle(values))
}

/// The value below which the fraction `at` of sorted values lies, with linear interpolation.
fn interpolated(sorted: &[f64], at: f64) -> f64 {
    let place = at * (sorted.len() - 1) as f64;
    let low = place.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * place.fract()
}

/// The median of at least one value.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_the_middle_two() {
        let of = [median([3.0, 1.0, 2.0]), median([4.0, 1.0, 2.0, 3.0]), median([7.0]), median([])];
        assert_eq!(of, [Some(2.0), Some(2.5), Some(7.0), None]);
    }

    #[test]
    fn a_percentile_is_a_value_that_enough_values_do_not_exceed() {
        let twenty = || (1..=20).rev().map(f64::from);
        let of = [percentile(twenty(), 0.95), percentile(twenty(), 0.951), percentile(twenty(), 0.0), percentile(twenty(), 1.0)];
        assert_eq!(of, [Some(19.0), Some(20.0), Some(1.0), Some(20.0)]);
        assert_eq!((percentile([7.0, 3.0], 0.5), percentile([], 0.5)), (Some(3.0), None));
    }

    #[test]
    fn mean_deviation_and_percentiles_are_those_of_the_sample() {
        let values: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        let found = Summary::of(&values, 1).expect("there are values");
        assert_eq!((found.mean, found.min, found.max, found.p95, found.p99), (51.0, 1.0, 101.0, 96.0, 100.0));
        // The variance of 1 to n is n (n + 1) / 12.
        assert!((found.deviation - (101.0_f64 * 102.0 / 12.0).sqrt()).abs() < 1e-12, "{}", found.deviation);
        let one = Summary::of(&[3.0], 1).expect("a value");
        assert_eq!((one.mean, one.deviation, one.p99), (3.0, 0.0, 3.0));
    }

    #[test]
    fn the_spread_is_the_median_distance_from_the_median() {
        // Distances from 3 are 2, 1, 0, 1 and 97: one outlier does not count.
        assert_eq!(Summary::of(&[1.0, 2.0, 3.0, 4.0, 100.0], 1).expect("there are values").mad, 1.0);
    }

    #[test]
    fn the_interval_holds_the_median_is_the_same_for_the_same_seed_and_a_point_where_all_are_equal() {
        let values: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 20)).collect();
        let [first, again] = [1, 1].map(|seed| Summary::of(&values, seed).expect("there are values"));
        assert_eq!(first, again);
        let [low, high] = first.interval;
        assert!(low < first.median && first.median < high && 0.0 < low && high < 19.0, "{first:?}");
        // The exact 95 % interval by order statistics of 20 values is from the 6th to the 15th.
        assert!((low - 5.0).abs() <= 1.5 && (high - 14.0).abs() <= 1.5, "{first:?}");
        assert_eq!(Summary::of(&[5.0; 8], 3).expect("there are values").interval, [5.0; 2]);
        assert_eq!(Summary::of(&[], 1), None);
    }
}
