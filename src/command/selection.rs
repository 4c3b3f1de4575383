//! The variants of a grid that a command applies to.

use super::{
    CommandError, Context, Observer, ScoreRequest, config::DefaultTarget, head_dims, names, session::plan, target::TargetWord,
};
use crate::{
    family::attention,
    grid::{Filter, Grid, Selection},
    kernel::{Dtype, HeadDim, Kind, Target, Variant},
    plan::Plan,
};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The variants that a command applies to: those with the given names, or those that meet all conditions. The default
/// is the whole grid.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SelectionRequest {
    /// Names of variants, such as `flash_fwd_hdim128_bf16_causal_sm80`. With names, no other field may be set.
    pub names: Vec<String>,
    /// Kinds of kernel; empty for all.
    pub kinds: Vec<Kind>,
    /// Head dims, in elements; empty for all. One that the grid lacks is generated on demand. JSON: `128`, or
    /// `"192_128"` if V and O differ from Q and K.
    #[serde(with = "head_dims")]
    pub head_dims: Vec<HeadDim>,
    /// Element types; empty for all.
    pub dtypes: Vec<Dtype>,
    /// `true` for causal masks only, `false` for full masks only, `None` for both.
    pub causal: Option<bool>,
    /// Features as `--features` takes them: words with commas, `none` or `any`.
    pub features: Option<String>,
    /// The caller's own score and mask.
    pub score: ScoreRequest,
    /// Targets, or GPUs; empty for all, or for the default target of the context if other fields narrow the selection.
    pub targets: Vec<TargetWord>,
    /// Named set of the grid.
    pub set: Option<String>,
    /// Condition, for example `hdim >= 128 and dtype == bf16`.
    pub filter: Option<String>,
    /// The whole grid, including targets that the default target would exclude. Other fields still narrow it.
    pub all: bool,
}

/// The word for kernels with any features.
pub(crate) const ANY_FEATURES: &str = "any";

impl SelectionRequest {
    /// True if no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if variants are named, so that no condition applies.
    pub(super) fn is_by_name(&self) -> bool {
        !self.names.is_empty()
    }

    /// The variants of `grid` that the request selects: sorted, without duplicates, at least one. A note reports
    /// targets that were taken by default, and variants whose features no template supports.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if a name is unknown, the filter cannot be read or nothing is selected; the message
    /// names the cause. [`CommandError::Environment`] for the target `native` if there is no GPU.
    pub(super) fn resolve(&self, context: &Context, grid: &Grid, observer: &dyn Observer) -> Result<Vec<Variant>, CommandError> {
        if self.is_by_name() {
            if *self != (Self { names: self.names.clone(), ..Self::default() }) {
                return Err(CommandError::Usage("`names` select variants by themselves; leave out the other fields".to_owned()));
            }
            return names::resolve(grid, &self.names);
        }
        let usage = |message: String| CommandError::Usage(message);
        let any = self.features.as_deref().is_some_and(|words| words.trim() == ANY_FEATURES);
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
        let by_default = self.default_target(context);
        let selection = Selection {
            kinds: self.kinds.clone(),
            head_dims: self.head_dims.clone(),
            dtypes: self.dtypes.clone(),
            causal: self.causal,
            features,
            // A caller who names a shape means one kernel of it.
            prefers_plain: !(self.head_dims.is_empty() || any || self.all || self.set.is_some() || self.filter.is_some()),
            targets: self.resolved_targets(context)?,
            set: self.set.clone(),
            filter,
        };
        if let Some(default) = by_default {
            observer.note(&format!("only {}, by {}; `--target` takes others", targets_of(&selection), default.place));
        }
        let help = by_default.map_or_else(String::new, |default| {
            format!("\nhelp: {} takes {} alone; `--target` takes others", default.place, targets_of(&selection))
        });
        let selected = grid.select(&selection).map_err(|error| usage(format!("{error}{help}")))?;
        Ok(if features.is_some() { with_the_features(selected, observer) } else { selected })
    }

