//! The file of a card's constants: written by `kgen probe`, read by `kgen predict`.

use super::{Constant, Sheet, Unit};
use crate::{
    device::GpuFacts,
    files,
    kernel::{Card, Measured, is_gpu},
    text::{Finding, explain, unknown_key},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt::Write, path::Path};
use toml::Spanned;

/// Version of the file's form.
const FORMAT: u32 = 1;

/// The constants of a card.
#[derive(Debug, Clone, PartialEq)]
pub struct File {
    /// Version of the kgen that measured.
    pub kgen: String,
    /// Start of the run, UTC: `2026-11-21T16:43:05Z`.
    pub date: String,
    /// The card.
    pub card: Facts,
    /// The constants by name.
    pub constants: BTreeMap<String, Value>,
}

/// A card, as its driver describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Its name: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// `major * 10 + minor`.
    pub compute_capability: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Rated clock of the multiprocessors, MHz: of the data sheet, or the highest.
    pub clock_mhz: u32,
    /// Rated bandwidth of device memory, GB/s.
    pub memory_gbs: u32,
    /// Size of L2, MB.
    pub l2_mb: u32,
    /// Version of the driver; empty if it is unknown.
    #[serde(default)]
    pub driver: String,
}

/// A constant in a file.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// Median over the rounds.
    pub median: f64,
    /// 95 % interval of the median.
    pub interval: [f64; 2],
    /// Rounds.
    pub n: usize,
    /// Its unit.
    pub unit: Unit,
}

/// A file as TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    format: Spanned<u32>,
    kgen: String,
    date: String,
    card: Spanned<Facts>,
    constants: BTreeMap<Spanned<String>, Spanned<Value>>,
}

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("`{path}` cannot be read: {reason}; `kgen probe --out {path}` writes such a file on a machine with a GPU")]
    Unreadable {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// It is not what `kgen probe` writes; the line is quoted.
    #[error("{0}")]
    Malformed(String),
}

