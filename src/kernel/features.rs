//! The features of a kernel beyond its kind, head dim, dtype and mask: an axis whose values are sets of words.

use super::{
    Dtype, Kind, Misread, Target, UnknownWord,
    words::{self, AxisWord},
};
use crate::{
    expression::KeptScore,
    text::{suggestion, ticked},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};

/// An optional capability compiled into a kernel. Its parameters (window sizes, cap, slopes) are passed with each call.
/// The bit of feature number n in `kgen.h` is 2 << n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Feature {
    /// A query sees keys from `window_left` before its position to `window_right` after it.
    Window,
    /// A query sees keys of its own chunk of `attention_chunk` positions.
    Chunk,
    /// A score s becomes cap · tanh(s / cap).
    Softcap,
    /// Each score is reduced by slope · distance between query and key.
    Alibi,
    /// One extra logit per query head is added to the softmax denominator.
    Sinks,
    /// K and V are in pages, found through a page table.
    Paged,
    /// K and V are E4M3; Q and O have the kernel's dtype.
    KvE4m3,
    /// K and V are E5M2; Q and O have the kernel's dtype.
    KvE5m2,
    /// K and V are a cache: an index maps sequences to entries, and an entry can have padding rows before its first
    /// key.
    Cache,
    /// Queries have a second part that is multiplied by V and added to the scores.
    Qv,
    /// The queries of all heads that share a key head are rows of one tile. Valid for every call.
    PackGqa,
    /// Each page of FP8 K and V has its own descale factors.
    PageDescale,
    /// The call passes new rows of K and V; the kernel writes them to the cache, then attends to them.
    Append,
    /// A tensor is added to the scores.
    Bias,
    /// Weights are zeroed at random, and the others are scaled to compensate.
    Dropout,
    /// The kernel has the tile that is fastest for long sequences. Valid for every call.
    Long,
    /// The kernel has a tile of 128 queries. Valid for every call.
    M128,
    /// Several blocks may share the keys of a query tile, as `num_splits` says. Valid for every call.
    SplitKv,
}

/// A compatibility rule of a feature, the same for every template.
#[derive(Debug)]
pub struct FeatureRule {
    /// Features that the kernel must not have.
    pub excludes: &'static [Feature],
    /// Dtypes that the kernel must not have.
    pub excludes_dtypes: &'static [Dtype],
    /// True if the kernel must not have a declared score.
    pub excludes_declared_score: bool,
    /// Sets of features; the kernel must have at least one feature of each set.
    pub requires: &'static [&'static [Feature]],
    /// Error message for a kernel that breaks the rule.
    pub reason: &'static str,
}

impl FeatureRule {
    fn is_kept(&self, features: Features, dtype: Dtype) -> bool {
        let has_any = |set: &[Feature]| set.iter().any(|feature| features.has(*feature));
        let is_declared = features.score.is_some_and(|declared| declared.score.is_some());
        let is_excluded =
            has_any(self.excludes) || self.excludes_dtypes.contains(&dtype) || self.excludes_declared_score && is_declared;
        !is_excluded && self.requires.iter().all(|set| has_any(set))
    }
}

/// Properties of a feature that any module may need.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties")]
pub struct FeatureInfo {
    /// Word of the feature in kernel names, file names, JSON and on the command line.
    pub name: &'static str,
    /// Other words accepted on the command line and in `variants.toml`.
    pub aliases: &'static [&'static str],
    /// Constant of the feature in `kgen.h`.
    pub constant: &'static str,
    /// A short description; the feature's row in `docs/features.md` starts with it.
    pub summary: &'static str,
    /// True if it changes the mask or the scores, as opposed to the layout or type of Q, K and V.
    pub is_mask_or_score: bool,
    /// True if it changes the mask or the scores and only training passes use it.
    pub is_training: bool,
    /// True if any split-KV kernel serves it without being compiled for it, because the combine kernel applies it.
    pub is_combined: bool,
    /// True if kernels that have it serve only calls that use it.
    pub is_exclusive: bool,
    /// True if non-causal kernels that have it also serve causal calls.
    pub includes_causal: bool,
    /// True if its kernels compute each query row's position among the keys.
    pub has_positions: bool,
    /// True if it changes scores before the mask.
    pub changes_scores: bool,
    /// True if it adds elements of a tensor, of any size, to the scores, which are then in units of the score.
    pub adds_elements: bool,
    /// True if it multiplies weights after the softmax by a factor each.
    pub changes_weights: bool,
    /// True if only split-KV kernels can have it.
    pub is_split_only: bool,
    /// True if its kernels exist at some head dims only: for others they are made only where the feature is named.
    pub has_own_head_dims: bool,
    /// True if it changes the tile alone, so that a kernel without it serves the same calls.
    pub is_second_tile: bool,
    /// True if templates include a part with its name.
    pub has_part: bool,
    /// Kinds that a library must contain to use kernels that have it.
    pub helpers: &'static [Kind],
    /// Compatibility rules of kernels that have it.
    pub rules: &'static [FeatureRule],
}

