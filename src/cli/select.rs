//! The selection flags every command shares, and the grid they select from.

use super::{
    CliError, Global,
    config::{self, DefaultTarget},
    names::{self, NameParser, SetParser},
    score::ScoreArgs,
    target::{TargetParser, TargetWord},
    ui,
};
use crate::family::attention;
use crate::grid::{Filter, Grid, Selection};
use crate::kernel::{AxisWord, Dtype, Feature, HeadDim, Kind, Target, Variant, read_word};
use crate::plan::{Plan, PlanError};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use itertools::Itertools;
use std::{ffi::OsStr, marker::PhantomData, str::FromStr};

const FILTER_HELP: &str = "\
Only variants that meet a condition, for example 'hdim >= 128 and dtype == bf16'.

Fields: kind, hdim, dtype, causal, full, mask, feature words (window, softcap, …), plain, score, target, name. Operators: == != < <= > >= in (a, b), not in, and ~ for \
patterns such as name ~ 'flash_fwd_*_bf16*'. Join with and, or, not and parentheses.";

/// What narrows a selection; a name needs no narrowing.
const FLAGS: [&str; 16] = [
    "kind",
    "head_dim",
    "dtype",
    "causal",
    "full",
    "features",
    "score",
    "mask",
    "score_name",
    "scalars",
    "integers",
    "tables",
    "target",
    "set",
    "filter",
    "all",
];

/// Which variants a command is about. Without flags, the whole grid; flags narrow, and all of them have to hold.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
#[command(next_help_heading = "Selection")]
pub struct SelectionArgs {
    /// Variants by name, such as `flash_fwd_hdim128_bf16_causal_sm80`; instead of the flags below.
    #[arg(value_name = "VARIANT", conflicts_with_all = FLAGS, hide_possible_values = true, value_parser = NameParser)]
    names: Vec<String>,

    /// Only these kinds of kernel.
    #[arg(long, value_name = "KIND", value_delimiter = ',', alias = "kinds", hide_possible_values = true)]
    #[arg(value_parser = words::<Kind>())]
    #[arg(help = help::<Kind>("Only these kinds of kernel"))]
    kind: Vec<Kind>,

    /// Only these head dims: `128`, or `192_128` where V and O have another than Q and K. A multiple of 8 from 16 to
    /// 256 that is not in the grid is generated on demand.
    #[arg(long, value_name = "D", value_delimiter = ',', visible_alias = "hdim", alias = "head-dims")]
    #[arg(value_parser = HeadDim::from_str, allow_negative_numbers = true)]
    head_dim: Vec<HeadDim>,

    /// Only these element types.
    #[arg(long, value_name = "DTYPE", value_delimiter = ',', alias = "dtypes", hide_possible_values = true)]
    #[arg(value_parser = words::<Dtype>())]
    #[arg(help = help::<Dtype>("Only these element types"))]
    dtype: Vec<Dtype>,

    /// Only variants with a causal mask.
    #[arg(long, conflicts_with = "full")]
    causal: bool,

    /// Only variants without a causal mask.
    #[arg(long)]
    full: bool,

    /// Only kernels with exactly these features (`none`: plain ones), which may include a `[score.NAME]` of the grid. A
    /// set that is not in the grid is generated on demand. `--head-dim` alone selects plain kernels; `any` adds those
    /// with features.
    #[arg(long, value_name = "FEATURES", hide_possible_values = true, value_parser = FeaturesParser)]
    features: Option<String>,

    #[command(flatten)]
    score: ScoreArgs,

    /// Only these GPU architectures.
    #[arg(
        long,
        value_name = "TARGET",
        value_delimiter = ',',
        ignore_case = true,
        alias = "targets",
        hide_possible_values = true
    )]
    #[arg(value_parser = TargetParser)]
    #[arg(help = format!(
        "{} [default: `target` of `kgen.toml`, where other flags narrow the selection and there is no `--set`, `--filter` or `--all`]",
        help::<Target>("Only these targets, or those of these GPUs (h100, rtx3090, native, …)")
    ))]
    target: Vec<TargetWord>,

    /// Only a named set of the grid, for example standard-74.
    #[arg(long, value_name = "NAME", hide_possible_values = true, value_parser = SetParser)]
    set: Option<String>,

    /// Only variants that meet a condition, for example 'hdim >= 128 and dtype == bf16'.
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, long_help = FILTER_HELP)]
    filter: Option<String>,

    /// The whole grid, as without any flag; other flags still narrow it.
    #[arg(long)]
    all: bool,
}

