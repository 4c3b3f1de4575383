//! What kernels compute, as one axis over all families.

use super::TABLE;
use crate::grid::{Dtype, Features, HeadDim, Target, UnknownWord};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, sync::LazyLock};

/// An axis of the grid that a kind may have besides its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Elements of one head's row.
    HeadDim,
    /// Element type of the inputs.
    Dtype,
    /// Full or causal.
    Mask,
    /// A set of features.
    Features,
}

impl Axis {
    /// Its key in `variants.toml`.
    pub fn key(self) -> &'static str {
        match self {
            Self::HeadDim => "head_dim",
            Self::Dtype => "dtype",
            Self::Mask => "mask",
            Self::Features => "features",
        }
    }
}

/// A value for each axis that a kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates {
    /// Elements of one head's row of each tensor.
    pub head_dim: Option<HeadDim>,
    /// Element type of the inputs.
    pub dtype: Option<Dtype>,
    /// Causal mask; otherwise full attention.
    pub causal: Option<bool>,
    /// What the kernel can do besides.
    pub features: Option<Features>,
    /// The architecture it is generated for.
    pub target: Target,
}

/// What there is to know of a kind.
#[derive(Debug)]
pub struct KindInfo {
    /// Its name, as files and JSON spell it.
    pub name: &'static str,
    /// Other words accepted on the command line and in `variants.toml`.
    pub aliases: &'static [&'static str],
    /// Its axes besides the target.
    pub axes: &'static [Axis],
    /// Its name in `kgen.h`.
    pub constant: &'static str,
    /// The structure of `kgen.h` that its launchers take.
    pub params: &'static str,
    /// Whether a function `<name>_workspace` comes with each launcher.
    pub workspace: bool,
    /// Names of the family's kinds without which a library does not use kernels of this kind.
    pub helpers: &'static [&'static str],
    /// What it computes, as a few words of a list.
    pub summary: &'static str,
}

impl KindInfo {
    /// The dispatcher's function that takes its parameters.
    pub fn function(&self) -> &'static str {
        self.params.trim_end_matches("_params")
    }
}

/// What a kernel computes: one of the kinds of one of the families, in the table's order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Kind {
    row: u8,
    place: u8,
}

impl Kind {
    /// A family's kind, from the family's row in the table and the kind's place there.
    pub(super) fn of(row: u8, place: usize) -> Self {
        Self { row, place: place as u8 }
    }

    /// The family's row and the kind's place there.
    pub(super) fn places(self) -> (u8, usize) {
        (self.row, usize::from(self.place))
    }

    /// Every kind of every family, in the table's order.
    pub fn all() -> &'static [Self] {
        static ALL: LazyLock<Vec<Kind>> = LazyLock::new(|| {
            let rows = TABLE.iter().enumerate();
            rows.flat_map(|(row, family)| (0..family.kinds.len()).map(move |place| Kind::of(row as u8, place))).collect()
        });
        &ALL
    }

    /// What there is to know of it.
    pub fn info(self) -> &'static KindInfo {
        &TABLE[usize::from(self.row)].kinds[usize::from(self.place)]
    }

    /// The canonical name, as variant names, files and JSON spell it.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Other words accepted on the command line and in `variants.toml`.
    pub fn aliases(self) -> &'static [&'static str] {
        self.info().aliases
    }

    /// The kinds without which a library does not use kernels of this kind.
    pub fn helpers(self) -> impl Iterator<Item = Self> {
        let is_named = move |kind: &Self| kind.row == self.row && self.info().helpers.contains(&kind.name());
        Self::all().iter().copied().filter(is_named)
    }

    /// Whether it has this axis.
    pub fn has(self, axis: Axis) -> bool {
        self.info().axes.contains(&axis)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.name().to_owned()
    }
}

impl TryFrom<String> for Kind {
    type Error = UnknownWord;

    fn try_from(word: String) -> Result<Self, UnknownWord> {
        word.parse()
    }
}

impl FromStr for Kind {
    type Err = UnknownWord;

    /// Accepts the canonical name or an alias, in any case.
    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        UnknownWord::read("kind", word, Self::all(), Self::name, Self::aliases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_word_leads_to_one_kind_only() {
        let mut seen = HashSet::new();
        for kind in Kind::all() {
            for word in kind.aliases().iter().chain([&kind.name()]) {
                assert!(seen.insert(*word), "`{word}` is claimed twice");
                assert_eq!(word.parse(), Ok(*kind));
            }
        }
    }

    #[test]
    fn every_helper_is_a_kind_of_the_same_family() {
        for kind in Kind::all() {
            assert_eq!(kind.helpers().count(), kind.info().helpers.len(), "{kind}");
        }
        assert!(Kind::all().iter().any(|kind| kind.helpers().count() > 0));
    }

    #[test]
    fn every_kind_has_a_constant_of_its_own() {
        let constants: HashSet<&str> = Kind::all().iter().map(|kind| kind.info().constant).collect();
        assert_eq!(constants.len(), Kind::all().len());
    }
}
