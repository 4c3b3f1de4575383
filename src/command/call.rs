//! The dispatcher's choice for a call on a card, without a GPU: the paths that it weighs, their predicted times by
//! part, why others are excluded, which part decides, and what was measured of their kernels.

use super::{CommandError, Context, Observer, SelectionRequest, db, helpers, limits, predict, session::plan_all};
use crate::{
    bench::Size,
    device::{self, Candidate, DTYPE_BF16, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2, DTYPE_FP16, Dispatcher},
    grid::Grid,
    kernel::{Card, Dtype, GPUS, HeadDim, Kind, Variant},
    lab::{
        Condition, Row, Status, Store,
        predict::{Model, built_in},
    },
    plan::{Plan, runs_on},
    render,
    text::ticked,
};
use serde::{Deserialize, Serialize};
use std::{fmt::Write, io::ErrorKind, path::PathBuf};

/// Element type of an FP8 cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvDtype {
    /// E4M3.
    E4m3,
    /// E5M2.
    E5m2,
}

/// Request of an explanation of a choice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The call's head dim, element type and mask, one of each; kinds, targets, set and filter select the kernels that
    /// the library holds.
    pub selection: SelectionRequest,
    /// Name of the card.
    pub gpu: String,
    /// Sequences.
    pub batch: u32,
    /// Query heads.
    pub heads: u32,
    /// Key heads; `None` for as many as query heads.
    pub heads_k: Option<u32>,
    /// Queries of a sequence, of the longest one if lengths differ.
    pub seqlen_q: u32,
    /// Keys of a sequence, of the longest one if lengths differ.
    pub seqlen_k: u32,
    /// Queries of all sequences, whose numbers differ; 0 if the caller does not pass the total.
    pub total_q: Option<u32>,
    /// Keys of all sequences, whose numbers differ; 0 if the caller does not pass the total.
    pub total_k: Option<u32>,
    /// Rows of a page, if K and V are paged.
    pub page_size: Option<u32>,
    /// Element type of K and V, if it is not that of Q.
    pub kv_dtype: Option<KvDtype>,
    /// Keys to the left and to the right of a query's own that it sees; -1 for no limit.
    pub window: Option<[i32; 2]>,
    /// Splits as the caller asks for them; 0 leaves them to the dispatcher.
    pub num_splits: u32,
    /// The store of measured times; `None` for the user's, if it exists.
    pub db: Option<PathBuf>,
}

/// Outcome: what the dispatcher weighs, and its choice.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Name of the card.
    pub gpu: String,
    /// Number of kernels in the library that is asked.
    pub kernels: usize,
    /// The candidates in the dispatcher's order.
    pub candidates: Vec<Weighed>,
    /// Index of the chosen one.
    pub chosen: usize,
    /// Why it is chosen.
    pub reason: String,
}

/// A way to compute the call.
#[derive(Debug, Serialize)]
pub struct Weighed {
    /// Name of the path.
    pub path: &'static str,
    /// Most splits of a sequence; 1: not split.
    pub num_splits: u32,
    /// The kernel that computes attention; `None` if the library holds none for the card.
    pub kernel: Option<String>,
    /// Why the path cannot be taken.
    pub excluded: Option<String>,
    /// Bytes of workspace.
    pub workspace_bytes: u64,
    /// The predicted times; `None` if nothing is predicted.
    pub microseconds: Option<Times>,
    /// True if the last block of each row tile merges the partial results.
    pub by_last_block: bool,
    /// The kernel's time alone, as `kgen predict` has it; `None` for unequal lengths, windows and other splits.
    pub learned: Option<Learned>,
    /// Measured times of the kernel alone, at this size on this card.
    pub measured: Vec<Measured>,
}

/// The predicted time of a path in microseconds, and its parts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// All kernels of the path.
    pub predicted: f64,
    /// Launching the kernel that computes attention.
    pub launch: f64,
    /// Its query tiles, without their steps over the keys.
    pub tile: f64,
    /// The steps of one resident block, in sequence. Chain, step and memory overlap.
    pub chain: f64,
    /// The units of a multiprocessor, with the steps of all its blocks.
    pub step: f64,
    /// Device memory or L2, with all bytes.
    pub memory: f64,
    /// Merging partial results.
    pub combine: f64,
    /// `prepare_scheduler`.
    pub scheduler: f64,
}