impl File {
    /// What was measured on a card.
    pub fn of(facts: &GpuFacts, sheet: &Sheet, driver: Option<&str>, date: &str, constants: &[Constant]) -> Self {
        let card = sheet.card();
        let value = |Constant { name, unit, summary }: &Constant| {
            let (median, interval) = (rounded(summary.median), summary.interval.map(rounded));
            (name.clone(), Value { median, interval, n: summary.n, unit: *unit })
        };
        Self {
            kgen: env!("CARGO_PKG_VERSION").to_owned(),
            date: date.to_owned(),
            card: Facts {
                name: facts.info.name.clone(),
                compute_capability: facts.info.compute_capability,
                multiprocessors: facts.multiprocessors,
                clock_mhz: card.clock_mhz,
                memory_gbs: card.dram_gbs,
                l2_mb: card.l2_mb,
                driver: driver.unwrap_or_default().to_owned(),
            },
            constants: constants.iter().map(value).collect(),
        }
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let Self { kgen, date, card, constants } = self;
        let string = |text: &str| toml::Value::from(text).to_string();
        let mut text = format!(
            "# Constants of {}, measured by `kgen probe`; `kgen predict --gpu FILE` takes them.\n\
             format = {FORMAT}\nkgen = {}\ndate = {}\n\n[card]\n",
            card.name.replace(char::is_control, " "),
            string(kgen),
            string(date)
        );
        let Facts { name, compute_capability, multiprocessors, clock_mhz, memory_gbs, l2_mb, driver } = card;
        // Writing into a string cannot fail.
        let mut line = |key: &str, value: String| writeln!(text, "{key} = {value}").ok();
        line("name", string(name));
        line("compute_capability", compute_capability.to_string());
        line("multiprocessors", multiprocessors.to_string());
        line("clock_mhz", clock_mhz.to_string());
        line("memory_gbs", memory_gbs.to_string());
        line("l2_mb", l2_mb.to_string());
        line("driver", string(driver));
        text += "\n[constants]\n";
        for (name, Value { median, interval: [low, high], n, unit }) in constants {
            let unit = unit.word();
            writeln!(text, "{name} = {{ median = {median:?}, interval = [{low:?}, {high:?}], n = {n}, unit = \"{unit}\" }}").ok();
        }
        text
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn load(path: &Path) -> Result<Self, FileError> {
        let origin = path.display().to_string();
        let text = files::read_to_string(path)
            .map_err(|error| FileError::Unreadable { path: origin.clone(), reason: error.to_string() })?;
        Self::parse(&text).map_err(|finding| FileError::Malformed(finding.render(&origin, &text)))
    }

    fn parse(text: &str) -> Result<Self, Finding> {
        let Written { format, kgen, date, card, constants } =
            toml::from_str(text).map_err(|error| explain(&error, text, example_of))?;
        if *format.get_ref() != FORMAT {
            let title = format!("form {} is not known", format.get_ref());
            return Err(Finding::new(title, format.span(), format!("expected {FORMAT}"), AGAIN));
        }
        let is_card = is_gpu(card.get_ref().compute_capability)
            && [card.get_ref().multiprocessors, card.get_ref().clock_mhz, card.get_ref().memory_gbs].iter().all(|n| *n > 0);
        if !is_card {
            let help = "write the card's compute capability (90 for 9.0), multiprocessors, clock and bandwidth, all above 0";
            return Err(Finding::new("no GPU has these numbers", card.span(), "in this table", help));
        }
        let known = Constant::names();
        for (name, value) in &constants {
            let Some((_, unit)) = known.iter().find(|(known, _)| known == name.get_ref()) else {
                let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
                return Err(unknown_key(name.get_ref(), name.span(), &names));
            };
            let Value { median, interval: [low, high], unit: written, .. } = *value.get_ref();
            if written != *unit {
                let title = format!("`{}` is in {}, not in {}", name.get_ref(), unit.word(), written.word());
                return Err(Finding::new(title, value.span(), format!("expected {}", unit.word()), AGAIN));
            }
            if !(median.is_finite() && low > 0.0 && low <= median && median <= high && high.is_finite()) {
                let title = format!("`{}` is no measured number", name.get_ref());
                return Err(Finding::new(title, value.span(), "expected a median above 0 within its interval", AGAIN));
            }
        }
        let constants = constants.into_iter().map(|(name, value)| (name.into_inner(), value.into_inner())).collect();
        Ok(Self { kgen, date, card: card.into_inner(), constants })
    }

    /// The card with the measured numbers in place of the rated ones.
    pub fn card(&self) -> Card {
        let Facts { name, compute_capability, multiprocessors, clock_mhz, memory_gbs, l2_mb, .. } = &self.card;
        let of = |name: &str| self.constants.get(name).map(|value| value.median);
        // The clock under the products that most kernels for the card run.
        let clock = ["wgmma_bf16_mhz", "mma_bf16_mhz"].into_iter().find_map(of);
        let measured = Measured {
            on: name.clone(),
            date: self.date.clone(),
            clock_mhz: clock,
            launch_us: of("launch_us"),
            dram_read_gbs: of("dram_read_gbs"),
            dram_copy_gbs: of("dram_copy_gbs"),
            wgmma_flops_a_cycle: of("wgmma_bf16_flops_a_cycle"),
            mma_flops_a_cycle: of("mma_bf16_flops_a_cycle"),
            wgmma_fp8_flops_a_cycle: of("wgmma_e4m3_flops_a_cycle"),
            mma_fp8_flops_a_cycle: of("mma_e4m3_flops_a_cycle"),
            exponentials_a_cycle: of("exp2_a_cycle"),
        };
        Card {
            name: Card::named(name).map_or_else(|| name.clone(), |card| card.name),
            capability: *compute_capability,
            multiprocessors: *multiprocessors,
            clock_mhz: *clock_mhz,
            dram_gbs: *memory_gbs,
            l2_mb: *l2_mb,
            measured: Some(measured),
        }
    }
}

/// What to do with a file that is not understood.
const AGAIN: &str = "`kgen probe --out FILE` of this kgen measures again";

/// An example of a key.
fn example_of(key: &str) -> &'static str {
    match key {
        "format" => "`format = 1`",
        "kgen" => "the version of kgen that measured, such as \"0.1.0\"",
        "date" => "`date = \"2026-11-28T12:00:00Z\"`",
        "card" => "a table `[card]`, as `kgen probe --out FILE` writes it",
        "constants" => "a table `[constants]`, as `kgen probe --out FILE` writes it",
        "name" => "`name = \"NVIDIA H100 80GB HBM3\"`",
        "compute_capability" => "`compute_capability = 90`",
        "multiprocessors" => "`multiprocessors = 132`",
        "clock_mhz" => "`clock_mhz = 1755`",
        "memory_gbs" => "`memory_gbs = 3350`",
        "l2_mb" => "`l2_mb = 50`",
        "median" => "`median = 1.0`",
        "interval" => "`interval = [0.9, 1.1]`",
        "n" => "`n = 20`",
        _ => "it, as `kgen probe --out FILE` writes it",
    }
}

/// Six digits.
fn rounded(number: f64) -> f64 {
    format!("{number:.5e}").parse().unwrap_or(number)
}
