//! The correction of estimates, learned from lessons.

use super::{
    COUNT, Features, Lesson,
    regression::{Sparse, ridge},
};
use crate::bench::percentile;
use serde::Serialize;

/// Penalties of the ridge: of the mean of a group, of coefficients that all groups share, and of a group's deviations
/// from them. Chosen once, on rows of an H200 with held-out lengths and head dims.
const PENALTIES: [f64; 3] = [0.01, 0.2, 1.0];

/// Distance at which a lesson's weight is `exp(-1/2)`, in units of the features.
const NEAR: f64 = 0.35;

/// Weight of "no correction" beside the lessons that are near.
const PRIOR: f64 = 0.5;

/// Part of the held-out errors that an interval covers.
const COVERED: f64 = 0.9;

/// Half of the interval, as a logarithm, for kernels of which nothing like them was measured.
const UNKNOWN: f64 = 0.4;

/// A predicted time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Microseconds of a launch.
    pub microseconds: f64,
    /// In 9 of 10 held-out calls the measured time was within such an interval.
    pub interval: [f64; 2],
    /// Measured calls of kernels of the same kind, instructions and element type; 0: the plan alone.
    pub lessons: usize,
}

/// What lessons teach.
#[derive(Debug)]
pub struct Model<'a> {
    lessons: Vec<&'a Lesson>,
    groups: Vec<&'a str>,
    coefficients: Vec<f64>,
    /// Error of the regression for each lesson.
    rest: Vec<f64>,
}

impl<'a> Model<'a> {
    /// Learns from lessons; none teach that estimates are right.
    pub fn learn(lessons: impl IntoIterator<Item = &'a Lesson>) -> Self {
        let lessons: Vec<&Lesson> = lessons.into_iter().collect();
        let mut groups: Vec<&str> = lessons.iter().map(|lesson| lesson.group.as_str()).collect();
        groups.sort_unstable();
        groups.dedup();
        let [of_mean, of_shared, of_own] = PENALTIES;
        let of_group = std::iter::once(of_mean).chain([of_own; COUNT]);
        let penalties: Vec<f64> = groups.iter().flat_map(|_| of_group.clone()).chain([of_shared; COUNT]).collect();
        let rows: Vec<Sparse> = lessons.iter().map(|lesson| row(&groups, &lesson.group, &lesson.numbers)).collect();
        let ratios: Vec<f64> = lessons.iter().map(|lesson| lesson.ratio).collect();
        let coefficients = if lessons.is_empty() { Vec::new() } else { ridge(&rows, &ratios, &penalties) };
        let rest = rows.iter().zip(&ratios).map(|(row, ratio)| ratio - dot(row, &coefficients)).collect();
        Self { lessons, groups, coefficients, rest }
    }

    /// Natural logarithm of the factor by which a call takes longer than its estimate; 0 for a group without lessons.
    pub fn correction(&self, group: &str, numbers: &[f64; COUNT]) -> f64 {
        if !self.groups.contains(&group) {
            return 0.0;
        }
        let (mut weights, mut weighted) = (PRIOR, 0.0);
        for (lesson, rest) in self.lessons.iter().zip(&self.rest).filter(|(lesson, _)| lesson.group == group) {
            let distance: f64 = lesson.numbers.iter().zip(numbers).map(|(a, b)| (a - b).powi(2)).sum();
            let weight = (-distance / (2.0 * NEAR * NEAR)).exp();
            (weights, weighted) = (weights + weight, weighted + weight * rest);
        }
        dot(&row(&self.groups, group, numbers), &self.coefficients) + weighted / weights
    }

    /// The time of a call that is estimated at `microseconds` and takes no less than `floor`, both in microseconds.
    pub fn predict(&self, features: &Features, microseconds: f64, floor: f64) -> Prediction {
        let time = |logarithm: f64| (microseconds * logarithm.exp()).max(floor);
        let correction = self.correction(&features.group, &features.numbers);
        let alike = self.lessons.iter().filter(|lesson| lesson.group == features.group);
        let errors = alike.clone().filter_map(|lesson| lesson.held_out).map(f64::abs);
        let half = percentile(errors, COVERED).unwrap_or(UNKNOWN);
        Prediction {
            microseconds: time(correction),
            interval: [time(correction - half), time(correction + half)],
            lessons: alike.count(),
        }
    }
}

