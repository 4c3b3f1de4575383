//! The features of a kernel beyond its kind, head dim, dtype and mask: an axis whose values are sets of words.

use super::{UnknownWord, words::AxisWord};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};

/// Something that a kernel can do at run time because it was generated for it. Its numbers come with each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// A query sees keys from `window_left` before its position to `window_right` after it.
    Window,
    /// A query sees keys of its own chunk of `attention_chunk` positions.
    Chunk,
    /// Scores s become cap · tanh(s / cap).
    Softcap,
    /// Scores fall by a slope times the distance of query and key.
    Alibi,
    /// One logit per query head joins the denominator.
    Sinks,
}

impl Feature {
    /// Every feature, in the order in which names hold them.
    pub const ALL: &'static [Self] = &[Self::Window, Self::Chunk, Self::Softcap, Self::Alibi, Self::Sinks];

    /// The word for it in names, files, JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Chunk => "chunk",
            Self::Softcap => "softcap",
            Self::Alibi => "alibi",
            Self::Sinks => "sinks",
        }
    }

    /// Other words accepted on the command line and in `variants.toml`.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Window => &["sliding_window", "local"],
            Self::Chunk => &["attention_chunk"],
            Self::Alibi => &["alibi_slopes"],
            Self::Sinks => &["sink"],
            Self::Softcap => &[],
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Feature {
    type Err = UnknownWord;

    /// Accepts the canonical name or an alias, in any case.
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        UnknownWord::read("feature", word, Self::ALL, Self::name, Self::aliases)
    }
}

impl AxisWord for Feature {
    fn all() -> &'static [Self] {
        Self::ALL
    }

    fn words(self) -> Vec<&'static str> {
        [self.name()].into_iter().chain(self.aliases().iter().copied()).collect()
    }
}

/// A set of features. JSON has it as a list of words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Features(u8);

impl Features {
    /// The empty set: a plain kernel.
    pub const NONE: Self = Self(0);

    /// All that there are.
    pub fn all() -> Self {
        Feature::ALL.iter().copied().collect()
    }

    /// Whether the set holds `feature`.
    pub fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u8) != 0
    }

    /// Whether it is the empty set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every feature of `other` is one of these.
    pub fn hold(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// The features of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Its features, in the order of names.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |feature| self.has(*feature))
    }

    /// The end of a variant's name that stands for it: `_window_softcap`, or nothing.
    pub fn suffix(self) -> String {
        self.iter().flat_map(|feature| ["_", feature.name()]).collect()
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        Self(features.into_iter().fold(0, |set, feature| set | 1 << feature as u8))
    }
}

impl fmt::Display for Features {
    /// As the command line takes it: `window,softcap`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.pad("none");
        }
        f.pad(&self.iter().map(Feature::name).collect::<Vec<_>>().join(","))
    }
}

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Feature::name))
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        words.iter().map(|word| word.parse::<Feature>().map_err(de::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_written_as_it_is_read_and_keeps_one_order() {
        let set: Features = [Feature::Sinks, Feature::Window].into_iter().collect();
        assert_eq!((set.to_string(), set.suffix()), ("window,sinks".to_owned(), "_window_sinks".to_owned()));
        assert_eq!((Features::NONE.to_string(), Features::NONE.suffix()), ("none".to_owned(), String::new()));
        let json = serde_json::to_string(&set).expect("it prints");
        assert_eq!(json, r#"["window","sinks"]"#);
        assert_eq!(serde_json::from_str::<Features>(&json).ok(), Some(set));
    }

    #[test]
    fn a_set_holds_its_parts_and_not_more() {
        let window = Features::from_iter([Feature::Window]);
        assert!(Features::all().hold(window) && window.hold(Features::NONE) && !window.hold(Features::all()));
        assert_eq!(window.with(Features::all()), Features::all());
        assert_eq!(Features::all().iter().count(), Feature::ALL.len());
    }

    #[test]
    fn every_word_leads_to_one_feature_only() {
        let mut seen = std::collections::HashSet::new();
        for feature in Feature::ALL {
            for word in feature.words() {
                assert!(seen.insert(word), "`{word}` is claimed twice");
                assert_eq!(word.parse(), Ok(*feature));
            }
        }
    }
}