/// Defaults for a feature of Q, K or V; entries of [`INFO`] override fields of it.
const OF_ROWS: FeatureInfo = FeatureInfo {
    name: "",
    aliases: &[],
    constant: "",
    summary: "",
    is_mask_or_score: false,
    is_training: false,
    is_combined: false,
    is_exclusive: false,
    includes_causal: false,
    has_positions: false,
    changes_scores: false,
    adds_elements: false,
    changes_weights: false,
    is_split_only: false,
    has_own_head_dims: false,
    is_second_tile: false,
    has_part: true,
    helpers: &[],
    rules: &[],
};

const MASK_OR_SCORE: FeatureInfo = FeatureInfo { is_mask_or_score: true, ..OF_ROWS };

const RULE: FeatureRule =
    FeatureRule { excludes: &[], excludes_dtypes: &[], excludes_declared_score: false, requires: &[], reason: "" };

const KV_OF_FP8_QUERIES: FeatureRule = FeatureRule {
    excludes_dtypes: &[Dtype::Fp8],
    reason: "queries in `fp8` have K and V of their own type: leave out `kv_e4m3` and `kv_e5m2`",
    ..RULE
};

/// One entry per feature, in the order of [`Feature`].
const INFO: &[FeatureInfo] = &[
    FeatureInfo {
        name: "window",
        aliases: &["sliding_window", "local"],
        constant: "KGEN_FEATURE_WINDOW",
        summary: "row at position r sees keys r - left to r + right",
        includes_causal: true,
        has_positions: true,
        ..MASK_OR_SCORE
    },
    FeatureInfo {
        name: "chunk",
        aliases: &["attention_chunk"],
        constant: "KGEN_FEATURE_CHUNK",
        summary: "a row sees the keys of its own chunk",
        has_positions: true,
        ..MASK_OR_SCORE
    },
    FeatureInfo {
        name: "softcap",
        constant: "KGEN_FEATURE_SOFTCAP",
        summary: "s becomes cap · tanh(s / cap)",
        changes_scores: true,
        ..MASK_OR_SCORE
    },
    FeatureInfo {
        name: "alibi",
        aliases: &["alibi_slopes"],
        constant: "KGEN_FEATURE_ALIBI",
        summary: "slope · distance is subtracted from s",
        has_positions: true,
        changes_scores: true,
        ..MASK_OR_SCORE
    },
    FeatureInfo {
        name: "sinks",
        aliases: &["sink"],
        constant: "KGEN_FEATURE_SINKS",
        summary: "one logit per head is added to the softmax denominator",
        is_combined: true,
        ..MASK_OR_SCORE
    },
    FeatureInfo {
        name: "paged",
        aliases: &["paged_kv", "page_table", "block_table"],
        constant: "KGEN_FEATURE_PAGED",
        summary: "K and V are in pages",
        is_exclusive: true,
        rules: &[FeatureRule {
            excludes: &[Feature::Cache],
            reason: "`paged` and `cache` are two ways to find K and V; a kernel has one",
            ..RULE
        }],
        ..OF_ROWS
    },
    FeatureInfo {
        name: "kv_e4m3",
        aliases: &["kv_fp8", "fp8_kv", "fp8_kv_e4m3"],
        constant: "KGEN_FEATURE_KV_E4M3",
        summary: "K and V are FP8, Q and O are not",
        is_exclusive: true,
        has_part: false,
        rules: &[
            FeatureRule {
                excludes: &[Feature::KvE5m2],
                reason: "`kv_e4m3` and `kv_e5m2` are two types of K and V, and a kernel has one",
                ..RULE
            },
            KV_OF_FP8_QUERIES,
        ],
        ..OF_ROWS
    },
    FeatureInfo {
        name: "kv_e5m2",
        aliases: &["fp8_kv_e5m2"],
        constant: "KGEN_FEATURE_KV_E5M2",
        summary: "K and V are FP8, Q and O are not",
        is_exclusive: true,
        has_part: false,
        rules: &[KV_OF_FP8_QUERIES],
        ..OF_ROWS
    },
    FeatureInfo {
        name: "cache",
        aliases: &["kvcache"],
        constant: "KGEN_FEATURE_CACHE",
        summary: "K and V are a cache of slots",
        ..OF_ROWS
    },
    FeatureInfo {
        name: "qv",
        aliases: &["mla", "q_v"],
        constant: "KGEN_FEATURE_QV",
        summary: "queries have a second part, which is multiplied by V",
        is_exclusive: true,
        is_split_only: true,
        has_own_head_dims: true,
        has_part: false,
        ..OF_ROWS
    },
    FeatureInfo {
        name: "packgqa",
        aliases: &["pack_gqa", "packed_heads"],
        constant: "KGEN_FEATURE_PACKGQA",
        summary: "the heads that read one key head share a tile",
        ..OF_ROWS
    },
    FeatureInfo {
        name: "page_descale",
        aliases: &["page_descales", "descale_by_page"],
        constant: "KGEN_FEATURE_PAGE_DESCALE",
        summary: "pages of FP8 have factors of their own",
        rules: &[
            FeatureRule {
                requires: &[&[Feature::Paged], &[Feature::KvE4m3, Feature::KvE5m2]],
                reason: "`page_descale` needs `paged` and `kv_e4m3` or `kv_e5m2`: pages of FP8 have factors",
                ..RULE
            },
            // P is multiplied by V's factor before rounding, and the product can be outside the range of fp16.
            FeatureRule {
                excludes_dtypes: &[Dtype::Fp16],
                reason: "`page_descale` needs `bf16`: P times a page's factor may be too small or too large for `fp16`",
                ..RULE
            },
        ],
        ..OF_ROWS
    },
    FeatureInfo {
        name: "append",
        aliases: &["new_kv", "fused_append"],
        constant: "KGEN_FEATURE_APPEND",
        summary: "the kernel writes new rows of K and V into the cache",
        is_exclusive: true,
        is_split_only: true,
        rules: &[FeatureRule {
            excludes: &[Feature::PageDescale],
            excludes_dtypes: &[Dtype::Fp8],
            reason: "`append` takes new rows in `fp16` or `bf16`, for caches without `page_descale`",
            ..RULE
        }],
        ..OF_ROWS
    },
    FeatureInfo {
        name: "bias",
        aliases: &["attn_bias", "attn_mask"],
        constant: "KGEN_FEATURE_BIAS",
        summary: "a tensor is added to s",
        has_positions: true,
        changes_scores: true,
        adds_elements: true,
        ..MASK_OR_SCORE
    },
    FeatureInfo {
        name: "dropout",
        aliases: &["dropout_p", "attention_dropout"],
        constant: "KGEN_FEATURE_DROPOUT",
        summary: "weights are zeroed at random",
        changes_weights: true,
        is_training: true,
        rules: &[FeatureRule {
            excludes: &[
                Feature::Softcap,
                Feature::Paged,
                Feature::KvE4m3,
                Feature::KvE5m2,
                Feature::Cache,
                Feature::PackGqa,
                Feature::PageDescale,
            ],
            excludes_declared_score: true,
            reason: "`dropout` is for training: no `softcap`, no declared score, no `packgqa`, and no cache of K and V",
            ..RULE
        }],
        ..MASK_OR_SCORE
    },
    FeatureInfo {
        name: "long",
        aliases: &["long_tile"],
        constant: "KGEN_FEATURE_LONG",
        summary: "the tile is that for long sequences",
        has_own_head_dims: true,
        is_second_tile: true,
        has_part: false,
        ..OF_ROWS
    },
    FeatureInfo {
        name: "m128",
        aliases: &["tile_m128"],
        constant: "KGEN_FEATURE_M128",
        summary: "a tile has 128 queries",
        has_own_head_dims: true,
        is_second_tile: true,
        has_part: false,
        rules: &[FeatureRule { excludes: &[Feature::Long], reason: "`long` and `m128` are two tiles; a kernel has one", ..RULE }],
        ..OF_ROWS
    },
    FeatureInfo {
        name: "splitkv",
        aliases: &["split_kv"],
        constant: "KGEN_FEATURE_SPLITKV",
        summary: "several blocks may share the keys of a query tile",
        has_own_head_dims: true,
        is_second_tile: true,
        has_part: false,
        helpers: &[Kind::FwdCombine],
        rules: &[FeatureRule {
            excludes: &[Feature::Long, Feature::M128],
            reason: "`splitkv` is for the first tile of a kernel: no `long`, no `m128`",
            ..RULE
        }],
        ..OF_ROWS
    },
];

