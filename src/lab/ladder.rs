//! What a choice of a tile gains: the time of the kernel without it by its time with it, in passes of the tuner that
//! timed both.

use super::{
    Row, Status,
    row::text,
    tune::{Evidence, Ratio, TUNE, tile_of},
};
use crate::check::DEFAULT_SEED;
use itertools::Itertools;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// The word for passes of a ladder in `details.suite`.
pub const LADDER: &str = "ladder";

/// A choice of a tile that was taken back: `details.ladder` of the rows without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// The key of `[[tile]]`.
    pub switch: String,
    /// The keys that change, with the values of the kernel's own tile.
    pub from: Map<String, Value>,
    /// The same keys without the choice.
    pub to: Map<String, Value>,
}

impl Switch {
    /// The choice that a row's kernel lacks; `None` if the row is not one of a ladder, or has the kernel's own tile.
    pub fn of(row: &Row) -> Option<Self> {
        serde_json::from_value(row.details.get(LADDER)?.clone()).ok()
    }

    /// The change as text: `m 192 to 128, warps 16 to 12`, the switch first.
    pub fn change(&self) -> String {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let keys = self.from.iter().sorted_by_key(|(key, _)| (**key != self.switch, *key));
        keys.map(|(key, from)| format!("{key} {} to {}", word(from), self.to.get(key).map(word).unwrap_or_default())).join(", ")
    }
}

impl Row {
    /// True if the kernel lacks a choice of its usual tile, so that its time is not one of the kernel itself.
    pub fn is_rung(&self) -> bool {
        self.details.contains_key(LADDER)
    }

    /// True if the row belongs to a ladder, as a kernel with its own tile or as one that lacks a choice.
    pub fn is_of_ladder(&self) -> bool {
        text(&self.details, "suite") == LADDER
    }
}

/// What a choice gains on a card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The card.
    pub gpu: String,
    /// Date of the latest run, UTC.
    pub date: String,
    /// The sizes, as `batch=8 heads=16`.
    pub sizes: Vec<String>,
    /// BLAKE3 of the text of the kernel with the choice.
    pub source: String,
    /// Time without the choice by the time with it: the geometric mean over the sizes, above 1 if the choice helps.
    pub time: Ratio,
}

/// A pass that timed a kernel with a choice and without it.
struct Pass {
    gpu: String,
    date: String,
    source: String,
    /// Microseconds with the choice and without it, by size.
    times: BTreeMap<String, [f64; 2]>,
}

/// The passes of the tuner among `rows`, which are those of one kernel, that timed it with the tile `with` and with the
/// tile `without`.
fn passes(rows: &[Row], with: &Map<String, Value>, without: &Map<String, Value>) -> Vec<Pass> {
    type Sides<'a> = [BTreeMap<String, &'a Row>; 2];
    let mut sides: BTreeMap<(&str, &str, u64), Sides<'_>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.bench == TUNE && row.own && row.foreign.is_none() && row.median_us().is_some()) {
        let (Some(pass), Some(tile)) = (row.details.get("pass").and_then(Value::as_u64), tile_of(row)) else { continue };
        let side = [with, without].into_iter().position(|side| side == tile);
        if let Some(side) = side {
            sides.entry((row.gpu(), row.run_id(), pass)).or_default()[side].insert(row.size_key(), row);
        }
    }
    let pass = |((gpu, ..), [with, without]): (&(&str, &str, u64), &Sides<'_>)| {
        let pair = |(size, row): (&String, &&Row)| Some((size.clone(), [row.median_us()?, without.get(size)?.median_us()?]));
        let times: BTreeMap<String, [f64; 2]> = with.iter().filter_map(pair).collect();
        let first = with.values().next()?;
        let is_whole = times.len() == with.len() && times.len() == without.len();
        is_whole.then(|| Pass {
            gpu: (*gpu).to_owned(),
            date: first.date().to_owned(),
            source: first.kernel_fact("source").to_owned(),
            times,
        })
    };
    sides.iter().filter_map(pass).collect()
}

