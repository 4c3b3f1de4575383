//! Search for the fastest tile of kernels: candidates are compiled, proved and timed, or read from a store.

mod ladder;
mod live;
mod ranked;
mod replayed;
mod space;
mod write;

pub use ladder::{Ladder, Step};

use super::{
    CommandError, Context, Observer, SelectionRequest,
    bench::Shape,
    limits::{self, within},
    session::Session,
    suite::{self, Suite},
};
use crate::{
    bench::Size,
    check::DEFAULT_SEED,
    family,
    grid::Grid,
    kernel::{Card, Variant},
    lab::{
        Status,
        tune::{Candidate, Confirmation, Failure, Found, Quality, Settings, Standing},
    },
    text::{count, ticked},
};
pub use ranked::{Ranked, Ranking, Tile};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use space::Space;
use std::{num::NonZeroUsize, path::PathBuf};

/// Request of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants.
    pub selection: SelectionRequest,
    /// The sizes that tiles are compared at; every combination of the values listed.
    pub shape: Shape,
    /// Name of a suite whose sizes tiles are compared at, in place of `shape`.
    pub suite: Option<String>,
    /// Lengths of the sizes that confirm a winner; empty for lengths between the tuned ones.
    pub held_out: Vec<u32>,
    /// Most tiles of a variant that are compiled, with the default.
    pub budget: u32,
    /// Most seconds of a variant's search.
    pub budget_s: u64,
    /// The card that times are predicted for, and in a replay the card of the rows; `None` for that of this machine, or
    /// the only one of the rows.
    pub gpu: Option<String>,
    /// Store whose rows are read in place of measuring.
    pub replay: Option<PathBuf>,
    /// Part of the variants.
    pub shard: Option<Shard>,
    /// Compare each winner with the fastest tile of a replayed store.
    pub quality: bool,
    /// Measure what each choice of a tile gains, in place of a search.
    pub ladder: bool,
    /// File for confirmed winners, as entries of `variants.toml`.
    pub write: Option<PathBuf>,
    /// Rounds of a timing.
    pub rounds: u32,
    /// Duration of launches before the first round, in milliseconds.
    pub warm_up_ms: u32,
    /// Duration of all rounds together, in milliseconds.
    pub measure_ms: u32,
    /// Seed of inputs and bootstrap samples.
    pub seed: u64,
    /// Parallel compilers; `None` for one per core.
    pub jobs: Option<NonZeroUsize>,
    /// The nvcc to use; `None` for the one in the environment, else kgen's own.
    pub nvcc: Option<PathBuf>,
    /// Never use the network.
    pub offline: bool,
    /// Prove candidates on the emulator in place of the GPU.
    pub prove_on_emulator: bool,
    /// Folder for the candidates' libraries.
    pub build_dir: PathBuf,
    /// The store that measurements are added to; `None` for the user's.
    pub db: Option<PathBuf>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            selection: SelectionRequest::default(),
            shape: Shape::default(),
            suite: None,
            held_out: Vec::new(),
            budget: 20,
            budget_s: 600,
            gpu: None,
            replay: None,
            shard: None,
            quality: false,
            ladder: false,
            write: None,
            rounds: 20,
            warm_up_ms: 10,
            measure_ms: 40,
            seed: DEFAULT_SEED,
            jobs: None,
            nvcc: None,
            offline: false,
            prove_on_emulator: false,
            build_dir: "build/tune".into(),
            db: None,
        }
    }
}

/// A part of the variants: number `index`, and every `of`th after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// From 1.
    pub index: u32,
    /// Number of parts.
    pub of: u32,
}

/// Outcome of searches.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The card.
    pub gpu: String,
    /// One search for each variant.
    pub searches: Vec<Search>,
    /// In place of searches, one ladder for each variant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ladders: Vec<Ladder>,
    /// Number of entries written.
    pub written: usize,
    /// True if the command was interrupted before all variants were searched.
    #[serde(skip)]
    pub interrupted: bool,
}

