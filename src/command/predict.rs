//! Predicted times of kernels on cards, without a GPU.

mod packed;

use super::{
    CommandError, Context, Observer, SelectionRequest,
    bench::{Shape, sizes},
    session,
    suite::{self, Suite, SuiteKernel},
};
use crate::{
    bench::{Estimate, Part, Size, Unit},
    family,
    files::path::lossy,
    grid::Grid,
    kernel::{Card, CardConstant, Kind, Variant},
    lab::{
        self, Row,
        predict::{self, Errors, Features, Held, Lesson, Model, Prediction, Validation},
    },
    plan::{Plan, runs_on},
    probe::File,
    text::ticked,
};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

/// Request of a prediction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants; without any, only [`validate`](Self::validate) does something.
    pub selection: SelectionRequest,
    /// The sizes; every combination of the values listed.
    pub shape: Shape,
    /// Keys of each sequence of a batch whose lengths differ, in place of the lengths and the batch of `shape`.
    pub lengths: Vec<u32>,
    /// Queries of each of these sequences; empty for as many as keys, of a decoding kernel for one.
    pub lengths_q: Vec<u32>,
    /// Name of a suite, which has its own kernels and sizes; the selection narrows it.
    pub suite: Option<String>,
    /// Names of cards, `h100`, `rtx-pro-6000`, or files that `kgen probe` has written.
    pub gpus: Vec<String>,
    /// Files of measured rows from which the model learns, in addition to those of the project.
    pub rows: Vec<PathBuf>,
    /// Report the errors for calls that the model has not seen, in place of predictions.
    pub validate: bool,
}

/// Outcome of a prediction.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// One prediction for each variant, size and card.
    pub calls: Vec<Call>,
    /// The cards with the numbers from which times are predicted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardNumbers>,
    /// Kernels without a prediction on a card.
    pub left_out: Vec<LeftOut>,
    /// What the files of rows taught.
    pub learned: Vec<Learned>,
    /// Errors, if they were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validation: Vec<Validation>,
    /// With them, the errors for measured batches of `rows` whose lengths differ; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed: Option<Errors>,
}

/// The numbers of a card.
#[derive(Debug, Serialize)]
pub struct CardNumbers {
    /// Name of the card.
    pub gpu: String,
    /// Name of the card that was probed, as its driver reports it; `None` if all numbers are those of data sheets.
    pub probed: Option<String>,
    /// When it was probed, UTC.
    pub date: Option<String>,
    /// The numbers.
    pub constants: Vec<CardConstant>,
}

impl CardNumbers {
    fn of(card: &Card) -> Self {
        let measured = card.measured.as_ref();
        Self {
            gpu: card.label(),
            probed: measured.map(|measured| measured.on.clone()),
            date: measured.map(|measured| measured.date.clone()),
            constants: card.constants(),
        }
    }
}

/// A kernel that does not run on a card, or whose time the model does not know.
#[derive(Debug, Serialize)]
pub struct LeftOut {
    /// Name of the kernel.
    pub name: String,
    /// Name of the card.
    pub gpu: String,
}

/// What a file of rows taught.
#[derive(Debug, Serialize)]
pub struct Learned {
    /// The file.
    #[serde(serialize_with = "lossy")]
    pub file: PathBuf,
    /// Its rows.
    pub rows: usize,
    /// Rows from which the model learned and which it did not know.
    pub lessons: usize,
}

/// A predicted call.
#[derive(Debug, Serialize)]
pub struct Call {
    /// Name of the kernel.
    pub name: String,
    /// The variant.
    #[serde(skip)]
    pub variant: Variant,
    /// Sizes.
    pub size: Size,
    /// Name of the card.
    pub gpu: String,
    /// The time.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// Microseconds by the plan alone, without a correction.
    pub estimate: f64,
    /// Least time that the card's peak rates allow, in microseconds.
    pub floor: f64,
    /// Floating-point operations per second at the predicted time, in 10^12.
    pub tflops: f64,
    /// Bytes that the call must move per second at the predicted time, in 10^9.
    pub gbs: Option<f64>,
    /// The unit that takes the longest.
    pub limit: Unit,
    /// Microseconds of each unit, by the plan alone. They overlap.
    pub parts: Vec<Part>,
    /// Blocks of the launch by blocks that run at once; 0 if unknown.
    pub waves: f64,
    /// Splits of each sequence, if the kernel splits the keys.
    pub splits: Option<u32>,
}

