//! The expanded grid.

use super::{
    GridError, Kind, Target, TileOverride, Variant,
    declare::{Declarations, Family, Set, declare, duplicates},
    finding::Finding,
    schema,
};
use std::{fs, path::Path};

/// The grid kgen ships: `variants.toml` of its repository.
const BUILTIN: &str = include_str!("../../variants.toml");

/// A parsed, checked and expanded `variants.toml`.
#[derive(Debug, Clone)]
pub struct Grid {
    declarations: Declarations,
    variants: Vec<Variant>,
    excluded: Vec<Excluded>,
}

/// A declared variant that is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    /// Which one.
    pub variant: Variant,
    /// Why, in the words of the first `[[exclude]]` that matches it.
    pub reason: String,
}

impl Grid {
    /// The grid embedded in the binary.
    ///
    /// # Panics
    /// Never in a kgen whose tests pass: one of them parses the embedded file.
    pub fn builtin() -> Self {
        Self::parse(BUILTIN, "variants.toml (built in)").unwrap_or_else(|error| panic!("the embedded grid holds: {error}"))
    }

    /// Parses the text of a `variants.toml`; `origin` names it in messages.
    ///
    /// # Errors
    /// [`GridError::Invalid`] with the first thing that does not hold, its line quoted.
    pub fn parse(text: &str, origin: &str) -> Result<Self, GridError> {
        // Editors on some systems begin a file with a byte order mark; carets count from behind it.
        let text = text.trim_start_matches('\u{feff}');
        schema::read(text)
            .and_then(|file| declare(&file, text))
            .and_then(Self::expand)
            .map_err(|finding| GridError::invalid(&finding, origin, text))
    }

    /// Reads and parses a file.
    ///
    /// # Errors
    /// [`GridError`]: not readable, not UTF-8, or not valid.
    pub fn load(path: &Path) -> Result<Self, GridError> {
        let bytes = fs::read(path).map_err(|source| GridError::Unreadable { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            GridError::NotUtf8 { path: path.to_owned(), line: good.iter().filter(|byte| **byte == b'\n').count() + 1 }
        })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Expands the families, applies the excludes, and refuses rules that match nothing.
    fn expand(declarations: Declarations) -> Result<Self, Finding> {
        let mut grid = Self { declarations, variants: Vec::new(), excluded: Vec::new() };
        let declared = duplicates(&grid.declarations.families)?;
        for rule in &grid.declarations.excludes {
            if !declared.iter().any(|variant| rule.filter.matches(variant)) {
                let help = "remove it, or correct the filter; `kgen list` shows the grid";
                return Err(Finding::new("this exclude matches no variant", rule.span.clone(), "stale", help));
            }
        }
        for variant in declared {
            match grid.exclusion(&variant) {
                Some(reason) => grid.excluded.push(Excluded { variant, reason: reason.to_owned() }),
                None => grid.variants.push(variant),
            }
        }
        for rule in &grid.declarations.tiles {
            if !grid.variants.iter().any(|variant| rule.filter.matches(variant)) {
                let help = "remove it, or correct the filter; `kgen list` shows the grid";
                return Err(Finding::new("this tile matches no variant", rule.span.clone(), "stale", help));
            }
        }
        for set in &grid.declarations.sets {
            let held = grid.members(set).count();
            if let Some(size) = set.size.filter(|size| held > *size as usize) {
                let title = format!("the set `{}` holds {held} variants, more than its size of {size}", set.name);
                return Err(Finding::new(title, set.span.clone(), "fewer than it holds", "correct `size`, or narrow `filter`"));
            }
        }
        Ok(grid)
    }

    /// The variants to make: excludes applied, sorted by kind, head dim, dtype, mask (full first) and target.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The declared variants that are not made, each with its reason, in the same order.
    pub fn excluded(&self) -> &[Excluded] {
        &self.excluded
    }

    /// What the `[[tile]]` entries that match `variant` say, later entries changing earlier ones key by key; `None`
    /// where none matches. Holds for variants outside the grid too.
    pub fn tile_override(&self, variant: &Variant) -> Option<TileOverride> {
        let matching = self.declarations.tiles.iter().filter(|rule| rule.filter.matches(variant));
        matching.map(|rule| rule.tile.clone()).reduce(|earlier, later| TileOverride {
            m: later.m.or(earlier.m),
            n: later.n.or(earlier.n),
            warps: later.warps.or(earlier.warps),
            kv_stages: later.kv_stages.or(earlier.kv_stages),
            q_in_registers: later.q_in_registers.or(earlier.q_in_registers),
            min_blocks_per_sm: later.min_blocks_per_sm.or(earlier.min_blocks_per_sm),
            rescale_threshold: later.rescale_threshold.or(earlier.rescale_threshold),
        })
    }

    /// The named sets, by name.
    pub fn sets(&self) -> &[Set] {
        &self.declarations.sets
    }

    /// The set called `name`.
    pub fn set(&self, name: &str) -> Option<&Set> {
        self.declarations.sets.iter().find(|set| set.name == name)
    }

    /// The variants of the grid that belong to `set`.
    pub fn members<'a>(&'a self, set: &'a Set) -> impl Iterator<Item = &'a Variant> {
        self.variants.iter().filter(|variant| set.filter.matches(variant))
    }

    /// The targets families may name, with what each is.
    pub fn targets(&self) -> impl Iterator<Item = (Target, &str)> {
        self.declarations.targets.iter().map(|(target, description)| (*target, description.as_str()))
    }

    /// Why `variant` is not made, if an `[[exclude]]` says so.
    pub(super) fn exclusion(&self, variant: &Variant) -> Option<&str> {
        let rule = self.declarations.excludes.iter().find(|rule| rule.filter.matches(variant))?;
        Some(&rule.reason)
    }

    pub(super) fn families(&self) -> &[Family] {
        &self.declarations.families
    }

    /// Kinds that some family has.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.families().iter().flat_map(|family| family.kinds.clone()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}