impl Feature {
    /// Every feature, in the order of kernel names.
    pub const ALL: &'static [Self] = &[
        Self::Long,
        Self::M128,
        Self::SplitKv,
        Self::PackGqa,
        Self::Paged,
        Self::Cache,
        Self::Qv,
        Self::KvE4m3,
        Self::KvE5m2,
        Self::PageDescale,
        Self::Append,
        Self::Window,
        Self::Chunk,
        Self::Softcap,
        Self::Alibi,
        Self::Bias,
        Self::Sinks,
        Self::Dropout,
    ];

    /// Properties of the feature.
    pub fn info(self) -> &'static FeatureInfo {
        &INFO[self as usize]
    }

    /// Word of the feature in kernel names, file names, JSON and on the command line.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Other words accepted on the command line and in `variants.toml`.
    pub fn aliases(self) -> &'static [&'static str] {
        self.info().aliases
    }

    /// The value of its constant in `kgen.h`.
    pub fn bit(self) -> u32 {
        2 << self as u32
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

/// A set of features, and optionally a user-declared score or mask. In JSON it is a list: one word per feature, then
/// the declaration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Features {
    built_in: u32,
    score: Option<KeptScore>,
}

impl Features {
    /// The empty set: a plain kernel.
    pub const NONE: Self = Self { built_in: 0, score: None };