/// The search for a variant's tile.
#[derive(Debug, Serialize)]
pub struct Search {
    /// Name of the kernel.
    pub name: String,
    /// The variant.
    #[serde(skip)]
    pub variant: Variant,
    /// Number of tiles that could be measured, with the default: those with a plan, in a replay those with rows.
    pub candidates: usize,
    /// Sizes that tiles were compared at.
    pub tuned: Vec<Size>,
    /// Sizes that confirm the winner.
    pub held_out: Vec<Size>,
    /// Measured tiles, fastest first.
    pub measured: Vec<Measured>,
    /// Tiles without times.
    pub failed: Vec<Failed>,
    /// Number of tiles that were not measured because the budget or the time ended.
    pub cut: usize,
    /// The reason why tiles were not measured.
    pub truncated: Option<String>,
    /// Ratios that differ from 1 by at most this fraction are ties.
    pub floor: f64,
    /// The winner; `None` if the default could not be timed.
    pub winner: Option<Winner>,
    /// The default tile.
    pub default: Map<String, Value>,
    /// The winner against the default at held-out sizes; `None` if the default wins.
    pub confirmation: Option<Confirmation>,
    /// The winner against all tiles of a replayed store.
    pub quality: Option<Quality>,
    /// Seconds of compiling, proving and timing.
    pub spent_s: f64,
    /// `ok`; else the outcome of the default, without whose time there is no search: `absent` if a replayed store has
    /// no rows of it.
    pub status: Status,
    /// The reason why the default could not be timed.
    pub failure: Option<String>,
}

/// A measured tile.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// The keys in which it differs from the default.
    pub changes: String,
    /// Its predicted time by the default's.
    pub predicted: f64,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_memory_bytes: u32,
    /// Ratios.
    #[serde(flatten)]
    pub standing: Standing,
}

/// A tile without times.
#[derive(Debug, Serialize)]
pub struct Failed {
    /// The keys in which it differs from the default.
    pub changes: String,
    /// The outcome.
    pub status: Status,
    /// The reason.
    pub message: String,
}

/// The winner of a search.
#[derive(Debug, Serialize)]
pub struct Winner {
    /// The keys in which it differs from the default.
    pub changes: String,
    /// The tile.
    pub tile: Map<String, Value>,
    /// Id of the run that measured it last.
    pub run: String,
}

/// The sizes of a kernel: those that are tuned, and those that confirm a winner.
type Sizes<'a> = &'a dyn Fn(&Variant) -> Result<[Vec<Size>; 2], CommandError>;

/// The tiles of the variants in the order of their predicted times; nothing is measured.
///
/// # Errors
/// [`CommandError`] if the whole command stops.
pub fn rank(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Ranking, CommandError> {
    let (suite, session, variants) = request.open(context, observer)?;
    let sizes = |variant: &Variant| request.sizes(suite.as_ref(), variant, context, &session.grid);
    let ranking = ranked::run(request, &variants, &session, &sizes)?;
    if ranking.kernels.is_empty() {
        return Err(request.nothing_to_tune());
    }
    Ok(ranking)
}

/// Searches tiles of the variants.
///
/// # Errors
/// [`CommandError`] if the whole command stops. Variants whose default cannot be timed are in the outcome.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    let (suite, session, variants) = request.open(context, observer)?;
    let sizes = |variant: &Variant| request.sizes(suite.as_ref(), variant, context, &session.grid);
    let settings = Settings { budget: request.budget as usize, budget_s: request.budget_s as f64, seed: request.seed };
    if let Some(path) = &request.write {
        write::refuse_unwritable(path)?;
    }
    let live::Outcome { gpu, searches, ladders } = match &request.replay {
        Some(path) => {
            let (gpu, searches) = replayed::run(path, request, &variants, &settings, &session, &sizes)?;
            live::Outcome { gpu, searches, ladders: Vec::new() }
        }
        None => live::run(request, &variants, &settings, &session, &sizes, context, observer)?,
    };
    if searches.is_empty() && ladders.is_empty() && !context.cancel.requested() {
        return Err(request.nothing_to_tune());
    }
    let written = request.write.as_deref().map_or(Ok(0), |path| write::write(path, &searches, &gpu))?;
    Ok(Outcome { gpu, searches, ladders, written, interrupted: context.cancel.requested() })
}

