//! A declared score as a small `Copy` value for sets of features and points of a grid. There are few declarations, and
//! they live until the process ends.

use super::{Declared, Expr, List, UserScore};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{
    cmp::Ordering,
    collections::HashMap,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// A declaration and values derived from it.
#[derive(Debug)]
struct Entry {
    score: UserScore,
    hash: String,
    id: u64,
    derivative: Option<Expr>,
}

/// One declared score. Two are equal if name and content are.
#[derive(Clone, Copy, Debug)]
pub struct KeptScore(&'static Entry);

impl KeptScore {
    /// Interns a declaration; equal ones are stored once.
    pub fn of(score: UserScore) -> Self {
        let hash = score.hash();
        let mut kept = all();
        let same = kept.by_name.get(score.name.as_str()).into_iter().flatten().find(|entry| entry.hash == hash);
        if let Some(entry) = same {
            return Self(entry);
        }
        let (id, derivative) = (id_of(&hash), score.score.as_ref().map(Expr::derivative));
        let entry: &'static Entry = Box::leak(Box::new(Entry { score, hash, id, derivative }));
        kept.by_name.entry(&entry.score.name).or_default().push(entry);
        Self(entry)
    }

    /// The score of that name that was interned last.
    pub fn named(name: &str) -> Option<Self> {
        all().by_name.get(name).and_then(|entries| entries.last()).map(|entry| Self(entry))
    }

    /// Name of the score, which is part of kernel names.
    pub fn name(self) -> &'static str {
        &self.0.score.name
    }

    /// [`UserScore::hash`].
    pub fn digest(self) -> &'static str {
        &self.0.hash
    }

    /// The identifier that a call passes: 64 bits of the hash of the computation, never 0.
    pub fn id(self) -> u64 {
        self.0.id
    }

    /// The derivative of its score with respect to `s`.
    pub fn derivative(self) -> Option<&'static Expr> {
        self.0.derivative.as_ref()
    }
}

/// All interned declarations: a file may declare tens of thousands.
#[derive(Default)]
struct Kept {
    /// Declarations by name, in the order in which they were interned; rarely more than one.
    by_name: HashMap<&'static str, Vec<&'static Entry>>,
}

fn all() -> MutexGuard<'static, Kept> {
    static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first 16 digits of a hash; 0, which denotes the absence of a score, becomes 1.
fn id_of(hash: &str) -> u64 {
    u64::from_str_radix(&hash[..16], 16).unwrap_or_default().max(1)
}

impl Deref for KeptScore {
    type Target = UserScore;

    fn deref(&self) -> &UserScore {
        &self.0.score
    }
}

impl PartialEq for KeptScore {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for KeptScore {}

impl Hash for KeptScore {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
        self.0.score.name.hash(state);
    }
}

impl Ord for KeptScore {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.name(), self.digest()).cmp(&(other.name(), other.digest()))
    }
}

impl PartialOrd for KeptScore {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for KeptScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A declaration in JSON: complete, in canonical text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    name: String,
    hash: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scalars: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    integers: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tables: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    score: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<String>,
}

impl Serialize for KeptScore {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = |list| self.names.names(list).iter().map(ToString::to_string).collect();
        let form = Form {
            name: self.name.clone(),
            hash: self.digest().to_owned(),
            scalars: names(List::Scalars),
            integers: names(List::Integers),
            tables: names(List::Tables),
            score: self.score.as_ref().map(ToString::to_string),
            mask: self.mask.as_ref().map(ToString::to_string),
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeptScore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = Form::deserialize(deserializer)?;
        let mut names = Declared::default();
        for (list, given) in [(List::Scalars, &form.scalars), (List::Integers, &form.integers), (List::Tables, &form.tables)] {
            for name in given {
                names.declare(list, name).map_err(de::Error::custom)?;
            }
        }
        let score = UserScore::of(&form.name, names, form.score.as_deref(), form.mask.as_deref()).map_err(de::Error::custom)?;
        let kept = Self::of(score);
        if kept.digest() == form.hash {
            return Ok(kept);
        }
        Err(de::Error::custom(format!("the score `{}` does not have the hash that is given with it", form.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::read;

    fn kept(text: &str) -> KeptScore {
        KeptScore::of(read(text, "scores.toml").expect("a declaration").remove(0))
    }

    #[test]
    fn equal_declarations_are_kept_once_and_other_content_is_another_score() {
        let one = kept("[score.near]\nintegers = [\"window\"]\nmask = 'q - k < window'");
        let spaced = kept("[score.near]\nintegers = [\"window\"]\nmask = '(q-k) < window'");
        let other = kept("[score.near]\nintegers = [\"window\"]\nmask = 'q - k <= window'");
        let renamed = kept("[score.close]\nintegers = [\"window\"]\nmask = 'q - k < window'");
        assert_eq!(one, spaced);
        assert!(one != other && one.id() != other.id());
        assert!(one != renamed && one.id() == renamed.id() && renamed < one);
        assert_eq!(id_of("0000000000000000ab"), 1);
    }

    #[test]
    fn tens_of_thousands_are_kept_without_looking_at_each_for_each() {
        let table = |number: usize| format!("[score.many{number}]\nmask = 'k <= q + {number}'\n");
        let text: String = (0..20_000).map(table).collect();
        let scores: Vec<KeptScore> = read(&text, "scores.toml").expect("declarations").into_iter().map(KeptScore::of).collect();
        assert_eq!(scores.len(), 20_000);
        assert!(scores.iter().all(|score| KeptScore::named(score.name()) == Some(*score)));
        let other = kept("[score.many7]\nmask = 'k < q'");
        assert!(
            KeptScore::named("many7") == Some(other) && scores.iter().filter(|score| **score == kept(&table(7))).count() == 1
        );
    }

    #[test]
    fn json_holds_all_of_it_and_is_read_back() {
        let text = "[score.decay]\nscalars = [\"rate\"]\nintegers = [\"n\"]\ntables = [\"t\"]\nscore = 's - rate * t[h] * (q % n)'\nmask = 'k <= q'";
        let score = kept(text);
        let json = serde_json::to_string(&score).expect("it prints");
        assert_eq!(serde_json::from_str::<KeptScore>(&json).expect("it reads"), score);
        let tampered = json.replace("k <= q", "k < q");
        assert!(serde_json::from_str::<KeptScore>(&tampered).expect_err("another mask").to_string().contains("hash"));
    }
}