    /// All built-in features. No kernel has all of them.
    pub fn all() -> Self {
        Feature::ALL.iter().copied().collect()
    }

    /// The features that change the mask or the scores, as opposed to the layout or type of Q, K and V, except those of
    /// training.
    pub fn masks_and_scores() -> Self {
        Self::of_all(|info| info.is_mask_or_score && !info.is_training)
    }

    /// The features that any split-KV kernel serves without being compiled for them.
    pub fn combined() -> Self {
        Self::of_all(|info| info.is_combined)
    }

    /// All features whose properties satisfy `predicate`.
    pub fn of_all(predicate: impl Fn(&FeatureInfo) -> bool) -> Self {
        Self::all().iter().filter(|feature| predicate(feature.info())).collect()
    }

    /// True if any feature of the set has properties that satisfy `predicate`.
    pub fn any(self, predicate: impl Fn(&FeatureInfo) -> bool) -> bool {
        self.iter().any(|feature| predicate(feature.info()))
    }

    /// The masks and scores, and `paged`.
    pub fn with_pages() -> Self {
        Self::masks_and_scores().with(Self::from_iter([Feature::Paged]))
    }

    /// True if `feature` is in the set.
    pub fn has(self, feature: Feature) -> bool {
        self.built_in & (1 << feature as u8) != 0
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// True if scores are changed before the mask: by softcap, `ALiBi`, added elements or a declared score.
    pub fn changes_scores(self) -> bool {
        self.any(|info| info.changes_scores) || self.score.is_some_and(|declared| declared.score.is_some())
    }

    /// The declared score or mask.
    pub fn score(self) -> Option<KeptScore> {
        self.score
    }

    /// The set with its declared score or mask replaced by `score`.
    #[must_use]
    pub fn with_score(self, score: Option<KeptScore>) -> Self {
        Self { score, ..self }
    }

    /// Error message if no kernel with this dtype can have these features.
    pub fn broken_rule(self, dtype: Dtype) -> Option<&'static str> {
        let rules = self.iter().flat_map(|feature| feature.info().rules);
        rules.into_iter().find(|rule| !rule.is_kept(self, dtype)).map(|rule| rule.reason)
    }

