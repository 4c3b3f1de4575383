//! Errors of predictions for calls that a model has not seen.

use super::{Lesson, Model};
use crate::bench::percentile;
use itertools::Itertools;
use serde::Serialize;

/// What is held out: all lessons with the same value are predicted by a model of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// The lengths of the call.
    Length,
    /// The head dim.
    HeadDim,
    /// The card.
    Card,
}

impl Held {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Length, Self::HeadDim, Self::Card];

    /// The name in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::HeadDim => "head dim",
            Self::Card => "card",
        }
    }

    fn value(self, lesson: &Lesson) -> String {
        match self {
            Self::Length => lesson.length.clone(),
            Self::HeadDim => lesson.head_dim.to_string(),
            Self::Card => lesson.card.clone(),
        }
    }
}

/// Relative errors |predicted / measured - 1| of some calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// The calls: `all`, a kind, a head dim, a card.
    pub of: String,
    /// Number of calls.
    pub calls: usize,
    /// Mean.
    pub mean: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Largest.
    pub worst: f64,
    /// The call with the largest.
    pub worst_call: String,
}

/// Errors with one axis held out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// The axis.
    pub held: Held,
    /// Errors of all calls, then by group, head dim and card, and of calls whose queries and keys differ in number.
    pub errors: Vec<Errors>,
    /// Mean error of the estimates alone, without a correction.
    pub estimate_mean: f64,
}

/// Logarithm of predicted over measured time of each lesson, by models that have not seen its value of the axis. `None`
/// if no other lesson of its group is left.
pub fn held_out(lessons: &[Lesson], held: Held) -> Vec<Option<f64>> {
    let values: Vec<String> = lessons.iter().map(|lesson| held.value(lesson)).collect();
    let mut errors = vec![None; lessons.len()];
    for value in values.iter().unique() {
        let others: Vec<&Lesson> =
            lessons.iter().zip(&values).filter(|(_, other)| *other != value).map(|(lesson, _)| lesson).collect();
        let model = Model::learn(others.iter().copied());
        for (place, lesson) in lessons.iter().enumerate().filter(|(place, _)| values[*place] == *value) {
            if others.iter().any(|other| other.group == lesson.group) {
                errors[place] = Some(model.correction(&lesson.group, &lesson.numbers) - lesson.ratio);
            }
        }
    }
    errors
}

/// Errors for each axis of which the lessons have several values, of kernels with their own tiles; other tiles that a
/// search tried teach, and are no calls of the kernel.
pub fn validate(lessons: &[Lesson]) -> Vec<Validation> {
    let several = |held: &Held| lessons.iter().map(|lesson| held.value(lesson)).unique().count() > 1;
    let of_axis = |held: Held| {
        let errors = held_out(lessons, held);
        let own = lessons.iter().zip(errors).filter(|(lesson, _)| lesson.tile.is_none());
        let known: Vec<(&Lesson, f64)> = own.filter_map(|(lesson, error)| Some((lesson, error?.exp_m1().abs()))).collect();
        let by = |of: &dyn Fn(&Lesson) -> String| {
            let parts = known.iter().map(|(lesson, error)| (of(lesson), (*lesson, *error))).into_group_map();
            parts.into_iter().sorted_by(|a, b| a.0.cmp(&b.0)).filter_map(|(of, calls)| errors_of(of, &calls)).collect::<Vec<_>>()
        };
        let parts = [
            by(&|_| "all".to_owned()),
            by(&|lesson| lesson.group.clone()),
            by(&|lesson| format!("head dim {:>3}", lesson.head_dim)),
            by(&|lesson| lesson.card.clone()),
            errors_of("queries and keys that differ".to_owned(), &with_other_lengths(&known)).into_iter().collect(),
        ];
        let estimates = known.iter().map(|(lesson, _)| (-lesson.ratio).exp_m1().abs()).sum::<f64>();
        Validation { held, errors: parts.concat(), estimate_mean: estimates / known.len().max(1) as f64 }
    };
    Held::ALL.into_iter().filter(several).map(of_axis).collect()
}

