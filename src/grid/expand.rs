//! The expanded grid.

use super::{
    GridError,
    declare::{Declarations, Family, Set, declare, duplicates},
    schema,
};
use crate::kernel::{Features, Kind, Target, TileKey, TileOverride, Variant, read_features, score_name_taken};
use crate::{expression::KeptScore, files, text::Finding};
use std::{io::Read, path::Path};

/// The built-in grid: `variants.toml` of the repository.
const BUILTIN: &str = include_str!("../../variants.toml");

/// Maximum size of a grid file (bytes): far above any grid, far below memory sizes.
const LONGEST: u64 = 8 << 20;

/// A parsed, checked and expanded `variants.toml`.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The name of the file, for messages.
    origin: String,
    declarations: Declarations,
    variants: Vec<Variant>,
    excluded: Vec<Excluded>,
}

/// A declared variant that is excluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    /// The variant.
    pub variant: Variant,
    /// The reason, from the first `[[exclude]]` that matches it.
    pub reason: String,
}

impl Grid {
    /// The grid embedded in the binary. `tile_keys` are the keys of `[[tile]]`.
    pub(crate) fn builtin_with(tile_keys: &[&'static TileKey]) -> Self {
        let builtin = Self::parse_with(BUILTIN, "variants.toml (built in)", tile_keys);
        builtin.unwrap_or_else(|error| panic!("the embedded grid holds: {error}"))
    }

    /// Parses the text of a `variants.toml`; `origin` names it in messages.
    pub(crate) fn parse_with(text: &str, origin: &str, tile_keys: &[&'static TileKey]) -> Result<Self, GridError> {
        // Editors on some systems begin a file with a byte order mark; columns are counted after it.
        let text = text.trim_start_matches('\u{feff}');
        schema::read(text)
            .and_then(|file| declare(&file, text, tile_keys))
            .and_then(|declarations| Self::expand(declarations, origin))
            .map_err(|finding| GridError::invalid(&finding, origin, text))
    }

    /// Reads and parses a file.
    pub(crate) fn load_with(path: &Path, tile_keys: &[&'static TileKey]) -> Result<Self, GridError> {
        let unreadable = |source| GridError::Unreadable { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        files::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
        if bytes.len() as u64 > LONGEST {
            return Err(GridError::TooLong { path: path.to_owned() });
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            GridError::NotUtf8 { path: path.to_owned(), line: good.split(|byte| *byte == b'\n').count() }
        })?;
        Self::parse_with(&text, &path.display().to_string(), tile_keys)
    }

    /// Expands the families, applies the excludes, and refuses rules that match nothing.
    fn expand(declarations: Declarations, origin: &str) -> Result<Self, Finding> {
        let mut grid = Self { origin: origin.to_owned(), declarations, variants: Vec::new(), excluded: Vec::new() };
        let declared = duplicates(&grid.declarations.families)?;
        for rule in &grid.declarations.excludes {
            if !declared.iter().any(|variant| rule.filter.matches(variant)) {
                let help = "remove it, or correct the filter; `kgen list` shows the grid";
                return Err(Finding::new(
                    "this exclude matches no variant",
                    rule.span.clone(),
                    "true for nothing the families declare",
                    help,
                ));
            }
        }
        for variant in declared {
            match grid.exclusion(variant) {
                Some(reason) => grid.excluded.push(Excluded { variant, reason: reason.to_owned() }),
                None => grid.variants.push(variant),
            }
        }
        for row in grid.declarations.tiles.rows() {
            if !grid.variants.iter().any(|variant| row.matches(variant)) {
                let help = "remove it, or correct the filter; `kgen list` shows the grid";
                return Err(Finding::new(
                    "this tile matches no variant",
                    row.span.clone(),
                    "true for nothing the families declare",
                    help,
                ));
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

    /// The variants of the grid: excludes applied, sorted by kind, head dim, dtype, mask (full first) and target.
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// The excluded variants, each with its reason, in the same order.
    pub fn excluded(&self) -> &[Excluded] {
        &self.excluded
    }

    /// The merged `[[tile]]` entries that match `variant`, later entries overriding earlier ones key by key; `None` if
    /// none matches. Also valid for variants outside the grid.
    pub fn tile_override(&self, variant: &Variant) -> Option<TileOverride> {
        self.declarations.tiles.of(variant)
    }

    /// The origin of the tile of `variant`, for messages: `my.toml:12`, the line of the last matching `[[tile]]`;
    /// `None` if none matches.
    pub fn tile_place(&self, variant: &Variant) -> Option<String> {
        let row = self.declarations.tiles.rows().iter().rfind(|row| row.matches(variant))?;
        Some(format!("{}:{}", self.origin, row.line))
    }

    /// The declared scores and masks, by name.
    pub fn scores(&self) -> &[KeptScore] {
        &self.declarations.scores
    }

    /// This grid with one more declared score.
    ///
    /// # Errors
    /// The problem with its name, and the remedy.
    pub fn with_score(mut self, score: KeptScore) -> Result<Self, String> {
        let taken = score_name_taken(score.name());
        let declared = || self.scores().iter().any(|other| other.name() == score.name());
        let taken = taken
            .or_else(|| declared().then(|| (format!("`{score}` is a score of the grid"), "give it another name".to_owned())));
        if let Some((title, help)) = taken {
            return Err(format!("{title}\nhelp: {help}"));
        }
        self.declarations.scores.push(score);
        Ok(self)
    }

    /// The set of features named by words separated by commas; `none` is the empty one.
    ///
    /// # Errors
    /// The problem and the remedy.
    pub fn features(&self, words: &str) -> Result<Features, String> {
        if words.trim() == "none" {
            return Ok(Features::NONE);
        }
        words.split(',').try_fold(Features::NONE, |set, word| {
            let more =
                read_features(word, self.scores()).map_err(|misread| format!("{}\nhelp: {}", misread.title, misread.help))?;
            set.joined(more).map_err(|title| format!("{title}\nhelp: remove one of the two"))
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

    /// The targets that families may name, with their descriptions.
    pub fn targets(&self) -> impl Iterator<Item = (Target, &str)> {
        self.declarations.targets.iter().map(|(target, description)| (*target, description.as_str()))
    }

    /// The reason why an `[[exclude]]` excludes `variant`, if one does.
    pub(super) fn exclusion(&self, variant: Variant) -> Option<&str> {
        let rule = self.declarations.excludes.iter().find(|rule| rule.filter.matches(&variant))?;
        Some(&rule.reason)
    }

    pub(super) fn families(&self) -> &[Family] {
        &self.declarations.families
    }

    /// The kinds that occur in some family.
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self.families().iter().flat_map(|family| family.kinds.clone()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention;
    use crate::family::attention::{Accuracy, TileChange};
    use crate::kernel::{AxisWord, Dtype, HeadDim};
    use itertools::Itertools;
    use std::collections::BTreeSet;

    const HEAD: &str = "version = 1\n[targets.sm80]\ndescription = 'Ampere'\n[targets.sm90]\ndescription = 'Hopper'\n";
    const FAMILY: &str = "[[family]]\nkind = ['fwd']\nhead_dim = [128, 64]\ndtype = ['bf16', 'half']\nmask = ['causal', 'full']\ntarget = ['sm90', 'a100']\n";

    #[track_caller]
    fn parse(rest: &str) -> Grid {
        Grid::parse(&format!("{HEAD}{FAMILY}{rest}"), "test.toml").unwrap_or_else(|error| panic!("{error}"))
    }

    fn names(grid: &Grid) -> Vec<String> {
        grid.variants().iter().map(Variant::name).collect()
    }

    #[test]
    fn the_built_in_grid_has_every_forward_variant_of_every_target_but_what_turing_lacks() {
        let grid = Grid::builtin();
        let forward = |target| {
            let all = grid.variants().iter().filter(move |v| {
                let at = v.coordinates();
                let plain = at.features.is_none_or(Features::is_empty) && at.head_dim.is_none_or(|dims| dims.qk == dims.v);
                plain && v.target() == target && v.kind() == attention::Kind::Fwd.into() && v.dtype() != Some(Dtype::Fp8)
            });
            all.map(Variant::name).collect::<BTreeSet<_>>()
        };
        let expected = |target, head_dims: &[u32], dtypes: &[&str]| {
            let stems = head_dims.iter().cartesian_product(dtypes).map(|(d, dtype)| format!("flash_fwd_hdim{d}_{dtype}"));
            stems.flat_map(|stem| ["", "_causal"].map(|mask| format!("{stem}{mask}_{target}"))).collect::<BTreeSet<_>>()
        };
        let wide = [32, 64, 96, 128, 160, 192, 224, 256];
        assert_eq!(forward(Target::Sm75), expected(Target::Sm75, &wide[..4], &["fp16"]));
        for &target in &Target::ALL[1..] {
            let head_dims = if target == Target::Sm90 { &[32, 64, 80, 96, 128, 160, 192, 224, 256][..] } else { &wide };
            assert_eq!(forward(target), expected(target, head_dims, &["fp16", "bf16"]));
        }
        assert_eq!(grid.targets().count(), Target::ALL.len(), "every target may be named");
    }

    #[test]
    fn standard_74_is_flash_attention_2s_slice() {
        let grid = Grid::builtin();
        let set = grid.set("standard-74").expect("it is declared");
        assert_eq!(set.size, Some(74));
        let count = |kind| grid.members(set).filter(|variant| variant.kind() == kind).count();
        let kinds = ["fwd", "fwd_split", "bwd", "fwd_combine", "prepare_scheduler"].map(|word| word.parse().expect("a kind"));
        assert_eq!(kinds.map(count), [24, 24, 24, 1, 1], "6 head dims × 2 dtypes × 2 masks, and the helpers");
        assert!(grid.members(set).all(|variant| variant.target() == Target::Sm80
            && ![160, 224].map(|d| Some(HeadDim::equal(d))).contains(&variant.head_dim())));
    }

    #[test]
    fn variants_are_sorted_whatever_the_order_of_the_file() {
        let grid = parse("");
        assert_eq!(
            names(&grid)[..3],
            ["flash_fwd_hdim64_fp16_sm80", "flash_fwd_hdim64_fp16_sm90", "flash_fwd_hdim64_fp16_causal_sm80"]
        );
        assert_eq!(grid.variants().len(), 16);
        assert!(grid.variants().is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_kind_dtype_and_target_can_be_declared() {
        let declared: String =
            Target::ALL.iter().map(|target| ["[targets.", target.name(), "]\ndescription = 'a GPU'\n"].concat()).collect();
        let quoted = |words: Vec<&str>| format!("{words:?}");
        let targets = quoted(Target::ALL.iter().map(|target| target.name()).collect());
        let dtypes = quoted(Dtype::ALL.iter().map(|dtype| dtype.name()).collect());
        let kinds = |axes: usize| {
            quoted(Kind::ALL.iter().filter(|kind| kind.info().axes.len() == axes).map(|kind| kind.name()).collect())
        };
        let helpers = format!("[[family]]\nkind = {}\ntarget = {targets}\n", kinds(0));
        let axes =
            format!("head_dim = [16, 256]\ndtype = {dtypes}\nmask = ['full', 'causal']\nfeatures = [[], ['window', 'sinks']]\n");
        let typed = format!("[[family]]\nkind = {}\ndtype = {dtypes}\ntarget = {targets}\n", kinds(1));
        let text = format!("version = 1\n{declared}{helpers}{typed}[[family]]\nkind = {}\ntarget = {targets}\n{axes}", kinds(4));
        let grid = Grid::parse(&text, "all.toml").unwrap_or_else(|error| panic!("{error}"));
        let (plain, typed) = (2, Kind::ALL.iter().filter(|kind| kind.info().axes.len() == 1).count());
        assert_eq!(grid.variants().len(), plain * 7 + typed * 4 * 7 + 4 * 2 * 4 * 2 * 2 * 7);
    }

    #[test]
    fn excluded_variants_keep_the_first_reason_that_matches() {
        let grid = parse(
            "[[exclude]]\nwhen = 'hdim == 64 and causal'\nreason = 'first'\n[[exclude]]\nwhen = 'causal'\nreason = 'second'\n",
        );
        let reasons: Vec<&str> = grid.excluded().iter().map(|one| one.reason.as_str()).collect();
        assert_eq!(reasons, ["first", "first", "first", "first", "second", "second", "second", "second"]);
        assert!(grid.variants().len() == 8 && grid.variants().iter().all(|variant| variant.causal() == Some(false)));
    }

    #[test]
    fn tile_entries_merge_key_by_key_and_the_later_wins() {
        let grid = parse(
            "[[tile]]\nwhen = 'hdim == 128'\nmeasured = 'run 1'\nm = 128\nn = 64\n[[tile]]\nwhen = 'hdim >= 128 and causal'\nmeasured = 'run 2'\nn = 32\nq_in_registers = true\naccuracy = 'exact'\n",
        );
        let of = |head_dim, causal| {
            let first = attention::Point::of(&grid.variants()[0]).expect("an attention kernel");
            let variant = attention::Point { head_dim, causal, ..first }.into();
            grid.tile_override(&variant)
        };
        assert_eq!(of(HeadDim::equal(64), true), None);
        let first = TileChange { m: Some(128), n: Some(64), ..TileChange::default() };
        assert_eq!(of(HeadDim::equal(128), false), Some(TileOverride::from(&first)));
        let accuracy = Some(Accuracy::Exact);
        let merged = TileChange { m: Some(128), n: Some(32), q_in_registers: Some(true), accuracy, ..TileChange::default() };
        assert_eq!(of(HeadDim::equal(128), true), Some(TileOverride::from(&merged)));
        assert_eq!(of(HeadDim::equal(200), true).and_then(|tile| tile.count("n")), Some(32), "it holds outside the grid");
    }

    #[test]
    fn a_byte_order_mark_and_windows_line_ends_are_no_obstacle() {
        let text = format!("\u{feff}{HEAD}{FAMILY}").replace('\n', "\r\n");
        assert_eq!(Grid::parse(&text, "windows.toml").map(|grid| grid.variants().len()).ok(), Some(16));
    }

    #[test]
    fn the_reference_names_every_word_and_its_example_holds() {
        let reference = include_str!("../../docs/variants.md");
        let words = |words: Vec<&'static str>| words.into_iter().filter(|word| !word.starts_with("sm_"));
        let kinds = Kind::ALL.iter().flat_map(|kind| words(AxisWord::words(*kind)));
        let dtypes = Dtype::ALL.iter().flat_map(|dtype| words(AxisWord::words(*dtype)));
        let targets = Target::ALL.iter().flat_map(|target| words(AxisWord::words(*target)));
        for word in kinds.chain(dtypes).chain(targets) {
            assert!(reference.contains(&format!("`{word}`")), "docs/variants.md does not name `{word}`");
        }
        let example = reference.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let grid = Grid::parse(example, "docs/variants.md").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((grid.variants().len(), grid.excluded().len()), (7, 1));
    }
}
