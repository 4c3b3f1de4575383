//! Suites: named lists of kernels and sizes with a plan of timing, from the files of `suites/`, which are embedded.

use super::{
    CommandError, Context, ScoreRequest, SelectionRequest,
    bench::{Shape, sizes},
};
use crate::{
    bench::Size,
    device::Counts,
    grid::Grid,
    kernel::{Target, Variant},
    text::{suggestion, ticked},
};
use include_dir::{Dir, include_dir};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt};

static SUITES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/suites");

/// A suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// The name: that of its file.
    #[serde(default)]
    pub name: String,
    /// What it asks.
    pub about: String,
    /// The plan of timing.
    #[serde(default)]
    pub timing: Timing,
    /// Kernels, each with sizes.
    pub points: Vec<SuitePoint>,
}

/// A plan of timing; what is missing is as without a suite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timing {
    /// Rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Milliseconds of launches before the first round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up_ms: Option<u32>,
    /// Milliseconds of all rounds together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measure_ms: Option<u32>,
    /// Exact number of calls before the first one that counts; with `runs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_ups: Option<u32>,
    /// Exact number of calls that count; with `warm_ups`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
    /// Replay CUDA graphs.
    pub graph: bool,
}

impl Timing {
    /// The exact counts, if there are any.
    pub(super) fn counts(&self) -> Option<Counts> {
        let (warm_ups, runs) = (self.warm_ups? as usize, self.runs? as usize);
        Some(Counts { warm_ups, runs })
    }
}

/// Kernels of a suite and their sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuitePoint {
    /// The name.
    pub name: String,
    /// The kernels, for every target.
    pub select: SelectionRequest,
    /// The sizes; every combination of the values listed.
    pub shape: Shape,
}

/// A kernel of a suite.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SuiteKernel {
    /// Name of its point.
    pub point: String,
    pub variant: Variant,
    pub sizes: Vec<Size>,
}

/// Which of some kernels there are.
type Has<'a> = &'a dyn Fn(&[Variant]) -> Result<Vec<bool>, CommandError>;

/// A point of a suite, or one of its kernels, that cannot be timed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    /// Name of the point.
    pub point: String,
    /// Name of the kernel; empty if the grid has none.
    pub kernel: String,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, kernel, why } = self;
        write!(f, "`{point}`: ")?;
        if kernel.is_empty() { write!(f, "{why}") } else { write!(f, "`{kernel}`: {why}") }
    }
}

/// All suites, sorted by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listing {
    /// The suites.
    pub suites: Vec<Suite>,
}

/// All suites.
///
/// # Errors
/// [`CommandError::Failed`] if this kgen was built with a suite that cannot be read.
pub fn list() -> Result<Listing, CommandError> {
    let files = SUITES.files().sorted_by_key(|file| file.path()).filter_map(|file| {
        let name = file.path().file_stem()?.to_str()?;
        Some((name, file.contents_utf8()?))
    });
    let read = |(name, text): (&str, &str)| {
        let suite: Suite = toml::from_str(text).map_err(|error| CommandError::Failed(format!("the suite `{name}`: {error}")))?;
        Ok(Suite { name: name.to_owned(), ..suite })
    };
    Ok(Listing { suites: files.map(read).collect::<Result<_, CommandError>>()? })
}

impl Suite {
    /// The sizes of the points that select a kernel.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if a point cannot be resolved in this grid.
    pub(super) fn shapes_of(&self, variant: &Variant, context: &Context, grid: &Grid) -> Result<Vec<Shape>, CommandError> {
        let mut shapes = Vec::new();
        for point in &self.points {
            let request = SelectionRequest { all: true, ..point.select.clone() };
            if request.resolve(context, grid, &())?.contains(variant) {
                shapes.push(point.shape.clone());
            }
        }
        Ok(shapes)
    }