/// The word of `--features` for whatever there is.
const ANY: &str = "any";

impl SelectionArgs {
    /// Whether no flag was given, `--all` neither.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether variants are named, so that no flag narrows them.
    pub fn is_by_name(&self) -> bool {
        !self.names.is_empty()
    }

    /// The variants of `grid` that the names or flags mean: sorted, without duplicates, at least one.
    ///
    /// # Errors
    /// [`CliError::Usage`] if a name is unknown, the filter cannot be read or nothing is selected; the message says
    /// what is to blame. [`CliError::Environment`] for `--target native` where there is no GPU.
    pub fn resolve(&self, grid: &Grid) -> Result<Vec<Variant>, CliError> {
        if !self.names.is_empty() {
            return names::resolve(grid, &self.names);
        }
        let usage = |message: String| CliError::Usage(message);
        let any = self.features.as_deref().is_some_and(|words| words.trim() == ANY);
        let features = self.features.as_deref().filter(|_| !any).map(|words| grid.features(words)).transpose();
        let features = features.map_err(usage)?;
        let features = match self.score.declared(grid)? {
            None => features,
            Some(score) if features.is_some_and(|set| set.score().is_some()) => {
                return Err(usage(format!(
                    "`{score}` would be the second score of a kernel\nhelp: leave out `--score` and `--mask`, or the score in `--features`"
                )));
            }
            declared => Some(features.unwrap_or_default().with_score(declared)),
        };
        let filter = self.filter.as_deref().map(Filter::from_str).transpose().map_err(|error| usage(error.to_string()))?;
        let causal = if self.causal { Some(true) } else { self.full.then_some(false) };
        let selection = Selection {
            kinds: self.kind.clone(),
            head_dims: self.head_dim.clone(),
            dtypes: self.dtype.clone(),
            causal,
            features,
            // Who names a shape means one kernel of it.
            prefers_plain: !(self.head_dim.is_empty() || any || self.all || self.set.is_some() || self.filter.is_some()),
            targets: self.targets()?,
            set: self.set.clone(),
            filter,
        };
        let by_default = self.default_target();
        if let Some(default) = by_default {
            ui::note(&format!("only {}, by {}; `--target` takes others", targets_of(&selection), default.place));
        }
        let help = by_default.map_or_else(String::new, |default| {
            format!("\nhelp: {} takes {} alone; `--target` takes others", default.place, targets_of(&selection))
        });
        let selected = grid.select(&selection).map_err(|error| usage(format!("{error}{help}")))?;
        Ok(if features.is_some() { with_the_features(selected) } else { selected })
    }

    /// Tells what a user has to know of a selection that worked: that the set asked for names more than the grid
    /// declares, which files a GPU runs that is no target, and where files of a target run that newer GPUs cannot load.
    pub fn tell_notes(&self, grid: &Grid, selected: &[Variant]) {
        let words = self.target_words();
        let plans: Vec<Plan> =
            if words.is_empty() { Vec::new() } else { selected.iter().filter_map(|variant| plan(grid, *variant).ok()).collect() };
        let gpus = words.iter().filter_map(|word| word.note(&plans));
        let places = words.iter().filter_map(TargetWord::places);
        self.note(grid).into_iter().chain(gpus).chain(places).for_each(|note| ui::note(&note));
    }

    /// The targets asked for, or those of `kgen.toml`; none twice.
    fn targets(&self) -> Result<Vec<Target>, CliError> {
        let targets = self.target_words().iter().map(TargetWord::target).collect::<Result<Vec<_>, _>>();
        let targets = targets.map_err(|error| match self.default_target() {
            Some(default) => CliError::Environment(format!("{error}; or change {}", default.place)),
            None => error,
        })?;
        Ok(targets.into_iter().unique().collect())
    }