impl Request {
    /// The suite, the project's state and the variants, after the request's own limits.
    fn open(&self, context: &Context, observer: &dyn Observer) -> Result<(Option<Suite>, Session, Vec<Variant>), CommandError> {
        self.refuse_out_of_range()?;
        let suite = self.suite.as_deref().map(Suite::named).transpose()?;
        suite.as_ref().map_or(Ok(()), |suite| suite::refuse_sizes(suite, &self.shape))?;
        let session = Session::open(context)?;
        let variants = self.selection.resolve(context, &session.grid, observer)?;
        let variants = self.shard.map_or_else(|| variants.clone(), |shard| shard.of(&variants));
        Ok((suite, session, variants))
    }

    fn nothing_to_tune(&self) -> CommandError {
        let why = match &self.suite {
            None => "none of the selected kernels has several tiles and a time of its own".to_owned(),
            Some(suite) => format!("none of the selected kernels has several tiles and a size in the suite `{suite}`"),
        };
        CommandError::Usage(format!("{why}; select attention kernels, such as `--kind fwd`"))
    }

    fn refuse_out_of_range(&self) -> Result<(), CommandError> {
        within("budget", self.budget.into(), &limits::CANDIDATES)?;
        within("budget_s", self.budget_s, &limits::SECONDS)?;
        within("rounds", self.rounds.into(), &limits::ROUNDS)?;
        within("warm_up_ms", self.warm_up_ms.into(), &limits::WARM_UP_MS)?;
        within("measure_ms", self.measure_ms.into(), &limits::MEASURE_MS)?;
        self.held_out.iter().try_for_each(|length| within("held_out", (*length).into(), &limits::SIZE))?;
        if let Some(Shard { index, of }) = self.shard
            && !(1..=of).contains(&index)
        {
            return Err(CommandError::Usage(format!("the shard {index}/{of} does not exist; shards of {of} are 1 to {of}")));
        }
        if self.quality && self.replay.is_none() {
            let why = "`quality` compares with the rows of all tiles, which only a store has; add `--replay`";
            return Err(CommandError::Usage(why.to_owned()));
        }
        if self.ladder && (self.replay.is_some() || self.write.is_some() || !self.held_out.is_empty()) {
            let why = "`ladder` measures the choices of a tile and finds no other; leave out `replay`, `write` and `held_out`";
            return Err(CommandError::Usage(why.to_owned()));
        }
        self.shape.refuse_out_of_range()
    }

    /// The sizes that tiles of a kernel are compared at, and those that confirm a winner; none if the suite has none.
    fn sizes(
        &self,
        suite: Option<&Suite>,
        variant: &Variant,
        context: &Context,
        grid: &Grid,
    ) -> Result<[Vec<Size>; 2], CommandError> {
        let shapes = match suite {
            None => vec![self.shape.clone()],
            Some(suite) => suite.shapes_of(variant, context, grid)?,
        };
        let tuned: Vec<Shape> = shapes.iter().map(space::tuned).collect();
        let held_out: Vec<Shape> = tuned.iter().map(|shape| space::held_out(shape, &self.held_out)).collect();
        let of = |shape: &Shape| family::of(variant.kind()).sizes(variant, &shape.wanted());
        let distinct = |shapes: &[Shape]| {
            let mut sizes: Vec<Size> = Vec::new();
            for size in shapes.iter().flat_map(of) {
                if !sizes.contains(&size) {
                    sizes.push(size);
                }
            }
            sizes
        };
        let [tuned, held_out] = [distinct(&tuned), distinct(&held_out)];
        if let Some(size) = held_out.iter().find(|size| tuned.contains(size)) {
            let why = "would be tuned on and confirm the winner too; name other lengths with `--held-out`";
            return Err(CommandError::Usage(format!("`{size}` {why}")));
        }
        Ok([tuned, held_out])
    }
}

