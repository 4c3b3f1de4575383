//! A measurer that reads rows in place of measuring.

use super::{Candidate, Failure, Measurer, Suite, search::absent};
use crate::{
    bench::{Size, median},
    lab::{
        Row, Status,
        row::{PROFILE, object},
    },
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The tile that the kernel of a row had.
pub fn tile_of(row: &Row) -> Option<&Map<String, Value>> {
    row.kernel.as_ref()?.get("tile")?.as_object()
}

/// True for a row with a time on a card, or with the reason why there is none. A profile has neither: its counts are no
/// time, and what kept it from counting does not keep the tile from running. The emulator is no card.
pub fn is_timing(row: &Row) -> bool {
    let has_outcome = row.status != Status::Ok || row.median_us().is_some();
    has_outcome && row.bench != PROFILE && row.details.get("device").and_then(Value::as_str) != Some("emulator")
}

/// The pass in which a row was measured, with its run; `None` if none is stated.
fn pass_of(row: &Row) -> Option<String> {
    let pass = row.details.get("pass")?.as_u64()?;
    let run = row.run.get("id").and_then(Value::as_str).unwrap_or_default();
    Some(format!("{run} {pass}"))
}

/// Milliseconds that the timing plan of a row's run takes; 0 if it is not stated.
fn plan_ms(row: &Row) -> f64 {
    let ms = |name: &str| row.run.get("plan").and_then(|plan| plan.get(name)).and_then(Value::as_f64).unwrap_or_default();
    ms("warm_up_ms") + ms("measure_ms")
}

/// Numbers of rounds that a resampled pass draws.
const ROUNDS_DRAWN: usize = 20;

/// Rows of one kernel on one card. A pass reads rows of a recorded pass that timed the same tiles; if there is none,
/// rows of each tile in their order, again from the first once all were read.
#[derive(Debug)]
pub struct Replay<'a> {
    tuned: &'a [Size],
    held_out: &'a [Size],
    /// Rows by tile and size; failures without a size have an empty one.
    rows: BTreeMap<(String, String), Vec<&'a Row>>,
    /// How many rows of a tile and size were read.
    read: BTreeMap<(String, String), usize>,
    /// Passes that were read.
    passes: BTreeSet<String>,
    /// Draws rows and rounds in place of reading them in order.
    resampled: Option<ChaCha8Rng>,
    spent_s: f64,
}

impl<'a> Replay<'a> {
    /// A replay of these rows at the sizes of two suites; rows that time nothing are left out.
    pub fn new(rows: impl IntoIterator<Item = &'a Row>, tuned: &'a [Size], held_out: &'a [Size]) -> Self {
        let mut by_case: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
        for row in rows.into_iter().filter(|row| is_timing(row)) {
            if let Some(tile) = tile_of(row) {
                by_case.entry((text(tile), row.size_key())).or_default().push(row);
            }
        }
        Self { tuned, held_out, rows: by_case, read: BTreeMap::new(), passes: BTreeSet::new(), resampled: None, spent_s: 0.0 }
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

    /// The next row of a tile at a size: that of a drawn pass, if a pass is drawn.
    fn row(&mut self, tile: &str, size: &Size, pass: Option<&str>) -> Option<&'a Row> {
        pass.and_then(|pass| self.of_pass(tile, size, pass)).or_else(|| self.next(tile, size))
    }

