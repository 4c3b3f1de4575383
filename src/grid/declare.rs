//! Turns the parsed file into valid declarations: every word known, every axis nonempty, every filter parsed.

use super::{
    Filter,
    schema::{ExcludeEntry, FamilyEntry, File, SetEntry, Word, WrittenHeadDim},
    tiles::{self, TileTable},
};
use crate::{
    expression::{self, KeptScore},
    kernel::{
        Axis, AxisWord, Coordinates, Dtype, Features, HeadDim, Kind, ReadHeadDimError, Target, TileKey, Variant, read_features,
        read_word, score_name_taken,
    },
    text::{Finding, suggestion, ticked},
};
use itertools::iproduct;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};
use toml::Spanned;

/// The file format this kgen reads.
const VERSION: i64 = 1;

/// A checked file.
#[derive(Debug, Clone)]
pub(super) struct Declarations {
    /// Targets a family may name, with their descriptions.
    pub targets: BTreeMap<Target, String>,
    /// The user's scores and masks, by name.
    pub scores: Vec<KeptScore>,
    /// Families in the order of the file.
    pub families: Vec<Family>,
    /// Excludes in the order of the file: the first match gives the reason.
    pub excludes: Vec<Exclude>,
    /// The `[[tile]]` tables.
    pub tiles: TileTable,
    /// Sets, by name.
    pub sets: Vec<Set>,
}

/// One `[[family]]`: the product of its axes.
#[derive(Debug, Clone)]
pub(super) struct Family {
    pub kinds: Vec<Kind>,
    /// Empty if the kinds lack this axis; the same holds for `dtypes` and `masks`.
    pub head_dims: Vec<HeadDim>,
    pub dtypes: Vec<Dtype>,
    /// True for causal.
    pub masks: Vec<bool>,
    /// Sets of features; only the empty set if the family lists none.
    pub features: Vec<Features>,
    pub targets: Vec<Target>,
    /// Position of the table.
    pub span: Range<usize>,
}

/// One `[[exclude]]`.
#[derive(Debug, Clone)]
pub(super) struct Exclude {
    pub filter: Filter,
    pub reason: String,
    /// Position of `when`.
    pub span: Range<usize>,
}

/// A named slice of the grid: `[sets.<name>]`.
#[derive(Debug, Clone)]
pub struct Set {
    /// The argument of `--set`.
    pub name: String,
    /// One sentence.
    pub description: String,
    /// The filter that selects its variants.
    pub filter: Filter,
    /// Number of variants in the set once the grid declares them all; `None` if only the filter defines the set.
    pub size: Option<u32>,
    /// Position of `size`, or of the name if it has none.
    pub(super) span: Range<usize>,
}

impl Family {
    /// Every variant of the family, with its own head dims and features, or with these instead.
    pub fn variants(&self, head_dims: Option<&[HeadDim]>, features: Option<Features>) -> Vec<Variant> {
        let mut variants = Vec::new();
        for kind in self.kinds.iter().copied() {
            let head_dims = match head_dims {
                // Only a kernel with a head dim can be generated for another one.
                Some(_) if !kind.has(Axis::HeadDim) => continue,
                Some(others) => others,
                None => &self.head_dims,
            };
            let others = features.map(|set| [set]);
            let sets = match &others {
                Some(_) if !kind.has(Axis::Features) => continue,
                Some(others) => others.as_slice(),
                None => &self.features,
            };
            let points = iproduct!(&self.targets, along(head_dims), along(&self.dtypes), along(&self.masks), along(sets));
            variants.extend(points.map(|(target, head_dim, dtype, causal, features)| {
                kind.at(&Coordinates { head_dim, dtype, causal, features, target: *target })
            }));
        }
        variants
    }
}

/// The values of an axis; a single `None` if the kind lacks it.
fn along<T: Copy>(values: &[T]) -> impl Iterator<Item = Option<T>> + Clone + '_ {
    let absent = values.is_empty().then_some(None);
    values.iter().copied().map(Some).chain(absent)
}

