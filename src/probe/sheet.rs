//! What data sheets and the programming guide say of a card, beside what a probe measures.

use super::{
    Constant, Probe, Unit,
    catalogue::{Kind, Level, Operation},
};
use crate::{
    bench::Ceiling,
    device::GpuFacts,
    kernel::{Card, Dtype, EXPONENTIALS_A_CYCLE, flops_a_cycle},
};
use serde::Serialize;

/// The rated numbers of a card.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    card: Card,
    source: Source,
    /// The most that device memory can transfer at its highest clock, GB/s; `None` if the driver does not report it.
    memory_gbs: Option<f64>,
}

/// Where a rated number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The data sheet of the card.
    DataSheet,
    /// The card's driver: highest clocks and width of the bus.
    Driver,
}

impl Source {
    /// The words in a table.
    pub fn words(self) -> &'static str {
        match self {
            Self::DataSheet => "data sheet",
            Self::Driver => "driver",
        }
    }
}

/// Bytes that a multiprocessor reads from shared memory in a cycle: 32 banks of 4 bytes.
const SHARED_BYTES_A_CYCLE: f64 = 128.0;

impl Sheet {
    /// The data sheet of the card if kgen has it, else what the driver reports.
    pub fn of(facts: &GpuFacts) -> Self {
        let memory_gbs = Ceiling::of(facts).memory_gbs;
        Card::named(&facts.info.name).map_or_else(
            || Self { card: by_driver(facts, memory_gbs), source: Source::Driver, memory_gbs },
            |card| Self { card, source: Source::DataSheet, memory_gbs },
        )
    }

    /// The rated numbers.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// The source of clocks and of bandwidth.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The rated number beside a probe's constant of this unit; `None` if none is published.
    pub fn rated(&self, probe: &Probe, unit: Unit) -> Option<f64> {
        let card = &self.card;
        // Cycles of all multiprocessors in a microsecond.
        let cycles = f64::from(card.multiprocessors) * f64::from(card.clock_mhz);
        let a_cycle = match probe.kind {
            Kind::Traffic(Level::Dram, _) => f64::from(card.dram_gbs) * 1e3 / cycles,
            Kind::Traffic(Level::Shared, _) => SHARED_BYTES_A_CYCLE,
            Kind::Scalar(Operation::Fma) => fma_a_cycle(card.capability),
            Kind::Scalar(Operation::Exp2) => EXPONENTIALS_A_CYCLE,
            Kind::Mma(dtype) => card.mma_flops_a_cycle() * by_width(dtype),
            Kind::Wgmma(dtype) => card.peak_flops_a_cycle() * by_width(dtype),
            Kind::Launch { .. } | Kind::Traffic(Level::L2, _) | Kind::Latency(_) | Kind::Barrier => return None,
        };
        let rated = match unit {
            Unit::Megahertz => card.clock_mhz.into(),
            Unit::GigabytesASecond | Unit::Gigaoperations => a_cycle * cycles / 1e3,
            Unit::Teraflops if probe.kind == Kind::Scalar(Operation::Fma) => 2.0 * a_cycle * cycles / 1e6,
            Unit::Teraflops => a_cycle * cycles / 1e6,
            Unit::BytesACycle | Unit::FlopsACycle | Unit::OperationsACycle => a_cycle,
            Unit::Microseconds | Unit::Nanoseconds | Unit::Cycles => return None,
        };
        (rated > 0.0).then_some(rated)
    }
}

/// Part by which a rate may exceed the card's peak: the clock of a short loop is read in whole steps of the timer.
const READING: f64 = 1.01;

impl Sheet {
    /// The reason to reject a constant, if it exceeds what the card's hardware can do.
    pub(super) fn refusal(&self, probe: &Probe, constant: &Constant) -> Option<String> {
        let peak = match (probe.kind, constant.unit) {
            (Kind::Traffic(Level::Dram, _), Unit::GigabytesASecond) => self.memory_gbs,
            (Kind::Traffic(Level::Shared, _), Unit::BytesACycle) => Some(SHARED_BYTES_A_CYCLE),
            // `mma.sync` may be faster than it is rated, but not faster than the tensor cores.
            (Kind::Mma(dtype) | Kind::Wgmma(dtype), Unit::FlopsACycle) => {
                flops_a_cycle(self.card.capability).map(|flops| flops * by_width(dtype))
            }
            _ => None,
        };
        let (peak, median) = (peak?, constant.summary.median);
        let (name, unit) = (&constant.name, constant.unit.word());
        (median > READING * peak)
            .then(|| format!("`{name}` is {median:.0} {unit}, beyond the {peak:.0} of this card: the measurement is wrong"))
    }
}

/// The rate of tensor cores by that of 16-bit elements.
fn by_width(dtype: Dtype) -> f64 {
    if dtype == Dtype::Fp8 { 2.0 } else { 1.0 }
}

/// Fused multiply-adds in fp32 of a multiprocessor in a cycle (CUDA C++ Programming Guide, "Arithmetic Instructions").
fn fma_a_cycle(capability: u32) -> f64 {
    if matches!(capability, 75 | 80) { 64.0 } else { 128.0 }
}

/// A card by its driver alone.
fn by_driver(facts: &GpuFacts, memory_gbs: Option<f64>) -> Card {
    Card {
        name: facts.info.name.clone(),
        capability: facts.info.compute_capability,
        multiprocessors: facts.multiprocessors,
        clock_mhz: facts.sm_clock_khz / 1000,
        dram_gbs: memory_gbs.unwrap_or_default().round() as u32,
        l2_mb: facts.l2_bytes >> 20,
        measured: None,
    }
}