    /// Notes for people on a successful selection: a set with more names than the grid declares, the files that a GPU
    /// without its own target runs, and the GPUs whose files newer ones cannot load.
    pub(super) fn notes(&self, context: &Context, grid: &Grid, selected: &[Variant]) -> Vec<String> {
        let words = self.target_words(context);
        let plans: Vec<Plan> =
            if words.is_empty() { Vec::new() } else { selected.iter().filter_map(|variant| plan(grid, *variant).ok()).collect() };
        let gpus = words.iter().filter_map(|word| word.note(&plans));
        let places = words.iter().filter_map(TargetWord::places);
        self.note_on_set(grid).into_iter().chain(gpus).chain(places).collect()
    }

    /// The requested targets, or the default ones, without duplicates.
    fn resolved_targets(&self, context: &Context) -> Result<Vec<Target>, CommandError> {
        let targets = self.target_words(context).iter().map(TargetWord::target).collect::<Result<Vec<_>, _>>();
        let targets = targets.map_err(|error| match self.default_target(context) {
            Some(default) => CommandError::Environment(format!("{error}; or change {}", default.place)),
            None => error,
        })?;
        Ok(targets.into_iter().unique().collect())
    }

    fn target_words<'a>(&'a self, context: &'a Context) -> &'a [TargetWord] {
        self.default_target(context).map_or(&self.targets, |default| &default.words)
    }

    /// The default target, if fields narrow the selection and leave the target open. `all`, like an empty request, is
    /// the whole grid; sets and conditions name their targets themselves.
    fn default_target<'a>(&self, context: &'a Context) -> Option<&'a DefaultTarget> {
        let says_itself =
            !self.targets.is_empty() || self.is_by_name() || self.all || self.set.is_some() || self.filter.is_some();
        context.config.as_ref().and_then(|config| config.target.as_ref()).filter(|_| !says_itself && !self.is_empty())
    }

    fn note_on_set(&self, grid: &Grid) -> Option<String> {
        let set = grid.set(self.set.as_deref()?)?;
        let (size, declared) = (set.size? as usize, grid.members(set).count());
        let missing = size.checked_sub(declared).filter(|missing| *missing > 0)?;
        Some(format!("the set `{}` names {size} variants; the grid declares {declared} of them, {missing} not yet", set.name))
    }
}

/// Resolves `selection` and reports its notes.
///
/// # Errors
/// The errors of [`SelectionRequest::resolve`].
pub(super) fn resolve_with_notes(
    selection: &SelectionRequest,
    context: &Context,
    grid: &Grid,
    observer: &dyn Observer,
) -> Result<Vec<Variant>, CommandError> {
    let variants = selection.resolve(context, grid, observer)?;
    selection.notes(context, grid, &variants).iter().for_each(|note| observer.note(note));
    Ok(variants)
}

/// The targets of a selection, for messages.
fn targets_of(selection: &Selection) -> String {
    selection.targets.iter().map(|target| format!("`{target}`")).join(", ")
}

/// The variants whose templates support their features, with a note about the others; all of them if none does.
fn with_the_features(selected: Vec<Variant>, observer: &dyn Observer) -> Vec<Variant> {
    let lacks = |variant: &Variant| attention::Point::of(variant).is_some_and(attention::lacks_a_feature);
    let (lacking, made): (Vec<Variant>, Vec<Variant>) = selected.iter().copied().partition(lacks);
    if made.is_empty() || lacking.is_empty() {
        return selected;
    }
    let set = lacking[0].coordinates().features.unwrap_or_default();
    let kinds = lacking.iter().map(|variant| format!("`{}` on `{}`", variant.kind(), variant.target())).unique().join(", ");
    observer.note(&format!("left out, since there is no such kernel with `{set}`: {kinds}"));
    made
}
