//! The parent's side: one worker process per variant, one at a time. A worker that hangs is killed at the time limit;
//! if one dies, its current shape is lost and the remaining shapes still run.

use super::{
    Made, Measurement, Size, Status,
    turns::{PROTOCOL, PeerMeasurement},
    worker::Request,
};
use crate::{
    device::TimingPlan,
    isolate::{End, Worker},
    kernel::Variant,
};
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The task of the worker that times a kernel.
pub(super) const WORKER: &str = "bench";

/// A variant and the sizes to time it at.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchRequest {
    /// The variant to time.
    pub variant: Variant,
    /// Shapes to time, at least one.
    pub shapes: Vec<Size>,
    /// Identity of the kernel of that name: its tile and its text.
    pub made: Made,
}

/// Options of a timing run.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The library of kernels.
    pub library: PathBuf,
    /// Duration and number of rounds.
    pub plan: TimingPlan,
    /// Seed of inputs and bootstrap samples.
    pub seed: u64,
    /// Time limit per variant.
    pub time_limit: Duration,
    /// The kgen executable.
    pub program: PathBuf,
}

/// Receives the progress of a timing run.
pub trait Observer: Sync {
    /// The variant's timing begins.
    fn started(&self, variant: &str);
    /// A shape has been measured.
    fn measured(&self, measurement: &Measurement);
    /// A peer has been measured.
    fn peer_measured(&self, peer: &PeerMeasurement) {
        self.measured(&peer.measurement);
    }

    /// Polled ten times a second; true stops the run.
    fn interrupted(&self) -> bool;
}

/// Times every request at every shape and returns the measurements in order. Never fails as a whole: a failed shape is
/// a measurement with its status.
pub fn run(requests: &[BenchRequest], options: &BenchOptions, observer: &dyn Observer) -> Vec<Measurement> {
    requests.iter().take_while(|_| !observer.interrupted()).flat_map(|request| run_one(request, options, observer)).collect()
}

/// Times one variant at all its shapes. If its worker dies, the current shape is lost and a new worker continues with
/// the next one.
fn run_one(request: &BenchRequest, options: &BenchOptions, observer: &dyn Observer) -> Vec<Measurement> {
    observer.started(&request.variant.name());
    let deadline = Instant::now() + options.time_limit;
    let mut found: Vec<Measurement> = Vec::new();
    while found.len() < request.shapes.len() {
        let left = &request.shapes[found.len()..];
        let (status, why) = run_worker(request, left, deadline, options, observer, &mut found);
        // Nothing more runs after the time limit or an interruption.
        let shapes = &request.shapes[found.len().min(request.shapes.len())..];
        let count = if status == Status::Crash { 1 } else { shapes.len() };
        for shape in shapes.iter().take(count) {
            let mut measurement = Measurement::without(request.variant, shape.clone(), status, why.clone());
            measurement.made = request.made.clone();
            observer.measured(&measurement);
            found.push(measurement);
        }
    }
    found
}

/// Has a worker time `shapes`, appends its reports to `found`, and returns the outcome of the first shape it did not
/// report.
fn run_worker(
    request: &BenchRequest,
    shapes: &[Size],
    deadline: Instant,
    options: &BenchOptions,
    observer: &dyn Observer,
    found: &mut Vec<Measurement>,
) -> (Status, String) {
    let limit = deadline.saturating_duration_since(Instant::now());
    let message = worker_request(request, shapes, options, limit, false);
    let worker = Worker { program: &options.program, task: WORKER, limit, interrupted: &|| observer.interrupted() };
    let ended = worker.run(&message, |line| {
        if let Ok(mut measurement) = serde_json::from_slice::<Measurement>(line) {
            measurement.made = request.made.clone();
            observer.measured(&measurement);
            found.push(measurement);
        }
    });
    let (end, complaint) = match ended {
        Err(error) => return (Status::Error, format!("cannot run a worker (`{}`): {error}", options.program.display())),
        Ok(ended) => ended,
    };
    let status = match end {
        End::TimedOut => Status::Timeout,
        End::Interrupted => Status::Error,
        End::Exited(_) => Status::Crash,
    };
    let said = if complaint.is_empty() { String::new() } else { format!("; it said: {complaint}") };
    (status, format!("{}{said}", end.words(options.time_limit)))
}

/// The request to a worker that times `shapes`, all at once or in turns with others.
pub(super) fn worker_request(
    request: &BenchRequest,
    shapes: &[Size],
    options: &BenchOptions,
    limit: Duration,
    turns: bool,
) -> Request {
    Request {
        version: PROTOCOL,
        variant: request.variant,
        library: absolute(&options.library),
        shapes: shapes.to_vec(),
        plan: options.plan,
        seed: options.seed,
        time_limit_seconds: limit.as_secs_f64(),
        turns,
    }
}

/// The dynamic loader would search its own folders for a name without a slash, so the path is made absolute.
fn absolute(library: &Path) -> PathBuf {
    std::path::absolute(library).unwrap_or_else(|_| library.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim, Target},
    };

    struct Quiet;

    impl Observer for Quiet {
        fn started(&self, _variant: &str) {}
        fn measured(&self, _measurement: &Measurement) {}
        fn interrupted(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_worker_that_dies_or_hangs_leaves_a_measurement_of_every_shape_and_the_next_variant_has_its_turn() {
        let folder = tempfile::tempdir().expect("a folder");
        let shape = Size::new([("batch", 1), ("heads", 1), ("heads_k", 1), ("seqlen_q", 16), ("seqlen_k", 16)]);
        let variant = |head_dim| Point {
            kind: Kind::Fwd,
            head_dim,
            dtype: Dtype::Fp16,
            causal: true,
            features: Features::NONE,
            target: Target::Sm80,
        };
        let made = Made { tile: serde_json::json!({"m": 64}), source: "abc".to_owned(), ..Made::default() };
        let requests = [64, 128].map(|head_dim| BenchRequest {
            variant: variant(HeadDim::equal(head_dim)).into(),
            shapes: vec![shape.clone(); 2],
            made: made.clone(),
        });
        for (script, status, said) in [
            ("kill -SEGV $$", Status::Crash, "SIGSEGV"),
            ("echo oh >&2; exit 3", Status::Crash, "it said: oh"),
            ("exec sleep 60", Status::Timeout, "no result within"),
        ] {
            let program = folder.path().join("worker");
            crate::files::write_script(&program, script);
            let plan = TimingPlan { warm_up_ms: 1.0, measure_ms: 1.0, rounds: 1, graph: false, counts: None };
            let (library, time_limit) = (PathBuf::from("any.so"), Duration::from_secs(1));
            let found = run(&requests, &BenchOptions { library, plan, seed: 1, time_limit, program }, &Quiet);
            assert_eq!(found.len(), 4, "{script}");
            assert!(found.iter().all(|m| m.status == status && m.message.contains(said)), "{script}: {}", found[0].message);
            assert_eq!(found[3].name, variant(HeadDim::equal(128)).name());
            assert!(found.iter().all(|m| m.made == made), "what could not be timed is known by its tile and source too");
        }
    }
}