    fn target_words(&self) -> &[TargetWord] {
        self.default_target().map_or(&self.target, |default| &default.words)
    }

    /// The targets of `kgen.toml`, where flags narrow the selection and leave the target open. `--all`, and with it no
    /// flag at all, is the whole grid; sets and conditions say themselves which targets they mean.
    fn default_target(&self) -> Option<&'static DefaultTarget> {
        let says_itself = !self.target.is_empty() || self.is_by_name() || self.all || self.set.is_some() || self.filter.is_some();
        config::settings().and_then(|settings| settings.target.as_ref()).filter(|_| !says_itself && !self.is_empty())
    }

    fn note(&self, grid: &Grid) -> Option<String> {
        let set = grid.set(self.set.as_deref()?)?;
        let (size, declared) = (set.size? as usize, grid.members(set).count());
        let missing = size.checked_sub(declared).filter(|missing| *missing > 0)?;
        Some(format!("the set `{}` names {size} variants; the grid declares {declared} of them, {missing} not yet", set.name))
    }
}

/// The targets of a selection, for messages.
fn targets_of(selection: &Selection) -> String {
    selection.targets.iter().map(|target| format!("`{target}`")).join(", ")
}

/// The variants whose templates have their features, with a note about the others; all of them where none has.
fn with_the_features(selected: Vec<Variant>) -> Vec<Variant> {
    let lacks = |variant: &Variant| attention::Point::of(variant).is_some_and(attention::lacks_a_feature);
    let (lacking, made): (Vec<Variant>, Vec<Variant>) = selected.iter().copied().partition(lacks);
    if made.is_empty() || lacking.is_empty() {
        return selected;
    }
    let set = lacking[0].coordinates().features.unwrap_or_default();
    let kinds = lacking.iter().map(|variant| format!("`{}` on `{}`", variant.kind(), variant.target())).unique().join(", ");
    ui::note(&format!("left out, since there is no such kernel with `{set}`: {kinds}"));
    made
}

/// The grid a command works on: the file of `--variants`, or the built-in one.
///
/// # Errors
/// [`CliError::Usage`] where the file cannot be read or does not hold.
pub fn load_grid(global: &Global) -> Result<Grid, CliError> {
    match &global.variants {
        None => Ok(Grid::builtin()),
        Some(path) => Grid::load(path).map_err(|error| CliError::Usage(error.to_string())),
    }
}

/// Plans `variant` with the tile the grid holds for it.
///
/// # Errors
/// A sentence: why there is no plan, and the line of the grid where a tile of the user's asks for what cannot be.
pub fn plan(grid: &Grid, variant: Variant) -> Result<Plan, String> {
    Plan::new(variant, grid.tile_override(&variant).as_ref()).map_err(|error| match grid.tile_place(&variant) {
        Some(place) if !matches!(error, PlanError::Unsupported { .. }) => format!("{error}; its `[[tile]]` is at {place}"),
        _ => error.to_string(),
    })
}

/// Reads the words of an axis, canonical names and aliases; completions offer the canonical names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<T>(PhantomData<T>);

pub(super) fn words<T: AxisWord>() -> Words<T> {
    Words(PhantomData)
}

impl<T: AxisWord> TypedValueParser for Words<T> {
    type Value = T;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<T, clap::Error> {
        StringValueParser::new().try_map(|word| read_word::<T>(&word)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(T::all().iter().filter_map(|value| {
            let words = value.words();
            words.split_first().map(|(name, aliases)| PossibleValue::new(*name).aliases(aliases.iter().copied()))
        })))
    }
}

/// Takes a set of features, whose words the grid knows; completions offer kgen's own.
#[derive(Debug, Clone, Copy)]
struct FeaturesParser;

