//! Users' words, parsed as values of an axis.

use super::{Dtype, Kind, Target, UnknownWord, gpus};
use crate::text::{suggestion, ticked};
use std::str::FromStr;

/// An axis whose values are words: filters and `variants.toml` parse all such axes by these functions.
pub trait AxisWord: FromStr<Err = UnknownWord> + Copy + Ord + Send + Sync + 'static {
    /// Every value, in canonical order.
    fn all() -> &'static [Self];
    /// The canonical name, then the aliases.
    fn words(self) -> Vec<&'static str>;
    /// The hint for a word that is not a value but has a known meaning, instead of a similar word.
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
        Self::ALL
    }

    fn words(self) -> Vec<&'static str> {
        [self.name()].into_iter().chain(self.aliases().iter().copied()).collect()
    }
}

/// The error for a word that is not a value of its axis. Displayed as `title; help`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{title}; {help}")]
pub struct Misread {
    /// ``unknown dtype `fp12` ``.
    pub title: String,
    /// The remedy.
    pub help: String,
}

/// Parses `word` as a value of an axis: canonical name or alias, in any case.
///
/// # Errors
/// [`Misread`] with the word that was probably meant.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misread_word_is_answered_with_a_suggestion_or_the_list() {
        let near = read::<Dtype>("bfloat61").expect_err("not a dtype");
        assert_eq!((near.title.as_str(), near.help.as_str()), ("unknown dtype `bfloat61`", "did you mean `bfloat16`?"));
        let far = read::<Dtype>("int4").expect_err("not a dtype");
        assert_eq!(far.help, "known: `fp16`, `bf16`, `fp8`, `fp32`");
    }
}
