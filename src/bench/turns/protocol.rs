//! The lines between the parent and a worker that takes turns. Both sides begin with [`PROTOCOL`]; the Python package
//! of the peers has its own reader and writer of the same lines.

use crate::{
    bench::{Size, Status},
    device::{Round, TimingPlan},
    kernel::Variant,
};
use serde::{Deserialize, Serialize};

/// Version of the messages between parent and worker.
pub const PROTOCOL: u32 = 3;

/// A line to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Put the tensors of the point of this number into device memory, run it once, and answer `Loaded` or `Failed`:
    /// the part of preparing that kernels of kgen do at the same time. `Prepare` follows.
    Load(usize),
    /// Prepare the point of this number in the request, and answer `Ready` or `Failed`.
    Prepare(usize),
    /// Time a round.
    Round,
    /// Check the results of the timed calls, free all memory, and answer `Finished` or `Failed`.
    Finish,
}

/// A line from a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Answer {
    /// The first line.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The implementation with its version: `PyTorch 2.11.0, cuDNN 9.19`.
        library: String,
    },
    /// The first line of a peer that cannot be loaded.
    Absent {
        /// Why, and where it is from.
        message: String,
    },
    /// A point is proven right; nothing of it was timed.
    Loaded,
    /// A point is prepared, proven right and warm.
    Ready {
        /// Launches that each time of a round is the mean of.
        launches: usize,
    },
    /// A round.
    Round(Round),
    /// The results are still right after the last round.
    Finished(Facts),
    /// The point has no numbers.
    Failed {
        /// Never `Ok`.
        status: Status,
        /// The reason.
        message: String,
    },
}

/// What a worker reports of a point besides its times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Largest relative error of the rows that were compared with float64.
    pub relative_error: f64,
    /// The repeated unit was a CUDA graph.
    pub graph: bool,
    /// The inputs were read from memory rather than from a warm L2.
    pub cold_l2: bool,
    /// Bytes of device memory.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Number of splits of a split-KV kernel of kgen.
    #[serde(default)]
    pub num_splits: Option<u32>,
    /// Arguments of a declared score.
    #[serde(default)]
    pub passed: Option<String>,
}

/// The request to a peer's worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeerRequest {
    /// [`PROTOCOL`].
    pub version: u32,
    /// Name of the peer.
    pub peer: String,
    /// The points, by number.
    pub points: Vec<Point>,
    /// The timing plan.
    pub plan: TimingPlan,
    /// Seed of the inputs.
    pub seed: u64,
    /// The parent's time limit for each order.
    pub time_limit_seconds: f64,
}

/// Work that a peer is asked for: that of a kernel of kgen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// The kernel.
    #[serde(flatten)]
    pub variant: Variant,
    /// The size.
    pub shape: Size,
}