    /// The suite of this name.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if there is none.
    pub(super) fn named(name: &str) -> Result<Self, CommandError> {
        let suites = list()?.suites;
        let names: Vec<String> = suites.iter().map(|suite| suite.name.clone()).collect();
        suites.into_iter().find(|suite| suite.name == name).ok_or_else(|| {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            let meant = suggestion(name, &known).map_or_else(String::new, |meant| format!("; {meant}"));
            CommandError::Usage(format!("there is no suite `{name}`{meant}; known: {}", ticked(&known)))
        })
    }

    /// The suite's kernels that `narrowed` selects too, for one target each: of those that `runs` accepts, the newest
    /// that `has`, or each that `narrowed` names. What is left without a kernel is reported.
    ///
    /// # Errors
    /// [`CommandError::Usage`] if `narrowed` selects nothing, or nothing of the suite.
    pub(super) fn kernels(
        &self,
        narrowed: &SelectionRequest,
        context: &Context,
        grid: &Grid,
        runs: &dyn Fn(Target) -> bool,
        has: Has<'_>,
    ) -> Result<(Vec<SuiteKernel>, Vec<Missing>), CommandError> {
        let kept = kept(narrowed, context, grid)?;
        let (mut kernels, mut missing) = (Vec::new(), Vec::new());
        let mut points_kept = 0;
        for point in &self.points {
            let request = SelectionRequest { all: true, targets: narrowed.targets.clone(), ..point.select.clone() };
            let found = match request.resolve(context, grid, &()) {
                Ok(found) => found,
                Err(error) => {
                    missing.push(Missing { point: point.name.clone(), kernel: String::new(), why: error.to_string() });
                    continue;
                }
            };
            let found: Vec<Variant> = found.into_iter().filter(|variant| kept(variant)).collect();
            points_kept += usize::from(!found.is_empty());
            let held = has(&found)?;
            let usable = |(variant, held): (&Variant, bool)| held && runs(variant.target());
            let usable: BTreeSet<Variant> = found.iter().zip(held).filter(|(v, h)| usable((v, *h))).map(|(v, _)| *v).collect();
            for same in found.iter().map(of_any_target).unique() {
                let of_same = |variant: &&Variant| of_any_target(variant) == same;
                let mut there: Vec<Variant> = usable.iter().filter(of_same).copied().collect();
                there.sort_by_key(Variant::target);
                if narrowed.targets.is_empty() && narrowed.names.is_empty() {
                    there.drain(..there.len().saturating_sub(1));
                }
                if there.is_empty() {
                    let wanted = found.iter().filter(of_same).filter(|v| runs(v.target())).max_by_key(|v| v.target());
                    let why = if wanted.is_some() { "it is not in the library" } else { "it does not run on this card" };
                    let shown = wanted.or_else(|| found.iter().find(of_same)).map(Variant::name).unwrap_or_default();
                    missing.push(Missing { point: point.name.clone(), kernel: shown, why: why.to_owned() });
                }
                for variant in there {
                    let sizes = sizes(&variant, &point.shape.wanted())?;
                    kernels.push(SuiteKernel { point: point.name.clone(), variant, sizes });
                }
            }
        }
        if points_kept == 0 && missing.is_empty() {
            return Err(CommandError::Usage(format!("the selection leaves nothing of the suite `{}`", self.name)));
        }
        Ok((kernels, missing))
    }
}

/// A kernel without its target.
fn of_any_target(variant: &Variant) -> impl Eq + std::hash::Hash + Clone + use<> {
    let at = variant.coordinates();
    (variant.kind(), at.head_dim, at.dtype, at.causal, at.features)
}

