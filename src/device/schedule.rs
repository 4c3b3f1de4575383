//! The order in which threads take turns, and in which asynchronous copies complete, if the device leaves it open.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// One order: the same schedule of the same call gives the same run, bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Seed of the random choices.
    pub seed: u64,
    /// Rule of the order.
    pub order: Order,
}

impl Schedule {
    /// Random turns.
    pub fn shuffled(seed: u64) -> Self {
        Self { seed, order: Order::Shuffled }
    }
}

/// Rules of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// At every turn, any runnable thread may run.
    Shuffled,
    /// The runnable warp or warpgroup with the highest priority runs, so that one warp runs ahead as far as the
    /// barriers allow, or stays until all others wait. The steps at which priorities change are drawn over the length
    /// of the kernel's last shuffled run.
    Priorities {
        /// Number of steps of a block's run at which the running warp's priority drops below all others.
        depth: u32,
    },
}

/// Maximum depth: no block of a check takes as many steps.
const MOST_DEPTH: u32 = 1 << 20;

impl fmt::Display for Order {
    /// In the form that `--schedule` takes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shuffled => f.write_str("shuffled"),
            Self::Priorities { depth } => write!(f, "priorities:{depth}"),
        }
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "shuffled" {
            return Ok(Self::Shuffled);
        }
        let depth = text.strip_prefix("priorities:").and_then(|depth| depth.parse().ok()).filter(|depth| *depth <= MOST_DEPTH);
        depth.map(|depth| Self::Priorities { depth }).ok_or_else(|| {
            format!("`{text}` is no schedule: `shuffled`, or `priorities:N` with a depth N of at most {MOST_DEPTH}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_reads_as_it_is_written_and_nothing_else_does() {
        for order in [Order::Shuffled, Order::Priorities { depth: 0 }, Order::Priorities { depth: 12 }] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for bad in ["", "priorities", "priorities:", "priorities:-1", "priorities:x", "priorities:1048577", "Shuffled"] {
            let error = bad.parse::<Order>().expect_err(bad);
            assert!(error.starts_with(&format!("`{bad}` is no schedule")), "{error}");
        }
    }
}