/// Predicts the times of the variants.
///
/// # Errors
/// [`CommandError::Usage`] if nothing is selected, a card is unknown, no variant runs on it, or a file teaches nothing.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    request.shape.refuse_out_of_range()?;
    request.refuse_lengths()?;
    let grid = context.grid()?;
    let mut lessons = predict::built_in().to_vec();
    let mut learned = Vec::new();
    let mut measured: Vec<Row> = Vec::new();
    for path in &request.rows {
        let (rows, found) = lessons_of_file(path, &grid)?;
        let count = rows.len();
        measured.extend(rows);
        let known: HashSet<String> = lessons.iter().map(Lesson::identity).collect();
        let fresh: Vec<Lesson> = found.into_iter().filter(|lesson| !known.contains(&lesson.identity())).collect();
        learned.push(Learned { file: path.clone(), rows: count, lessons: fresh.len() });
        lessons.extend(fresh);
    }
    if request.validate {
        let has_sizes = request.shape != Shape::default() || !request.lengths.is_empty();
        if !request.selection.is_empty() || has_sizes || request.suite.is_some() {
            let why = "the errors are those of all measured calls; leave out the selection and the sizes, or `--validate`";
            return Err(CommandError::Usage(why.to_owned()));
        }
        let packed = packed::summary(&packed::errors(&measured, &grid, &Model::learn(&lessons)));
        let validation = predict::validate(&lessons);
        return Ok(Outcome { cards: Vec::new(), calls: Vec::new(), left_out: Vec::new(), learned, validation, packed });
    }
    if request.selection.is_empty() && request.suite.is_none() {
        let why = "nothing is selected; name a variant, such as `flash_fwd_hdim128_bf16_sm90`, or a suite with `--suite`";
        return Err(CommandError::Usage(why.to_owned()));
    }
    let cards = cards(&request.gpus)?;
    let model = Model::learn(&lessons);
    let (mut calls, mut left_out) = (Vec::new(), Vec::new());
    for (variant, sizes, cards) in wanted(request, context, &grid, &cards, observer)? {
        let plan = session::plan(&grid, variant).map_err(CommandError::Usage)?;
        sizes.iter().try_for_each(refuse_beyond_memory)?;
        for card in cards {
            let runs = runs_on(variant.target(), card.capability, true);
            let lengths = request.lengths_of(variant);
            let of_size = |size: &Size| match &lengths {
                Some(lengths) => lengths.call(&plan, size, card, &model),
                None => call(&plan, size, card, &model),
            };
            let found: Vec<Call> = if runs { &sizes[..] } else { &[] }.iter().filter_map(of_size).collect();
            if found.is_empty() {
                left_out.push(LeftOut { name: variant.name(), gpu: card.label() });
            }
            calls.extend(found);
        }
    }
    if calls.is_empty() {
        let names: Vec<&str> = cards.iter().map(|card| card.name.as_str()).collect();
        let why = format!(
            "no selected kernel runs on {} and has a time of its own that the model knows; select others with `--target` \
             (kernels with a declared score or mask are not predicted)",
            ticked(&names)
        );
        return Err(CommandError::Usage(why));
    }
    let cards = cards.iter().map(CardNumbers::of).collect();
    Ok(Outcome { cards, calls, left_out, learned, validation: Vec::new(), packed: None })
}

/// A kernel, its sizes, and the cards that it is predicted for.
type Wanted<'a> = (Variant, Vec<Size>, &'a [Card]);

/// The kernels, each with its sizes and the cards that it is predicted for; of a suite, each card's newest kernels.
fn wanted<'a>(
    request: &Request,
    context: &Context,
    grid: &Grid,
    cards: &'a [Card],
    observer: &dyn Observer,
) -> Result<Vec<Wanted<'a>>, CommandError> {
    let Some(name) = &request.suite else {
        let sizes_of = |variant: Variant| {
            let is_timed = variant.dtype().is_some();
            let sizes = match request.lengths_of(variant) {
                _ if !is_timed => Vec::new(),
                Some(lengths) => lengths.sizes(&variant, &request.shape)?,
                None => sizes(&variant, &request.shape.wanted())?,
            };
            Ok((variant, sizes, cards))
        };
        return request.selection.resolve(context, grid, observer)?.into_iter().map(sizes_of).collect();
    };
    let suite = Suite::named(name)?;
    suite::refuse_sizes(&suite, &request.shape)?;
    let mut wanted = Vec::new();
    for card in cards {
        let runs = |target| runs_on(target, card.capability, true);
        let every = |variants: &[Variant]| Ok(vec![true; variants.len()]);
        let (kernels, missing) = suite.kernels(&request.selection, context, grid, &runs, &every)?;
        for missing in missing {
            observer.note(&format!("left out on {}: {missing}", card.name));
        }
        let of_card = |SuiteKernel { variant, sizes, .. }| (variant, sizes, std::slice::from_ref(card));
        wanted.extend(kernels.into_iter().map(of_card));
    }
    Ok(wanted)
}

