//! Explanation of a kernel: its tile and the reasons for it, neighbouring tiles, the resources that limit it, and its
//! measured times.

use super::{CommandError, Context, Observer, SelectionRequest, db, predict, session::Session};
use crate::{
    bench::{Size, Unit, Wanted},
    family::{self, Rung},
    kernel::{Card, Target, Variant},
    lab::{
        Condition, Record, Row, Standing, Status, Store,
        ladder::{Gain, Published, Switch, best, gains, published},
        predict::{Model, built_in},
        records_of,
        tune::TUNE,
    },
    plan::{Occupancy, Plan, runs_on},
    text::ticked,
};
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf};

/// Request of an explanation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The variants.
    pub selection: SelectionRequest,
    /// The store of measured times; `None` for the user's, if it exists.
    pub db: Option<PathBuf>,
    /// Name of a card for which times are predicted: of the kernel, and of the tiles beside it.
    pub gpu: Option<String>,
}

/// Outcome: one explanation for each variant.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Outcome {
    /// Explanations of the kernels, in the order of the variants.
    pub kernels: Vec<Explanation>,
}

/// A kernel explained.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// Name of the kernel.
    pub name: String,
    /// The variant.
    #[serde(skip)]
    pub variant: Variant,
    /// Template of the kernel, a file in `templates/`.
    pub template: &'static str,
    /// Tile of the kernel as text.
    pub tile: String,
    /// The rows of `tiles/` and of the grid that set the tile, in the order in which they apply.
    pub reasons: Vec<Reason>,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_memory_bytes: u32,
    /// Estimated registers of a thread.
    pub registers: u32,
    /// Blocks of a multiprocessor, and the resource that limits them.
    pub occupancy: Occupancy,
    /// Tiles that differ from this one in one key and have a plan, as [`family::candidates`] lists them.
    pub neighbours: Vec<Neighbour>,
    /// What the kernel has of the knowledge base, in the order of its numbers.
    pub optimisations: Vec<Optimisation>,
    /// The choices of the tile that `kgen tune --ladder` takes back, with their gains.
    pub ladder: Vec<Choice>,
    /// The predicted time of each usual size on the card of the request; none without a card, or if the kernel does not
    /// run there.
    pub predicted: Vec<Predicted>,
    /// Why there are no predicted times on the card of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpredicted: Option<String>,
    /// The latest measured time of each case.
    pub measured: Vec<Measured>,
}

/// A predicted time.
#[derive(Debug, Serialize)]
pub struct Predicted {
    /// Sizes.
    pub size: Size,
    /// Name of the card.
    pub gpu: String,
    /// Microseconds of a launch.
    pub microseconds: f64,
    /// The least time that the card's peak rates allow, as a fraction of the predicted one.
    pub of_peak: f64,
    /// The unit that takes the longest.
    pub limit: Unit,
}

/// A record of the knowledge base that the kernel's plan and source match.
#[derive(Debug, Serialize)]
pub struct Optimisation {
    /// Number of the record: `K-007`.
    pub id: &'static str,
    /// What it is.
    pub name: &'static str,
    /// Whether it makes kernels faster.
    pub status: Standing,
    /// Where it applies.
    pub when: &'static str,
    /// Why it has its effect.
    pub reason: &'static str,
    /// The measured effect, of the kernels, shapes and cards that were timed.
    pub measured: &'static str,
}

/// A choice of the tile, and what it gains.
#[derive(Debug, Serialize)]
pub struct Choice {
    /// The choice, and the kernel without it.
    #[serde(flatten)]
    pub switch: Switch,
    /// The gain on each card: of the store if it has one of the card, else of the rows that the project publishes.
    pub gains: Vec<Gain>,
    /// The reason why there is no such kernel, or why it was not timed.
    pub refused: Option<String>,
}

/// A row that sets keys of the tile.
#[derive(Debug, Serialize)]
pub struct Reason {
    /// The kernels that the row applies to; `None` for all kernels of the template.
    pub when: Option<String>,
    /// The keys it sets.
    pub keys: Vec<&'static str>,
    /// The reason; `None` for a row of the grid, whose record says what was measured.
    pub reason: Option<String>,
    /// The record of a measurement.
    pub measured: Option<String>,
}