    /// True if `other` is a subset, including its declared score or mask.
    pub fn contains(self, other: Self) -> bool {
        other.built_in & !self.built_in == 0 && (other.score.is_none() || other.score == self.score)
    }

    /// The union. If both sets have a declared score, the result has that of `self`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { built_in: self.built_in | other.built_in, score: self.score.or(other.score) }
    }

    /// The built-in features, in the order of kernel names.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |feature| self.has(*feature))
    }

    /// The words of the set, in the order of kernel names.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        self.iter().map(Feature::name).chain(self.score.map(KeptScore::name))
    }

    /// Suffix of a variant's name: `_window_softcap`, or empty.
    pub fn suffix(self) -> String {
        self.words().flat_map(|word| ["_", word]).collect()
    }
}

impl FromIterator<Feature> for Features {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        Self { built_in: features.into_iter().fold(0, |set, feature| set | 1 << feature as u8), score: None }
    }
}

impl fmt::Display for Features {
    /// Command-line form: `window,softcap`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.pad("none");
        }
        f.pad(&self.words().collect::<Vec<_>>().join(","))
    }
}

/// An entry of the JSON list.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Listed {
    Word(String),
    Score(KeptScore),
}

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let words = self.iter().map(|feature| Listed::Word(feature.name().to_owned()));
        serializer.collect_seq(words.chain(self.score.map(Listed::Score)))
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut features = Self::NONE;
        for listed in Vec::<Listed>::deserialize(deserializer)? {
            match listed {
                Listed::Word(word) => {
                    features = features.with([word.parse::<Feature>().map_err(de::Error::custom)?].into_iter().collect());
                }
                Listed::Score(score) => features.score = Some(score),
            }
        }
        Ok(features)
    }
}

impl Features {
    /// The union of two sets that have no feature in common and at most one declared score.
    ///
    /// # Errors
    /// One sentence that names the duplicate.
    pub(crate) fn joined(self, other: Self) -> Result<Self, String> {
        if let Some(twice) = self.iter().find(|feature| other.has(*feature)) {
            return Err(format!("the feature `{twice}` is given twice in one set"));
        }
        match (self.score, other.score) {
            (Some(one), Some(same)) if one == same => Err(format!("the score `{one}` is given twice in one set")),
            (Some(one), Some(another)) => Err(format!("`{one}` and `{another}` are two scores, and a kernel has one")),
            _ => Ok(self.with(other)),
        }
    }
}

/// A set with one element: a built-in feature, or one of `scores`.
///
/// # Errors
/// [`Misread`], with a suggestion for the misspelled word.
pub(crate) fn read_word(word: &str, scores: &[KeptScore]) -> Result<Features, Misread> {
    if let Some(score) = scores.iter().find(|score| score.name() == word.trim()) {
        return Ok(Features::NONE.with_score(Some(*score)));
    }
    let own = words::read::<Feature>(word).map(|feature| Features::from_iter([feature]));
    own.map_err(|misread| {
        let names: Vec<&str> = scores.iter().map(|score| score.name()).collect();
        match suggestion(word, &names) {
            Some(help) => Misread { help, ..misread },
            None if names.is_empty() => misread,
            None => Misread { help: format!("{}; declared scores: {}", misread.help, ticked(&names)), ..misread },
        }
    })
}