/// The predictions of a plan at its usual sizes on cards; `None` if there is none.
pub(super) fn of_plan(plan: &Plan, cards: &[Card]) -> Option<Outcome> {
    let model = Model::learn(predict::built_in());
    let sizes = family::of(plan.variant.kind()).sizes(&plan.variant, &Shape::default().wanted());
    let of_card = |card| sizes.iter().filter_map(|size| call(plan, size, card, &model)).collect::<Vec<_>>();
    let calls: Vec<Call> = cards.iter().flat_map(of_card).collect();
    let (left_out, learned, validation) = (Vec::new(), Vec::new(), Vec::new());
    let cards = cards.iter().map(CardNumbers::of).collect();
    let outcome = Outcome { cards, calls, left_out, learned, validation, packed: None };
    (!outcome.calls.is_empty()).then_some(outcome)
}

/// The call of a plan at a size on a card; `None` if its kernel is not timed on its own.
pub(super) fn call(plan: &Plan, size: &Size, card: &Card, model: &Model) -> Option<Call> {
    let estimate = family::estimate(plan, size, card)?;
    Some(call_of(plan, size.clone(), size, estimate, card, model))
}

/// The call with this estimate, corrected as a call of the size `like`.
fn call_of(plan: &Plan, size: Size, like: &Size, estimate: Estimate, card: &Card, model: &Model) -> Call {
    let features = Features::of(plan, like, &estimate, card);
    let prediction = model.predict(&features, estimate.microseconds, estimate.floor_microseconds);
    Call {
        name: plan.variant.name(),
        variant: plan.variant,
        size,
        gpu: card.label(),
        prediction,
        estimate: estimate.microseconds,
        floor: estimate.floor_microseconds,
        tflops: estimate.work.flops / prediction.microseconds / 1e6,
        gbs: estimate.work.bytes.map(|bytes| bytes / prediction.microseconds / 1e3),
        limit: estimate.limit(),
        parts: estimate.parts,
        waves: estimate.waves,
        splits: estimate.splits,
    }
}

/// The card of this name, or of this file of `kgen probe`.
///
/// # Errors
/// [`CommandError::Usage`] if its numbers are unknown, or the file is not what `kgen probe` writes.
pub(super) fn card(name: &str) -> Result<Card, CommandError> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "toml") {
        return File::load(path).map(|file| file.card()).map_err(|error| CommandError::Usage(error.to_string()));
    }
    Card::named(name).ok_or_else(|| {
        CommandError::Usage(format!(
            "`{name}` is no card whose numbers are known, and no file of `kgen probe` (`NAME.toml`); known: {}",
            ticked(&Card::names())
        ))
    })
}

/// Refuses a matrix that no card's memory holds: its bytes may not fit into 64 bits.
fn refuse_beyond_memory(size: &Size) -> Result<(), CommandError> {
    const MOST_ELEMENTS: u128 = 1 << 40;
    let sides = ["rows", "columns"].map(|name| u128::from(size.get(name).unwrap_or(1)));
    if sides[0] * sides[1] <= MOST_ELEMENTS {
        return Ok(());
    }
    Err(CommandError::Usage(format!("`{size}` is more than 2^40 elements, which no card's memory holds; choose a smaller size")))
}

fn cards(names: &[String]) -> Result<Vec<Card>, CommandError> {
    if names.is_empty() {
        return Err(CommandError::Usage(format!("no card is named; known: {}", ticked(&Card::names()))));
    }
    let cards: Vec<Card> = names.iter().map(|name| card(name)).collect::<Result<_, _>>()?;
    Ok(cards.into_iter().unique_by(|card| card.name.clone()).collect())
}

/// Most rows of a file: the errors of held-out calls take the square of their number.
const MOST_ROWS: usize = 5000;

