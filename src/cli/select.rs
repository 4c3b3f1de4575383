//! The selection flags shared by commands, and their parsers.

use super::{
    names::{NameParser, SetParser},
    score::ScoreArgs,
};
use crate::{
    command::{ANY_FEATURES, NATIVE, SelectionRequest, TargetWord},
    kernel::{AxisWord, Dtype, Feature, HeadDim, Kind, Target, read_word},
};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use std::{ffi::OsStr, marker::PhantomData, str::FromStr};

const FILTER_HELP: &str = "\
Only variants that meet a condition, for example 'hdim >= 128 and dtype == bf16'.

Fields: kind, hdim, dtype, causal, full, mask, feature words (window, softcap, …), plain, score, target, name. Operators: == != < <= > >= in (a, b), not in, and ~ for \
patterns such as name ~ 'flash_fwd_*_bf16*'. Join with and, or, not and parentheses.";

/// Flags that narrow a selection; a name does not need them.
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

/// Selection of variants. Without flags, the whole grid; flags narrow it, and all of them must hold.
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

    /// Only these head dims: `128`, or `192_128` if V and O differ from Q and K. A multiple of 8 from 16 to 256 that is
    /// not in the grid is generated on demand.
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

impl From<SelectionArgs> for SelectionRequest {
    fn from(args: SelectionArgs) -> Self {
        let SelectionArgs { names, kind, head_dim, dtype, causal, full, features, score, target, set, filter, all } = args;
        Self {
            names,
            kinds: kind,
            head_dims: head_dim,
            dtypes: dtype,
            causal: if causal { Some(true) } else { full.then_some(false) },
            features,
            score: score.into(),
            targets: target,
            set,
            filter,
            all,
        }
    }
}

/// Selection of helper kernels; shared by the commands that write files.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Selection")]
pub(super) struct HelperArgs {
    /// Do not add the helper kernels that selected split-KV kernels need.
    #[arg(long)]
    no_helpers: bool,
}

impl HelperArgs {
    /// True if helper kernels are added.
    pub fn wanted(self) -> bool {
        !self.no_helpers
    }
}

/// Parser of the words of an axis, canonical names and aliases; completions offer the canonical names.
#[derive(Debug, Clone, Copy)]
struct Words<T>(PhantomData<T>);

fn words<T: AxisWord>() -> Words<T> {
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

/// Parser of [`TargetWord`]s; completions offer the canonical names and `native`.
#[derive(Debug, Clone, Copy)]
pub(super) struct TargetParser;

impl TypedValueParser for TargetParser {
    type Value = TargetWord;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<TargetWord, clap::Error> {
        StringValueParser::new().try_map(|word| TargetWord::from_str(&word)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let named =
            Target::all().iter().map(|target| PossibleValue::new(target.name()).aliases(target.aliases().iter().copied()));
        Some(Box::new(named.chain([PossibleValue::new(NATIVE)])))
    }
}

/// Parser of a set of features, whose words the grid defines; completions offer the built-in ones.
#[derive(Debug, Clone, Copy)]
struct FeaturesParser;

impl TypedValueParser for FeaturesParser {
    type Value = String;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&clap::Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            Feature::ALL
                .iter()
                .map(|feature| PossibleValue::new(feature.name()))
                .chain(["none", ANY_FEATURES].map(PossibleValue::new)),
        ))
    }
}

/// A sentence followed by the words of an axis: `sentence: a, b, c`.
fn help<T: AxisWord>(sentence: &str) -> String {
    let names: Vec<&str> = T::all().iter().filter_map(|value| value.words().first().copied()).collect();
    format!("{sentence}: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Context, list};
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Harness {
        #[command(flatten)]
        selection: SelectionArgs,
    }

    fn parse(flags: &[&str]) -> SelectionArgs {
        Harness::try_parse_from([&["kgen"], flags].concat()).unwrap_or_else(|error| panic!("{error}")).selection
    }

    fn list(flags: &[&str], context: &Context) -> list::Outcome {
        let request = list::Request { selection: parse(flags).into(), ..list::Request::default() };
        list::run(&request, context, &()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn names(flags: &[&str]) -> Vec<String> {
        list(flags, &Context::default()).entries.into_iter().map(|entry| entry.name).collect()
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
            assert_eq!(with(flags).len(), 6, "{flags:?}");
        }
        assert_eq!(names(&["--kind", "fwd", "--dtype", "bf16", "--target", "sm80", "--full"]).len(), 8 * 3 + 1 + 6 + 2 + 2);
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
        let small = Context { variants: Some(file), ..Context::default() };
        let note = "the set `many` names 74 variants; the grid declares 1 of them, 73 not yet";
        assert_eq!(list(&["--set", "many"], &small).notes, [note]);
        let notes = |flags: &[&str]| list(flags, &Context::default()).notes;
        assert_eq!(notes(&["--set", "standard-74"]), [""; 0], "all 74 are there");
        assert_eq!(notes(&["--all"]), [""; 0]);
    }
}