/// Ratio over passes, at all sizes or at one.
fn ratio(passes: &[&Pass], size: Option<&str>) -> Option<Ratio> {
    let mut evidence = Evidence::default();
    for pass in passes {
        evidence.begin_pass();
        for side in [0, 1] {
            let at = pass.times.iter().filter(|(other, _)| size.is_none_or(|size| size == other.as_str()));
            let times: Vec<f64> = at.map(|(_, times)| times[side]).collect();
            evidence.add(side, &times);
        }
    }
    evidence.ratio(1, 0, DEFAULT_SEED)
}

/// What the choice of the tile `with` over `without` gains, by the rows of one kernel: of each card the passes at the
/// same sizes that are of the text `source`, or else the most, or else the latest.
pub fn gains(rows: &[Row], with: &Map<String, Value>, without: &Map<String, Value>, source: &str) -> Vec<Gain> {
    let passes = passes(rows, with, without);
    let key = |pass: &&Pass| (pass.gpu.clone(), pass.source.clone(), pass.times.keys().cloned().collect::<Vec<_>>());
    let gain = |((gpu, source, sizes), passes): ((String, String, Vec<String>), Vec<&Pass>)| {
        let date = passes.iter().map(|pass| pass.date.clone()).max()?;
        Some(Gain { gpu, date, sizes, source, time: ratio(&passes, None)? })
    };
    best(passes.iter().into_group_map_by(key).into_iter().filter_map(gain), source)
}

/// Of each card one of `gains`: of the text `source`, or else of the most passes, or else the latest.
pub fn best(gains: impl IntoIterator<Item = Gain>, source: &str) -> Vec<Gain> {
    let rank = |gain: &Gain| (gain.source == source, gain.time.passes, gain.date.clone(), gain.sizes.clone());
    let of_cards = gains.into_iter().into_group_map_by(|gain| gain.gpu.clone()).into_values();
    of_cards.filter_map(|gains| gains.into_iter().max_by_key(rank)).sorted_by(|a, b| a.gpu.cmp(&b.gpu)).collect()
}

/// A gain of a choice that the project publishes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Name of the kernel.
    pub kernel: String,
    /// The kernel's own tile.
    pub with: Map<String, Value>,
    /// The tile without the choice.
    pub without: Map<String, Value>,
    /// What it gains.
    #[serde(flatten)]
    pub gain: Gain,
}

/// The gains by the rows that the project publishes in `docs/results/`.
///
/// # Panics
/// If the file in the program is damaged; a test reads it.
pub fn published() -> &'static [Published] {
    static GAINS: LazyLock<Vec<Published>> = LazyLock::new(|| {
        let lines = include_str!("ladder/published.jsonl").lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("a line of published.jsonl: {error}")))
            .collect()
    });
    &GAINS
}

/// The ladder of a kernel on a card.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Name of the kernel.
    pub kernel: String,
    /// The card.
    pub gpu: String,
    /// Date of the latest run, UTC.
    pub date: String,
    /// The kernel without each of its choices, in the order of the keys.
    pub rungs: Vec<MeasuredRung>,
}

/// A kernel without one of its choices.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredRung {
    /// The choice.
    pub switch: Switch,
    /// Time without it by the time with it over all sizes, or the reason why there is none.
    pub time: Result<Ratio, (Status, String)>,
    /// The same at each size.
    pub by_size: Vec<(String, Ratio)>,
}

/// The ladders among `rows`, sorted by card and kernel: of each the runs that timed the latest text of the kernel.
pub fn ladders(rows: &[Row]) -> Vec<Measured> {
    let of_ladders = rows.iter().filter(|row| row.bench == TUNE && row.own && row.foreign.is_none() && row.is_of_ladder());
    let groups = of_ladders.into_group_map_by(|row| (row.gpu().to_owned(), row.kernel_name().to_owned()));
    groups
        .into_iter()
        .sorted_by(|(a, _), (b, _)| a.cmp(b))
        .filter_map(|((gpu, kernel), rows)| latest(gpu, kernel, &rows))
        .collect()
}

