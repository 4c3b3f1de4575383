//! Measured calls from which corrections are learned.

use super::{COUNT, Features};
use crate::bench::Size;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// A measured call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lesson {
    /// Name of the kernel.
    pub kernel: String,
    /// See [`Features::group`].
    pub group: String,
    /// Columns of Q and K; 0 for kernels without a head dim.
    pub head_dim: u32,
    /// The sizes, as `batch=8 heads=16`.
    pub size: String,
    /// The lengths alone: `seqlen_q=1 seqlen_k=4096`, or the sizes of a matrix.
    pub length: String,
    /// Name of the card.
    pub card: String,
    /// Measured median time in microseconds.
    pub microseconds: f64,
    /// Natural logarithm of measured over estimated time.
    pub ratio: f64,
    /// Error of a prediction as a logarithm: the larger one of a model without lessons of this head dim and of a model
    /// without lessons of this length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<f64>,
    /// The tile, if a search tried it and it is not the kernel's own: such a call teaches, and its error is none of the
    /// kernel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile: Option<String>,
    /// See [`Features::numbers`].
    pub numbers: [f64; COUNT],
}

impl Lesson {
    /// What two lessons of the same measurement have in common.
    pub fn identity(&self) -> String {
        let tile = self.tile.as_deref().unwrap_or_default();
        format!("{} {tile} {} {} {}", self.kernel, self.size, self.card, self.microseconds)
    }

    /// The lesson of a call with these features that took `microseconds` in place of the estimated time.
    pub fn new(
        kernel: String,
        head_dim: u32,
        size: &Size,
        card: &str,
        features: Features,
        [microseconds, estimated]: [f64; 2],
    ) -> Self {
        let lengths = ["seqlen_q", "seqlen_k", "rows", "columns"];
        let length = lengths.iter().filter_map(|name| Some(format!("{name}={}", size.get(name)?)));
        Self {
            kernel,
            group: features.group,
            head_dim,
            size: size.to_string(),
            length: length.collect::<Vec<_>>().join(" "),
            card: card.to_owned(),
            microseconds: rounded(microseconds),
            ratio: rounded((microseconds / estimated).ln()),
            held_out: None,
            tile: None,
            numbers: features.numbers.map(rounded),
        }
    }
}

/// Five decimals: more than any measurement has.
fn rounded(number: f64) -> f64 {
    (number * 1e5).round() / 1e5
}

/// Lessons as the text of [`built_in`]'s file: a line of JSON for each.
pub fn text_of(lessons: &[Lesson]) -> String {
    lessons.iter().filter_map(|lesson| serde_json::to_string(lesson).ok()).map(|line| line + "\n").collect()
}

/// The lessons of the rows that the project publishes in `docs/results/`.
///
/// # Panics
/// If the file in the program is damaged; a test reads it.
pub fn built_in() -> &'static [Lesson] {
    static LESSONS: LazyLock<Vec<Lesson>> = LazyLock::new(|| {
        let lines = include_str!("lessons.jsonl").lines();
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("a line of lessons.jsonl: {error}"))).collect()
    });
    &LESSONS
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A lesson of a group at a head dim, whose first feature is `x`.
    pub fn lesson(group: &str, head_dim: u32, x: f64, ratio: f64) -> Lesson {
        let mut numbers = [0.0; COUNT];
        numbers[0] = x;
        let features = Features { group: group.to_owned(), numbers };
        let size = Size::new([("batch", 1), ("seqlen_q", 1), ("seqlen_k", (x * 1000.0).abs() as u64)]);
        Lesson::new(format!("{group}_{head_dim}"), head_dim, &size, "h100", features, [10.0 * ratio.exp(), 10.0])
    }

    #[test]
    fn lessons_are_written_and_read() {
        let written = lesson("fwd sm90", 128, 2.0, 0.1);
        assert_eq!((written.length.as_str(), written.ratio), ("seqlen_q=1 seqlen_k=2000", 0.1));
        let text = text_of(std::slice::from_ref(&written));
        assert_eq!(serde_json::from_str::<Lesson>(text.trim_end()).expect("a lesson"), written);
    }

    #[test]
    fn the_built_in_lessons_can_be_read() {
        assert!(built_in().iter().all(|lesson| lesson.microseconds > 0.0 && lesson.ratio.is_finite()));
    }
}