/// Checks a file's declarations one by one; the first error is the finding.
pub(super) fn declare(file: &File, text: &str, tile_keys: &[&'static TileKey]) -> Result<Declarations, Finding> {
    version(&file.version)?;
    let targets = targets(file)?;
    if file.family.is_empty() {
        let help = "add a `[[family]]` with `kind`, `head_dim`, `dtype`, `mask` and `target`";
        return Err(Finding::new("the file declares no variants", file.version.span(), "no `[[family]]` follows", help));
    }
    let scores = scores(file, text)?;
    Ok(Declarations {
        families: file.family.iter().map(|entry| family(entry, &targets, &scores)).collect::<Result<_, _>>()?,
        excludes: file.exclude.iter().map(|entry| exclude(entry.get_ref(), text)).collect::<Result<_, _>>()?,
        tiles: tiles::declare(&file.tile, &tiles::TUNED, tile_keys, text)?,
        sets: file.sets.iter().map(|(name, entry)| set(name, entry, text)).collect::<Result<_, _>>()?,
        targets,
        scores,
    })
}

/// The `[score.NAME]` tables.
fn scores(file: &File, text: &str) -> Result<Vec<KeptScore>, Finding> {
    let declared = file.score.iter().map(|(name, entry)| {
        let score = expression::declare(name, entry, text)?;
        match score_name_taken(&score.name) {
            None => Ok(KeptScore::of(score)),
            Some((title, help)) => Err(Finding::new(title, name.span(), "cannot be the name of a score", help)),
        }
    });
    declared.collect()
}

fn version(version: &Spanned<i64>) -> Result<(), Finding> {
    if *version.get_ref() == VERSION {
        return Ok(());
    }
    let title = format!("version {} of the format is not known", version.get_ref());
    let help = format!("write `version = {VERSION}`, or use the kgen this file was written for");
    Err(Finding::new(title, version.span(), format!("this kgen reads version {VERSION}"), help))
}

fn targets(file: &File) -> Result<BTreeMap<Target, String>, Finding> {
    let mut targets = BTreeMap::new();
    let mut spans = BTreeMap::new();
    // Entries in the file's order, so that of two names for one target the second is reported as the duplicate.
    let mut entries: Vec<_> = file.targets.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    for (name, entry) in entries {
        let target: Target = axis_word(name)?;
        if let Some(first) = spans.insert(target, name.span()) {
            let title = format!("target `{target}` is declared twice");
            return Err(
                Finding::new(title, name.span(), "second time", "keep one of the two tables").with_context(first, "first time")
            );
        }
        targets.insert(target, sentence(&entry.description, "description")?);
    }
    Ok(targets)
}

fn family(entry: &Spanned<FamilyEntry>, declared: &BTreeMap<Target, String>, scores: &[KeptScore]) -> Result<Family, Finding> {
    let axes = entry.get_ref();
    let kinds = axis("kind", &axes.kind, axis_word::<Kind>)?;
    let targets = axis("target", &axes.target, |word| {
        let target = axis_word(word)?;
        if declared.contains_key(&target) {
            return Ok(target);
        }
        let help = format!("add `[targets.{target}]` with a `description`");
        Err(Finding::new(format!("target `{target}` is not declared"), word.span(), "no `[targets]` table for it", help))
    })?;
    if let Some(other) = kinds.iter().find(|kind| kind.info().axes != kinds[0].info().axes) {
        let fewer = [kinds[0], *other].into_iter().min_by_key(|kind| kind.info().axes.len()).unwrap_or(*other);
        let keys: Vec<&str> = ["kind", "target"].into_iter().chain(fewer.info().axes.iter().map(|axis| axis.key())).collect();
        let help = format!("write a `[[family]]` of its own, with only {}, for `{fewer}`", ticked(&keys));
        let title = "kinds with different axes in one family";
        return Err(Finding::new(title, axes.kind.span(), "an axis of one is none of the other's", help));
    }
    let span = entry.span();
    let kind = kinds[0];
    let given = [
        (Axis::HeadDim, axes.head_dim.as_ref().map(Spanned::span)),
        (Axis::Dtype, axes.dtype.as_ref().map(Spanned::span)),
        (Axis::Mask, axes.mask.as_ref().map(Spanned::span)),
        (Axis::Features, axes.features.as_ref().map(Spanned::span)),
    ];
    if let Some((axis, place)) = given.into_iter().find_map(|(axis, place)| Some((axis, place.filter(|_| !kind.has(axis))?))) {
        let key = axis.key();
        let title = format!("`{kind}` has no {key}");
        return Err(Finding::new(title, place, "an axis this kind does not have", format!("remove `{key}`")));
    }
    let head_dims = values(kind, Axis::HeadDim, axes.head_dim.as_ref(), &span, head_dim)?;
    let dtypes = values(kind, Axis::Dtype, axes.dtype.as_ref(), &span, axis_word)?;
    let masks = values(kind, Axis::Mask, axes.mask.as_ref(), &span, mask)?;
    let features = match &axes.features {
        Some(sets) => axis("features", sets, |set| feature_set(set, scores))?,
        None if kind.has(Axis::Features) => vec![Features::NONE],
        None => Vec::new(),
    };
    Ok(Family { kinds, head_dims, dtypes, masks, features, targets, span })
}

/// The values of an axis; empty if the kind lacks it.
fn values<W, T: Copy + Ord>(
    kind: Kind,
    which: Axis,
    words: Option<&Spanned<Vec<Spanned<W>>>>,
    family: &Range<usize>,
    read: impl Fn(&Spanned<W>) -> Result<T, Finding>,
) -> Result<Vec<T>, Finding> {
    if !kind.has(which) {
        return Ok(Vec::new());
    }
    axis(which.key(), required(which.key(), words, family)?, read)
}

fn required<'a, T>(key: &str, value: Option<&'a T>, family: &Range<usize>) -> Result<&'a T, Finding> {
    let example = match key {
        "head_dim" => "head_dim = [64, 128]",
        "dtype" => "dtype = [\"fp16\", \"bf16\"]",
        _ => "mask = [\"full\", \"causal\"]",
    };
    value.ok_or_else(|| {
        Finding::new(
            format!("the key `{key}` is missing"),
            family.clone(),
            "in this family",
            format!("add `{key}`, for example `{example}`"),
        )
    })
}