/// A time that was learned from measurements.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Learned {
    /// Microseconds.
    pub microseconds: f64,
    /// Where 9 of 10 times are.
    pub interval: [f64; 2],
}

/// A measured time.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Median microseconds of a call.
    pub microseconds: f64,
    /// Date of the run, UTC; `None` for rows that the project publishes.
    pub date: Option<String>,
}

/// Names of the paths, by their numbers in `kgen.h`.
const PATHS: [&str; 6] = ["dense", "short", "split", "scheduled", "mixed", "packed"];

/// Kinds whose kernels compute attention for a forward call.
const FORWARD: [Kind; 3] = [Kind::Fwd, Kind::FwdShort, Kind::FwdSplit];

/// Most splits of a call.
const MOST_SPLITS: u64 = 256;

/// The parts that overlap.
const OVERLAPPED: &str = "chain, step and memory together";

/// `KGEN_FLAG_CAUSAL` and `KGEN_FLAG_WINDOW`.
const CAUSAL: i32 = 1;
const WINDOW: i32 = 4;

/// Asks the dispatcher of a library with the selected kernels.
///
/// # Errors
/// [`CommandError::Usage`] if the card is unknown, or the call is impossible or one that the dispatcher or this request
/// cannot express; [`CommandError::Environment`] if there is no C++ compiler.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let call = Call::of(request)?;
    // Each takes about as long as the other.
    let (asked, evidence) = rayon::join(|| ask(&call, context, observer), || Evidence::of(&call));
    let (plans, answer) = asked?;
    let chosen = usize::try_from(answer.chosen).ok().filter(|chosen| *chosen < answer.candidates.len());
    let Some(chosen) = chosen else { return Err(CommandError::Usage(refusal(&answer))) };
    let evidence = evidence?;
    let candidates = answer.candidates.iter().map(|candidate| evidence.weighed(candidate, &plans)).collect();
    let reason = reason(&answer.candidates, chosen);
    Ok(Outcome { gpu: call.card.name.clone(), kernels: plans.len(), candidates, chosen, reason })
}

/// The plans of the library for a call, and the answer of its dispatcher. No kernel is rendered, so only the
/// dispatcher's templates are parsed.
fn ask(call: &Call<'_>, context: &Context, observer: &dyn Observer) -> Result<(Vec<Plan>, device::Choice), CommandError> {
    let (grid, templates) = (context.grid()?, context.templates()?);
    let plans = plan_all(&grid, &library(call, context, &grid, observer)?, None)?;
    let text = render::dispatcher(&templates, &plans)?;
    let headers = templates.include_files();
    let host = || context.host_compiler();
    let dispatcher = Dispatcher::compiled(&context.cache_dir()?, headers, &text, host, &context.cancel)?;
    let answer = dispatcher.ask(&call.numbers());
    answer.map(|answer| (plans, answer)).map_err(|error| match error.kind() {
        ErrorKind::Interrupted => CommandError::INTERRUPTED,
        _ => CommandError::Environment(format!(
            "the dispatcher gives no answer: {error}; `kgen cache prune --days 0` removes its program, and the next call makes \
             it anew"
        )),
    })
}

fn refusal(answer: &device::Choice) -> String {
    let why = answer.error.as_deref().unwrap_or("no path can be taken");
    let why = why.strip_prefix("kgen_explain_choice: ").unwrap_or(why);
    let of_path = |candidate: &Candidate| Some(format!("\n  {}: {}", path(candidate), candidate.excluded.as_deref()?));
    let paths: String = answer.candidates.iter().filter_map(of_path).collect();
    format!("the dispatcher refuses this call: {why}{paths}")
}

