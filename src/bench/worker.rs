//! The worker's side: times one variant at its shapes, in a separate process because a kernel may fault.

use super::{
    Bench, Draws, Measurement, Size, Status, Trials,
    ceiling::Ceiling,
    experiment::{self, Finding},
    turns::{Answer, Facts, Order, PROTOCOL},
};
use crate::{
    device::{DeviceError, Gpu, GpuFacts, Nvml, Round, TimingPlan, Turns},
    isolate::{self, Reply, Watch},
    kernel::Variant,
};
use serde::{Deserialize, Serialize};
use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
};

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
    /// The parent's time limit: for all shapes, or in turns for each order.
    pub time_limit_seconds: f64,
    /// Takes orders from the parent, shape by shape and round by round.
    pub turns: bool,
}

/// Serves one request: a [`Measurement`] for each shape, in their order, or an [`Answer`] to each [`Order`].
///
/// # Errors
/// A message for the parent's log if the request cannot be read or a measurement cannot be written.
pub fn serve(trials: Trials, input: &mut impl BufRead, output: impl Write) -> Result<(), String> {
    let (request, mut reply): (Request, _) = isolate::request(input, output)?;
    if request.version != PROTOCOL {
        return Err(format!("the request has version {}, this worker speaks {PROTOCOL}", request.version));
    }
    if request.turns {
        let seat = Seat { input, reply, limit: request.time_limit_seconds, begun_by: None, watch: None };
        return take_turns(trials, &request, seat).map_err(|e| format!("cannot report: {e}"));
    }
    let _watch = isolate::end_when_forgotten(request.time_limit_seconds);
    measure(trials, &request, &mut |measurement| reply.say(measurement)).map_err(|e| format!("cannot report: {e}"))
}

/// The GPU with the kernel, and what its trials are made from.
struct Machine<'a> {
    request: &'a Request,
    trials: Trials,
    facts: GpuFacts,
    gpu: Gpu,
    nvml: Option<Nvml>,
    draws: Draws,
}

impl<'a> Machine<'a> {
    fn open(trials: Trials, request: &'a Request) -> Result<Self, DeviceError> {
        let facts = GpuFacts::probe()?;
        let gpu = Gpu::open(&request.library, &request.variant.name())?;
        let nvml = Nvml::open(&facts.pci_bus_id);
        Ok(Self { request, trials, facts, gpu, nvml, draws: Draws::new(request.seed) })
    }

    /// Times a shape; the work of a launch, and what was found.
    fn time(&self, shape: &Size, turns: Option<&mut dyn Turns>) -> Result<(super::Work, Finding), (Status, String)> {
        let Request { variant, plan, seed, .. } = self.request;
        let bench = Bench { draws: &self.draws, seed: *seed, multiprocessors: self.facts.multiprocessors };
        let Some(trial) = (self.trials)(variant, shape, bench) else {
            return Err((Status::Error, format!("`{shape}` is no size of this kernel")));
        };
        match experiment::run(&self.gpu, trial.as_ref(), self.facts.l2_bytes, plan, self.nvml.as_ref(), turns) {
            Ok(finding) => Ok((trial.work(), finding)),
            Err(failure) => Err(failure.into()),
        }
    }
}

fn measure(trials: Trials, request: &Request, report: &mut dyn FnMut(&Measurement) -> io::Result<()>) -> io::Result<()> {
    let without = |shape: &Size, status, message| Measurement::without(request.variant, shape.clone(), status, message);
    let machine = match Machine::open(trials, request) {
        Ok(machine) => machine,
        Err(error) => {
            return request.shapes.iter().try_for_each(|shape| report(&without(shape, Status::Error, error.to_string())));
        }
    };
    let ceiling = Ceiling::of(&machine.facts);
    for shape in &request.shapes {
        report(&match machine.time(shape, None) {
            Ok((work, finding)) => Measurement::of(request.variant, shape.clone(), work, finding, &ceiling, request.seed),
            Err((status, message)) => without(shape, status, message),
        })?;
    }
    Ok(())
}

/// The worker's place among the contenders: its orders and its answers.
struct Seat<'a, R, W> {
    input: &'a mut R,
    reply: Reply<W>,
    limit: f64,
    /// The order that began the point.
    begun_by: Option<Order>,
    /// Runs from an order to its answer.
    watch: Option<Watch>,
}

