//! The worker's side: times one variant at its shapes, in a separate process because a kernel may fault.

use super::{
    Bench, Draws, Measurement, Size, Status, Trials,
    ceiling::Ceiling,
    experiment::{self, Failure},
};
use crate::{
    device::{DeviceError, Gpu, GpuFacts, Nvml, TimingPlan},
    isolate,
    kernel::Variant,
};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
};

/// Version of the messages between parent and worker.
pub const PROTOCOL: u32 = 2;

/// Request to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Version of the protocol, [`PROTOCOL`].
    pub version: u32,
    /// The variant to time.
    pub variant: Variant,
    /// Shared library that holds the variant's launcher.
    #[serde(with = "crate::files::path::exact")]
    pub library: PathBuf,
    /// The sizes to time, in this order.
    pub shapes: Vec<Size>,
    /// The timing plan.
    pub plan: TimingPlan,
    /// Seed of the inputs.
    pub seed: u64,
    /// The parent's time limit.
    pub time_limit_seconds: f64,
}

/// Serves one request: a [`Measurement`] for each shape, in their order.
///
/// # Errors
/// A message for the parent's log if the request cannot be read or a measurement cannot be written.
pub fn serve(trials: Trials, input: &mut impl BufRead, output: impl Write) -> Result<(), String> {
    let (request, mut reply): (Request, _) = isolate::request(input, output)?;
    if request.version != PROTOCOL {
        return Err(format!("the request has version {}, this worker speaks {PROTOCOL}", request.version));
    }
    let _watch = isolate::end_when_forgotten(request.time_limit_seconds);
    measure(trials, &request, &mut |measurement| reply.say(measurement)).map_err(|e| format!("cannot report: {e}"))
}

fn measure(trials: Trials, request: &Request, report: &mut dyn FnMut(&Measurement) -> io::Result<()>) -> io::Result<()> {
    let opened = || -> Result<_, DeviceError> { Ok((GpuFacts::probe()?, Gpu::open(&request.library, &request.variant.name())?)) };
    let without = |shape: &Size, status, message| Measurement::without(request.variant, shape.clone(), status, message);
    let (facts, gpu) = match opened() {
        Ok(opened) => opened,
        Err(error) => {
            return request.shapes.iter().try_for_each(|shape| report(&without(shape, Status::Error, error.to_string())));
        }
    };
    let nvml = Nvml::open(&facts.pci_bus_id);
    let ceiling = Ceiling::of(&facts);
    let draws = Draws::new(request.seed);
    let bench = Bench { draws: &draws, seed: request.seed, multiprocessors: facts.multiprocessors };
    for shape in &request.shapes {
        let Some(trial) = trials(&request.variant, shape, bench) else {
            report(&without(shape, Status::Error, format!("`{shape}` is no size of this kernel")))?;
            continue;
        };
        let measurement = match experiment::run(&gpu, trial.as_ref(), facts.l2_bytes, &request.plan, nvml.as_ref()) {
            Ok(finding) => {
                Measurement::of(request.variant, shape.clone(), trial.work(), finding, &request.plan, &ceiling, request.seed)
            }
            Err(Failure::Wrong(message)) => without(shape, Status::Wrong, message),
            Err(Failure::Machine(message)) => without(shape, Status::Error, message),
        };
        report(&measurement)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{Kind, Point},
        kernel::{Dtype, Features, HeadDim, Target},
    };

    fn request() -> Request {
        let variant = Point {
            kind: Kind::Fwd,
            head_dim: HeadDim::equal(64),
            dtype: Dtype::Fp16,
            causal: true,
            features: Features::NONE,
            target: Target::Sm80,
        }
        .into();
        let shape = Size::new([("batch", 1), ("heads", 1), ("heads_k", 1), ("seqlen_q", 16), ("seqlen_k", 16)]);
        let plan = TimingPlan { warm_up_ms: 1.0, measure_ms: 1.0, rounds: 1, graph: false };
        let library = PathBuf::from("no-such-library.so");
        Request { version: PROTOCOL, variant, library, shapes: vec![shape; 2], plan, seed: 1, time_limit_seconds: 5.0 }
    }

    fn answer(request: &Request) -> Result<String, String> {
        let mut output = Vec::new();
        serve(crate::family::trial, &mut isolate::test_line(request).as_bytes(), &mut output)
            .map(|()| String::from_utf8(output).expect("JSON is text"))
    }

    #[test]
    fn without_a_gpu_or_a_library_each_shape_has_its_error() {
        let said = answer(&request()).expect("it answers");
        let found: Vec<Measurement> =
            said.lines().map(|line| serde_json::from_str(&line["token ".len()..]).expect("a measurement")).collect();
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|m| m.status == Status::Error && !m.message.is_empty()));
    }

    #[test]
    fn a_request_of_another_version_is_refused() {
        let error = answer(&Request { version: 99, ..request() }).expect_err("refused");
        assert!(error.contains("version 99"), "{error}");
    }
}