/// The variants of the library that is asked: those of the call's head dim and element type that run on the card, and
/// their helpers. The dispatcher looks at no others.
fn library(call: &Call<'_>, context: &Context, grid: &Grid, observer: &dyn Observer) -> Result<Vec<Variant>, CommandError> {
    let selection = &call.request.selection;
    let strangers: Vec<&str> = selection.kinds.iter().filter(|kind| !FORWARD.contains(kind)).map(|kind| kind.name()).collect();
    if !strangers.is_empty() {
        return Err(CommandError::Usage(format!(
            "{} computes no forward call; choose among {}",
            ticked(&strangers),
            ticked(&FORWARD.map(Kind::name))
        )));
    }
    let kinds = if selection.kinds.is_empty() { FORWARD.to_vec() } else { selection.kinds.clone() };
    let of_call = SelectionRequest {
        kinds,
        causal: None,
        features: Some(super::ANY_FEATURES.to_owned()),
        // Otherwise the default target of `kgen.toml` would leave out the card's own.
        all: selection.targets.is_empty(),
        ..selection.clone()
    };
    let mut variants = of_call.resolve(context, grid, observer)?;
    variants.retain(|variant| runs_on(variant.target(), call.card.capability, true));
    if variants.is_empty() {
        let Call { card, head_dim, dtype, .. } = call;
        return Err(CommandError::Usage(format!(
            "no selected kernel of head dim {head_dim} and `{dtype}` runs on `{}`; choose another card, dtype or `--target`",
            card.name
        )));
    }
    Ok(helpers::complete(grid, variants, &()))
}

/// A valid call on a card.
struct Call<'a> {
    request: &'a Request,
    card: Card,
    head_dim: HeadDim,
    dtype: Dtype,
    heads_k: u32,
}

impl<'a> Call<'a> {
    fn of(request: &'a Request) -> Result<Self, CommandError> {
        let usage = |message: String| Err(CommandError::Usage(message));
        let Request { selection, batch, heads, seqlen_q, seqlen_k, num_splits, .. } = request;
        let SelectionRequest { names, head_dims, dtypes, features, score, .. } = selection;
        if !names.is_empty() || features.is_some() || *score != super::ScoreRequest::default() {
            return usage(
                "a call here has pages, an FP8 cache or a window, but no variant names, other `features` or scores; leave them \
                 out, or ask `kgen_explain_choice` of a library, which takes every call"
                    .to_owned(),
            );
        }
        let ([head_dim], [dtype]) = (&head_dims[..], &dtypes[..]) else {
            return usage(
                "a call has one head dim and one element type; name both, such as `--head-dim 128 --dtype bf16`".to_owned(),
            );
        };
        if *head_dim == HeadDim::LATENT {
            return usage(format!(
                "head dim `{head_dim}` needs queries of two parts (`qv`), and a call here has one; ask `kgen_explain_choice` of a \
                 library, which takes every call"
            ));
        }
        let heads_k = request.heads_k.unwrap_or(*heads);
        let sizes =
            [("batch", *batch), ("heads", *heads), ("heads_k", heads_k), ("seqlen_q", *seqlen_q), ("seqlen_k", *seqlen_k)];
        for (name, size) in sizes.into_iter().chain(request.page_size.map(|size| ("page_size", size))) {
            limits::within(name, size.into(), &limits::SIZE)?;
        }
        if heads % heads_k != 0 {
            return usage(format!(
                "{heads} query heads are no multiple of {heads_k} key heads, and each key head serves equally many; change `heads` or \
                 `heads_k`"
            ));
        }
        limits::within("num_splits", (*num_splits).into(), &(0..=MOST_SPLITS))?;
        for (name, total, longest) in [("total_q", request.total_q, *seqlen_q), ("total_k", request.total_k, *seqlen_k)] {
            let most = (u64::from(*batch) * u64::from(longest)).min(i32::MAX as u64);
            if let Some(total) = total.filter(|total| *total != 0) {
                // The longest length may be an upper bound, as in a CUDA graph that is replayed with other lengths.
                limits::within(name, total.into(), &(1..=most))?;
            }
        }
        if request.window.is_some_and(|sides| sides.iter().any(|side| *side < -1)) {
            return usage("a side of `window` is below -1; -1 is no limit".to_owned());
        }
        let card = predict::card(&request.gpu)?;
        Ok(Self { request, card, head_dim: *head_dim, dtype: *dtype, heads_k })
    }