impl TypedValueParser for FeaturesParser {
    type Value = String;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Feature::ALL.iter().map(|feature| PossibleValue::new(feature.name())).chain(["none", ANY].map(PossibleValue::new)),
        ))
    }
}

/// `sentence: a, b, c`.
fn help<T: AxisWord>(sentence: &str) -> String {
    let names: Vec<&str> = T::all().iter().filter_map(|value| value.words().first().copied()).collect();
    format!("{sentence}: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Harness {
        #[command(flatten)]
        selection: SelectionArgs,
    }

    fn parse(flags: &[&str]) -> SelectionArgs {
        Harness::try_parse_from([&["kgen"], flags].concat()).unwrap_or_else(|error| panic!("{error}")).selection
    }

    fn names(flags: &[&str]) -> Vec<String> {
        let variants = parse(flags).resolve(&Grid::builtin()).unwrap_or_else(|error| panic!("{error}"));
        variants.iter().map(Variant::name).collect()
    }

    #[test]
    fn lists_take_commas_aliases_and_any_case() {
        let expected = ["flash_fwd_hdim64_bf16_causal_sm80", "flash_fwd_hdim128_bf16_causal_sm80"];
        assert_eq!(
            names(&["--hdim", "64,128", "--dtype", "BFloat16", "--causal", "--target", "Ampere", "--kind", "forward"]),
            expected
        );
        let apart = ["--head-dim", "64", "--head-dim", "128", "--dtype", "bf16", "--causal", "--target", "sm80", "--kind", "fwd"];
        assert_eq!(names(&apart), expected);
    }

    #[test]
    fn causal_and_full_contradict_each_other() {
        let error = Harness::try_parse_from(["kgen", "--causal", "--full"]).expect_err("a contradiction");
        assert_eq!(error.exit_code(), 2);
        let count = |flag| names(&["--kind", "fwd", "--target", "sm80", "--filter", "plain and hdim != 192_128", flag]).len();
        assert_eq!((count("--causal"), count("--full"), count("--all")), (16, 16, 32));
    }

    #[test]
    fn a_head_dim_alone_selects_plain_kernels_and_any_adds_those_with_features() {
        let shape = ["--head-dim", "64", "--dtype", "bf16", "--target", "sm80", "--kind", "fwd", "--full"];
        let with = |flags: &[&str]| names(&[&shape, flags].concat());
        assert_eq!(with(&[]), ["flash_fwd_hdim64_bf16_sm80"]);
        assert_eq!(with(&["--features", "none"]), with(&[]));
        for flags in [&["--features", "any"][..], &["--all"], &["--filter", "hdim == 64"]] {
            assert_eq!(with(flags).len(), 4, "{flags:?}");
        }
        assert_eq!(names(&["--kind", "fwd", "--dtype", "bf16", "--target", "sm80", "--full"]).len(), 8 * 3 + 1 + 6);
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_one_that_was_meant() {
        for (flags, expected) in
            [(["--target", "ampre"], "did you mean `ampere`?"), (["--dtype", "int4"], "known: `fp16`, `bf16`, `fp8`")]
        {
            let error = Harness::try_parse_from([&["kgen"], &flags[..]].concat()).expect_err("an unknown word");
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_set_larger_than_the_grid_is_noted() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("small.toml");
        let grid = "version = 1\n[targets.sm80]\ndescription = 'A100'\n[[family]]\nkind = ['fwd']\nhead_dim = [64]\ndtype = ['fp16']\n\
                    mask = ['full', 'causal']\ntarget = ['sm80']\n[sets.many]\ndescription = 'more'\nsize = 74\nfilter = 'causal'\n";
        std::fs::write(&file, grid).expect("written");
        let note = parse(&["--set", "many"]).note(&Grid::load(&file).expect("it reads")).expect("74 are not declared");
        assert_eq!(note, "the set `many` names 74 variants; the grid declares 1 of them, 73 not yet");
        assert_eq!(parse(&["--set", "standard-74"]).note(&Grid::builtin()), None, "all 74 are there");
        assert_eq!(parse(&["--all"]).note(&Grid::builtin()), None);
    }
}
