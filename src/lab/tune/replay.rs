//! A measurer that reads rows in place of measuring.

use super::{Candidate, Failure, Measurer, Suite, search::absent};
use crate::{
    bench::Size,
    lab::{Row, Status, row::object},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The tile that the kernel of a row had.
pub fn tile_of(row: &Row) -> Option<&Map<String, Value>> {
    row.kernel.as_ref()?.get("tile")?.as_object()
}

/// Milliseconds that the timing plan of a row's run takes; 0 if it is not stated.
fn plan_ms(row: &Row) -> f64 {
    let ms = |name: &str| row.run.get("plan").and_then(|plan| plan.get(name)).and_then(Value::as_f64).unwrap_or_default();
    ms("warm_up_ms") + ms("measure_ms")
}

/// Rows of one kernel on one card, read in their order; those of a tile and size are read again from the first once all
/// were read.
#[derive(Debug)]
pub struct Replay<'a> {
    tuned: &'a [Size],
    held_out: &'a [Size],
    /// Rows by tile and size; failures without a size have an empty one.
    rows: BTreeMap<(String, String), Vec<&'a Row>>,
    /// How many rows of a tile and size were read.
    read: BTreeMap<(String, String), usize>,
    /// Draws rows and rounds in place of reading them in order.
    resampled: Option<ChaCha8Rng>,
    spent_s: f64,
}

impl<'a> Replay<'a> {
    /// A replay of these rows at the sizes of two suites.
    pub fn new(rows: impl IntoIterator<Item = &'a Row>, tuned: &'a [Size], held_out: &'a [Size]) -> Self {
        let mut by_case: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            if let Some(tile) = tile_of(row) {
                by_case.entry((text(tile), row.size_key())).or_default().push(row);
            }
        }
        Self { tuned, held_out, rows: by_case, read: BTreeMap::new(), resampled: None, spent_s: 0.0 }
    }

    /// This replay, but each reading draws a row of the tile and size, and then rounds of that row, with replacement.
    #[must_use]
    pub fn resampled(mut self, seed: u64) -> Self {
        self.resampled = Some(ChaCha8Rng::seed_from_u64(seed));
        self
    }

    /// The first failure of a tile that excludes it from timing.
    fn failure(&self, tile: &str) -> Option<&'a Row> {
        let of_tile = self.rows.iter().filter(|((other, _), _)| other == tile).flat_map(|(_, rows)| rows);
        of_tile.copied().find(|row| matches!(row.status, Status::Spilled | Status::Wrong | Status::Refused))
    }

    /// Seconds that a row states under a name.
    fn seconds(row: &Row, name: &str) -> Option<f64> {
        row.details.get(name).and_then(Value::as_f64)
    }

    /// The next row of a tile at a size.
    fn next(&mut self, tile: &str, size: &Size) -> Option<&'a Row> {
        let key = (tile.to_owned(), size_key(size));
        let rows = self.rows.get(&key)?;
        if let Some(random) = &mut self.resampled {
            return Some(rows[random.random_range(0..rows.len())]);
        }
        let read = self.read.entry(key).or_default();
        *read += 1;
        Some(rows[(*read - 1) % rows.len()])
    }

    /// Time of a row: its median, or with resampling that of rounds drawn from it.
    fn time_of(&mut self, row: &Row) -> Option<f64> {
        let median = row.median_us()?;
        let rounds = row.numbers.as_ref().and_then(|numbers| numbers.get("round_microseconds")?.as_array().cloned());
        let rounds: Vec<f64> = rounds.unwrap_or_default().iter().filter_map(Value::as_f64).collect();
        match &mut self.resampled {
            Some(random) if !rounds.is_empty() => {
                let mut drawn: Vec<f64> = rounds.iter().map(|_| rounds[random.random_range(0..rounds.len())]).collect();
                drawn.sort_by(f64::total_cmp);
                Some(drawn[drawn.len() / 2])
            }
            _ => Some(median),
        }
    }

    /// Mean over the tuned sizes of the logarithm of a candidate's mean time in all rows; `None` if a size has none or
    /// the candidate failed.
    pub fn exhaustive(&self, candidate: &Candidate) -> Option<f64> {
        let tile = text(&candidate.tile);
        if self.failure(&tile).is_some() {
            return None;
        }
        let mean = |size: &Size| {
            let rows = self.rows.get(&(tile.clone(), size_key(size)))?;
            let times: Vec<f64> = rows.iter().filter_map(|row| Some(row.median_us()?.ln())).collect();
            (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
        };
        let means: Option<Vec<f64>> = self.tuned.iter().map(mean).collect();
        means.map(|means| means.iter().sum::<f64>() / means.len().max(1) as f64)
    }
}

impl Measurer for Replay<'_> {
    fn prepare(&mut self, candidates: &[&Candidate]) -> Vec<Result<u32, Failure>> {
        let mut answer = |candidate: &&Candidate| {
            let tile = text(&candidate.tile);
            let of_tile: Vec<&Row> =
                self.rows.iter().filter(|((other, _), _)| *other == tile).flat_map(|(_, rows)| rows).copied().collect();
            let Some(first) = of_tile.first() else { return Err(absent("the store has no row of this tile")) };
            let stated = |name: &str| of_tile.iter().find_map(|row| Self::seconds(row, name)).unwrap_or_default();
            self.spent_s += stated("compile_s") + stated("prove_s");
            if let Some(row) = self.failure(&tile) {
                return Err(Failure { status: row.status, message: row.message.clone() });
            }
            let registers = first.kernel.as_ref().and_then(|kernel| kernel.get("registers")?.as_u64());
            Ok(registers.and_then(|registers| u32::try_from(registers).ok()).unwrap_or(candidate.registers))
        };
        candidates.iter().map(&mut answer).collect()
    }

    fn time(&mut self, candidate: &Candidate, suite: Suite) -> Result<Vec<f64>, Failure> {
        let tile = text(&candidate.tile);
        let sizes = match suite {
            Suite::Tuned => self.tuned,
            Suite::HeldOut => self.held_out,
        };
        let mut times = Vec::new();
        for size in sizes {
            let row = self.next(&tile, size).ok_or_else(|| absent(&format!("the store has no row of `{size}`")))?;
            self.spent_s += Self::seconds(row, "seconds").unwrap_or_else(|| plan_ms(row) / 1000.0);
            let median = self.time_of(row);
            times.push(median.ok_or_else(|| Failure { status: row.status, message: row.message.clone() })?);
        }
        Ok(times)
    }

    fn cut(&mut self, _candidate: &Candidate, _why: &str) {}

    fn spent_s(&self) -> f64 {
        self.spent_s
    }

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// A tile as text.
fn text(tile: &Map<String, Value>) -> String {
    serde_json::to_string(tile).unwrap_or_default()
}

/// A size as [`Row::size_key`] writes it.
pub fn size_key(size: &Size) -> String {
    let sizes: BTreeMap<String, Value> = object(size).into_iter().collect();
    sizes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

impl Row {
    /// The sizes of the work without the numbers of the variant, in the order of their names.
    pub fn size_key(&self) -> String {
        let sizes = self.shape.iter().filter(|(name, value)| value.is_u64() && *name != "head_dim");
        let sizes: BTreeMap<&String, &Value> = sizes.collect();
        sizes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}
