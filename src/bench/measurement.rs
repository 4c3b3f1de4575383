//! The record of a timing: numbers with their units and circumstances, in the form of its JSON.

use super::{Size, Summary, Work, ceiling::Ceiling, experiment::Finding};
use crate::{device::CardState, kernel::Variant, plan::Plan};
use serde::{Deserialize, Serialize};

/// Outcome of a timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The kernel was timed.
    Ok,
    /// The kernel computes wrong results, or faults.
    Wrong,
    /// The kernel's launcher refuses the call, or the peer does not compute it. Or the rate exceeds the card's peak:
    /// the measurement is wrong, and its numbers are withheld.
    Refused,
    /// The machine or the library could not run it.
    Error,
    /// The peer is not installed.
    Absent,
    /// Not finished within the time limit.
    Timeout,
    /// The worker died.
    Crash,
}

impl Status {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Wrong => "wrong",
            Self::Refused => "refused",
            Self::Error => "error",
            Self::Absent => "absent",
            Self::Timeout => "timeout",
            Self::Crash => "crash",
        }
    }
}

/// The numbers of one variant at one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Microseconds per launch, summarised over the rounds.
    pub microseconds: Summary,
    /// The rounds themselves, in order; with exact counts, the calls.
    pub round_microseconds: Vec<f64>,
    /// Launches that each of these times is the mean of.
    pub launches_a_round: usize,
    /// TFLOP/s at the median time.
    pub tflops: f64,
    /// TFLOP/s at the ends of the interval, lower first.
    pub tflops_interval: [f64; 2],
    /// GB/s of K and V at the median time; only for split-KV kernels.
    pub kv_gbs: Option<f64>,
    /// GB/s of the unavoidable reads and writes, at the median time; only for memory-bound kernels.
    #[serde(default)]
    pub gbs: Option<f64>,
    /// `launch` or `graph`: the unit that was repeated.
    pub repeated: String,
    /// `warm` or `cold`: the L2 cache holds the inputs at the start of a launch, or does not.
    pub l2: String,
    /// Number of splits; only for split-KV kernels.
    pub num_splits: Option<u32>,
    /// Floating-point operations of a launch, including those of a declared score.
    #[serde(default)]
    pub flops: f64,
    /// The arguments passed to a declared score, if the kernel has one: `score=NAME:INTEGER`.
    #[serde(default)]
    pub passed: Option<String>,
    /// Largest relative error of the rows that were compared with float64.
    pub relative_error: f64,
    /// State of the card at the end of each round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub round_cards: Vec<CardState>,
    /// Bytes of device memory: tensors and workspaces of a kernel, or the most that a peer had allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// Identity of the kernel that was timed: the same variant name denotes another kernel once its tile or template
/// changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// The plan's tile.
    #[serde(default)]
    pub tile: serde_json::Value,
    /// BLAKE3 of the kernel's text, as rendered by this kgen or edited; a library that was built earlier may contain
    /// another text.
    #[serde(default)]
    pub source: String,
    /// Dynamic shared memory of a block by the plan, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory_bytes: Option<u32>,
    /// The file of a kernel that a person edited; `None` for a kernel that kgen rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<String>,
}

impl Made {
    /// The tile and shared memory of a plan, and the hash of its text.
    pub fn of(plan: &Plan, source: String) -> Self {
        let shared_memory_bytes = Some(plan.shared_memory_bytes);
        Self { tile: serde_json::to_value(plan.tile()).unwrap_or_default(), source, shared_memory_bytes, edited: None }
    }
}

/// One variant at one shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The variant's name.
    pub name: String,
    /// The variant itself.
    #[serde(flatten)]
    pub variant: Variant,
    /// The kernel that this name denoted.
    #[serde(flatten)]
    pub made: Made,
    /// The size.
    pub shape: Size,
    /// The outcome.
    pub status: Status,
    /// The reason for missing numbers; empty if there are numbers.
    pub message: String,
    /// The numbers of a successful timing.
    pub numbers: Option<Numbers>,
    /// State of the card during the last rounds.
    pub card: CardState,
}

impl Measurement {
    /// A measurement without numbers.
    pub fn without(variant: Variant, shape: Size, status: Status, message: String) -> Self {
        Self {
            name: variant.name(),
            variant,
            made: Made::default(),
            shape,
            status,
            message,
            numbers: None,
            card: CardState::default(),
        }
    }