/// Error title and help if a score cannot have this name, because kernel names or filters would become ambiguous.
pub(crate) fn score_name_taken(name: &str) -> Option<(String, String)> {
    const OTHERS: [&str; 9] = ["causal", "full", "plain", "none", "any", "mask", "score", "scores", "features"];
    let owner = if name.parse::<Feature>().is_ok() {
        "a feature of kgen's own"
    } else if name.parse::<Kind>().is_ok() || name.parse::<Dtype>().is_ok() || name.parse::<Target>().is_ok() {
        "a word for a kind, a dtype or a target"
    } else if OTHERS.contains(&name) {
        "a word of filters and names"
    } else {
        let words = Feature::ALL.iter().map(|feature| feature.name()).chain(["causal"]);
        let begins = |word: &str| name.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'));
        let first = words.into_iter().find(|word| begins(word))?;
        let title = format!("`{name}` begins with `{first}_`, as names of kernels with `{first}` do");
        return Some((title, format!("choose another, for example `my_{name}`")));
    };
    Some((format!("`{name}` is {owner}"), format!("choose another, for example `my_{name}`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::assert_constants_are_those_of_c;

    #[test]
    fn a_set_is_printed_and_parsed_in_one_order() {
        let set: Features = [Feature::Sinks, Feature::Window].into_iter().collect();
        assert_eq!((set.to_string(), set.suffix()), ("window,sinks".to_owned(), "_window_sinks".to_owned()));
        assert_eq!((Features::NONE.to_string(), Features::NONE.suffix()), ("none".to_owned(), String::new()));
        let json = serde_json::to_string(&set).expect("it prints");
        assert_eq!(json, r#"["window","sinks"]"#);
        assert_eq!(serde_json::from_str::<Features>(&json).ok(), Some(set));
    }

    #[test]
    fn a_set_contains_its_subsets_only() {
        let window = Features::from_iter([Feature::Window]);
        assert!(Features::all().contains(window) && window.contains(Features::NONE) && !window.contains(Features::all()));
        assert_eq!(window.with(Features::all()), Features::all());
        assert_eq!(Features::all().iter().count(), Feature::ALL.len());
    }

    #[test]
    fn the_table_is_in_the_order_of_the_features_and_has_the_bits_of_kgen_h() {
        assert_eq!((INFO.len(), Feature::ALL.len()), (18, 18));
        let constants: Vec<(&str, usize)> =
            Feature::ALL.iter().map(|feature| (feature.info().constant, feature.bit() as usize)).collect();
        for feature in Feature::ALL {
            assert_eq!(feature.info().constant, format!("KGEN_FEATURE_{}", feature.name().to_uppercase()));
            assert_eq!(format!("{feature:?}").to_lowercase(), feature.name().replace('_', ""));
        }
        assert_constants_are_those_of_c(&constants);
    }

    /// Cells of a row in `kgen/features.cuh`: constant, name, error for a call without the feature, whether kernels
    /// compute positions.
    #[test]
    fn the_table_matches_the_table_of_the_header() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/templates/include/kgen/features.cuh");
        let header = std::fs::read_to_string(path).expect("the header is there");
        let rows = header.lines().filter_map(|line| line.trim().strip_prefix('{')?.strip_suffix("},"));
        let rows: Vec<(&str, &str, bool, bool)> = rows
            .map(|row| {
                let cells: Vec<&str> = row.split(", ").collect();
                let [constant, name, missing, positions] = cells[..] else { panic!("`{row}` has four cells") };
                (constant, name.trim_matches('"'), missing != "nullptr", positions == "true")
            })
            .collect();
        let of = |info: &FeatureInfo| (info.constant, info.name, info.is_exclusive, info.has_positions);
        let expected: Vec<_> = [("KGEN_FEATURE_CAUSAL", "causal", true, false)].into_iter().chain(INFO.iter().map(of)).collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn docs_features_md_has_the_summary_of_each_feature() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/features.md")).expect("the page is there");
        for feature in Feature::ALL {
            let row = page.lines().find(|line| line.starts_with('|') && line.contains(&format!("`{feature}`")));
            let row = row.unwrap_or_else(|| panic!("docs/features.md has no row for `{feature}`"));
            let meaning = row.trim_end_matches('|').rsplit('|').next().expect("a cell").trim();
            assert!(meaning.starts_with(feature.info().summary), "docs/features.md, `{feature}`: {meaning}");
        }
    }

    #[test]
    fn every_word_names_exactly_one_feature() {
        let mut seen = std::collections::HashSet::new();
        for feature in Feature::ALL {
            for word in feature.words() {
                assert!(seen.insert(word), "two features have the word `{word}`");
                assert_eq!(word.parse(), Ok(*feature));
            }
        }
    }
}