/// Reads an axis: not empty, every value valid, no duplicates (not even under two aliases).
fn axis<W, T: Copy + Ord>(
    name: &str,
    words: &Spanned<Vec<Spanned<W>>>,
    read: impl Fn(&Spanned<W>) -> Result<T, Finding>,
) -> Result<Vec<T>, Finding> {
    if words.get_ref().is_empty() {
        let help = format!("give `{name}` at least one value, or remove the family");
        return Err(Finding::new(format!("the axis `{name}` is empty"), words.span(), "no values: no variants", help));
    }
    let mut seen: BTreeMap<T, Range<usize>> = BTreeMap::new();
    let mut values = Vec::new();
    for word in words.get_ref() {
        let value = read(word)?;
        if let Some(first) = seen.insert(value, word.span()) {
            let title = format!("a value of `{name}` is given twice");
            return Err(
                Finding::new(title, word.span(), "second time", "remove one of the two").with_context(first, "first time")
            );
        }
        values.push(value);
    }
    Ok(values)
}

fn axis_word<T: AxisWord>(word: &Word) -> Result<T, Finding> {
    read_word(word.get_ref()).map_err(|misread| Finding::new(misread.title, word.span(), "not known", misread.help))
}

fn head_dim(value: &Spanned<WrittenHeadDim>) -> Result<HeadDim, Finding> {
    let text = &value.get_ref().0;
    text.parse()
        .map_err(|error: ReadHeadDimError| Finding::new(error.title(), value.span(), "not a head dim kgen makes", error.help()))
}

/// A set of features; the empty set is a plain kernel.
fn feature_set(words: &Spanned<Vec<Word>>, scores: &[KeptScore]) -> Result<Features, Finding> {
    let mut set = Features::NONE;
    for word in words.get_ref() {
        let more = read_features(word.get_ref(), scores)
            .map_err(|misread| Finding::new(misread.title, word.span(), "not known", misread.help))?;
        set = set.joined(more).map_err(|title| Finding::new(title, word.span(), "one too many", "remove one of the two"))?;
    }
    Ok(set)
}

fn mask(word: &Word) -> Result<bool, Finding> {
    match word.get_ref().as_str() {
        "full" => Ok(false),
        "causal" => Ok(true),
        other => {
            let help = suggestion(other, &["full", "causal"]).unwrap_or_else(|| "known: `full`, `causal`".to_owned());
            Err(Finding::new(format!("unknown mask `{other}`"), word.span(), "not known", help))
        }
    }
}

fn exclude(entry: &ExcludeEntry, text: &str) -> Result<Exclude, Finding> {
    let reason = sentence(&entry.reason, "reason")?;
    Ok(Exclude { filter: filter(&entry.when, text)?, reason, span: entry.when.span() })
}

fn set(name: &Word, entry: &SetEntry, text: &str) -> Result<Set, Finding> {
    Ok(Set {
        name: name.get_ref().clone(),
        description: sentence(&entry.description, "description")?,
        filter: filter(&entry.filter, text)?,
        size: entry.size.as_ref().map(|size| *size.get_ref()),
        span: entry.size.as_ref().map_or(name.span(), Spanned::span),
    })
}

/// A text that must not be blank.
pub(super) fn sentence(word: &Word, key: &str) -> Result<String, Finding> {
    let text = word.get_ref().trim();
    if text.is_empty() {
        return Err(Finding::new(
            format!("`{key}` says nothing"),
            word.span(),
            "an empty text",
            "write one sentence: messages quote it",
        ));
    }
    Ok(text.to_owned())
}

/// A filter inside the file: its errors point into the file's line.
pub(super) fn filter(word: &Word, text: &str) -> Result<Filter, Finding> {
    word.get_ref().parse::<Filter>().map_err(|error| {
        let outer = word.span();
        let written = text.get(outer.clone()).unwrap_or_default();
        // If the string has escapes, its characters differ from those of the file: point at all of it.
        let span = written.find(word.get_ref().as_str()).filter(|_| !word.get_ref().is_empty()).map_or(outer.clone(), |quote| {
            let inner = error.span();
            outer.start + quote + inner.start..outer.start + quote + inner.end
        });
        Finding { span, ..error.finding }
    })
}

/// Finds two families, or one, that declare the same variant.
pub(super) fn duplicates(families: &[Family]) -> Result<BTreeSet<Variant>, Finding> {
    let mut owners: BTreeMap<Variant, &Family> = BTreeMap::new();
    for family in families {
        for variant in family.variants(None, None) {
            if let Some(first) = owners.insert(variant, family) {
                let title = format!("`{variant}` is declared by two families");
                let help = "take the shared values out of one of the two";
                return Err(
                    Finding::new(title, family.span.clone(), "second time", help).with_context(first.span.clone(), "first time")
                );
            }
        }
    }
    Ok(owners.into_keys().collect())
}
