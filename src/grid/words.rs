//! Words users type: reading them as values of an axis, and suggesting the one they probably meant.

use super::{Dtype, Kind, Target, UnknownWord, gpus};
use std::str::FromStr;

/// An axis whose values are words, so that filters and `variants.toml` read all three alike.
pub trait AxisWord: FromStr<Err = UnknownWord> + Copy + Ord + Send + Sync + 'static {
    /// Every value, in canonical order.
    fn all() -> &'static [Self];
    /// The canonical name, then the aliases.
    fn words(self) -> Vec<&'static str>;
    /// What to tell of a word that is no value but has a meaning of its own, instead of a word that looks like it.
    fn hint(_word: &str) -> Option<String> {
        None
    }
}

macro_rules! axis_word {
    ($($type:ty $(, $hint:path)?);+) => {$(
        impl AxisWord for $type {
            fn all() -> &'static [Self] {
                Self::ALL
            }

            fn words(self) -> Vec<&'static str> {
                [self.name()].into_iter().chain(self.aliases().iter().copied()).collect()
            }
            $(
            fn hint(word: &str) -> Option<String> {
                $hint(word)
            }
            )?
        }
    )+};
}

axis_word!(Dtype; Target, gpus::hint);

impl AxisWord for Kind {
    fn all() -> &'static [Self] {
        Self::all()
    }

    fn words(self) -> Vec<&'static str> {
        [self.name()].into_iter().chain(self.aliases().iter().copied()).collect()
    }
}

/// A word that is no value of its axis, in the two sentences a message needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{title}; {help}")]
pub struct Misread {
    /// ``unknown dtype `fp12` ``.
    pub title: String,
    /// What to write instead.
    pub help: String,
}

/// Reads `word` as a value of an axis: canonical name or alias, in any case.
///
/// # Errors
/// [`Misread`], with the word that was probably meant.
pub fn read<T: AxisWord>(word: &str) -> Result<T, Misread> {
    word.parse::<T>().map_err(|unknown| {
        let known: Vec<&str> = T::all().iter().flat_map(|value| value.words()).collect();
        let names: Vec<&str> = T::all().iter().filter_map(|value| value.words().first().copied()).collect();
        Misread {
            title: format!("unknown {} `{word}`", unknown.axis),
            help: T::hint(word).or_else(|| suggestion(word, &known)).unwrap_or_else(|| format!("known: {}", ticked(&names))),
        }
    })
}

/// ``did you mean `hdim`?`` where one of `known` is near enough to `word` to be worth saying.
pub fn suggestion(word: &str, known: &[&str]) -> Option<String> {
    let word = word.to_ascii_lowercase();
    let near = known.iter().map(|candidate| (edits(&word, candidate), candidate)).min_by_key(|(distance, _)| *distance);
    let (distance, candidate) = near?;
    // A third of the letters may be wrong: more than that and the suggestion is a guess.
    let worth_saying = distance * 3 <= candidate.chars().count().max(word.chars().count());
    worth_saying.then(|| format!("did you mean `{candidate}`?"))
}

/// Names in back-ticks, separated by commas.
pub(super) fn ticked<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Insertions, deletions, replacements and swaps of neighbours that lead from `a` to `b` (optimal string alignment).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // distances[i][j] leads from the first i characters of `a` to the first j of `b`.
    let mut distances = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            distances[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let one_off = distances[i - 1][j].min(distances[i][j - 1]) + 1;
                let replaced = distances[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if swapped { distances[i - 2][j - 2] + 1 } else { usize::MAX };
                one_off.min(replaced).min(swapped)
            };
        }
    }
    distances[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_single_character_edits() {
        assert_eq!(edits("", ""), 0);
        assert_eq!(edits("hdim", "hdim"), 0);
        assert_eq!(edits("hdm", "hdim"), 1);
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("bf61", "bf16"), 1);
        assert_eq!(edits("sm_08", "sm80"), 2);
    }

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        assert_eq!(suggestion("hoper", &["hopper", "h100"]).as_deref(), Some("did you mean `hopper`?"));
        assert_eq!(suggestion("volta", &["hopper", "h100"]), None);
        assert_eq!(suggestion("x", &[]), None);
    }

    #[test]
    fn a_misread_word_is_answered_with_a_suggestion_or_the_list() {
        let near = read::<Dtype>("bfloat61").expect_err("not a dtype");
        assert_eq!((near.title.as_str(), near.help.as_str()), ("unknown dtype `bfloat61`", "did you mean `bfloat16`?"));
        let far = read::<Dtype>("int4").expect_err("not a dtype");
        assert_eq!(far.help, "known: `fp16`, `bf16`, `fp8`, `fp32`");
    }
}