    /// The row of a tile at a size in a recorded pass.
    fn of_pass(&self, tile: &str, size: &Size, pass: &str) -> Option<&'a Row> {
        let rows = self.rows.get(&(tile.to_owned(), size_key(size)))?;
        rows.iter().copied().find(|row| pass_of(row).as_deref() == Some(pass))
    }

    /// Time of a row: its median, or that of the rounds with these numbers.
    fn time_of(row: &Row, drawn: &[usize]) -> Option<f64> {
        let rounds = row.numbers.as_ref().and_then(|numbers| numbers.get("round_microseconds")?.as_array());
        let rounds: Vec<f64> = rounds.into_iter().flatten().filter_map(Value::as_f64).collect();
        if drawn.is_empty() || rounds.is_empty() {
            return row.median_us();
        }
        median(drawn.iter().map(|round| rounds[round % rounds.len()]))
    }

    /// A recorded pass that timed all of these tiles, and the numbers of the rounds to read of it. The first such pass
    /// that was not read yet, and all its rounds; or a pass and rounds drawn with replacement. All tiles have the same:
    /// their rounds were taken in turns.
    fn pass(&mut self, tiles: &[String], size: &Size) -> (Option<String>, Vec<usize>) {
        let passes = |tile: &String| -> Vec<String> {
            let rows = self.rows.get(&(tile.clone(), size_key(size))).map(Vec::as_slice).unwrap_or_default();
            rows.iter().filter_map(|row| pass_of(row)).collect()
        };
        let mut common = tiles.first().map(passes).unwrap_or_default();
        for known in tiles.iter().skip(1).map(passes).filter(|known| !known.is_empty()) {
            common.retain(|pass| known.contains(pass));
        }
        let Some(random) = &mut self.resampled else {
            let unread = common.iter().find(|pass| !self.passes.contains(*pass)).or(common.first()).cloned();
            self.passes.extend(unread.clone());
            return (unread, Vec::new());
        };
        let pass = (!common.is_empty()).then(|| common.swap_remove(random.random_range(0..common.len())));
        (pass, (0..ROUNDS_DRAWN).map(|_| random.random_range(0..ROUNDS_DRAWN)).collect())
    }

    /// Mean over the tuned sizes of the logarithm of a candidate's time by the default's, by the passes that timed both
    /// or, if none did, by all rows; `None` if a size has no time or the candidate failed.
    pub fn exhaustive(&self, candidate: &Candidate, default: &Candidate) -> Option<f64> {
        let [tile, default] = [candidate, default].map(|candidate| text(&candidate.tile));
        if self.failure(&tile).is_some() {
            return None;
        }
        let of_tile = |tile: &str, size: &Size| self.rows.get(&(tile.to_owned(), size_key(size))).map(Vec::as_slice);
        let mean = |size: &Size| {
            let (rows, usual) = (of_tile(&tile, size)?, of_tile(&default, size)?);
            let logarithm = |row: &&Row| Some(row.median_us()?.ln());
            let of_pass = |row: &Row| self.of_pass(&default, size, &pass_of(row)?).as_ref().and_then(logarithm);
            let paired: Vec<f64> = rows.iter().filter_map(|row| Some(logarithm(row)? - of_pass(row)?)).collect();
            if !paired.is_empty() {
                return Some(paired.iter().sum::<f64>() / paired.len() as f64);
            }
            let mean = |rows: &[&Row]| {
                let times: Vec<f64> = rows.iter().filter_map(logarithm).collect();
                (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
            };
            Some(mean(rows)? - mean(usual)?)
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

    fn time(&mut self, candidates: &[&Candidate], suite: Suite) -> Vec<Result<Vec<f64>, Failure>> {
        let sizes = match suite {
            Suite::Tuned | Suite::Ladder => self.tuned,
            Suite::HeldOut => self.held_out,
        };
        let tiles: Vec<String> = candidates.iter().map(|candidate| text(&candidate.tile)).collect();
        let (pass, rounds) = sizes.first().map(|size| self.pass(&tiles, size)).unwrap_or_default();
        let mut of_default: Vec<f64> = Vec::new();
        let mut answer = |tile: &String| {
            let mut microseconds = Vec::new();
            for (place, size) in sizes.iter().enumerate() {
                let row = self.row(tile, size, pass.as_deref());
                let row = row.ok_or_else(|| absent(&format!("the store has no row of `{size}`")))?;
                self.spent_s += Self::seconds(row, "seconds").unwrap_or_else(|| plan_ms(row) / 1000.0);
                let failure = || match row.status {
                    Status::Ok => absent(&format!("the store has no time of `{size}`")),
                    status => Failure { status, message: row.message.clone() },
                };
                let time = Self::time_of(row, &rounds).ok_or_else(failure)?;
                // No recorded pass timed all tiles: each is compared with the default of its own pass.
                let beside = || Self::time_of(self.of_pass(&tiles[0], size, &pass_of(row)?)?, &rounds);
                let drift = if pass.is_none() { of_default.get(place).zip(beside()) } else { None };
                microseconds.push(drift.map_or(time, |(now, then)| time * now / then));
            }
            if of_default.is_empty() {
                of_default.clone_from(&microseconds);
            }
            Ok(microseconds)
        };
        tiles.iter().map(&mut answer).collect()
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
