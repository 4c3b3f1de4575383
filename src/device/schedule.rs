//! The order in which threads take turns, and asynchronous copies land, where the device leaves that open.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// One order: the same schedule of the same call is the same run, bit for bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// What it is drawn from.
    pub seed: u64,
    /// How.
    pub order: Order,
}

impl Schedule {
    /// Turns at random.
    pub fn shuffled(seed: u64) -> Self {
        Self { seed, order: Order::Shuffled }
    }
}

/// How a schedule is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// At every turn anybody who can go on may.
    Shuffled,
    /// Of those that can go on, the warp or warpgroup of the highest priority does, so that one runs as far ahead as
    /// the barriers allow or stays where it is until all others wait. The moments are drawn over the steps that the
    /// same kernel took when it last ran shuffled.
    Priorities {
        /// At so many moments of a block's run the running one's priority falls below all others.
        depth: u32,
    },
}

/// Depth is at most this: no block of a check takes as many steps.
const MOST_DEPTH: u32 = 1 << 20;

impl fmt::Display for Order {
    /// As `--schedule` takes it.
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