    /// A measurement from a finding, converted to rates; refused if they exceed the card's peak.
    pub fn of(variant: Variant, shape: Size, work: Work, finding: Finding, ceiling: &Ceiling, seed: u64) -> Self {
        let Finding { times, relative_error, num_splits, passed, cold_l2, graph, memory_bytes } = finding;
        let round_cards: Vec<CardState> = times.rounds.iter().map(|round| round.card).collect();
        let round_microseconds: Vec<f64> = times.rounds.into_iter().flat_map(|round| round.microseconds).collect();
        let Some(microseconds) = Summary::of(&round_microseconds, seed) else {
            return Self::without(variant, shape, Status::Error, "no round was timed".to_owned());
        };
        let tflops = |microseconds: f64| work.flops / microseconds / 1e6;
        let gbs = work.bytes.map(|bytes| bytes / microseconds.median / 1e3);
        let rate = tflops(microseconds.median);
        let card = round_cards.last().copied().unwrap_or_default();
        if let Some(why) = ceiling.refusal(variant.dtype(), rate, gbs.filter(|_| cold_l2)) {
            return Self { card, ..Self::without(variant, shape, Status::Refused, why) };
        }
        let [low, high] = microseconds.interval;
        let numbers = Numbers {
            microseconds,
            round_microseconds,
            launches_a_round: times.launches,
            tflops: rate,
            tflops_interval: [tflops(high), tflops(low)],
            kv_gbs: gbs.filter(|_| num_splits.is_some()),
            gbs,
            repeated: if graph { "graph" } else { "launch" }.to_owned(),
            l2: if cold_l2 { "cold" } else { "warm" }.to_owned(),
            num_splits,
            flops: work.flops,
            passed,
            relative_error,
            round_cards,
            memory_bytes,
        };
        Self { card, numbers: Some(numbers), ..Self::without(variant, shape, Status::Ok, String::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::{Round, RoundTimes},
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim, Target},
    };

    fn shape() -> Size {
        Size::new([("batch", 1), ("heads", 16), ("heads_k", 16), ("seqlen_q", 1000), ("seqlen_k", 1000)])
    }
    const POINT: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(128),
        dtype: Dtype::Bf16,
        causal: false,
        features: Features::NONE,
        target: Target::Sm80,
    };
    const CEILING: Ceiling = Ceiling { tflops_16_bit: Some(1000.0), tflops_fp8: None, memory_gbs: Some(3000.0) };

    fn measurement(variant: Point, microseconds: [f64; 3]) -> Measurement {
        let round = |time| Round { microseconds: vec![time], card: CardState::default() };
        let times = RoundTimes { rounds: microseconds.map(round).to_vec(), launches: 4 };
        let split = variant.kind == Kind::FwdSplit;
        let num_splits = split.then_some(8);
        let finding = Finding {
            times,
            relative_error: 0.002,
            num_splits,
            passed: None,
            cold_l2: split,
            graph: false,
            memory_bytes: Some(4096),
        };
        let bytes = split.then_some(16.0 * 1000.0 * 2.0 * 256.0);
        let work = Work { flops: 4.0 * 16.0 * 1e6 * 128.0, bytes };
        Measurement::of(variant.into(), shape(), work, finding, &CEILING, 1)
    }

    #[test]
    fn a_time_becomes_a_rate_whose_interval_is_the_other_way_round() {
        let json = serde_json::to_value(measurement(POINT, [40.96, 81.92, 163.84])).expect("plain data");
        // 4 · 16 · 1000 · 1000 · 128 operations in 81.92 µs.
        let numbers = &json["numbers"];
        assert!((numbers["tflops"].as_f64().expect("a number") - 100.0).abs() < 1e-9, "{json}");
        let ends = numbers["tflops_interval"].as_array().expect("two ends");
        assert!(ends[0].as_f64() < ends[1].as_f64(), "{json}");
        let expected = serde_json::json!({
            "name": "flash_fwd_hdim128_bf16_sm80", "kind": "fwd", "head_dim": 128, "dtype": "bf16", "causal": false, "target": "sm80",
            "shape": {"batch": 1, "heads": 16, "heads_k": 16, "seqlen_q": 1000, "seqlen_k": 1000}, "status": "ok", "message": ""
        });
        for (key, value) in expected.as_object().expect("an object") {
            assert_eq!(&json[key], value, "{key}");
        }
        assert_eq!((&numbers["microseconds"]["median"], &numbers["microseconds"]["n"]), (&81.92.into(), &3.into()));
        assert_eq!(
            (&numbers["kv_gbs"], &numbers["l2"], &numbers["repeated"]),
            (&serde_json::Value::Null, &"warm".into(), &"launch".into())
        );
        assert_eq!(serde_json::from_value::<Measurement>(json).expect("it reads").name, POINT.name());
    }

    #[test]
    fn a_rate_beyond_the_card_has_no_numbers() {
        let refused = measurement(POINT, [1.0; 3]);
        assert!(refused.status == Status::Refused && refused.numbers.is_none() && refused.message.contains("beyond"));
        let split = Point { kind: Kind::FwdSplit, ..POINT };
        assert_eq!(measurement(split, [1.0; 3]).status, Status::Refused);
        let slow = measurement(split, [100.0; 3]).numbers.expect("there are some");
        // K and V of 16 heads, 1000 rows of 256 bytes each.
        assert!((slow.kv_gbs.expect("decoding") - 81.92).abs() < 1e-9 && slow.l2 == "cold" && slow.num_splits == Some(8));
    }
}