/// A tile that differs in one key.
#[derive(Debug, Serialize)]
pub struct Neighbour {
    /// The key.
    pub key: String,
    /// Value of the key in this tile.
    pub value: Value,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_memory_bytes: u32,
    /// Estimated registers of a thread.
    pub registers: u32,
    /// Blocks of a multiprocessor, and the resource that limits them.
    pub occupancy: Occupancy,
    /// Median over the cases that both tiles have in the store of this tile's time by the default's: above 1 if the
    /// default is faster. `None` if no case was measured with both.
    pub time_ratio: Option<f64>,
    /// Geometric mean over the usual sizes of this tile's predicted time by the default's; `None` without a card.
    pub predicted_ratio: Option<f64>,
}

/// A measured time.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// The size, as `batch=8 heads=16`.
    pub size: String,
    /// The card.
    pub gpu: String,
    /// Date of the run, UTC.
    pub date: String,
    /// Median microseconds of a call.
    pub microseconds: f64,
    /// TFLOP/s at the median time.
    pub tflops: Option<f64>,
    /// The rate as a fraction of the card's peak: of its tensor cores, or for a memory-bound kernel of its memory.
    pub of_peak: Option<f64>,
    /// True if the kernel's source is still the same.
    pub current: bool,
}

/// Explains the variants.
///
/// # Errors
/// [`CommandError::Usage`] if nothing is selected or a variant has no plan.
pub fn run(request: &Request, context: &Context, observer: &dyn Observer) -> Result<Outcome, CommandError> {
    if request.selection.is_empty() {
        return Err(CommandError::Usage("nothing is selected; name a variant, such as `flash_fwd_hdim128_bf16_sm80`".to_owned()));
    }
    let forecast = request.gpu.as_deref().map(|name| predict::card(name).map(Forecast::on)).transpose()?;
    let session = Session::open(context)?;
    let variants = request.selection.resolve(context, &session.grid, observer)?;
    let path = db::path(request.db.as_deref())?;
    let store = if request.db.is_some() || path.exists() { Some(Store::open_to_read(&path)?) } else { None };
    let explained = |variant: &Variant| {
        let condition = Condition { kernels: vec![variant.name()], ..Condition::default() };
        let mut rows = store.as_ref().map(|store| store.rows(&condition)).transpose()?.unwrap_or_default();
        rows.retain(|row| !row.is_edited());
        explain(*variant, &session, &rows, forecast.as_ref())
    };
    variants.iter().map(explained).collect::<Result<_, _>>().map(|kernels| Outcome { kernels })
}

/// The explanation of a kernel without a store and without a card.
///
/// # Errors
/// [`CommandError::Usage`] if it has no plan.
pub(super) fn of_kernel(variant: Variant, session: &Session) -> Result<Explanation, CommandError> {
    explain(variant, session, &[], None)
}

/// A card, and what was learned of it.
struct Forecast {
    card: Card,
    model: Model<'static>,
}

impl Forecast {
    fn on(card: Card) -> Self {
        Self { card, model: Model::learn(built_in()) }
    }

    /// True if the kernel runs on the card.
    fn runs(&self, variant: Variant) -> bool {
        runs_on(variant.target(), self.card.capability, true)
    }

    /// The reason why no times of a kernel are predicted.
    fn refusal(&self, variant: Variant) -> String {
        let Card { name, capability, .. } = &self.card;
        if self.runs(variant) {
            return format!("no predicted times on `{name}`: the kernel is not timed by itself");
        }
        let targets: Vec<&str> =
            Target::ALL.iter().filter(|target| runs_on(**target, *capability, true)).map(|target| target.name()).collect();
        format!(
            "`{name}` cannot run this kernel: it is compiled for {}, and the card has compute capability {}.{}; it runs \
             kernels of {}",
            variant.target(),
            capability / 10,
            capability % 10,
            ticked(&targets)
        )
    }

    /// The predicted times of a plan at the usual sizes of its variant; none if it does not run on the card.
    fn of(&self, plan: &Plan) -> Vec<predict::Call> {
        let variant = plan.variant;
        if !self.runs(variant) {
            return Vec::new();
        }
        let sizes = family::of(variant.kind()).sizes(&variant, &Wanted::default());
        sizes.iter().filter_map(|size| predict::call(plan, size, &self.card, &self.model)).collect()
    }
}

/// Geometric mean of the ratios of two lists of predicted times.
fn mean_ratio(of: &[predict::Call], to: &[predict::Call]) -> Option<f64> {
    let logarithms = of.iter().zip(to).map(|(a, b)| (a.prediction.microseconds / b.prediction.microseconds).ln());
    (!of.is_empty() && of.len() == to.len()).then(|| (logarithms.sum::<f64>() / of.len() as f64).exp())
}