impl Shard {
    /// The variants of this part.
    fn of(self, variants: &[Variant]) -> Vec<Variant> {
        variants.iter().skip(self.index as usize - 1).step_by(self.of as usize).copied().collect()
    }
}

impl Outcome {
    /// Fails if a default could not be timed, or the command was interrupted. Kernels that a replayed store has no rows
    /// of are no failure, unless it has none of any.
    ///
    /// # Errors
    /// [`CommandError::Failed`], [`CommandError::Interrupted`].
    pub fn verdict(&self) -> Result<(), CommandError> {
        if self.interrupted {
            return Err(CommandError::Interrupted("measurements are in the store; run the same command to resume".to_owned()));
        }
        let failed_ladders = self.ladders.iter().filter(|ladder| ladder.failure.is_some()).count();
        if failed_ladders > 0 {
            let all = count(self.ladders.len(), "ladder");
            return Err(CommandError::Failed(format!("{failed_ladders} of {all} failed")));
        }
        let without_result: Vec<&Search> = self.searches.iter().filter(|search| search.failure.is_some()).collect();
        let all = count(self.searches.len(), "search");
        match without_result.iter().filter(|search| search.status != Status::Absent).count() {
            0 if !self.searches.is_empty() && without_result.len() == self.searches.len() => {
                Err(CommandError::Failed(format!("none of {all} had the rows that it needs")))
            }
            0 => Ok(()),
            failed => Err(CommandError::Failed(format!("{failed} of {all} failed"))),
        }
    }
}

impl Search {
    /// The report on a search; `run` gives the run that measured a tile last.
    fn of(space: &Space, found: Result<Found, Failure>, run: impl Fn(&Candidate) -> String) -> Self {
        let Space { variant, candidates, tuned, held_out, .. } = space;
        let default = &candidates[0];
        let mut search = Self {
            name: variant.name(),
            variant: *variant,
            candidates: candidates.len(),
            tuned: tuned.clone(),
            held_out: held_out.clone(),
            measured: Vec::new(),
            failed: Vec::new(),
            cut: 0,
            truncated: None,
            floor: 0.0,
            winner: None,
            default: default.tile.clone(),
            confirmation: None,
            quality: None,
            spent_s: 0.0,
            status: Status::Ok,
            failure: None,
        };
        let found = match found {
            Ok(found) => found,
            Err(Failure { status, message }) => return Self { status, failure: Some(message), ..search },
        };
        let measured = |standing: Standing| Measured {
            changes: candidates[standing.place].changes(default),
            predicted: candidates[standing.place].predicted / default.predicted,
            shared_memory_bytes: candidates[standing.place].shared_memory_bytes,
            standing,
        };
        let failed = |(place, Failure { status, message }): (usize, Failure)| Failed {
            changes: candidates[place].changes(default),
            status,
            message,
        };
        let winner = &candidates[found.winner];
        search.measured = found.standings.into_iter().map(measured).collect();
        search.failed = found.failures.into_iter().map(failed).collect();
        search.winner = Some(Winner { changes: winner.changes(default), tile: winner.tile.clone(), run: run(winner) });
        Self {
            cut: found.cut,
            truncated: found.truncated,
            floor: found.floor,
            confirmation: found.confirmation,
            spent_s: found.spent_s,
            ..search
        }
    }
}

/// The card with a name.
///
/// # Errors
/// [`CommandError::Usage`] if its numbers are not known.
fn card(name: &str) -> Result<Card, CommandError> {
    Card::named(name).ok_or_else(|| {
        let known = ticked(&Card::names());
        CommandError::Usage(format!("`{name}` is no card whose numbers are known; name a similar one with `--gpu`: {known}"))
    })
}
