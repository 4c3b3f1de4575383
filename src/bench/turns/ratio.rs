//! A peer's times by those of a kernel, round by round.

use crate::{
    bench::{Summary, median},
    device::Round,
};
use serde::{Deserialize, Serialize};

/// Whether the kernel is faster than the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The whole interval is above 1.
    Win,
    /// The interval contains 1.
    Tie,
    /// The whole interval is below 1.
    Loss,
}

impl Outcome {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Win => "win",
            Self::Tie => "tie",
            Self::Loss => "loss",
        }
    }
}

/// Time of a peer by that of a kernel: above 1, the kernel is faster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Name of the kernel.
    pub to: String,
    /// Median over the rounds.
    pub median: f64,
    /// 95 % interval of the median: a bootstrap over the rounds.
    pub interval: [f64; 2],
    /// Number of rounds.
    pub n: usize,
    /// What the interval says of the kernel.
    pub verdict: Outcome,
}

impl Ratio {
    /// The ratio of `peer`'s rounds to those of the kernel `to`; `None` if there are none.
    pub fn of(peer: &[Round], to: &str, kernel: &[Round], seed: u64) -> Option<Self> {
        let time = |round: &Round| median(round.microseconds.iter().copied());
        let ratios: Vec<f64> = peer.iter().zip(kernel).filter_map(|(peer, kernel)| Some(time(peer)? / time(kernel)?)).collect();
        let Summary { median, interval, n, .. } = Summary::of(&ratios, seed)?;
        let verdict = match interval {
            [low, _] if low > 1.0 => Outcome::Win,
            [_, high] if high < 1.0 => Outcome::Loss,
            _ => Outcome::Tie,
        };
        Some(Self { to: to.to_owned(), median, interval, n, verdict })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::CardState;

    fn rounds(times: &[f64]) -> Vec<Round> {
        times.iter().map(|time| Round { microseconds: vec![*time], card: CardState::default() }).collect()
    }

    #[test]
    fn the_ratio_is_that_of_the_rounds_so_a_drift_of_the_card_cancels() {
        let kernel = rounds(&[10.0, 20.0, 40.0, 80.0, 160.0]);
        let ratio = |times: &[f64]| Ratio::of(&rounds(times), "kernel", &kernel, 1).expect("there are rounds");
        let slower = ratio(&[11.0, 22.0, 44.0, 88.0, 176.0]);
        assert!((slower.median - 1.1).abs() < 1e-12 && slower.n == 5, "{slower:?}");
        assert_eq!(slower.verdict, Outcome::Win);
        assert_eq!(ratio(&[9.0, 18.0, 36.0, 72.0, 144.0]).verdict, Outcome::Loss);
        assert_eq!(ratio(&[9.0, 22.0, 40.0, 72.0, 176.0]).verdict, Outcome::Tie);
        assert_eq!(Ratio::of(&[], "kernel", &kernel, 1), None);
    }
}