impl<R: BufRead, W: Write> Seat<'_, R, W> {
    /// Waits for the next order; `None` if the parent has no more.
    fn order(&mut self) -> Option<Order> {
        let mut line = String::new();
        self.input.read_line(&mut line).ok()?;
        let order = serde_json::from_str(&line).ok()?;
        self.watch = Some(isolate::end_when_forgotten(self.limit));
        Some(order)
    }

    fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        self.watch = None;
        self.reply.say(answer)
    }
}

impl<R: BufRead, W: Write> Turns for Seat<'_, R, W> {
    fn loaded(&mut self) -> bool {
        let Some(Order::Load(point)) = self.begun_by else { return true };
        self.answer(&Answer::Loaded).is_ok() && self.order() == Some(Order::Prepare(point))
    }

    fn ready(&mut self, launches: usize) {
        // A parent that is gone gives no order.
        let _ = self.answer(&Answer::Ready { launches });
    }

    fn wait(&mut self) -> bool {
        self.order() == Some(Order::Round)
    }

    fn timed(&mut self, round: &Round) {
        let _ = self.answer(&Answer::Round(round.clone()));
    }
}

fn take_turns<R: BufRead, W: Write>(trials: Trials, request: &Request, mut seat: Seat<'_, R, W>) -> io::Result<()> {
    seat.answer(&Answer::Hello { protocol: PROTOCOL, library: concat!("kgen ", env!("CARGO_PKG_VERSION")).to_owned() })?;
    let mut machine = None;
    while let Some(order) = seat.order() {
        let shape = match order {
            Order::Load(point) | Order::Prepare(point) => request.shapes.get(point),
            Order::Round | Order::Finish => None,
        };
        seat.begun_by = Some(order);
        let machine = machine.get_or_insert_with(|| Machine::open(trials, request).map_err(|error| error.to_string()));
        let found = match (shape, machine) {
            (None, _) => Err((Status::Error, format!("{order:?} is no order to a worker that has prepared nothing"))),
            (_, Err(error)) => Err((Status::Error, error.clone())),
            (Some(shape), Ok(machine)) => machine.time(shape, Some(&mut seat)),
        };
        seat.answer(&match found {
            Ok((_, finding)) => Answer::Finished(Facts {
                relative_error: finding.relative_error,
                graph: finding.graph,
                cold_l2: finding.cold_l2,
                memory_bytes: finding.memory_bytes,
                num_splits: finding.num_splits,
                passed: finding.passed,
            }),
            Err((status, message)) => Answer::Failed { status, message },
        })?;
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
        let plan = TimingPlan { warm_up_ms: 1.0, measure_ms: 1.0, rounds: 1, graph: false, counts: None };
        let library = PathBuf::from("no-such-library.so");
        Request {
            version: PROTOCOL,
            variant,
            library,
            shapes: vec![shape; 2],
            plan,
            seed: 1,
            time_limit_seconds: 5.0,
            turns: false,
        }
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
    fn in_turns_each_order_has_its_answer_and_the_end_of_the_orders_is_the_end() {
        let orders = [r#"{"prepare":1}"#, r#""round""#, r#"{"prepare":7}"#].join("\n");
        let input = format!("{}\n{orders}\n", isolate::test_line(&Request { turns: true, ..request() }).trim_end());
        let mut output = Vec::new();
        serve(crate::family::trial, &mut input.as_bytes(), &mut output).expect("it answers");
        let said = String::from_utf8(output).expect("JSON is text");
        let answers: Vec<Answer> =
            said.lines().map(|line| serde_json::from_str(&line["token ".len()..]).expect("an answer")).collect();
        assert!(matches!(&answers[0], Answer::Hello { protocol: PROTOCOL, .. }), "{answers:?}");
        let failed = |answer: &Answer| matches!(answer, Answer::Failed { status: Status::Error, .. });
        assert!(answers.len() == 4 && answers[1..].iter().all(failed), "{answers:?}");
    }

    #[test]
    fn a_request_of_another_version_is_refused() {
        let error = answer(&Request { version: 99, ..request() }).expect_err("refused");
        assert!(error.contains("version 99"), "{error}");
    }
}