/// A row of the regression: the mean and the features of each group, and then the features that all share. The columns
/// of a group are side by side because they have nothing in common with those of others.
fn row(groups: &[&str], group: &str, numbers: &[f64; COUNT]) -> Sparse {
    let own = groups.iter().position(|known| *known == group).map(|place| place * (COUNT + 1));
    let at = |first: usize| numbers.iter().copied().enumerate().map(move |(place, number)| (first + place, number));
    let of_group = own.into_iter().flat_map(|own| std::iter::once((own, 1.0)).chain(at(own + 1)));
    of_group.chain(at(groups.len() * (COUNT + 1))).filter(|(_, number)| *number != 0.0).collect()
}

fn dot(row: &[(usize, f64)], coefficients: &[f64]) -> f64 {
    row.iter().map(|(column, number)| number * coefficients[*column]).sum()
}

#[cfg(test)]
mod tests {
    use super::{super::lesson::tests::lesson, *};

    fn at(x: f64) -> [f64; COUNT] {
        let mut numbers = [0.0; COUNT];
        numbers[0] = x;
        numbers
    }

    fn features(group: &str, x: f64) -> Features {
        Features { group: group.to_owned(), numbers: at(x) }
    }

    /// 20 calls of a group that take `factor` and, per unit of the feature, `slope` longer than estimated.
    fn lessons(group: &str, factor: f64, slope: f64) -> Vec<Lesson> {
        (0..20).map(|i| f64::from(i) / 10.0).map(|x| lesson(group, 64 + i_of(x), x, factor + slope * x)).collect()
    }

    fn i_of(x: f64) -> u32 {
        (x * 10.0) as u32 * 8
    }

    #[test]
    fn a_factor_and_a_slope_are_learned_for_each_group() {
        let both = [lessons("slow", 0.3, 0.2), lessons("fast", -0.2, -0.1)].concat();
        let model = Model::learn(&both);
        for (group, x, expected) in [("slow", 0.55, 0.41), ("fast", 1.45, -0.345), ("slow", 1.95, 0.69)] {
            let found = model.correction(group, &at(x));
            assert!((found - expected).abs() < 0.03, "{group} {x}: {found}, not {expected}");
        }
    }

    #[test]
    fn a_call_beside_lessons_that_deviate_from_the_line_deviates_with_them() {
        let mut all = lessons("a", 0.0, 0.0);
        all.iter_mut().filter(|lesson| lesson.numbers[0] > 1.25).for_each(|lesson| lesson.ratio = 0.4);
        let model = Model::learn(&all);
        assert!(model.correction("a", &at(1.8)) > 0.3);
        assert!(model.correction("a", &at(0.2)).abs() < 0.1);
    }

    #[test]
    fn without_lessons_the_estimate_stands_with_a_wide_interval() {
        let none = Model::learn(&[]).predict(&features("a", 1.0), 100.0, 1.0);
        assert_eq!((none.microseconds, none.lessons), (100.0, 0));
        assert!(none.interval[0] < 70.0 && none.interval[1] > 140.0);
        let of_another = lessons("b", 0.5, 0.0);
        assert_eq!(Model::learn(&of_another).predict(&features("a", 1.0), 100.0, 1.0), none);
    }

    #[test]
    fn nothing_is_faster_than_the_floor() {
        let all = lessons("a", -1.0, 0.0);
        let prediction = Model::learn(&all).predict(&features("a", 1.0), 100.0, 80.0);
        assert_eq!((prediction.microseconds, prediction.interval[0]), (80.0, 80.0));
    }

    #[test]
    fn an_interval_covers_nine_of_ten_errors_of_held_out_calls() {
        let mut all = lessons("a", 0.0, 0.0);
        for (place, lesson) in all.iter_mut().enumerate() {
            lesson.held_out = Some(if place < 18 { 0.05 } else { -0.5 });
        }
        let prediction = Model::learn(&all).predict(&features("a", 1.0), 100.0, 1.0);
        assert!((prediction.interval[1] / prediction.microseconds - 0.05_f64.exp()).abs() < 1e-9, "{prediction:?}");
    }
}
