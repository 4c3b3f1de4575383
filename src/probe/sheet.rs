//! What data sheets and the programming guide say of a card, beside what a probe measures.

use super::{
    Probe, Unit,
    catalogue::{Kind, Level},
};
use crate::{
    device::GpuFacts,
    kernel::{Card, Dtype, EXPONENTIALS_A_CYCLE},
};
use serde::Serialize;

/// The rated numbers of a card.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    card: Card,
    source: Source,
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
        Card::named(&facts.info.name).map_or_else(
            || Self { card: by_driver(facts), source: Source::Driver },
            |card| Self { card, source: Source::DataSheet },
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
        let fp8 = |dtype: Dtype| if dtype == Dtype::Fp8 { 2.0 } else { 1.0 };
        let a_cycle = match probe.kind {
            Kind::Traffic(Level::Dram, _) => f64::from(card.dram_gbs) * 1e3 / cycles,
            Kind::Traffic(Level::Shared, _) => SHARED_BYTES_A_CYCLE,
            Kind::Scalar("fma") => fma_a_cycle(card.capability),
            Kind::Scalar(_) => EXPONENTIALS_A_CYCLE,
            Kind::Mma(dtype) => card.mma_flops_a_cycle() * fp8(dtype),
            Kind::Wgmma(dtype) => card.peak_flops_a_cycle() * fp8(dtype),
            Kind::Launch { .. } | Kind::Traffic(Level::L2, _) | Kind::Latency(_) | Kind::Barrier => return None,
        };
        let rated = match unit {
            Unit::Megahertz => card.clock_mhz.into(),
            Unit::GigabytesASecond | Unit::Gigaoperations => a_cycle * cycles / 1e3,
            Unit::Teraflops if probe.kind == Kind::Scalar("fma") => 2.0 * a_cycle * cycles / 1e6,
            Unit::Teraflops => a_cycle * cycles / 1e6,
            Unit::BytesACycle | Unit::FlopsACycle | Unit::OperationsACycle => a_cycle,
            Unit::Microseconds | Unit::Nanoseconds | Unit::Cycles => return None,
        };
        (rated > 0.0).then_some(rated)
    }
}

/// Fused multiply-adds in fp32 of a multiprocessor in a cycle (CUDA C++ Programming Guide, "Arithmetic Instructions").
fn fma_a_cycle(capability: u32) -> f64 {
    if matches!(capability, 75 | 80) { 64.0 } else { 128.0 }
}

/// A card by its driver alone.
fn by_driver(facts: &GpuFacts) -> Card {
    // Two transfers per clock.
    let gbs = 2.0 * f64::from(facts.memory_clock_khz) * f64::from(facts.memory_bus_bits) / 8.0 / 1e6;
    Card {
        name: facts.info.name.clone(),
        capability: facts.info.compute_capability,
        multiprocessors: facts.multiprocessors,
        clock_mhz: facts.sm_clock_khz / 1000,
        dram_gbs: gbs.round() as u32,
        l2_mb: facts.l2_bytes >> 20,
        measured: None,
    }
}