/// The rows of a file, and its lessons; see [`lesson`]. Batches of lengths that differ teach nothing, but have errors.
fn lessons_of_file(path: &PathBuf, grid: &Grid) -> Result<(Vec<Row>, Vec<Lesson>), CommandError> {
    let failed = |error: &dyn std::fmt::Display| CommandError::Usage(format!("`{}`: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    let rows = lab::parse(&path.display().to_string(), &text).map_err(|error| failed(&error))?.rows;
    if rows.len() > MOST_ROWS {
        return Err(failed(&format!(
            "it has {} rows, and at most {MOST_ROWS} are learned; `kgen db export --limit`",
            rows.len()
        )));
    }
    let plans = AllPlans::new(|variant| session::plan(grid, variant).ok());
    let of_row = |row: &Row| {
        let lesson = lesson(row, |variant, tile| plans.with_tile(variant, tile))?;
        Some(Lesson { tile: row.searched_tile().filter(|_| !plans.is_own(row)), ..lesson })
    };
    let lessons = with_held_out(rows.iter().filter_map(of_row).collect());
    if lessons.is_empty() && packed::errors(&rows, grid, &Model::learn(&[])).is_empty() {
        return Err(failed(&"it holds no row of `kgen bench` of a kernel with one of its tiles on a known card"));
    }
    Ok((rows, lessons))
}

/// Largest ratio of measured and estimated time, as a logarithm, from which something is learned: a factor of 20.
/// Beyond it the row is not about the time of a kernel.
const MOST_RATIO: f64 = 3.0;

/// Plans of a variant, each after its tile.
type ByTile = Vec<(Option<Value>, Plan)>;

/// Plans of variants with each of their tiles, made once.
pub(super) struct AllPlans<D> {
    /// The plan of a variant with its default tile.
    default: D,
    made: RefCell<HashMap<Variant, ByTile>>,
}

impl<D: Fn(Variant) -> Option<Plan>> AllPlans<D> {
    /// Those whose default tile is that of the plan that `default` makes.
    pub fn new(default: D) -> Self {
        Self { default, made: RefCell::default() }
    }

    /// True if the kernel of a row had its variant's own tile.
    fn is_own(&self, row: &Row) -> bool {
        let own = row.variant().and_then(|variant| tile_of(&(self.default)(variant)?));
        own.as_ref() == row.kernel.as_ref().and_then(|kernel| kernel.get("tile"))
    }

    /// The plan of a variant with a tile: its default's, or one of its candidates'.
    pub fn with_tile(&self, variant: Variant, tile: Option<&Value>) -> Option<Plan> {
        let mut made = self.made.borrow_mut();
        let plans = made.entry(variant).or_insert_with(|| {
            let others = family::candidates(variant).into_iter().flatten();
            (self.default)(variant).into_iter().chain(others).map(|plan| (tile_of(&plan), plan)).collect()
        });
        plans.iter().find(|(of_plan, _)| of_plan.as_ref() == tile).map(|(_, plan)| plan.clone())
    }
}

/// The tile of a plan, as rows have it.
fn tile_of(plan: &Plan) -> Option<Value> {
    serde_json::to_value(plan.tile()).ok()
}

/// The lesson of a row, with the `plan` of its variant and tile. Rows of peers, failures and tiles without a plan teach
/// nothing, nor do replays of graphs and caches in another state than `kgen bench` leaves them in.
pub fn lesson(row: &Row, plan: impl Fn(Variant, Option<&Value>) -> Option<Plan>) -> Option<Lesson> {
    let (variant, card) = (row.variant()?, Card::named(row.gpu())?);
    let is_cold = row.word("l2") == "cold";
    let is_as_usual = row.word("repeated") == "launch" && (is_cold || row.word("l2") == "warm");
    let is_attention = variant.head_dim().is_some() && variant.kind() != Kind::FwdSplit;
    let is_usual = row.own && row.foreign.is_none() && is_as_usual && !(is_attention && is_cold);
    let measured = row.median_us().filter(|_| is_usual)?;
    let plan = plan(variant, row.kernel.as_ref()?.get("tile"))?;
    let names = ["batch", "heads", "heads_k", "seqlen_q", "seqlen_k", "page_size", "rows", "columns"];
    let size = Size::new(names.into_iter().filter_map(|name| Some((name, row.shape.get(name)?.as_u64()?))));
    let estimate = family::estimate(&plan, &size, &card)?;
    if (measured / estimate.microseconds).ln().abs() > MOST_RATIO {
        return None;
    }
    let features = Features::of(&plan, &size, &estimate, &card);
    let head_dim = variant.head_dim().map_or(0, |head_dim| head_dim.qk);
    Some(Lesson::new(variant.name(), head_dim, &size, &card.name, features, [measured, estimate.microseconds]))
}

/// Predictions of the calls of measured rows.
pub(super) struct Forecast<'a> {
    grid: &'a Grid,
    model: Model<'static>,
    /// Held-out error of each built-in lesson, by kernel, size and card.
    held_out: HashMap<[&'static str; 3], f64>,
    /// The plan of each variant that a row had.
    plans: RefCell<HashMap<Variant, Option<Plan>>>,
}

impl<'a> Forecast<'a> {
    pub(super) fn of(grid: &'a Grid) -> Self {
        let lessons = predict::built_in();
        let key = |lesson: &'static Lesson| [lesson.kernel.as_str(), lesson.size.as_str(), lesson.card.as_str()];
        let held_out = lessons.iter().filter_map(|lesson| Some((key(lesson), lesson.held_out?))).collect();
        Self { grid, model: Model::learn(lessons), held_out, plans: RefCell::default() }
    }

    /// Microseconds of a row's call. The model does not predict what it has learned from: such a call has its measured
    /// time with the error of a model that has not.
    pub(super) fn of_row(&self, row: &Row) -> Option<f64> {
        let plan = |variant, tile: Option<&Value>| {
            let mut plans = self.plans.borrow_mut();
            let plan = plans.entry(variant).or_insert_with(|| session::plan(self.grid, variant).ok()).clone();
            plan.filter(|plan| tile_of(plan).as_ref() == tile)
        };
        let lesson = lesson(row, plan)?;
        let known = [lesson.kernel.as_str(), lesson.size.as_str(), lesson.card.as_str()];
        let error = self.held_out.get(&known).copied();
        let error = error.unwrap_or_else(|| self.model.correction(&lesson.group, &lesson.numbers) - lesson.ratio);
        Some(lesson.microseconds * error.exp())
    }
}

/// The lessons with their held-out errors.
pub fn with_held_out(mut lessons: Vec<Lesson>) -> Vec<Lesson> {
    let errors = [Held::Length, Held::HeadDim].map(|held| predict::held_out(&lessons, held));
    for (place, lesson) in lessons.iter_mut().enumerate() {
        let known = errors.iter().filter_map(|errors| errors[place]);
        let largest = known.max_by(|a, b| a.abs().total_cmp(&b.abs()));
        lesson.held_out = largest.map(|error| (error * 1e5).round() / 1e5);
    }
    lessons
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published rows from which the built-in lessons are made: files, and how the ids of their runs begin. Of
    /// `backward` those of Hopper's kernels: sm80's have no rows of another card at most head dims, so that the errors
    /// with a card held out would say little.
    const ROWS: [(&str, &str); 4] = [
        ("2026-11-27-timings-h200.jsonl", ""),
        ("2026-11-27-timings-h100.jsonl", ""),
        ("2026-11-28-backward-h200.jsonl", "79269de4"),
        ("2026-11-29-backward-wide-h200.jsonl", ""),
    ];

    fn published() -> Vec<Lesson> {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results");
        let plans = AllPlans::new(|variant| Plan::new(variant, None).ok());
        let lessons_of = |(name, run): &(&str, &str)| {
            let text = fs::read_to_string(results.join(name)).expect(name);
            let rows = lab::parse(name, &text).expect(name).rows;
            let rows = rows.iter().filter(|row| row.run_id().starts_with(run));
            rows.filter_map(|row| lesson(row, |variant, tile| plans.with_tile(variant, tile))).collect::<Vec<_>>()
        };
        with_held_out(ROWS.iter().flat_map(lessons_of).collect())
    }

    #[test]
    fn the_built_in_lessons_are_those_of_the_published_rows() {
        let lessons = published();
        if std::env::var_os("KGEN_UPDATE_LESSONS").is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lab/predict/lessons.jsonl");
            fs::write(path, predict::text_of(&lessons)).expect("writable");
            return;
        }
        let built_in = predict::built_in();
        let update = "a tile or the cost model has changed: run this test with KGEN_UPDATE_LESSONS=1";
        assert_eq!(lessons.len(), built_in.len(), "{update}");
        for (fresh, built_in) in lessons.iter().zip(built_in) {
            let near = |a: f64, b: f64| (a - b).abs() < 1e-3;
            let same = fresh.kernel == built_in.kernel && fresh.size == built_in.size && near(fresh.ratio, built_in.ratio);
            assert!(same && fresh.numbers.iter().zip(built_in.numbers).all(|(a, b)| near(*a, b)), "{update}: {fresh:?}");
        }
    }
}