    /// The card and the call as the dispatcher's program takes them.
    fn numbers(&self) -> Vec<(&'static str, i32)> {
        let Self { request, card, head_dim, dtype, heads_k } = self;
        let shared = GPUS.iter().find(|gpu| gpu.capability == card.capability).map_or(0, |gpu| gpu.shared_memory_per_block);
        let dtype = match dtype {
            Dtype::Fp16 => DTYPE_FP16,
            Dtype::Bf16 => DTYPE_BF16,
            Dtype::Fp8 => DTYPE_FP8_E4M3,
            Dtype::Fp32 => device::DTYPE_FP32,
        };
        let kv_dtype = request.kv_dtype.map_or(0, |kv_dtype| match kv_dtype {
            KvDtype::E4m3 => DTYPE_FP8_E4M3,
            KvDtype::E5m2 => DTYPE_FP8_E5M2,
        });
        let causal = if request.selection.causal == Some(true) { CAUSAL } else { 0 };
        let window = if request.window.is_some() { WINDOW } else { 0 };
        let [left, right] = request.window.unwrap_or_default();
        let sizes = [
            ("capability", card.capability),
            ("multiprocessors", card.multiprocessors),
            ("shared_bytes", shared),
            ("dram_gbs", card.dram_gbs),
            ("l2_bytes", card.l2_mb << 20),
            ("batch", request.batch),
            ("heads", request.heads),
            ("heads_k", *heads_k),
            ("seqlen_q", request.seqlen_q),
            ("seqlen_k", request.seqlen_k),
            ("head_dim", head_dim.qk),
            ("head_dim_v", head_dim.v),
            ("unequal_q", request.total_q.is_some().into()),
            ("unequal_k", request.total_k.is_some().into()),
            ("total_q", request.total_q.unwrap_or(0)),
            ("total_k", request.total_k.unwrap_or(0)),
            ("page_size", request.page_size.unwrap_or(0)),
            ("num_splits", request.num_splits),
        ];
        let words = [
            ("dtype", dtype),
            ("kv_dtype", kv_dtype),
            ("flags", causal | window),
            ("window_left", left),
            ("window_right", right),
        ];
        sizes.into_iter().map(|(name, size)| (name, size.cast_signed())).chain(words).collect()
    }

    /// The size as `kgen bench` has it; `None` if its calls are not like this one.
    fn size(&self) -> Option<Size> {
        let Request { batch, heads, seqlen_q, seqlen_k, page_size, total_q, total_k, window, .. } = self.request;
        if total_q.is_some() || total_k.is_some() || window.is_some() {
            return None;
        }
        let sizes =
            [("batch", *batch), ("heads", *heads), ("heads_k", self.heads_k), ("seqlen_q", *seqlen_q), ("seqlen_k", *seqlen_k)];
        let sizes = sizes.into_iter().chain(page_size.map(|size| ("page_size", size)));
        Some(Size::new(sizes.map(|(name, size)| (name, size.into()))))
    }
}

/// What is known of the kernels at the call's size besides the dispatcher's prediction.
struct Evidence<'a> {
    card: &'a Card,
    size: Option<Size>,
    store: Option<Store>,
    model: Option<Model<'static>>,
}

impl<'a> Evidence<'a> {
    fn of(call: &'a Call<'_>) -> Result<Self, CommandError> {
        let named = &call.request.db;
        let path = db::path(named.as_deref())?;
        let is_there = named.is_some() || path.exists();
        let store = is_there.then(|| Store::open_to_read(&path)).transpose()?;
        let size = call.size();
        let model = size.as_ref().map(|_| Model::learn(built_in()));
        Ok(Self { card: &call.card, size, store, model })
    }

    fn weighed(&self, candidate: &Candidate, plans: &[Plan]) -> Weighed {
        let kernel = candidate.variant.as_deref();
        let plan = kernel.and_then(|kernel| plans.iter().find(|plan| plan.variant.name() == kernel));
        let (learned, measured) = plan.and_then(|plan| self.of_plan(plan, candidate)).unwrap_or_default();
        Weighed {
            path: path(candidate),
            num_splits: candidate.num_splits,
            kernel: candidate.variant.clone(),
            excluded: candidate.excluded.clone(),
            workspace_bytes: candidate.workspace_bytes,
            microseconds: (candidate.predicted_ns > 0.0).then(|| Times::of(candidate)),
            by_last_block: candidate.by_last_block,
            learned,
            measured,
        }
    }