fn explain(variant: Variant, session: &Session, rows: &[Row], forecast: Option<&Forecast>) -> Result<Explanation, CommandError> {
    let plan = session.plan(variant).map_err(CommandError::Usage)?;
    let source = session.renderer.kernel(&plan)?;
    let default = tile(&plan);
    let predicted = |plan: &Plan| forecast.map_or_else(Vec::new, |forecast| forecast.of(plan));
    let of_default = predicted(&plan);
    let candidates = family::candidates(variant).map_err(|error| CommandError::Usage(error.to_string()))?;
    let neighbours = candidates.filter_map(|candidate| {
        let other = tile(&candidate);
        let (key, value) = other.iter().filter(|(key, value)| default.get(*key) != Some(*value)).exactly_one().ok()?;
        Some(Neighbour {
            key: key.clone(),
            value: value.clone(),
            shared_memory_bytes: candidate.shared_memory_bytes,
            registers: candidate.registers.total,
            occupancy: candidate.occupancy.clone(),
            time_ratio: time_ratio(rows, &default, &other),
            predicted_ratio: mean_ratio(&predicted(&candidate), &of_default),
        })
    });
    Ok(Explanation {
        name: variant.name(),
        variant,
        template: plan.template,
        tile: plan.tile().to_string(),
        reasons: reasons(variant, session),
        threads: plan.threads,
        shared_memory_bytes: plan.shared_memory_bytes,
        registers: plan.registers.total,
        occupancy: plan.occupancy.clone(),
        neighbours: neighbours.sorted_by_key(|neighbour| neighbour.key.clone()).collect(),
        ladder: family::rungs(&plan).into_iter().map(|rung| choice(rung, &variant, rows, &default, &source.hash)).collect(),
        measured: measured(rows, &default, &source.hash),
        optimisations: optimisations(&plan, &source.text),
        unpredicted: forecast.filter(|_| of_default.is_empty()).map(|forecast| forecast.refusal(variant)),
        predicted: of_default
            .iter()
            .map(|call| Predicted {
                size: call.size.clone(),
                gpu: call.gpu.clone(),
                microseconds: call.prediction.microseconds,
                of_peak: call.floor / call.prediction.microseconds,
                limit: call.limit,
            })
            .collect(),
    })
}

fn choice(rung: Rung, variant: &Variant, rows: &[Row], default: &Map<String, Value>, source: &str) -> Choice {
    let Rung { switch, from, to, tile: without, plan } = rung;
    let of_store = gains(rows, default, &without, source);
    let name = variant.name();
    let is_this = |one: &&Published| one.kernel == name && one.with == *default && one.without == without;
    let of_project = published().iter().filter(is_this).map(|one| one.gain.clone());
    let of_other_cards = of_project.filter(|gain| of_store.iter().all(|known| known.gpu != gain.gpu));
    let gains = best(of_store.iter().cloned().chain(of_other_cards), source);
    let failed = rows.iter().rev().find(|row| {
        let is_final = matches!(row.status, Status::Spilled | Status::Wrong | Status::Refused);
        row.bench == TUNE && is_final && tile_of(row) == Some(&without)
    });
    let failed = failed.filter(|_| gains.is_empty()).map(|row| format!("{}: {}", row.status, row.message));
    Choice { switch: Switch { switch: switch.to_owned(), from, to }, gains, refused: plan.err().or(failed) }
}

fn optimisations(plan: &Plan, source: &str) -> Vec<Optimisation> {
    let shown = |record: &'static Record| Optimisation {
        id: &record.id,
        name: &record.name,
        status: record.status,
        when: &record.when,
        reason: &record.mechanism,
        measured: &record.effect,
    };
    records_of(plan, source).into_iter().map(shown).collect()
}

/// The keys of a plan's tile.
fn tile(plan: &Plan) -> Map<String, Value> {
    match serde_json::to_value(plan.tile()) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    }
}

fn reasons(variant: Variant, session: &Session) -> Vec<Reason> {
    let of_files = family::of(variant.kind()).tile_rows(variant).into_iter().map(|row| Reason {
        when: row.filter.as_ref().map(ToString::to_string),
        keys: row.tile.keys().collect(),
        reason: row.reason.clone(),
        measured: row.measured.clone(),
    });
    let of_grid = session.grid.tile_override(&variant).map(|tile| Reason {
        when: session.grid.tile_place(&variant),
        keys: tile.keys().collect(),
        reason: None,
        measured: None,
    });
    of_files.chain(of_grid).collect()
}

/// The tile that a row's kernel had.
fn tile_of(row: &Row) -> Option<&Map<String, Value>> {
    row.kernel.as_ref()?.get("tile")?.as_object()
}