/// The calls with another number of queries than of keys, except decoding, in which it is the rule.
fn with_other_lengths<'a>(calls: &[(&'a Lesson, f64)]) -> Vec<(&'a Lesson, f64)> {
    let differ = |lesson: &Lesson| {
        let length = |name| lesson.length.split(' ').find_map(|word| word.strip_prefix(name));
        let lengths = length("seqlen_q=").zip(length("seqlen_k="));
        lengths.is_some_and(|(queries, keys)| queries != keys) && !lesson.group.starts_with("fwd_split ")
    };
    calls.iter().filter(|(lesson, _)| differ(lesson)).copied().collect()
}

fn errors_of(of: String, calls: &[(&Lesson, f64)]) -> Option<Errors> {
    let (worst, error) = calls.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let errors = calls.iter().map(|(_, error)| *error);
    Some(Errors {
        of,
        calls: calls.len(),
        mean: errors.clone().sum::<f64>() / calls.len() as f64,
        p95: percentile(errors, 0.95)?,
        worst: *error,
        worst_call: format!("{} {} {}", worst.kernel, worst.size, worst.card),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::lesson::tests::lesson, *};

    #[test]
    fn a_held_out_head_dim_is_predicted_by_the_others() {
        // Head dim 64 deviates by 0.5 from what the others teach, which the model cannot know.
        let lessons: Vec<Lesson> =
            (0..30).map(|i| lesson("a", [64, 96, 128][i % 3], i as f64 / 30.0, if i % 3 == 0 { 0.5 } else { 0.0 })).collect();
        let errors = held_out(&lessons, Held::HeadDim);
        let mean = |of: u32| {
            let of_dim = lessons.iter().zip(&errors).filter(|(lesson, _)| lesson.head_dim == of);
            of_dim.map(|(_, error)| error.expect("others are left").abs()).sum::<f64>() / 10.0
        };
        assert!((mean(64) - 0.5).abs() < 0.1, "{}", mean(64));
        let of_dims = &validate(&lessons)[1];
        assert_eq!(of_dims.held, Held::HeadDim);
        let [all, of_64] = ["all", "head dim  64"].map(|of| of_dims.errors.iter().find(|errors| errors.of == of).expect(of));
        assert_eq!((all.calls, of_64.calls), (30, 10));
        assert!(of_64.mean <= of_64.p95 + 1e-9 && of_64.p95 <= of_64.worst && of_64.worst <= all.worst);
    }

    #[test]
    fn calls_with_other_lengths_are_those_whose_queries_and_keys_differ() {
        let lengths = |group: &str, length: &str| Lesson { length: length.to_owned(), ..lesson(group, 64, 0.1, 0.0) };
        let lessons = [
            lengths("fwd sm90", "seqlen_q=512 seqlen_k=512"),
            lengths("fwd sm90", "seqlen_q=512 seqlen_k=5120"),
            lengths("fwd_split sm80", "seqlen_q=1 seqlen_k=5120"),
            lengths("reduce_sum sm80", "rows=1 columns=5120"),
        ];
        let all: Vec<(&Lesson, f64)> = lessons.iter().map(|lesson| (lesson, 0.0)).collect();
        assert_eq!(with_other_lengths(&all), [(&lessons[1], 0.0)]);
    }

    #[test]
    fn tiles_that_a_search_tried_teach_and_are_not_counted() {
        let tried = |x: f64| Lesson { tile: Some("m=64 n=64".to_owned()), ..lesson("a", 64, x, 3.0) };
        let lessons = [lesson("a", 64, 0.1, 0.0), lesson("a", 64, 0.2, 0.0), tried(0.1), tried(0.3)];
        let of_lengths = &validate(&lessons)[0];
        assert_eq!((of_lengths.held, of_lengths.errors[0].of.as_str(), of_lengths.errors[0].calls), (Held::Length, "all", 2));
        // Estimates are exact for the kernel's own tile, and off by e³ for the other.
        assert!(of_lengths.estimate_mean < 1e-9, "{}", of_lengths.estimate_mean);
    }

    #[test]
    fn a_group_of_one_value_is_not_validated() {
        let lessons = [lesson("a", 64, 0.1, 0.0), lesson("a", 128, 0.2, 0.0), lesson("b", 64, 0.3, 0.0)];
        let errors = held_out(&lessons, Held::HeadDim);
        assert_eq!(errors.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false]);
    }
}