    /// The learned time and the measured times of a candidate's kernel.
    fn of_plan(&self, plan: &Plan, candidate: &Candidate) -> Option<(Option<Learned>, Vec<Measured>)> {
        let (size, model) = (self.size.as_ref()?, self.model.as_ref()?);
        // A mixed or scheduled path launches its kernel on a part of the sequences, or with other splits for each.
        if !["dense", "short", "packed", "split"].contains(&path(candidate)) {
            return None;
        }
        let name = plan.variant.name();
        let call = predict::call(plan, size, self.card, model);
        let as_timed = call.filter(|call| call.splits.is_none_or(|splits| splits == candidate.num_splits));
        let learned = as_timed
            .as_ref()
            .map(|call| Learned { microseconds: call.prediction.microseconds, interval: call.prediction.interval });
        let size_text = size.to_string();
        let is_published =
            |kernel: &str, of_size: &str, card: &str| kernel == name && of_size == size_text && card == self.card.name;
        let published = built_in().iter().filter(|lesson| is_published(&lesson.kernel, &lesson.size, &lesson.card));
        let published =
            published.filter(|_| as_timed.is_some()).map(|lesson| Measured { microseconds: lesson.microseconds, date: None });
        let stored = self.stored(plan, size, candidate).unwrap_or_default();
        Some((learned, stored.into_iter().chain(published).collect()))
    }

    /// The latest row of the store with this kernel, size and card.
    fn stored(&self, plan: &Plan, size: &Size, candidate: &Candidate) -> Option<Vec<Measured>> {
        let condition = Condition { kernels: vec![plan.variant.name()], statuses: vec![Status::Ok], ..Condition::default() };
        let rows = self.store.as_ref()?.rows(&condition).ok()?;
        let tile = serde_json::to_value(plan.tile()).ok()?;
        let is_same = |row: &&Row| {
            let names = ["batch", "heads", "heads_k", "seqlen_q", "seqlen_k", "page_size"];
            let card = Card::named(row.gpu()).is_some_and(|card| card == *self.card);
            let splits = splits_of(row).is_none_or(|splits| splits == u64::from(candidate.num_splits));
            let tile = row.kernel.as_ref().and_then(|kernel| kernel.get("tile")) == Some(&tile);
            let sizes = names.iter().all(|name| row.shape.get(*name).and_then(serde_json::Value::as_u64) == size.get(name));
            row.own && row.foreign.is_none() && row.word("repeated") == "launch" && card && splits && tile && sizes
        };
        let latest = rows.iter().filter(is_same).max_by(|a, b| a.date().cmp(b.date()))?;
        Some(vec![Measured { microseconds: latest.median_us()?, date: Some(latest.date().to_owned()) }])
    }
}

/// The splits of a row of a kernel that splits the keys.
fn splits_of(row: &Row) -> Option<u64> {
    row.numbers.as_ref()?.get("num_splits")?.as_u64()
}

impl Times {
    fn of(candidate: &Candidate) -> Self {
        let us = |nanoseconds: f64| nanoseconds / 1e3;
        Self {
            predicted: us(candidate.predicted_ns),
            launch: us(candidate.launch_ns),
            tile: us(candidate.tile_ns),
            chain: us(candidate.chain_ns),
            step: us(candidate.step_ns),
            memory: us(candidate.memory_ns),
            combine: us(candidate.combine_ns),
            scheduler: us(candidate.scheduler_ns),
        }
    }

    /// What remains of the time without the parts that overlap with nothing: chain, step and memory together.
    fn overlapped(&self) -> f64 {
        self.predicted - self.launch - self.tile - self.combine - self.scheduler
    }

    /// The longest of the parts that overlap.
    fn longest(&self) -> &'static str {
        let parts = [("chain", self.chain), ("step", self.step), ("memory", self.memory)];
        parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or("", |(name, _)| name)
    }
}

fn path(candidate: &Candidate) -> &'static str {
    usize::try_from(candidate.path).ok().and_then(|path| PATHS.get(path)).copied().unwrap_or("unknown")
}

/// A candidate as a sentence names it.
fn named(candidate: &Candidate) -> String {
    match candidate.num_splits {
        1 => path(candidate).to_owned(),
        splits => format!("{} with {splits} splits", path(candidate)),
    }
}

