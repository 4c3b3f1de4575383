//! Predicted time of a kernel by its plan, without the card.

use super::Work;
use crate::kernel::{Card, Measured};
use serde::Serialize;

/// A unit of a card, or a phase of a launch, that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// The launch, and what each block does before its first and after its last step.
    Launch,
    /// Steps that wait for one another: latencies of products, exponentials and copies.
    Latency,
    /// Tensor cores.
    TensorCores,
    /// Special function units, which compute exponentials.
    Exponentials,
    /// The L2 cache.
    L2,
    /// Device memory.
    Memory,
}

impl Unit {
    /// The name in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Latency => "latency",
            Self::TensorCores => "tensor cores",
            Self::Exponentials => "exponentials",
            Self::L2 => "L2",
            Self::Memory => "memory",
        }
    }
}

/// A unit's part of the time. Parts overlap: they add up to more than the whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The unit.
    pub unit: Unit,
    /// Microseconds for which it is busy.
    pub microseconds: f64,
}

/// Time of a kernel on a card, computed from its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Microseconds of a launch.
    pub microseconds: f64,
    /// The time of each unit.
    pub parts: Vec<Part>,
    /// Floating-point operations and bytes of the call.
    pub work: Work,
    /// The least time that the card's peak rates allow, in microseconds.
    pub floor_microseconds: f64,
    /// Blocks of the launch by blocks that run at once; 0 if unknown.
    pub waves: f64,
    /// Splits of each sequence, if the kernel splits the keys.
    pub splits: Option<u32>,
}

/// Microseconds of a launch that only moves data: what an empty kernel takes on an H100.
const LAUNCH_MICROSECONDS: f64 = 2.0;

/// Part of the rated bandwidth that a kernel reaches which reads and writes each byte once.
const REACHED: f64 = 0.9;

impl Estimate {
    /// A kernel that only moves data.
    pub fn of_traffic(work: Work, card: &Card) -> Self {
        let floor_microseconds = work.bytes.unwrap_or_default() / (f64::from(card.dram_gbs) * 1000.0);
        let of_probe = |number: fn(&Measured) -> Option<f64>| card.measured.as_ref().and_then(number);
        let measured = of_probe(|measured| measured.dram_copy_gbs).map(|gbs| work.bytes.unwrap_or_default() / (gbs * 1000.0));
        let memory = measured.unwrap_or(floor_microseconds / REACHED);
        let launch = of_probe(|measured| measured.launch_us).unwrap_or(LAUNCH_MICROSECONDS);
        let part = |unit, microseconds| Part { unit, microseconds };
        Self {
            microseconds: launch + memory,
            parts: vec![part(Unit::Launch, launch), part(Unit::Memory, memory)],
            work,
            floor_microseconds,
            waves: 0.0,
            splits: None,
        }
    }

    /// The unit that takes the longest. Latency limits if its steps take longer than the tensor cores and the
    /// exponentials of all blocks together, which overlap only in part.
    pub fn limit(&self) -> Unit {
        let steps = self.of(Unit::TensorCores) + self.of(Unit::Exponentials);
        let waits = self.of(Unit::Latency) > steps;
        let candidates = self.parts.iter().filter(|part| part.unit != Unit::Latency || waits);
        candidates.max_by(|a, b| a.microseconds.total_cmp(&b.microseconds)).map_or(Unit::Launch, |part| part.unit)
    }

    /// Microseconds of a unit.
    pub fn of(&self, unit: Unit) -> f64 {
        self.parts.iter().filter(|part| part.unit == unit).map(|part| part.microseconds).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_part_limits() {
        let part = |unit, microseconds| Part { unit, microseconds };
        let estimate = Estimate {
            microseconds: 4.0,
            parts: vec![part(Unit::Launch, 1.0), part(Unit::Memory, 3.0), part(Unit::L2, 2.0)],
            work: Work { flops: 1.0, bytes: None },
            floor_microseconds: 1.0,
            waves: 1.0,
            splits: None,
        };
        assert_eq!((estimate.limit(), estimate.of(Unit::L2), estimate.of(Unit::Exponentials)), (Unit::Memory, 2.0, 0.0));
        let steps = |latency| vec![part(Unit::Latency, latency), part(Unit::TensorCores, 5.0), part(Unit::Exponentials, 4.0)];
        assert_eq!(Estimate { parts: steps(8.0), ..estimate.clone() }.limit(), Unit::TensorCores);
        assert_eq!(Estimate { parts: steps(9.5), ..estimate.clone() }.limit(), Unit::Latency);
        assert_eq!(Estimate { parts: Vec::new(), ..estimate }.limit(), Unit::Launch);
    }
}