fn latest(gpu: String, kernel: String, rows: &[&Row]) -> Option<Measured> {
    let own = rows.iter().filter(|row| !row.is_rung() && row.median_us().is_some());
    let last = own.max_by_key(|row| (row.date(), row.run_id()))?;
    let (with, source, date) = (tile_of(last)?, last.kernel_fact("source"), last.date().to_owned());
    let of_text = rows.iter().filter(|row| !row.is_rung() && row.kernel_fact("source") == source);
    let ids: BTreeSet<&str> = of_text.map(|row| row.run_id()).collect();
    let rows: Vec<Row> = rows.iter().filter(|row| ids.contains(row.run_id())).map(|row| (*row).clone()).collect();
    let rung = |(switch, of_switch): (Switch, Vec<&Row>)| {
        let without = of_switch.iter().find_map(|row| tile_of(row))?;
        let passes = passes(&rows, with, without);
        let passes: Vec<&Pass> = passes.iter().collect();
        let sizes: BTreeSet<&String> = passes.iter().flat_map(|pass| pass.times.keys()).collect();
        let by_size = sizes.into_iter().filter_map(|size| {
            let at_size: Vec<&Pass> = passes.iter().copied().filter(|pass| pass.times.contains_key(size)).collect();
            Some((size.clone(), ratio(&at_size, Some(size))?))
        });
        let failed = of_switch.iter().find(|row| row.status != Status::Ok).map(|row| (row.status, row.message.clone()));
        let untimed = || (Status::Absent, "no pass timed it beside the kernel's own tile".to_owned());
        let time = failed.map_or_else(|| ratio(&passes, None).ok_or_else(untimed), Err);
        Some(MeasuredRung { by_size: if time.is_ok() { by_size.collect() } else { Vec::new() }, switch, time })
    };
    let mut switches: Vec<(Switch, Vec<&Row>)> = Vec::new();
    for row in &rows {
        let Some(switch) = Switch::of(row) else { continue };
        match switches.iter_mut().find(|(known, _)| *known == switch) {
            Some((_, of_switch)) => of_switch.push(row),
            None => switches.push((switch, vec![row])),
        }
    }
    let rungs = switches.into_iter().sorted_by(|(a, _), (b, _)| a.switch.cmp(&b.switch)).filter_map(rung).collect();
    Some(Measured { kernel, gpu, date, rungs })
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::row::tests::row, *};
    use serde_json::json;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    /// A row of a ladder at a length, with the kernel's own tile, or without its second stage.
    pub fn rung(pass: u64, length: u64, is_own: bool, microseconds: f64) -> Row {
        let mut row = row("a", "2026-11-28T00:00:00Z", microseconds);
        TUNE.clone_into(&mut row.bench);
        row.shape = map(&json!({ "batch": 1, "seqlen_q": length, "seqlen_k": length }));
        let kernel = row.kernel.as_mut().expect("a kernel");
        kernel.insert("tile".to_owned(), json!({ "n": 64, "stages": if is_own { 2 } else { 1 } }));
        kernel.insert("source".to_owned(), json!(if is_own { "own" } else { "other" }));
        row.details = map(&json!({ "suite": "ladder", "pass": pass }));
        if !is_own {
            row.details.insert(LADDER.to_owned(), json!({ "switch": "stages", "from": { "stages": 2 }, "to": { "stages": 1 } }));
        }
        row
    }

    /// Two passes at two lengths, in which one stage takes 1.1 and 1.3 times the time.
    pub fn rows() -> Vec<Row> {
        let of_pass = |pass: u64, drift: f64| {
            [
                rung(pass, 512, true, 10.0 * drift),
                rung(pass, 512, false, 11.0 * drift),
                rung(pass, 2048, true, 100.0 * drift),
                rung(pass, 2048, false, 130.0 * drift),
            ]
        };
        [of_pass(1, 1.0), of_pass(2, 1.5)].concat()
    }

    fn tile(stages: u64) -> Map<String, Value> {
        map(&json!({ "n": 64, "stages": stages }))
    }

    #[test]
    fn a_gain_is_the_mean_over_sizes_of_the_ratios_of_a_pass() {
        let [gain] = gains(&rows(), &tile(2), &tile(1), "own").try_into().expect("one card");
        assert!((gain.time.mean - (1.1_f64 * 1.3).sqrt()).abs() < 1e-12 && gain.time.passes == 2, "{gain:?}");
        assert_eq!(gain.sizes, ["batch=1 seqlen_k=2048 seqlen_q=2048", "batch=1 seqlen_k=512 seqlen_q=512"]);
        assert_eq!((gain.gpu.as_str(), gain.source.as_str()), ("NVIDIA H200", "own"));
        assert!(gains(&rows(), &tile(2), &tile(3), "own").is_empty(), "nothing has three stages");
        // A pass that lacks a size of one side is none, and times of other programs are no passes.
        let mut half = rows();
        half.remove(1);
        assert_eq!(gains(&half, &tile(2), &tile(1), "own")[0].time.passes, 1);
        let mut others = rows();
        for row in &mut others {
            "kgen bench".clone_into(&mut row.bench);
        }
        assert!(gains(&others, &tile(2), &tile(1), "own").is_empty());
    }

    #[test]
    fn of_several_measurements_the_one_of_the_same_text_counts_then_that_of_most_passes() {
        let gain = |source: &str, passes: usize, date: &str| Gain {
            gpu: "H".to_owned(),
            date: date.to_owned(),
            sizes: Vec::new(),
            source: source.to_owned(),
            time: Ratio { mean: 1.0, interval: [1.0, 1.0], passes },
        };
        let of = |source: &str| best([gain("a", 1, "2"), gain("b", 5, "1"), gain("b", 5, "2"), gain("c", 2, "3")], source);
        assert_eq!(of("a"), [gain("a", 1, "2")]);
        assert_eq!(of("new"), [gain("b", 5, "2")]);
    }

    #[test]
    fn ladders_have_their_rungs_by_size_and_the_reason_of_those_without_times() {
        let mut rows = rows();
        let mut refused = rung(0, 0, false, 1.0);
        (refused.status, refused.numbers, refused.message) = (Status::Refused, None, "it needs two".to_owned());
        refused.details.insert(LADDER.to_owned(), json!({ "switch": "n", "from": { "n": 64 }, "to": { "n": 48 } }));
        rows.push(refused);
        // An older ladder of another text does not count.
        let mut old = rung(1, 512, false, 99.0);
        old.run = map(&json!({ "id": "old", "date": "2026-11-01T00:00:00Z", "gpu": { "name": "NVIDIA H200" } }));
        rows.push(old);
        let [ladder] = ladders(&rows).try_into().expect("one kernel on one card");
        let [keys, stages] = &ladder.rungs[..] else { panic!("two rungs: {ladder:?}") };
        assert_eq!(keys.time, Err((Status::Refused, "it needs two".to_owned())));
        assert_eq!((keys.by_size.len(), keys.switch.change()), (0, "n 64 to 48".to_owned()));
        let means: Vec<f64> = stages.by_size.iter().map(|(_, ratio)| ratio.mean).collect();
        assert!((means[0] - 1.3).abs() < 1e-12 && (means[1] - 1.1).abs() < 1e-12 && stages.time.is_ok(), "{stages:?}");
    }

    #[test]
    fn a_change_names_the_switch_first() {
        let switch = Switch {
            switch: "m".to_owned(),
            from: map(&json!({ "m": 192, "turns": "products", "a": 16 })),
            to: map(&json!({ "m": 64, "turns": "none", "a": 8 })),
        };
        assert_eq!(switch.change(), "m 192 to 64, a 16 to 8, turns products to none");
    }

    #[test]
    fn the_published_gains_can_be_read() {
        assert!(published().iter().all(|one| one.gain.time.mean > 0.0 && one.with != one.without));
    }
}