/// True for the variants that a user's selection leaves of a suite.
fn kept(narrowed: &SelectionRequest, context: &Context, grid: &Grid) -> Result<impl Fn(&Variant) -> bool + use<>, CommandError> {
    let SelectionRequest { names, kinds, head_dims, dtypes, causal, features, score, targets: _, set, filter, all: _ } = narrowed;
    let by_grid =
        !names.is_empty() || features.is_some() || set.is_some() || filter.is_some() || *score != ScoreRequest::default();
    let resolved = by_grid
        .then(|| {
            let request = if names.is_empty() { SelectionRequest { all: true, ..narrowed.clone() } } else { narrowed.clone() };
            request.resolve(context, grid, &()).map(|variants| variants.into_iter().collect::<BTreeSet<_>>())
        })
        .transpose()?;
    let (kinds, head_dims, dtypes, causal) = (kinds.clone(), head_dims.clone(), dtypes.clone(), *causal);
    Ok(move |variant: &Variant| {
        let at = variant.coordinates();
        resolved.as_ref().is_none_or(|resolved| resolved.contains(variant))
            && (kinds.is_empty() || kinds.contains(&variant.kind()))
            && (head_dims.is_empty() || at.head_dim.is_some_and(|head_dim| head_dims.contains(&head_dim)))
            && (dtypes.is_empty() || at.dtype.is_some_and(|dtype| dtypes.contains(&dtype)))
            && causal.is_none_or(|causal| at.causal == Some(causal))
    })
}

/// Refuses sizes and words of targets that contradict a suite.
///
/// # Errors
/// [`CommandError::Usage`].
pub(super) fn refuse_sizes(suite: &Suite, shape: &Shape) -> Result<(), CommandError> {
    if *shape == Shape::default() {
        return Ok(());
    }
    Err(CommandError::Usage(format!("the sizes are those of the suite `{}`; leave them out, or the suite", suite.name)))
}

#[cfg(test)]
mod tests {
    use super::{super::names, *};

    fn suites() -> Vec<Suite> {
        list().expect("they read").suites
    }

    #[test]
    fn every_suite_resolves_to_kernels_of_the_built_in_grid() {
        let context = Context::default();
        let grid = context.grid().expect("the grid");
        let names: Vec<String> = suites().into_iter().map(|suite| suite.name).collect();
        assert_eq!(names, ["decode", "grid", "models", "numerics", "short", "t4"]);
        for suite in suites() {
            let every = |found: &[Variant]| Ok(vec![true; found.len()]);
            let sm90 = |target: Target| target <= Target::Sm90;
            let (kernels, missing) =
                suite.kernels(&SelectionRequest::default(), &context, &grid, &sm90, &every).expect("a selection");
            assert_eq!(missing, [], "{}", suite.name);
            assert!(kernels.iter().all(|kernel| !kernel.sizes.is_empty()), "{}", suite.name);
            let points: BTreeSet<&str> = kernels.iter().map(|kernel| kernel.point.as_str()).collect();
            assert_eq!(points.len(), suite.points.len(), "{}: names of points are unique, and none is empty", suite.name);
        }
    }

    #[test]
    fn a_selection_narrows_a_suite_and_what_is_not_there_is_named() {
        let context = Context::default();
        let grid = context.grid().expect("the grid");
        let suite = Suite::named("models").expect("it is there");
        let nothing = |found: &[Variant]| Ok(vec![false; found.len()]);
        let narrowed = SelectionRequest { kinds: vec![crate::kernel::Kind::Bwd], ..SelectionRequest::default() };
        let sm90 = |target: Target| target <= Target::Sm90;
        let (kernels, missing) = suite.kernels(&narrowed, &context, &grid, &sm90, &nothing).expect("a selection");
        assert!(kernels.is_empty());
        let named: Vec<&str> = missing.iter().map(|missing| missing.point.as_str()).collect();
        assert_eq!(named, ["gpt2_small", "gpt2_medium", "gpt2_large", "gpt3", "llama3_8b"]);
        assert_eq!(missing[0].kernel, "flash_bwd_hdim64_bf16_causal_sm90");
        let [one] = names::resolve(&grid, &["flash_bwd_hdim128_bf16_causal_sm90".to_owned()]).expect("a kernel")[..] else {
            panic!("one name is one kernel");
        };
        let lengths = suite.shapes_of(&one, &context, &grid).expect("they resolve");
        assert_eq!(lengths.iter().map(|shape| shape.seqlen[0]).collect::<Vec<_>>(), [2048, 8192]);
        let error = Suite::named("model").expect_err("no suite").to_string();
        assert!(error.contains("`models`"), "{error}");
    }
}