/// The latest row of each case whose kernel had this tile; `case` tells cases apart.
fn latest<'a>(rows: &'a [Row], of: &Map<String, Value>, case: fn(&Row) -> String) -> BTreeMap<String, &'a Row> {
    let of_tile = rows.iter().filter(|row| row.median_us().is_some() && tile_of(row) == Some(of));
    of_tile.map(|row| (case(row), row)).collect()
}

fn time_ratio(rows: &[Row], default: &Map<String, Value>, other: &Map<String, Value>) -> Option<f64> {
    let [of_default, of_other] = [default, other].map(|tile| latest(rows, tile, Row::comparable));
    let ratio = |(case, row): (&String, &&Row)| Some(row.median_us()? / of_default.get(case)?.median_us()?);
    let ratios: Vec<f64> = of_other.iter().filter_map(ratio).sorted_by(f64::total_cmp).collect();
    ratios.get(ratios.len() / 2).copied()
}

fn measured(rows: &[Row], default: &Map<String, Value>, source: &str) -> Vec<Measured> {
    let of_row = |row: &Row| {
        let peak = |name: &str| row.run.get("ceiling")?.get(name)?.as_f64();
        let rate = if row.dtype.as_deref() == Some("fp8") { "tflops_fp8" } else { "tflops_16_bit" };
        let of_tensor_cores = row.number("tflops").zip(peak(rate)).map(|(tflops, peak)| tflops / peak);
        let of_memory = row.number("gbs").zip(peak("memory_gbs")).map(|(gbs, peak)| gbs / peak);
        Some(Measured {
            size: row.size(),
            gpu: row.gpu().to_owned(),
            date: row.date().to_owned(),
            microseconds: row.median_us()?,
            tflops: row.number("tflops"),
            of_peak: of_memory.or(of_tensor_cores),
            current: row.kernel_fact("source") == source,
        })
    };
    let of_cases = latest(rows, default, Row::subject).into_values().filter_map(of_row);
    of_cases.sorted_by(|a, b| a.microseconds.total_cmp(&b.microseconds)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab;
    use std::{fs, path::Path};

    /// A mean or an end of an interval, with more digits than a timing has.
    fn rounded(number: f64) -> f64 {
        (number * 1e4).round() / 1e4
    }

    /// The gains by the published rows of the tuner, of the choices that kernels have now.
    fn fresh() -> Vec<Published> {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/results");
        let files = fs::read_dir(results).expect("docs/results").map(|entry| entry.expect("an entry").path());
        let of_tuner = |path: &PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let is_rows = path.extension().is_some_and(|ending| ending == "jsonl");
            is_rows && ["-tune-", "-ladder-"].iter().any(|word| name.contains(word))
        };
        let rows = files.filter(of_tuner).sorted().flat_map(|path| {
            let name = path.display().to_string();
            lab::parse(&name, &fs::read_to_string(&path).expect("a text")).expect("rows").rows
        });
        let kernels = rows.into_group_map_by(|row| row.kernel_name().to_owned()).into_iter().sorted_by(|(a, _), (b, _)| a.cmp(b));
        let of_kernel = |(kernel, rows): (String, Vec<Row>)| {
            let plan = rows.iter().find_map(Row::variant).and_then(|variant| Plan::new(variant, None).ok());
            let with = plan.as_ref().map(tile).unwrap_or_default();
            let of_rung = |rung: Rung| {
                let of_gain = |mut gain: Gain| {
                    gain.time.mean = rounded(gain.time.mean);
                    gain.time.interval = gain.time.interval.map(rounded);
                    Published { kernel: kernel.clone(), with: with.clone(), without: rung.tile.clone(), gain }
                };
                gains(&rows, &with, &rung.tile, "").into_iter().map(of_gain).collect::<Vec<_>>()
            };
            plan.iter().flat_map(family::rungs).flat_map(of_rung).collect::<Vec<_>>()
        };
        kernels.flat_map(of_kernel).collect()
    }

    #[test]
    fn the_published_gains_are_those_of_the_published_rows() {
        let fresh = fresh();
        if std::env::var_os("KGEN_UPDATE_LADDER").is_some() {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lab/ladder/published.jsonl");
            let lines = fresh.iter().map(|one| serde_json::to_string(one).expect("JSON") + "\n");
            fs::write(path, lines.collect::<String>()).expect("writable");
            return;
        }
        let update = "a tile or the published rows have changed: run this test with KGEN_UPDATE_LADDER=1";
        assert_eq!(fresh, published(), "{update}");
    }
}