/// Why the chosen candidate is chosen: the parts of its time, compared with those of the next candidate and, if that is
/// the same path with other splits, with those of the next path.
fn reason(candidates: &[Candidate], chosen: usize) -> String {
    let best = &candidates[chosen];
    let others = candidates.iter().enumerate().filter(|(place, other)| *place != chosen && other.excluded.is_none());
    let mut others: Vec<&Candidate> = others.map(|(_, other)| other).collect();
    others.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
    let Some(next) = others.first() else { return format!("{} is the only path that can be taken", named(best)) };
    let next_path = others.iter().find(|other| other.path != best.path).filter(|other| other.path != next.path);
    let lines = [next].into_iter().chain(next_path).map(|other| compared(best, other));
    lines.collect::<Vec<_>>().join("\n")
}

/// Times of two candidates, and the part with the largest difference.
fn compared(best: &Candidate, other: &Candidate) -> String {
    let (a, b) = (Times::of(best), Times::of(other));
    let parts = [
        ("launch", a.launch, b.launch),
        ("tile", a.tile, b.tile),
        (OVERLAPPED, a.overlapped(), b.overlapped()),
        ("combine", a.combine, b.combine),
        ("scheduler", a.scheduler, b.scheduler),
    ];
    let mut names = [best, other].map(named);
    if names[0] == names[1] {
        // Two tiles of one path.
        names = [best, other].map(|candidate| format!("`{}`", candidate.variant.as_deref().unwrap_or("unknown")));
    }
    let mut text = format!("{} is predicted to take {:.2} µs, {} {:.2} µs", names[0], a.predicted, names[1], b.predicted);
    let decisive = parts.into_iter().max_by(|x, y| (x.2 - x.1).total_cmp(&(y.2 - y.1)));
    let Some((part, less, more)) = decisive.filter(|(_, less, more)| more > less) else { return text };
    // Writing into a string cannot fail.
    write!(text, "; most is saved in {part}: {less:.2} µs, not {more:.2}").ok();
    if part == OVERLAPPED {
        let [of_best, of_other] = [a.longest(), b.longest()];
        let not = if of_best == of_other { String::new() } else { format!(", not {of_other}") };
        write!(text, " ({of_best} is the longest{not})").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(path: i32, [launch, chain, combine]: [f64; 3]) -> Candidate {
        Candidate {
            path,
            num_splits: if path == 2 { 8 } else { 1 },
            variant: None,
            excluded: None,
            workspace_bytes: 0,
            predicted_ns: launch + chain + combine,
            launch_ns: launch,
            tile_ns: 0.0,
            chain_ns: chain,
            step_ns: 0.0,
            memory_ns: 0.0,
            combine_ns: combine,
            scheduler_ns: 0.0,
            by_last_block: false,
        }
    }

    #[test]
    fn the_part_that_decides_is_the_one_with_the_largest_difference() {
        let (dense, split) = (candidate(0, [1000.0, 50_000.0, 0.0]), candidate(2, [3000.0, 9000.0, 4000.0]));
        let said = reason(&[dense.clone(), split.clone()], 1);
        assert!(said.contains("split with 8 splits is predicted to take 16.00 µs, dense 51.00 µs"), "{said}");
        assert!(
            said.contains("most is saved in chain, step and memory together: 9.00 µs, not 50.00 (chain is the longest)"),
            "{said}"
        );
        let short = candidate(1, [500.0, 50_000.0, 0.0]);
        assert!(reason(&[dense.clone(), short], 1).contains("; most is saved in launch: 0.50 µs, not 1.00"));
        let fewer = Candidate { num_splits: 4, predicted_ns: 17_000.0, combine_ns: 5000.0, ..split.clone() };
        let said = reason(&[dense.clone(), fewer, split.clone()], 2);
        let (splits, path) = said.split_once('\n').expect("two lines");
        assert!(
            splits.contains("split with 4 splits 17.00 µs; most is saved in combine") && path.contains("dense 51.00 µs"),
            "{said}"
        );
        let excluded = Candidate { excluded: Some("no room".to_owned()), ..split };
        assert_eq!(reason(&[dense, excluded], 0), "dense is the only path that can be taken");
    }
}
