//! Constants of a card, from the readings of its probes.

use super::{
    Probe, Reading,
    catalogue::{Kind, Level, Operation},
};
use crate::bench::Summary;
use serde::{Deserialize, Serialize};

/// Units of constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Cycles of a multiprocessor.
    #[serde(rename = "cycles")]
    Cycles,
    /// 10^6 cycles per second.
    #[serde(rename = "MHz")]
    Megahertz,
    /// 10^9 bytes per second, of the whole card.
    #[serde(rename = "GB/s")]
    GigabytesASecond,
    /// 10^12 floating-point operations per second, of the whole card.
    #[serde(rename = "TFLOP/s")]
    Teraflops,
    /// 10^9 operations per second, of the whole card.
    #[serde(rename = "Gop/s")]
    Gigaoperations,
    /// Bytes of one multiprocessor per cycle.
    #[serde(rename = "B/cycle/SM")]
    BytesACycle,
    /// Floating-point operations of one multiprocessor per cycle.
    #[serde(rename = "FLOP/cycle/SM")]
    FlopsACycle,
    /// Operations of one multiprocessor per cycle.
    #[serde(rename = "op/cycle/SM")]
    OperationsACycle,
}

impl Unit {
    /// The word in tables and files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
            Self::Cycles => "cycles",
            Self::Megahertz => "MHz",
            Self::GigabytesASecond => "GB/s",
            Self::Teraflops => "TFLOP/s",
            Self::Gigaoperations => "Gop/s",
            Self::BytesACycle => "B/cycle/SM",
            Self::FlopsACycle => "FLOP/cycle/SM",
            Self::OperationsACycle => "op/cycle/SM",
        }
    }

    /// The end of the name of a constant.
    fn suffix(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
            Self::Cycles => "cycles",
            Self::Megahertz => "mhz",
            Self::GigabytesASecond => "gbs",
            Self::Teraflops => "tflops",
            Self::Gigaoperations => "gops",
            Self::BytesACycle => "bytes_a_cycle",
            Self::FlopsACycle => "flops_a_cycle",
            Self::OperationsACycle => "a_cycle",
        }
    }
}

/// A constant of a card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Constant {
    /// Its name: `dram_read_gbs`.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Median, spread and interval over the rounds.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A function from a reading to a number.
type Of = fn(&Probe, &Reading) -> f64;

/// What a multiprocessor does in a cycle.
fn a_cycle(probe: &Probe, reading: &Reading) -> f64 {
    let done = probe.amount() as f64 * f64::from(reading.steps) * f64::from(probe.blocks_a_multiprocessor());
    done / reading.cycles
}

/// What the card does in a microsecond.
fn a_microsecond(probe: &Probe, reading: &Reading) -> f64 {
    probe.amount() as f64 * f64::from(reading.steps) * f64::from(reading.blocks) / reading.microseconds
}

/// The clock in MHz.
fn clock(_: &Probe, reading: &Reading) -> f64 {
    1e3 * reading.cycles / reading.nanoseconds
}

/// The units of a probe's constants, with the number that each is.
fn units(kind: Kind) -> Vec<(Unit, Of)> {
    match kind {
        Kind::Launch { .. } => vec![(Unit::Microseconds, |_, reading| reading.microseconds)],
        Kind::Traffic(..) => {
            vec![(Unit::GigabytesASecond, |probe, reading| a_microsecond(probe, reading) / 1e3), (Unit::BytesACycle, a_cycle)]
        }
        Kind::Scalar(Operation::Fma) => vec![
            // A product and a sum.
            (Unit::Teraflops, |probe, reading| 2.0 * a_microsecond(probe, reading) / 1e6),
            (Unit::OperationsACycle, a_cycle),
        ],
        Kind::Scalar(Operation::Exp2) => {
            vec![(Unit::Gigaoperations, |probe, reading| a_microsecond(probe, reading) / 1e3), (Unit::OperationsACycle, a_cycle)]
        }
        Kind::Mma(_) | Kind::Wgmma(_) => vec![
            (Unit::Teraflops, |probe, reading| a_microsecond(probe, reading) / 1e6),
            (Unit::FlopsACycle, a_cycle),
            (Unit::Megahertz, clock),
        ],
        Kind::Latency(Level::Shared) | Kind::Barrier => vec![(Unit::Cycles, hop_cycles)],
        Kind::Latency(_) => vec![
            (Unit::Cycles, hop_cycles),
            (Unit::Nanoseconds, |probe, reading| reading.nanoseconds / (probe.amount() as f64 * f64::from(reading.steps))),
        ],
    }
}

/// Cycles of a hop or of a barrier.
fn hop_cycles(probe: &Probe, reading: &Reading) -> f64 {
    reading.cycles / (probe.amount() as f64 * f64::from(reading.steps))
}

impl Constant {
    /// The constants of a probe.
    ///
    /// # Errors
    /// A sentence if one of them is no finite number above 0 in some round.
    pub(super) fn of(probe: &Probe, readings: &[Reading], seed: u64) -> Result<Vec<Self>, String> {
        let constant = |(unit, number): (Unit, Of)| {
            let name = format!("{}_{}", probe.name, unit.suffix());
            let values: Vec<f64> = readings.iter().map(|reading| number(probe, reading)).collect();
            let summary = Summary::of(&values, seed).filter(|_| values.iter().all(|value| value.is_finite() && *value > 0.0));
            let summary = summary.ok_or_else(|| format!("`{name}` is no number: a clock stood still while the kernel ran"))?;
            Ok(Self { name, unit, summary })
        };
        units(probe.kind).into_iter().map(constant).collect()
    }
}

impl Constant {
    /// Names and units of all constants, in the order of the probes.
    pub fn names() -> Vec<(String, Unit)> {
        let of_probe = |probe: &Probe| {
            let name = |(unit, _): (Unit, Of)| (format!("{}_{}", probe.name, unit.suffix()), unit);
            units(probe.kind).into_iter().map(name).collect::<Vec<_>>()
        };
        Probe::all().iter().flat_map(of_probe).collect()
    }
}
