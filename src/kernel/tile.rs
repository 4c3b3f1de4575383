//! Keys of `[[tile]]` tables as values. A family declares the keys of its kernels; a table sets some of them.

use crate::text::ticked;
use std::collections::BTreeMap;

/// A key of `[[tile]]` tables that a family declares.
#[derive(Debug, PartialEq, Eq)]
pub struct TileKey {
    /// Name of the key.
    pub name: &'static str,
    /// Meaning of the key, in a sentence or two.
    pub about: &'static str,
    /// The values that the key takes.
    pub takes: TileType,
    /// Keys of earlier tables that a table with this key unsets: other ways to set the same number.
    pub replaces: &'static [&'static str],
}

impl TileKey {
    /// A key whose values are whole numbers.
    pub const fn count(name: &'static str, about: &'static str) -> Self {
        Self { name, about, takes: TileType::Count, replaces: &[] }
    }
}

/// The type of a key's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileType {
    /// Non-negative integers.
    Count,
    /// `true` or `false`, without quotes.
    Flag,
    /// One of these strings.
    Words(&'static [&'static str]),
}

/// The value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileValue {
    /// An integer.
    Count(u32),
    /// `true` or `false`.
    Flag(bool),
    /// A string.
    Word(&'static str),
}

/// Changes to a tile: keys with their values. An absent key keeps the plan's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TileOverride(BTreeMap<&'static str, (&'static TileKey, TileValue)>);

impl TileOverride {
    /// Sets `key` to `value`, which must have its type.
    pub fn set(&mut self, key: &'static TileKey, value: TileValue) {
        self.0.insert(key.name, (key, value));
    }

    /// This override with `key` set.
    #[must_use]
    pub fn with(mut self, key: &'static TileKey, value: TileValue) -> Self {
        self.set(key, value);
        self
    }

    /// True if it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the keys that are set, in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    /// The value of a key, if it is set.
    pub fn get(&self, key: &str) -> Option<TileValue> {
        self.0.get(key).map(|(_, value)| *value)
    }

    /// The value of a key of type [`TileType::Count`], if it is set.
    pub fn count(&self, key: &str) -> Option<u32> {
        match self.get(key)? {
            TileValue::Count(count) => Some(count),
            TileValue::Flag(_) | TileValue::Word(_) => None,
        }
    }

    /// The reason why a kernel that reads only the keys `read` refuses this, if it does.
    pub fn refusal<'a>(&self, read: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let read: Vec<&str> = read.into_iter().collect();
        let ignored = self.0.keys().find(|key| !read.contains(key))?;
        let keys = match read.as_slice() {
            [] => "it has no tile to choose".to_owned(),
            read => format!("it reads {}", ticked(read)),
        };
        Some(format!("`{ignored}` is a tile key that this kernel does not read; {keys}"))
    }

    /// These changes, combined with changes of `earlier` to other keys that these do not replace.
    #[must_use]
    pub fn over(self, mut earlier: Self) -> Self {
        for (key, _) in self.0.values() {
            earlier.0.retain(|name, _| !key.replaces.contains(name));
        }
        earlier.0.extend(self.0);
        earlier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static M: TileKey = TileKey::count("m", "Rows.");
    static N: TileKey = TileKey::count("n", "Columns.");
    static EXACT: TileKey = TileKey { name: "exact", about: "One column.", takes: TileType::Flag, replaces: &["n"] };

    #[test]
    fn later_changes_win_key_by_key_and_unset_the_keys_that_theirs_replace() {
        let earlier = TileOverride::default().with(&M, TileValue::Count(64)).with(&N, TileValue::Count(32));
        let wider = TileOverride::default().with(&M, TileValue::Count(128)).over(earlier.clone());
        assert_eq!((wider.count("m"), wider.count("n")), (Some(128), Some(32)));
        let exact = TileOverride::default().with(&EXACT, TileValue::Flag(true)).over(earlier);
        assert_eq!((exact.count("m"), exact.get("n"), exact.get("exact")), (Some(64), None, Some(TileValue::Flag(true))));
    }

    #[test]
    fn a_key_that_is_not_read_is_refused_with_those_that_are() {
        let change = TileOverride::default().with(&M, TileValue::Count(64));
        assert_eq!(change.refusal(["m", "n"]), None);
        let refusal = change.refusal(["n"]).expect("not read");
        assert_eq!(refusal, "`m` is a tile key that this kernel does not read; it reads `n`");
        assert!(change.refusal([]).expect("not read").ends_with("it has no tile to choose"));
    }
}
